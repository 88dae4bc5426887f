"""tcgen05.mma.ws in a user's machine: 32, 64 and 128 rows of every kind, over rings of sums; kernels that are wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import TMEM, Choice, Dim, Input, Machine, Output, Param
from tinygpu.machines.operands import MORE_FACTORS, MORE_KINDS, of, stage
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

B200 = device("b200")


class FewRows(Machine):
    """c = a @ b of tiles of few rows, whose sums fill all lanes"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(MORE_KINDS, m, k, majors=("row", "col"))
    b = Input(of(MORE_FACTORS, *MORE_KINDS), k, n, majors=("row", "col"), follows=a)
    c = Output({t: ("s32" if t == "s8" else "f32",) for t in MORE_KINDS}, m, n, follows=a)
    bn, stages, tiles = Param(32, 64, 96, 128, 256), Param(2, 3), Param(1, 2)
    swizzle_a, swizzle_b = Param(32, 64, 128), Param(32, 64, 128)
    few, some, many = isa.Tcgen05MmaWs(bn, 32), isa.Tcgen05MmaWs(bn, 64), isa.Tcgen05MmaWs(bn, 128)
    rows = Choice("32", "64", "128")
    tma, ld, st = isa.TmaLoad(), isa.Tcgen05Ld(), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        mma = {"32": self.few, "64": self.some, "128": self.many}[self.rows]
        bm, bn, bk, types = int(self.rows), self.bn, 128, (self.a.dtype, self.b.dtype)
        depth, path = mma.shape(*types)[2], mma.path(bn)
        a = stage(p, mma, types, 0, (bm, bk), self.a.contiguous, self.swizzle_a)
        b = stage(p, mma, types, 1, (bk, bn), self.b.contiguous, self.swizzle_b)
        who = self.ld.held((bm, bn), path)
        with (
            p.grid((self.n, bn), (self.m, bm), persistent=True) as (j, i),
            p.pipeline("ring", self.stages, a=a, b=b) as ring,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, mma.accumulator(*types), (bm, bn), path=path)) as sums,
        ):
            with p.role("bring", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)
            with p.role("multiply", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, bn)))
            with p.role("keep", warps=4, first=4), sums.consume() as t:
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), p.load(self.ld, t.c, who))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


@cache
def made(rows: str, kind: str, seed: int) -> tuple[Any, Kernel]:
    other = MORE_FACTORS[kind][seed % len(MORE_FACTORS[kind])]
    a, b = ("row" if dtype(t).bits < 8 else ("row", "col")[seed // n % 2] for n, t in ((1, kind), (2, other)))
    b = "col" if dtype(other).bits < 8 else b
    problem = FewRows.problem(m=144, n=160, k=384, dtypes={"a": kind, "b": other}, majors={"a": a, "b": b})
    space = build_space(FewRows, problem, B200)
    (point,) = space.space.restrict({"rows": rows}).sample(1, np.random.default_rng(seed))
    assert point["bn"] in (64, 128, 256)
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.parametrize("number", range(len(MORE_KINDS)))
@pytest.mark.parametrize("rows", FewRows.rows.options)
@pytest.mark.sampled(9)
@pytest.mark.end_to_end
def test_random_candidates_of_every_kind_are_right_and_assemble(rows: str, number: int) -> None:
    problem, kernel = made(rows, MORE_KINDS[number], number)
    found = verify(kernel, FewRows, problem, orders=("late",))
    assert found.passed, f"{problem}\n{found}"
    assert "tcgen05.mma.ws.cta_group::1" in kernel.ptx
    assert assemble(kernel.ptx, kernel.assembled_for("sm_100")).spill_store_bytes == 0


@pytest.mark.parametrize(("old", "new"), [("tcgen05.mma.ws", "tcgen05.mma"), (", 0x02", ", 0x04")])
def test_wrong_kernels_are_refused(old: str, new: str) -> None:
    problem, kernel = made("32", "f16", 0)
    assert old in kernel.ptx
    wrong = replace(kernel, ptx=kernel.ptx.replace(old, new))
    assert not verify(wrong, FewRows, problem, orders=("late",)).passed


def test_rows_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError) as error:
        isa.Tcgen05MmaWs(64, 48)
    assert str(error.value) == "tcgen05.mma.ws has 32, 64 or 128 rows, not 48"


def test_columns_that_there_are_not_are_refused_by_their_rule() -> None:
    problem, _ = made("32", "f16", 0)
    violated = build_space(FewRows, problem, B200).space.explain({"rows": "32", "bn": 96})
    assert "an instruction has 64, 128 or 256 columns" in " ".join(v.sentence for v in violated)
