"""Blocks nested at random: what is declared lowers, runs and is right, or is refused in a sentence."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

sys.path.insert(0, str(Path(__file__).parent))
from nested_blocks import COLUMNS, WHO, block, machine

SENTENCE = (
    r"Nested\.program: a loop that produces and consumes '(ring|here)\d+' does nothing beside; move the other "
    r"statements into one of the two"
)


def drawn(seed: int, deepest: int) -> tuple[str, MachineSpace]:
    """(what is nested, the space of its machine); raises DeclarationError where it is refused."""
    rng = np.random.default_rng(seed)
    root, between_roles = block(rng, int(rng.integers(1, deepest + 1)), "ring"), bool(rng.integers(2))
    made = machine(root, between_roles, int(rng.integers(1, 3)), bool(rng.integers(2)))
    problem = made.problem(m=19, k=int(rng.choice([16, 64, 100])), w=32)
    return f"{root}, between roles: {between_roles}", build_space(made, problem, device("h100"))


def ended(seed: int) -> str:
    """ "right", or the sentence with which the machine of this seed is refused."""
    try:
        what, space = drawn(seed, 3 if seed < 100 else 4)
    except DeclarationError as refused:
        return str(refused)
    made, problem, rng = space.machine, space.problem, np.random.default_rng(seed)
    for stages in (1, 3):
        (point,) = space.space.restrict({"stages": stages}).sample(1, rng)
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, made, problem, orders=("late", "random"), random_inputs=False)
        assert found.passed, f"seed {seed}: {what}, {stages} stages\n{found}"
    return "right"


def test_windows_of_registers_are_refused() -> None:
    sentence = (
        "Narrow.program: %v1 is 8 x 32 values in registers, and a window of 8 x 16 of them has no partition; load the "
        "window from memory under a partition of its own"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}$"):

        class Narrow(Machine):
            """y = x"""

            m, n = Dim(), Dim()
            x = Input("f32", m, n)
            y = Output("f32", m, n)
            ld, st = isa.LdGlobal(1), isa.StGlobal(1)

            def program(self, p: Any) -> None:
                with p.grid((self.m, 8), (self.n, 32)) as (i, j), p.role("all", warps=1):
                    x = p.load(self.ld, self.x.tile(i, j, shape=(8, 32)), WHO)
                    p.store(self.st, self.y.tile(i, j, shape=(8, 16)), x.window((0, 0), (8, 16)))

            @staticmethod
            def reference(x: Any) -> Any:
                return x


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.slow) if s > 1 else s for s in range(200)])
def test_blocks_nested_at_random_are_right_or_refused(seed: int) -> None:
    end = ended(seed)
    assert end == "right" or re.fullmatch(SENTENCE, end), end


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.slow) if s > 205 else s for s in range(200, 400)])
def test_what_is_nested_is_run_by_its_meanings_and_simulated(seed: int) -> None:
    try:
        what, space = drawn(seed, 4)
    except DeclarationError as refused:
        if re.fullmatch(SENTENCE, str(refused)):
            return
        raise
    rng = np.random.default_rng(seed)
    for stages in (1, 3):
        (point,) = space.space.restrict({"stages": stages}).sample(1, rng)
        x = rng.integers(-3, 4, (19, space.problem.dim["k"])).astype(np.float32)
        got, wanted = space.program(point).run({"x": x}, sizes={"w": COLUMNS}), space.machine.reference(x=x)
        for name in wanted:
            assert np.array_equal(got[name], wanted[name][:, :COLUMNS]), f"seed {seed}: {what}, {stages} stages"
        assert np.isfinite(Simulator(space).simulate(point).seconds)
