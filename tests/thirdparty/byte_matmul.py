"""Matmul of bytes on Blackwell: b is contiguous along n, and a load that the library does not have transposes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.language import Dim, Input, Layout, Machine, MatrixLoad, Output, Param, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class LoadBytes(MatrixLoad):
    """ldmatrix.m16n16.trans.b8: one or two 16x16 matrices of bytes, whose rows and columns change places."""

    target, only, isa = 100, (100,), (8, 6)
    label, source = "ldmatrix.b8", "PTX ISA, ldmatrix, .m16n16"
    counts, element_bits = (1, 2), 8
    plain = None
    transposed = Layout.parse("((4,8),(4,2,2)):((4@0,1@1),(1@0,8@1,1@m))")
    holds = "gives lane l the rows 4 (l % 4) to 4 (l % 4) + 3 and the columns l / 4 and l / 4 + 8 of a 16x16 matrix"

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        count = len(registers) // 2
        listed = ", ".join(registers)
        return f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8 {{{listed}}}, {address};"


class MatmulBytes(Machine):
    """c = a @ b of bytes: cp.async into a ring of stages, fragments by ldmatrix of 16 and of 8 bits"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(("s8", "e4m3"), m, k)
    b = Input({"s8": ("s8",), "e4m3": ("e4m3",)}, k, n, follows=a)
    c = Output({"s8": ("s32",), "e4m3": ("f32",)}, m, n, follows=a)

    bm, bn, bk = Param(16, 32, 64), Param(8, 16, 32, 48, 64), Param(32, 64)
    wm, wn = Param(1, 2), Param(1, 2)
    stages, pad = Param(1, 2, 3), Param(0, 16)

    copy, get, turn, mma, put = isa.CpAsync(16), isa.LdMatrix(), LoadBytes(), isa.MmaSync(), isa.StGlobal(2)

    def program(self, p: Any) -> None:
        bm, bn, bk, threads = self.bm, self.bn, self.bk, 32 * self.wm * self.wn
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.wm, self.wn))
        who_a = blocked((bm, bk), threads=threads, vector=16, name="a")
        who_b = blocked((bk, bn), threads=threads, vector=16, name="b")
        a_stage = p.smem(self.a.dtype, (bm, bk), pad=self.pad)
        b_stage = p.smem(self.b.dtype, (bk, bn), pad=self.pad)
        with (
            p.grid((self.m, bm), (self.n, bn)) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("all", warps=self.wm * self.wn), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
            with p.role("all", warps=self.wm * self.wn):
                acc = p.full(t.c, self.c.dtype)
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    a = p.load(self.get, s.a.window((0, kt), (bm, t.k)), t.a)
                    b = p.load(self.turn, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, a, b)
                p.store(self.put, self.c.tile(i, j, shape=(bm, bn)), acc)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
