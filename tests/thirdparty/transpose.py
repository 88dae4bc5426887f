"""Transpose through shared memory: written by rows, read by columns, in a layout that the solver finds."""

from typing import Any

from tinygpu.language import AccessPattern, Dim, Input, Machine, Output, Param, UnknownLayout, blocked
from tinygpu.ptx import isa


class Transpose(Machine):
    """y = x transposed"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16", "s8"), m, n)
    y = Output({"f32": ("f32",), "f16": ("f16",), "s8": ("s8",)}, n, m, follows=x)

    warps = Param(1, 2, 4, 8)
    tm, tn = Param(16, 32, 64), Param(16, 32, 64)
    vx, vy = Param(1, 2, 4), Param(1, 2, 4)
    across_x, across_y = AccessPattern(4, 8, 16, 32, 64), AccessPattern(4, 8, 16, 32, 64)
    pad = Param(0, 1, 4)
    layout = UnknownLayout()

    ld, put = isa.LdGlobal(vx), isa.StShared(vx)
    get, st = isa.LdShared(1), isa.StGlobal(vy)

    def program(self, p: Any) -> None:
        shape, threads = (self.tm, self.tn), 32 * self.warps
        rows = blocked(shape, threads=threads, vector=self.vx, across=self.across_x, name="x")
        columns = blocked(shape, threads=threads, vector=self.vy, axis=0, across=self.across_y, name="y")
        stage = p.smem(self.x.dtype, shape, pad=self.pad, layout=self.layout)
        with (
            p.grid((self.m, self.tm), (self.n, self.tn)) as (i, j),
            p.pipeline("stage", 1, tile=stage) as ring,
            p.role("all", warps=self.warps),
        ):
            with ring.produce() as s:
                p.store(self.put, s.tile, p.load(self.ld, self.x.tile(i, j, shape=shape), rows))
            with ring.consume() as s:
                column = p.load(self.get, s.tile, columns)
                p.store(self.st, self.y.tile(j, i, shape=shape[::-1]).T, column)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T
