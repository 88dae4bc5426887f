"""Blocks nested at random: what is declared lowers, runs and is right."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

sys.path.insert(0, str(Path(__file__).parent))
from nested_blocks import COLUMNS, WHO, block, machine

# Of machines whose blocks are drawn from those before rings stood side by side, and from those since.
DRAWN, SIDE_BY_SIDE = range(400), range(1000, 1200)


def drawn(seed: int, deepest: int) -> tuple[str, MachineSpace]:
    """(what is nested, the space of its machine)."""
    rng = np.random.default_rng(seed)
    kind = "side" if seed in SIDE_BY_SIDE else "ring"
    root, between_roles = block(rng, int(rng.integers(1, deepest + 1)), kind), bool(rng.integers(2))
    made = machine(root, between_roles, int(rng.integers(1, 3)), bool(rng.integers(2)))
    problem = made.problem(m=19, k=int(rng.choice([16, 64, 100])), w=32)
    return f"{root}, between roles: {between_roles}", build_space(made, problem, device("h100"))


def ended(seed: int) -> str:
    """ "right", where the kernels of a seed's machine are."""
    what, space = drawn(seed, 4 if 100 <= seed < 1000 else 3)
    made, problem, rng = space.machine, space.problem, np.random.default_rng(seed)
    for stages in (1, 3):
        (point,) = space.space.restrict({"stages": stages}).sample(1, rng)
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, made, problem, orders=("late", "random"), random_inputs=False)
        assert found.passed, f"seed {seed}: {what}, {stages} stages\n{found}"
    return "right"


def test_windows_of_registers_that_some_threads_have_nothing_of_are_refused() -> None:
    sentence = (
        "Narrow.program: it can never work, whatever the parameters: every thread has the same part of each window of "
        "%v1"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}\nat "):

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


def cases(quick: int, numbers: range) -> list[Any]:
    """Some in the quick suite, and all in the long run."""
    return [pytest.param(s, marks=pytest.mark.slow) if s >= numbers[0] + quick else s for s in numbers]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [*cases(2, DRAWN[:200]), *cases(1, SIDE_BY_SIDE)])
@pytest.mark.end_to_end
def test_blocks_nested_at_random_are_right(seed: int) -> None:
    """Rings in loops, in slots of others, beside other statements, and side by side in one loop."""
    assert ended(seed) == "right"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", [*cases(6, DRAWN[200:]), *cases(4, SIDE_BY_SIDE)])
@pytest.mark.end_to_end
def test_what_is_nested_is_run_by_its_meanings_and_simulated(seed: int) -> None:
    what, space = drawn(seed, 4)
    rng = np.random.default_rng(seed)
    for stages in (1, 3):
        (point,) = space.space.restrict({"stages": stages}).sample(1, rng)
        x = rng.integers(-3, 4, (19, space.problem.dim["k"])).astype(np.float32)
        got, wanted = space.program(point).run({"x": x}, sizes={"w": COLUMNS}), space.machine.reference(x=x)
        for name in wanted:
            assert np.array_equal(got[name], wanted[name][:, :COLUMNS]), f"seed {seed}: {what}, {stages} stages"
        assert np.isfinite(Simulator(space).simulate(point).seconds)


class Running(Machine):
    """y = the sums of the first tiles of x, one tile after another, each through a slot that the sum before it fills"""

    m, k, w = Dim(), Dim(), Dim()
    x = Input("f32", m, k)
    y = Output("f32", m, w)
    stages = Param(1, 2, 3)
    ld, get, put, st, add = isa.LdGlobal(1), isa.LdShared(1), isa.StShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (8, COLUMNS)
        with (
            p.grid((self.m, 8)) as (i,),
            p.pipeline("ring", self.stages, x=p.smem("f32", shape)) as ring,
            p.role("all", warps=1),
        ):
            total = p.full(WHO, "f32")
            with p.loop(self.k, step=COLUMNS) as r:
                with ring.produce() as s:
                    p.store(self.put, s.x, total)
                x = p.load(self.ld, self.x.tile(i, r, shape=shape), WHO)
                with ring.consume() as s:
                    p.apply(self.add, x, p.load(self.get, s.x, WHO), into=total)
            p.store(self.st, self.y.tile(i, 0, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        padded = np.pad(x, ((0, 0), (0, -x.shape[1] % COLUMNS)))
        return padded.reshape(x.shape[0], -1, COLUMNS).sum(axis=1)


@pytest.mark.parametrize("stages", [1, 3])
def test_what_a_round_changes_is_not_filled_ahead_of_it(stages: int) -> None:
    problem = Running.problem(m=11, k=100, w=COLUMNS)
    space = build_space(Running, problem, device("h100"))
    (point,) = space.space.restrict({"stages": stages}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Running, problem, orders=("late",), random_inputs=False)
    assert found.passed, found
