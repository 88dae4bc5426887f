"""A round of a loop that stands behind it in one role, and in its loop in another: as often, whatever k is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Tracer
from tinygpu.language.parameters import DeclarationError
from tinygpu.machines.matmul_basic_hopper import MatmulBasicHopper
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Peeled(MatmulBasicHopper):
    """c = a @ b: what multiplies has its last round behind its loop, what brings has it in its own"""

    behind = 1

    def program(self, p: Tracer) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (bm, bn), (1, 1))
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4):
                acc = p.full(t.c, "f32")

                def multiply() -> None:
                    with ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                        p.multiply(self.wgmma, acc, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))

                with p.loop(self.k - self.behind * bk, step=bk):
                    multiply()
                for _ in range(self.behind):
                    multiply()
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), acc)
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)


@pytest.mark.parametrize("k", [8, 32, 40, 200])
def test_products_of_fewer_and_more_rounds_than_one_are_right(k: int) -> None:
    problem = Peeled.problem(m=72, n=40, k=k)
    space = build_space(Peeled, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(k))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Peeled, problem)
    assert found.passed, str(found)


@pytest.mark.parametrize(("behind", "consumed"), [(0, ""), (2, "(max(k - 2*bk, 0) + bk - 1) // bk + 2")])
def test_two_rounds_behind_the_loop_are_more_than_short_products_have(behind: int, consumed: str) -> None:
    """Of k = 1 there is one."""

    def declared() -> Any:
        return type("Behind", (Peeled,), {"behind": behind}).problem(m=64, n=64, k=64)

    if not consumed:
        assert declared() is not None
        return
    with pytest.raises(DeclarationError) as refused:
        declared()
    assert str(refused.value).endswith(
        "Behind.program: pipeline 'ring' is produced (k + bk - 1) // bk times a tile by producer, and consumed "
        f"{consumed} times by consumer"
    )
