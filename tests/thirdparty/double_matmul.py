"""Matmul in double precision on tensor cores, by a product of fragments that the library does not have."""

from dataclasses import dataclass
from typing import Any

from tinygpu.language import Dim, Fragment, Input, Layout, Machine, MatrixMultiply, Output, Param, blocked, dtype
from tinygpu.ptx import isa

# PTX ISA, matrix fragments of mma.m8n8k4 with .f64: lane = 4 g + t holds row g of A and C and column g of B, t along k.
A, B = Layout.parse("((4,8),1):((1@1,1@0),0)"), Layout.parse("((4,8),1):((1@0,1@1),0)")
C = Layout.parse("((4,8),2):((2@1,1@0),1@1)")


@dataclass(frozen=True, eq=False)
class MmaDouble(MatrixMultiply):
    """mma.sync.aligned.m8n8k4.row.col.f64: c += a @ b, rounded once per step of k."""

    source = "PTX ISA, mma.sync; matrix fragments of mma.m8n8k4 with .f64"
    label = "mma.f64"

    def shape(self, a: Any, b: Any) -> tuple[int, int, int]:
        return 8, 8, 4

    def fragments(self, a: Any, b: Any) -> tuple[Fragment, Fragment, Fragment]:
        return A, B, C

    def accumulator(self, a: Any, b: Any) -> Any:
        if (a.name, b.name) != ("f64", "f64"):
            raise TypeError(f"mma.f64 multiplies f64 by f64, not {a} by {b}")
        return dtype("f64")

    def text(self, a: Any, b: Any) -> str:
        return "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"


class MatmulDouble(Machine):
    """c = a @ b in f64: cp.async into a ring of stages, fragments by plain loads, products on tensor cores"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f64", m, k), Input("f64", k, n)
    c = Output("f64", m, n)

    bm, bn, bk = Param(16, 32, 64), Param(16, 32, 64), Param(4, 8, 16)
    warps_m, warps_n = Param(1, 2), Param(1, 2)
    stages, vector, pad = Param(1, 2, 3), Param(1, 2), Param(0, 2, 4)

    copy, get, mma, put = isa.CpAsync(vector), isa.LdShared(1), MmaDouble(), isa.StGlobal(vector)

    def program(self, p: Any) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.warps_m, self.warps_n))
        who_a = blocked((bm, bk), threads=32 * warps, vector=self.vector, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=self.vector, name="b")
        a_stage, b_stage = p.smem("f64", (bm, bk), pad=self.pad), p.smem("f64", (bk, bn), pad=self.pad)
        with (
            p.grid((self.m, bm), (self.n, bn)) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("all", warps=warps), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
            with p.role("all", warps=warps):
                acc = p.full(t.c, "f64")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    a = p.load(self.get, s.a.window((0, kt), (bm, t.k)), t.a)
                    b = p.load(self.get, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, a, b)
                p.store(self.put, self.c.tile(i, j, shape=(bm, bn)), acc)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
