"""Channels mixed by factors that lie in constant space: a memory, and what reads it, that the library does not have."""

from dataclasses import dataclass
from typing import Any

from tinygpu.language import RMEM, Dim, Input, Machine, Memory, Output, Param, Transfer, blocked
from tinygpu.ptx import isa

# PTX ISA, "Constant State Space": 64 KiB, which the host writes; lanes that read one word have it at once.
CONST = Memory("CONST", "grid", capacity=65536, granule_bytes=4, banks=1, space="const", writer="host")


@dataclass(frozen=True, eq=False)
class LdConst(Transfer):
    """ld.const: constant space to registers, `vector` neighbouring elements per thread."""

    reads, writes = CONST, RMEM
    opcode = "ld.const"
    source = "PTX ISA, ld"


class Mix(Machine):
    """y = w @ x: few rows of w, which every warp reads at once, and long rows of x"""

    m, k, n = Dim(), Dim(), Dim()
    w = Input("f32", m, k, memory=CONST)
    x, y = Input("f32", k, n), Output("f32", m, n)

    warps, vector, rows = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    take, ld, st, fma = LdConst(1), isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), isa.Fma("f32")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (self.rows, threads * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=threads)
        with p.grid((self.m, self.rows), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.k, step=1) as c:
                w = p.load(self.take, self.w.tile(i, c, shape=(self.rows, 1)), who.along(0))
                x = p.load(self.ld, self.x.tile(c, j, shape=(1, shape[1])), who.along(1))
                p.apply(self.fma, w, x, total, into=total)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(w: Any, x: Any) -> Any:
        return w @ x
