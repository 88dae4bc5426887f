"""Matmul whose fragments come by a load of matrices that the library does not have: at most two of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.language import Dim, Input, Machine, MatrixLoad, Output, Param, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class LoadPairs(MatrixLoad):
    """ldmatrix.m8n8 of one or two matrices, for kernels that have no four registers to spare."""

    source = "PTX ISA, ldmatrix"
    label = "ldmatrix.pairs"
    counts = (1, 2)

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        form = f"x{len(registers)}{'.trans' if transposed else ''}"
        return f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{{', '.join(registers)}}}, {address};"


class MatmulPairs(Machine):
    """c = a @ b: cp.async into a ring of stages, fragments by pairs of matrices, products on tensor cores"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(("f16", "bf16"), m, k)
    b = Input({"f16": ("f16",), "bf16": ("bf16",)}, k, n, majors=("row", "col"), follows=a)
    c = Output("f32", m, n)

    bm, bn, bk = Param(16, 32, 64), Param(16, 32, 64), Param(16, 32)
    warps_m, warps_n = Param(1, 2), Param(1, 2)
    stages, pad = Param(1, 2, 3), Param(0, 8)

    copy, get, mma, put = isa.CpAsync(8), LoadPairs(), isa.MmaSync(), isa.StGlobal(2)

    def program(self, p: Any) -> None:
        bm, bn, bk, threads = self.bm, self.bn, self.bk, 32 * self.warps_m * self.warps_n
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.warps_m, self.warps_n))
        along = self.b.contiguous
        who_a = blocked((bm, bk), threads=threads, vector=8, name="a")
        who_b = blocked((bk, bn), threads=threads, vector=8, axis=along, name="b")
        a_stage = p.smem(self.a.dtype, (bm, bk), pad=self.pad)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=along, pad=self.pad)
        with (
            p.grid((self.m, bm), (self.n, bn)) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("all", warps=self.warps_m * self.warps_n), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
            with p.role("all", warps=self.warps_m * self.warps_n):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    a = p.load(self.get, s.a.window((0, kt), (bm, t.k)), t.a)
                    b = p.load(self.get, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, a, b)
                p.store(self.put, self.c.tile(i, j, shape=(bm, bn)), acc)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
