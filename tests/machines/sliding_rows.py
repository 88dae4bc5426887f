"""Machines whose left operand slides: of the rows that lie in tensor memory each tap needs all but the first."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import TMEM, Dim, Input, Machine, Output, Param, Tracer
from tinygpu.ptx import isa

K = 64  # channels: a row of 128 bytes
LONG = 32  # places of a sequence in a tile, one to each lane of a warp; four sequences


class Sliding(Machine):
    """y[s, i] = sum over taps t of x[s, i + t] @ w[t], with zeros behind each sequence: convolution along a sequence"""

    s, i, n, t = Dim(), Dim(), Dim(), Dim()
    x, w = Input("f16", s, i, K), Input("f16", t, n, K)
    y = Output("f32", s, i, n)
    bn, stages = Param(32, 64), Param(1, 2)
    tma, cp, shift, mma = isa.TmaLoad(), isa.Tcgen05CpRows(), isa.Tcgen05Shift(), isa.Tcgen05MmaCells(bn)
    ld, st = isa.Tcgen05Ld(), isa.StGlobal(1)
    slots = 1  # of the rows, which slide where they lie
    new = 4  # sequences of which the next place comes

    def program(self, p: Tracer) -> None:
        bn, part, cluster = self.bn, self.bn // self.mma.ctas, (1, 1, self.mma.ctas)
        with (
            p.grid((self.n, bn), (self.s, 4), (self.i, LONG), persistent=True, cluster=cluster) as (n, s, i),
            p.pipeline("brought", 1, x=p.smem("f16", (4 * LONG, K), swizzle=128)) as brought,
            p.pipeline("next", 1, x=p.smem("f16", (self.new, K), swizzle=128)) as ahead,
            p.pipeline("ring", self.stages, w=p.smem("f16", (K, part), swizzle=128, contiguous=0)) as ring,
            p.pipeline("left", self.slots, x=p.buffer(TMEM, "f16", (4 * LONG, K))) as left,
            p.pipeline("sums", 1, y=p.buffer(TMEM, "f32", (4 * LONG, bn))) as sums,
        ):
            with p.role("rows", warps=1):
                with brought.produce() as b:
                    p.copy(self.tma, self.x.tile(s, i, 0, shape=(4, LONG, K)).as_matrix(), b.x)
                with p.loop(self.t - 1, step=1) as t, ahead.produce() as b:
                    p.copy(self.tma, self.x.tile(s, i + LONG + t, 0, shape=(self.new, 1, K)).as_matrix(), b.x)
            with p.role("filter", warps=1, first=1), p.loop(self.t, step=1) as t, ring.produce() as b:
                p.copy(self.tma, self.w.at(t).tile(self.columns(p, n), 0, shape=(part, K)).T, b.w)
            with p.role("slider", warps=1, first=2):
                with brought.consume() as b, left.produce() as f:
                    self.fill(p, b.x, f.x)
                with p.loop(self.t - 1, step=1), ahead.consume() as b, left.produce() as f:
                    self.slide(p, b.x, f.x)
            with p.role("multiplier", warps=1, first=3), sums.produce() as c:
                p.clear(c.y)
                with p.loop(self.t, step=1), left.consume() as f, ring.consume() as b, p.unroll(K, step=16) as k:
                    p.multiply(self.mma, c.y, f.x.window((0, k), (4 * LONG, 16)), b.w.window((k, 0), (16, part)))
            with p.role("epilogue", warps=4, first=4), sums.consume() as c:
                found = p.load(self.ld, c.y, self.ld.held((4 * LONG, bn)))
                p.store(self.st, self.y.tile(s, i, n, shape=(4, LONG, bn)).as_matrix(), found)

    def fill(self, p: Tracer, rows: Any, cells: Any) -> None:
        """Brings the rows of the first tap."""
        p.copy(self.cp, rows, cells)

    def slide(self, p: Tracer, rows: Any, cells: Any) -> None:
        """Moves them on to the next tap's."""
        p.copy(self.shift, rows, cells)

    def columns(self, p: Tracer, n: Any) -> Any:
        """Where what a CTA brings of a tap's columns begins."""
        return n

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        long, taps = x.shape[1], w.shape[0]
        wide = np.pad(x.astype(np.float32), ((0, 0), (0, taps), (0, 0)))
        return sum(wide[:, t : t + long] @ w[t].astype(np.float32).T for t in range(taps))


class SlidingByPairs(Sliding):
    """The same by pairs of CTAs, each of which slides rows of its own"""

    cp, shift, mma = isa.Tcgen05CpRowsPair(), isa.Tcgen05ShiftPair(), isa.Tcgen05MmaCellsPair(Sliding.bn)

    def columns(self, p: Tracer, n: Any) -> Any:
        return n + p.rank(2) % 2 * (self.bn // 2)
