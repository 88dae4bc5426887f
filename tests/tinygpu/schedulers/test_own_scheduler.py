"""A tile scheduler of one's own: written in one class, it is declared, listed, saved, lowered, verified and run."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.schedulers.run_time import RunTime
from tinygpu.schedulers.scheduler import TileScheduler, Walk
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WHO = blocked((8, 32), threads=32, across=32)


@dataclass(frozen=True, slots=True, eq=False)
class Neighbours(TileScheduler):
    """Every cluster takes tiles that follow each other: as many as all others, but for the last."""

    @property
    def title(self) -> str:
        return " of neighbours"

    @property
    def persistent(self) -> bool:
        return True

    def walk(self, run: RunTime, share: tuple[int, int]) -> Walk:
        rest, every = share
        tiles, clusters = run.tiles(), run.launched()
        each = run.div(run.add(tiles, run.sub(clusters, 1)), clusters)
        begin = run.mul(run.own(), each)
        return Walk(run.add(begin, rest), every, run.minimum(run.add(begin, each), tiles))


def machine(scheduler: Any, **grid: Any) -> type[Machine]:
    class Doubled(Machine):
        """y = 2 x, brought by TMA"""

        m, w = Dim(), Dim()
        x = Input("f32", m, w)
        y = Output("f32", m, w)
        stages = Param(1, 2)
        bring, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

        def program(self, p: Any) -> None:
            slot = p.smem("f32", (8, 32), swizzle=128)
            with (
                p.grid((self.m, 8), (self.w, 32), scheduler=scheduler, **grid) as (i, j),
                p.pipeline("ring", self.stages, x=slot) as ring,
            ):
                with p.role("bring", warps=1), ring.produce() as s:
                    p.copy(self.bring, self.x.tile(i, j, shape=(8, 32)), s.x)
                with p.role("keep", warps=1, first=1):
                    with ring.consume() as s:
                        x = p.load(self.ld, s.x, WHO)
                    p.store(self.st, self.y.tile(i, j, shape=(8, 32)), p.apply(self.add, x, x))

        @staticmethod
        def reference(x: Any) -> Any:
            return x + x

    return Doubled


@pytest.mark.parametrize("stages", [1, 2])
def test_a_kind_of_ones_own_is_carried_out(stages: int) -> None:
    made = machine(Neighbours())
    problem = made.problem(m=37, w=64)
    space = build_space(made, problem, device("h100"))
    (point,) = space.space.restrict({"stages": stages}).sample(1, np.random.default_rng(0))
    program = space.program(point)
    assert "clusters of 1 x 1 of neighbours" in str(program)
    assert str(load_program(json.loads(json.dumps(save_program(program))))) == str(program)
    kernel = build(program, problem, point, SolverCache()).kernel
    assert kernel.persistent
    found = verify(kernel, made, problem, orders=("late", "random"), random_inputs=False)
    assert found.passed, found
    x = np.random.default_rng(1).standard_normal((37, 64)).astype(np.float32)
    for ctas in (1, 3, 10):
        assert np.array_equal(program.run({"x": x}, ctas=ctas)["y"], x + x)


@pytest.mark.parametrize(
    ("scheduler", "grid", "sentence"),
    [
        ("stream-K", {}, "p.grid: scheduler must be a tile scheduler, not 'stream-K'"),
        (
            Neighbours(),
            {"persistent": True},
            "p.grid takes a scheduler, here Neighbours, or persistent, slices, stream_k and launch_control; leave out "
            "the one or the others",
        ),
    ],
)
def test_what_is_no_scheduler_or_one_too_many_is_refused(
    scheduler: Any, grid: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(DeclarationError, match=f"^Doubled.program: {re.escape(sentence)}$"):
        machine(scheduler, **grid)
