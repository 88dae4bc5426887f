"""The law of plans: steps wired at random make what NumPy makes, one after another; wrong wiring is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_plans import Sketch, Wire, sketch

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Plan
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare_arrays
from tinygpu.ptx.verification.run_programs import run_programs
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.plan_space import PlanSpace, build_plan_space

# One, primes, and one more and one less than tiles.
SIZES = (1, 2, 3, 7, 31, 33, 65, 127, 129)
GPUS = ("a100", "rtx-4090", "h100", "rtx-5090")
QUICK = (0, 3, 5)
CACHE = SolverCache()


def space_of(plan: type[Plan], rng: np.random.Generator) -> PlanSpace:
    dims = {name: int(rng.choice(SIZES)) for name in plan.dim_names()}
    return build_plan_space(plan, plan.problem(**dims), device(str(rng.choice(GPUS))))


def check(seed: int) -> None:
    """A candidate of a random plan: its programs and its kernels make what NumPy makes."""
    rng = np.random.default_rng(seed)
    drawn = sketch(rng)
    assert drawn.fault() == "", drawn
    space = space_of(drawn.declared(), rng)
    (point,) = space.sample(1, seed)
    parts = [build(c.space.program(c.point), c.space.problem, c.point, CACHE) for c in space.candidates(point)]
    kernels = Kernels.of_plan(space.machine, space.problem, point, tuple(part.kernel for part in parts))
    trial = draw(kernels.machine, kernels.problem, "integers", seed)
    made = run_programs(kernels, [part.program for part in parts], trial.arrays, trial.scalars)
    assert not compare_arrays(trial, made, "late").wrong, (drawn, point)
    found = verify_kernels(kernels, orders=("late", "early")[seed % 2 :][:1], seed=seed)
    assert found.passed, f"{drawn}\n{space.space.name}: {point}\n{found}"


@pytest.mark.parametrize("seed", QUICK)
def test_random_plans_make_what_numpy_makes(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 180))
def test_many_random_plans_make_what_numpy_makes(seed: int) -> None:
    check(seed)


def edits(right: Sketch, rng: np.random.Generator) -> Sketch:
    """The same steps wired otherwise: another order, a step less, a tensor in another's place."""
    wires = list(right.wires)
    kind = int(rng.integers(4))
    at = int(rng.integers(len(wires)))
    if kind == 0:
        wires.insert(int(rng.integers(len(wires))), wires.pop(at))
    elif kind == 1 and len(wires) > 1:
        wires.pop(at)
    else:
        wire = wires[at]
        own = str(rng.choice(list(wire.tensors)))
        like = [n for n, k in right.kinds.items() if k == right.kinds[wire.tensors[own]]]
        wires[at] = Wire(wire.name, wire.machine, {**wire.tensors, own: str(rng.choice(like))})
    return replace(right, wires=tuple(wires))


def wrong_wiring(seeds: range) -> dict[str, int]:
    """Every edited plan is declared where its wiring is right, and refused where it is not; how often each was."""
    seen: dict[str, int] = {}
    for seed in seeds:
        rng = np.random.default_rng([seed, 1])
        edited = edits(sketch(rng), rng)
        fault = edited.fault()
        seen[fault] = seen.get(fault, 0) + 1
        if fault:
            with pytest.raises(DeclarationError):
                edited.declared()
        else:
            assert issubclass(edited.declared(), Plan)
    return seen


def test_wrong_wiring_is_refused_and_no_other() -> None:
    seen = wrong_wiring(range(40))
    assert {"", "unwritten", "left"} <= seen.keys(), seen


@pytest.mark.slow
def test_much_wrong_wiring_is_refused_and_no_other() -> None:
    seen = wrong_wiring(range(1000, 1600))
    assert {"", "unwritten", "left", "race", "input", "lost"} <= seen.keys(), seen
