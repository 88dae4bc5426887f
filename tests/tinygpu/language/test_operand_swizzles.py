"""Narrow swizzles of operands are left out where wider ones are legal: never the better ones, for every machine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tinygpu.constraints.condition import conjuncts
from tinygpu.constraints.constraint import Constraint
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.batched_matmul_hopper import BatchedMatmulHopper
from tinygpu.machines.grouped_matmul_blackwell import GroupedMatmulBlackwell
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx, MatmulBlackwellNvfp4
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces import Part, Space
from tinygpu.spaces.build import MachineSpace, build_space

RULE = "swizzle widest"
PRODUCTS: tuple[tuple[type[Machine], str, tuple[str, ...]], ...] = (
    (MatmulBlackwell, "b200", ("bf16", "e4m3", "tf32", "s8")),
    (MatmulHopper, "h100", ("f16", "e4m3", "tf32")),
    (MatmulBlackwellMx, "b200", ("e4m3", "e2m1")),
    (MatmulBlackwellNvfp4, "b200", ("e2m1",)),
)


def drawn(seed: int) -> MachineSpace:
    """A space of random sizes, from a handful of rows to thousands, with the factors of any order that is offered."""
    rng = np.random.default_rng(seed)
    machine, gpu, kinds = PRODUCTS[seed % len(PRODUCTS)]
    kind = str(rng.choice(kinds))
    sizes = {name: 32 * int(2 ** rng.uniform(0, 8)) for name in ("m", "n", "k")}
    both = machine in (MatmulBlackwell, MatmulHopper) and kind in ("bf16", "f16")
    majors = {name: str(rng.choice(("row", "col"))) for name in ("a", "b")} if both else {}
    return build_space(machine, machine.problem(**sizes, dtypes={"a": kind}, majors=majors), device(gpu))


def rule(part: Part) -> Constraint:
    (found,) = (c for c in part.constraints if c.name == RULE)
    return found


def left_out(part: Part) -> Space:
    """What this rule alone removes."""
    others = tuple(c for c in part.constraints if c.name != RULE)
    broken = replace(rule(part), name=f"not {RULE}", condition=~rule(part).condition)
    return Space("narrow", (Part(part.fixed, part.axes, (*others, broken), part.environment),))


def cases(seed: int) -> Iterator[tuple[MachineSpace, Part, Space]]:
    """Parts of spaces, with what the rule removes there, where it removes something."""
    for attempt in itertools.count():
        space = drawn(100 * attempt + seed)
        for part in np.random.default_rng(seed).permutation(np.array(space.space.parts, dtype=object)):
            narrow = left_out(part)
            if narrow.size:
                yield space, part, narrow


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(24))
def test_each_has_a_wider_one_that_is_never_predicted_to_be_slower(seed: int) -> None:
    """Point by point: so that the best of what is left out is nowhere better than the best of what is left."""
    rng = np.random.default_rng(seed)
    for space, part, narrow in itertools.islice(cases(seed), 2):
        objective = PredictedTime(space)
        legal = [c for constraint in part.constraints if constraint.kind == "legality"
                 for c in conjuncts(constraint.condition)]  # fmt: skip
        for point in narrow.sample(min(40, narrow.size), rng):
            wide = {**point, "swizzle": 2 * int(point["swizzle"])}
            values = {**part.constants(), **{a.name: int(wide[a.name]) for a in part.axes}}
            assert all(condition.holds(values) for condition in legal), wide
            fast, slow = (float(objective.prediction(p).seconds) for p in (wide, point))
            assert fast <= slow * (1 + 1e-12), (dict(point), slow, fast)


@pytest.mark.parametrize("machine", [MatmulHopper, MatmulBlackwell, GroupedMatmulBlackwell, BatchedMatmulHopper])
def test_products_of_tensor_copies_have_the_rule(machine: type[Machine]) -> None:
    follow = {"bounds"}
    sizes = {name: 4 if name in ("batch", "groups") else 1024 for name in machine.dim_names() if name not in follow}
    space = build_space(machine, machine.problem(**sizes), device("h100" if "Hopper" in machine.__name__ else "b200"))
    assert all(any(c.name == RULE for c in part.constraints) for part in space.space.parts)


def test_what_threads_copy_or_read_has_no_such_rule() -> None:
    """Pieces that threads store meet in other banks under another width; a machine without tensor copies has none."""
    hopper = build_space(MatmulHopper, MatmulHopper.problem(m=512, n=512, k=512), device("h100"))
    names = {c.name for part in hopper.space.parts for c in part.constraints}
    assert "swizzle_c widest" not in names
    ampere = build_space(MatmulAmpere, MatmulAmpere.problem(m=512, n=512, k=512), device("a100"))
    assert not {c.name for part in ampere.space.parts for c in part.constraints if c.name.startswith("swizzle")}


def test_operands_of_attention_have_the_rule_too() -> None:
    problem = AttentionHopper.problem(b=1, h=1, g=1, s=512, t=512, d=128)
    space = build_space(AttentionHopper, problem, device("h100"))
    assert all(any(c.name == RULE for c in part.constraints) for part in space.space.parts)
