"""Element-wise machines that the call times beside the shipped ones: chains for which PyTorch has one kernel."""

from __future__ import annotations

from tinygpu.api.machines import FAMILIES, SHIPPED, Family, family
from tinygpu.language import gelu
from tinygpu.language.machine import Machine
from tinygpu.machines.elementwise import elementwise

CHAINS: dict[str, type[Machine]] = {
    "gelu": elementwise(
        "Gelu", gelu, inputs={"x": ("bf16", ("n",))}, output=("bf16", ("n",)), exact=False, approximation=2.0**-10,
    ),
    "add": elementwise(
        "Add", lambda x, z: x + z, inputs={"x": ("f16", ("n",)), "z": ("f16", ("n",))}, output=("f16", ("n",)),
    ),
}  # fmt: skip


def family_of(name: str) -> Family:
    """A chain of ours, or what ships under that name."""
    return Family(name, (CHAINS[name],)) if name in CHAINS else family(name)


def without_comparison(names: set[str]) -> list[str]:
    """Shipped machines that take no part: neither one of these, nor of a family among them."""
    covered = names | {m for n in names for m in FAMILIES.get(n, ())}
    return [name for name in SHIPPED if name not in covered]
