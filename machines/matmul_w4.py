"""Matmul with weights of 4 bits, y = x @ ((w - zeros) * scales), groups of them along k scaled together, on mma.sync.

Weights stay packed until they are fragments: cp.async brings them into a ring of shared memory two to a byte, beside x
and the scales of the stage's group. In which order tensor cores take k does not matter, if both factors have the same:
so a thread takes eight neighbours along k at once, one word of weights and 16 bytes of x, and calls them the pairs
that mma.sync wants from it. A word is unpacked as a whole, scaled in pairs, and is fragments of two products. Searched
are the tile, the depth of the ring, how stages lie in shared memory, and how many CTAs share a tile of few rows.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import (
    AccessPattern,
    E,
    Layout,
    Param,
    Partition,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    symbol,
)
from tinygpu.machines.grouped_weights import GroupedWeights
from tinygpu.machines.operands import copied
from tinygpu.ptx import isa

CHUNK = 32  # of k: four lanes of eight neighbours, which are the fragments of two products


class MatmulW4(GroupedWeights):
    """y = x @ ((w - zeros) * scales): weights of 4 bits, unpacked in registers, scaled in groups along k"""

    m, n, k, group = GroupedWeights.m, GroupedWeights.n, GroupedWeights.k, GroupedWeights.group
    bm, bn, bk = Param(16, 32, 64, 96, 128, 192, 256), Param(32, 64, 128, 192, 256), Param(32, 64, 128)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5)
    vx, vw, vs, vy = Param(1, 2, 4, 8), Param(2, 8, 16, 32), Param(1, 2, 4, 8), Param(1, 2)
    raster, split_k = Param(1, 4, 8, 16), Param(1, 2, 4, 8)  # tile rows visited together; CTAs that share a tile
    across_x, across_w = AccessPattern(), AccessPattern()
    layout_x, layout_w, layout_s = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy_x, copy_w, copy_s = copied(vx), copied(vw), copied(vs)
    get, get_scale, mma, st = isa.LdShared(8), isa.LdShared(1), isa.MmaSync(), isa.StGlobal(vy)
    halves, brains, wide = isa.arithmetic("f16"), isa.arithmetic("bf16"), isa.arithmetic("f32")
    add, leave, take = isa.Add("f32"), isa.StGlobal(4), isa.LdGlobal(4)
    exact, one_scale = False, Require(bk <= group, "the weights of a column and a stage have one scale")
    at_once = Require(bn <= vs * 32 * warps_m * warps_n, "the threads of the CTA bring the scales of a stage at once")
    big_enough = Require(
        (bm * bn >= 512 * warps_m * warps_n) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device", kind="dominance",
        why="fewer accumulators per thread read each operand more often from shared memory than fewer warps would",
    )  # fmt: skip
    shared = Require(
        (split_k == 1) | (ceil_div(m, bm) * ceil_div(n, bn) <= symbol("device.sm_count")) & (split_k * bk <= k),
        "CTAs share tiles only where SMs would be idle, and each has rounds of its own", kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has a tile",
    )  # fmt: skip

    def neighbours(self, side: int) -> Partition:
        """Who holds what of x (side 0) or w (side 1) in a chunk of k: every lane eight neighbours along k."""
        warps, k = (self.warps_m, self.warps_n), 1 - side
        shape: Any = (self.bm, CHUNK) if k else (CHUNK, self.bn)
        own = shape[side] // warps[side]  # of each warp; those beside it hold the same
        threads = [(count, own * E(side) if axis == side else 0) for axis, count in enumerate(warps)]
        layout = Layout.of([(4, 8 * E(k)), (8, E(side)), *threads], [(8, E(k)), (own // 8, 8 * E(side))])
        return Partition(shape, layout)

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps, kind = self.bm, self.bn, self.bk, self.warps_m * self.warps_n, self.x.dtype
        held_x, held_w = self.neighbours(0), self.neighbours(1)
        t = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps_m, self.warps_n))
        who_x = blocked((bm, bk), threads=32 * warps, vector=self.vx, across=self.across_x, name="x")
        who_w = blocked((bk, bn), threads=32 * warps, vector=self.vw, axis=0, across=self.across_w, name="w")
        one: Any = (1, bn)
        who_s = Partition(one, Layout.of([(bn // self.vs, self.vs * E(1))], [(self.vs, E(1))]))
        x_stage, s_stage = p.smem(kind, (bm, bk), layout=self.layout_x), p.smem(kind, one, layout=self.layout_s)
        w_stage = p.smem(self.w.dtype, (bk, bn), contiguous=0, layout=self.layout_w)
        tiles = p.grid((self.m, bm), (self.n, bn), raster=self.raster, slices=self.split_k)
        z_stage = {"z": p.smem(kind, one)} if self.with_zeros else {}
        stages = p.pipeline("ring", self.stages, x=x_stage, w=w_stage, s=s_stage, **z_stage)
        with tiles as (i, j), stages as ring, p.role("all", warps=warps):
            with p.loop(self.k, step=bk, divided=True) as kk, ring.produce() as f:
                p.copy(self.copy_x, self.x.tile(i, kk, shape=(bm, bk)), f.x, who_x)
                p.copy(self.copy_w, self.w.tile(kk, j, shape=(bk, bn)), f.w, who_w)
                p.copy(self.copy_s, self.scales.tile(kk // self.group, j, shape=one), f.s, who_s)
                if self.with_zeros:
                    p.copy(self.copy_s, self.zeros.tile(kk // self.group, j, shape=one), f.z, who_s)
            total = p.full(t.c, "f32")
            with p.loop(self.k, step=bk, divided=True), ring.consume() as f:
                scales = p.load(self.get_scale, f.s, held_w.along(1))
                zeros: Any = p.load(self.get_scale, f.z, held_w.along(1)) if self.with_zeros else None
                with p.unroll(bk, step=CHUNK) as kt:
                    x: Any = p.load(self.get, f.x.window((0, kt), (bm, CHUNK)), held_x)
                    w: Any = p.cast(p.load(self.get, f.w.window((kt, 0), (CHUNK, bn)), held_w), kind)
                    w = (w - zeros if self.with_zeros else w) * scales
                    # of eight neighbours the first four are of one product, the others of the next
                    x = x.split(1, (4, 2, 2, 2)).permute(0, 2, 3, 1, 4).merge(1, 2, 3, 4)
                    w = w.split(0, (4, 2, 2, 2)).permute(1, 2, 0, 3, 4).merge(0, 1, 2, 3)
                    x, w = p.relayout(x, x.partition), p.relayout(w, w.partition)  # nothing moves
                    with p.unroll(CHUNK, step=t.k) as half:
                        a = p.relayout(x.window((0, half), (bm, t.k)), t.a)
                        p.multiply(self.mma, total, a, p.relayout(w.window((half, 0), (t.k, bn)), t.b))
            with p.fix_up(self.add, self.leave, self.take, total) as y:
                p.store(self.st, self.y.tile(i, j, shape=(bm, bn)), p.cast(y, self.y.dtype))
