"""Products in tensor memory of as many rounds as data say, of some tiles none."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import TMEM, Dim, Input, Machine, Output, Param, blocked, integers
from tinygpu.ptx import isa


class Stored(Machine):
    """c = a @ b, of the first depths[i] columns of a in its i-th 128 rows; a tile without any is stored as it is"""

    m, n, k, t = Dim(), Dim(), Dim(), Dim(follows=lambda m: -(-m // 128))
    depths = Input("s32", t, values=integers(0, k + 1))
    a, b = Input("bf16", m, k), Input("bf16", k, n)
    c = Output("f32", m, n)
    launch_control, tiles = Param(0, 1), Param(1, 2)
    tma, mma, ld, st, single = isa.TmaLoad(), isa.Tcgen05Mma(32), isa.Tcgen05Ld(), isa.StGlobal(1), isa.LdGlobal(1)
    mul = isa.arithmetic("s32")

    def program(self, p: Any) -> None:
        a, b = p.smem("bf16", (128, 16), swizzle=32), p.smem("bf16", (16, 32), swizzle=64)
        rows = blocked((128, 32), threads=128, across=1)
        with (
            p.grid(
                (self.m, 128), (self.n, 32), persistent=True, launch_control=self.launch_control
            ) as (i, j),
            p.pipeline("ring", 2, a=a, b=b) as ring,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, "f32", (128, 32))) as sums,
        ):
            with (
                p.role("producer", warps=1), p.loop(p.until(self.rounds(i)), step=16) as kk, ring.produce() as s
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(128, 16)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(16, 32)), s.b)
            with p.role("multiplier", warps=1, first=1):
                rounds = p.until(self.rounds(i))
                with sums.produce() as t:
                    p.clear(t.c)
                    with p.loop(rounds, step=16), ring.consume() as s:
                        p.multiply(self.mma, t.c, s.a, s.b)
            with p.role("epilogue", warps=4, first=4):
                rounds = self.rounds(i)
                with sums.consume() as t:
                    self.keep(p, rounds, self.c.tile(i, j, shape=(128, 32)), p.load(self.ld, t.c, rows), rows)

    def rounds(self, i: Any) -> Any:
        return self.depths[i // 128] // 16 * 16

    def keep(self, p: Any, rounds: Any, target: Any, total: Any, rows: Any) -> None:
        p.store(self.st, target, total)

    @staticmethod
    def reference(depths: Any, a: Any, b: Any) -> Any:
        parts = [(128 * i, int(depth) // 16 * 16) for i, depth in enumerate(depths)]
        return np.concatenate([a[i : i + 128, :some] @ b[:some] for i, some in parts])


class Chosen(Stored):
    """The same, and zeros where a tile has no rounds"""

    def keep(self, p: Any, rounds: Any, target: Any, total: Any, rows: Any) -> None:
        with p.when(rounds > 0):
            p.store(self.st, target, total)
        with p.when(rounds < 1):
            p.store(self.st, target, p.full(rows, "f32"))
