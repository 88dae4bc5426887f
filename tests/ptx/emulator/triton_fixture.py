"""Kernels that Triton compiled (triton_kernels/fixtures): their facts, and how one is launched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.ptx.emulator import DeviceBuffer, Report, emulate

FOLDER = Path(__file__).parent / "triton_kernels" / "fixtures"
# What Triton leaves out in all its kernels for a target, and its older versions besides (see docs/emulator.md).
_OVER_GENERIC = "asynchronous write over generic accesses"
ADVISORIES: dict[int, set[str]] = {
    100: {"no tcgen05.fence::after_thread_sync", "no tcgen05.fence::before_thread_sync",
          "tcgen05.ld without its wait", _OVER_GENERIC},
}
OLD_ADVISORIES = {
    "cp.async before the asynchronous proxy", "matrix descriptor without its constant bits",
    "shared offset as a generic address", _OVER_GENERIC,
}  # fmt: skip
Order = Literal["late", "early", "random"]
Values = NDArray[Any]
DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
    "u8": np.uint8, "u32": np.uint32, "u64": np.uint64,
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "fp64": np.float64,
    "fp8e4nv": ml_dtypes.float8_e4m3fn, "fp8e5": ml_dtypes.float8_e5m2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fixture:
    """One compiled kernel.

    name           of the file, without its ending
    text           PTX
    shared_bytes   dynamic shared memory
    threads        per CTA
    ctas           per cluster
    scratch_bytes  of global memory that each CTA wants for itself
    pointers       to scratch memory behind the kernel's own arguments: 0, 1 (that of the CTAs) or 2 (and a profiler's)
    types          Triton's type of each argument that is not a constant
    constants      arguments that were constant when it was compiled
    descriptors    what the host must know to make the tensor maps that it takes
    """

    name: str
    text: str
    shared_bytes: int
    threads: int
    ctas: int
    scratch_bytes: int
    pointers: int
    types: dict[str, str]
    constants: dict[str, Any]
    descriptors: tuple[dict[str, Any], ...]

    def __str__(self) -> str:
        return self.name

    @property
    def target(self) -> int:
        """Compute capability: 80, 90, 100."""
        return int(self.name.rsplit("_", 1)[1])

    def dtype(self, argument: str) -> Any:
        """NumPy's type of the elements that a pointer points to."""
        return DTYPES[self.types[argument].removeprefix("*")]


def load(path: Path) -> Fixture:
    text = path.read_text()
    facts = json.loads(text.split("\n", 1)[0].removeprefix("// "))
    return Fixture(
        path.stem, text, facts["shared"], 32 * facts["warps"], facts["ctas"], facts["scratch"],
        facts["pointers"], facts["types"], facts["constants"], tuple(facts["descriptors"]),
    )  # fmt: skip


def fixtures(kernel: str) -> list[Fixture]:
    """Every way in which `kernel` was compiled."""
    found = [path for path in sorted(FOLDER.glob(f"{kernel}*.ptx")) if path.stem.split(".")[0].split("-")[0] == kernel]
    if not found:
        raise LookupError(f"no fixture of {kernel}")
    return [load(path) for path in found]


def cases(*kernels: str) -> pytest.MarkDecorator:
    """Every way in which these kernels were compiled, as `fixture`."""
    return pytest.mark.parametrize("fixture", [f for kernel in kernels for f in fixtures(kernel)], ids=str)


# Work that lands at its issue is the mildest of the orders.
orders = pytest.mark.parametrize("order", ["late", "random", pytest.param("early", marks=pytest.mark.slow)])


def launch(
    fixture: Fixture, grid: int | Sequence[int], *args: Any, order: Order = "late", buffers: Sequence[DeviceBuffer] = ()
) -> Report:
    """Run a fixture; nothing may be found in it but what Triton does in all kernels for its target.

    buffers  those that the kernel reaches through pointers in memory
    """
    report = launch_unchecked(fixture, grid, *args, order=order, buffers=buffers)
    assert report.faults == (), "\n".join(str(fault) for fault in report.faults[:3])
    known = ADVISORIES.get(fixture.target, set()) | (OLD_ADVISORIES if "-old" in fixture.name else set())
    unknown = [a for a in report.advisories if a.rule not in known]
    assert unknown == [], "\n".join(str(a) for a in unknown[:3])
    return report


def launch_unchecked(
    fixture: Fixture, grid: int | Sequence[int], *args: Any, order: Order = "late", buffers: Sequence[DeviceBuffer] = ()
) -> Report:
    """Run a fixture with Triton's scratch memory and cluster; whatever is found is in the report."""
    x, *rest = (grid,) if isinstance(grid, int) else tuple(grid)
    whole = (x * fixture.ctas, *rest)
    scratch: Any = 0
    if fixture.scratch_bytes:
        scratch = np.zeros(int(np.prod(whole)) * fixture.scratch_bytes, np.uint8)
    return emulate(
        fixture.text, grid=whole, block=fixture.threads, cluster=fixture.ctas, dynamic_smem=fixture.shared_bytes,
        args=[*args, *(scratch, 0)[: fixture.pointers]], buffers=buffers, order=order, seed=len(fixture.name),
        check="collect",
    )  # fmt: skip
