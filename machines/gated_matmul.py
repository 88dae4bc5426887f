"""The gate of a feed-forward layer, y = silu(x @ w1) * (x @ w3), in one kernel on tensor cores.

Both products read the same rows of x: a stage of the ring has a tile of x and one of each weight, fragments of x are
loaded once and multiplied twice, and the two sums meet in registers, where the gate is applied in f32. Neither product
is ever written. Searched are the tile, who multiplies which part, the depth of the ring and the vectors that move.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    Input,
    Machine,
    Param,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    silu,
    symbol,
)
from tinygpu.machines.operands import copied, fragments, product
from tinygpu.ptx import isa

KINDS = ("f16", "bf16", "tf32", "e4m3", "e5m2")


class GatedMatmul(Machine):
    """y = silu(x @ w1) * (x @ w3): two products of the same rows, which meet in registers"""

    m, n, k = Dim(), Dim(), Dim()
    x = Input(KINDS, m, k)
    w1 = Input({kind: (kind,) for kind in KINDS}, k, n, majors=("row", "col"), follows=x)
    w3 = Input({kind: (kind,) for kind in KINDS}, k, n, majors=("row", "col"), follows=x)
    y = product(x, m, n)

    bm, bn, bk = Param(16, 32, 64, 128, 192, 256), Param(16, 32, 64, 96, 128), Param(16, 32, 64, 128)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5)
    prefetch = Param(0, 1)  # k-steps whose fragments are loaded a round ahead
    raster = Param(1, 4, 8, 16)  # tile rows visited together, for L2
    vx, vw, vy = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2)
    across_x, across_w = AccessPattern(), AccessPattern()
    layout_x, layout_1, layout_3 = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy_x, copy_w, fragment, fragment_w = copied(vx), copied(vw), isa.LdMatrix(), fragments()
    mma, st, arithmetic = isa.MmaSync(), isa.StGlobal(vy), isa.arithmetic("f32", approximate=True)
    compute, exact, approximation = "f32", False, 2.0**-19
    big_enough = Require(
        (bm * bn >= 32 * warps_m * warps_n * 8) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 8 values of each product, where the tiles fill the device",
        kind="dominance",
        why="fewer accumulators per thread read each operand more often from shared memory than fewer warps would",
    )

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps, kind = self.bm, self.bn, self.bk, self.warps_m * self.warps_n, self.x.dtype
        t = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps_m, self.warps_n))
        who_x = blocked((bm, bk), threads=32 * warps, vector=self.vx, across=self.across_x, name="x")
        weights = (self.w1, self.layout_1, "w1"), (self.w3, self.layout_3, "w3")
        who = {
            name: blocked(
                (bk, bn), threads=32 * warps, vector=self.vw, axis=w.contiguous, across=self.across_w, name=name
            )
            for w, _, name in weights
        }
        stages = {n: p.smem(kind, (bk, bn), contiguous=w.contiguous, layout=layout) for w, layout, n in weights}
        stages["x"] = p.smem(kind, (bm, bk), layout=self.layout_x)
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j),
            p.pipeline("ring", self.stages, **stages) as ring,
            p.role("all", warps=warps),
        ):
            with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy_x, self.x.tile(i, kk, shape=(bm, bk)), s.x, who_x)
                p.copy(self.copy_w, self.w1.tile(kk, j, shape=(bk, bn)), s.w1, who["w1"])
                p.copy(self.copy_w, self.w3.tile(kk, j, shape=(bk, bn)), s.w3, who["w3"])
            gate, up = p.full(t.c, "f32"), p.full(t.c, "f32")
            with p.loop(self.k, step=bk), ring.consume(self.prefetch) as s, p.unroll(bk, step=t.k) as kt:
                x = p.load(self.fragment, s.x.window((0, kt), (bm, t.k)), t.a)
                w1, w3 = (p.load(self.fragment_w, w.window((kt, 0), (t.k, bn)), t.b) for w in (s.w1, s.w3))
                p.multiply(self.mma, gate, x, w1)
                p.multiply(self.mma, up, x, w3)
            p.store(self.st, self.y.tile(i, j, shape=(bm, bn)), silu(gate) * up)

    @staticmethod
    def reference(x: Any, w1: Any, w3: Any) -> Any:
        x, w1, w3 = (v.astype(np.float32) for v in (x, w1, w3))
        gate = x @ w1
        return gate / (1 + np.exp(-gate)) * (x @ w3)
