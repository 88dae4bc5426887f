"""Sizes are positive and windows lie within their buffers: told of what is declared, pruned where parameters decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import (
    DeclarationError,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    blocked,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def staged(
    stages: Any = 1, begin: Any = 0, extent: Any = 32, rounds: Any = 4, step: Any = 32, run_time: bool = False,
    cluster: Any = 1,
) -> type[Machine]:  # fmt: skip
    """y = x, by pieces of a slot of 128 elements."""

    class Staged(Machine):
        """y = x"""

        n = Dim()
        x, y = Input("f32", n), Output("f32", n)
        s, w, v = Param(0, 1, 2), Param(0, 2, 4), Param(32, 48)
        ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

        def program(self, p: Any) -> None:
            def of(size: Any) -> Any:
                return size(self) if callable(size) else size

            who, part = blocked((128,), threads=32), blocked((of(extent),), threads=32)
            with (
                p.grid((self.n, 128), cluster=of(cluster)) as (i,),
                p.pipeline("ring", of(stages), x=p.smem("f32", (128,))) as ring,
                p.role("all", warps=1),
            ):
                with ring.produce() as s:
                    p.store(self.put, s.x, p.load(self.ld, self.x.tile(i, shape=(128,)), who))
                with ring.consume() as s, (p.loop if run_time else p.unroll)(of(rounds)) as k:
                    at = of(begin) + k * of(step)
                    piece = p.load(self.get, s.x.window((at,), (of(extent),)), part)
                    p.store(self.st, self.y.tile(i + at, shape=(of(extent),)), piece)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Staged


LIE = "the windows of ring.x along axis 0,"


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"stages": 0}, "the stages of 'ring' has sizes of 1 or more, and one is 0"),
        ({"cluster": 0}, "the cluster along n has sizes of 1 or more, and one is 0"),
        ({"begin": 100, "rounds": 1}, f"{LIE} 32 from 32*u2 + 100 on, lie within its 128"),
        ({"begin": 1}, f"{LIE} 32 from 32*u2 + 1 on, lie within its 128"),
        ({"rounds": 5}, f"{LIE} 32 from 32*u2 on, lie within its 128"),
        ({"rounds": 5, "run_time": True}, f"{LIE} 32 from 32*i2 on, lie within its 128"),
    ],
)
def test_sizes_are_positive_and_windows_lie_within_their_buffers(made: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        staged(**made)
    assert str(refused.value) == f"Staged.program: {sentence}"


@pytest.mark.parametrize(
    ("made", "out"),
    [
        ({"stages": lambda m: m.s}, {"s": 0}),
        ({"cluster": lambda m: m.s}, {"s": 0}),
        ({"step": lambda m: m.v}, {"v": 48}),
        ({"rounds": lambda m: m.w, "step": lambda m: m.v, "run_time": True}, {"w": 4, "v": 48}),
    ],
)
@pytest.mark.parametrize("dims", [{"n": 128}, {"n": 300}])
def test_parameters_that_break_a_size_or_a_window_are_no_candidates(
    made: dict[str, Any], out: dict[str, int], dims: dict[str, int]
) -> None:
    machine = staged(**made)
    space = build_space(machine, machine.problem(**dims), device("h100"))
    points = [dict(point) for point in space.space.sample(30, np.random.default_rng(1))]
    assert points
    assert not any(out.items() <= point.items() for point in points)
    for point in {tuple(sorted(p.items())): p for p in points}.values():
        kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
        covers = point.get("w", 4) * point.get("v", 32) >= 128  # else parts of y are left out, which is no matter here
        assert not covers or verify(kernel, machine, space.problem, orders=("late",)).passed
