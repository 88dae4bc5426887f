"""Products of groups of rows with a matrix each, as of a mixture of experts: y[i] = x[i] @ w[the expert of row i].

Rows are sorted by expert, and `offsets` says where each expert's begin; an expert may have none, or all. A tile of
results has rows of one expert, so that there are at most m // bm + experts of them, however long groups are: expert e
begins with tile offsets[e] // bm + e, which leaves room for all before it. A CTA finds its expert without any list: the
lanes of each warp count the experts that begin up to its tile, and what they count is the number of a matrix. Those few
tiles that have no rows leave at once. All else is a matmul: cp.async fills a ring, ldmatrix brings fragments, mma.sync
multiplies; windows end where the expert's rows do. Searched are the tile, who multiplies which part, the depth of the
ring, and how many rows of tiles are visited together, so that those of one expert meet in L2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    E,
    Input,
    Layout,
    Machine,
    Param,
    Partition,
    Require,
    Tracer,
    UnknownLayout,
    ascending,
    blocked,
    integers,
)
from tinygpu.machines.operands import FACTORS, KINDS, copied, fragments, of, product
from tinygpu.ptx import isa


class Grouped(Machine):
    """Rows that lie group by group, and how a CTA finds the group of its tile: what both machines have."""

    m, n, k, experts, bounds = Dim(), Dim(), Dim(), Dim(), Dim(follows=lambda experts: experts + 1)
    offsets = Input("s32", bounds, values=ascending(0, m, ends=True))
    single, shuffle, add, whole = isa.LdGlobalReadOnly(1), isa.ShflBfly(), isa.Add("s32"), isa.arithmetic("s32")
    bm: Any  # rows of a tile
    looked_at, raster = Param(1, 4, 16), Param(1, 4, 16)  # experts per lane; rows of tiles visited together, for L2
    looks = Require(
        (looked_at == 1) | (8 * looked_at < experts), "lanes look at more experts where there are more",
        kind="dominance", why="where a quarter of as many finds all of them at once, the others are looked at in vain",
    )  # fmt: skip

    def rows_of(self, p: Tracer, row: Any, warps: Any) -> tuple[Any, Any, Any, Any]:
        """(the expert of the tile that is `row` elements along the grid, its first row in the tensor, the first row of
        its expert, and the first behind): every warp counts the experts that begin up to the tile.
        """
        each, who = self.looked_at, self.lanes(warps)
        found = p.full(who.reduced(0), "s32")
        with p.loop(self.experts, step=32 * each) as e:
            begins = p.load(self.single, self.offsets.tile(e, shape=who.shape), who, fill=2**31 - 1)
            counted = p.where(begins < row + (1 - e - p.index(who, 0)) * self.bm, p.full(who, "s32", 1), 0)
            found += p.reduce(self.add, counted, axis=0, by=self.shuffle)
        e = p.number(found, integers(1, self.experts + 1), "experts") - 1
        begin = self.offsets[e]
        return e, begin + row - (e + begin // self.bm) * self.bm, begin, self.offsets[e + 1]

    def lanes(self, warps: Any) -> Partition:
        """Experts along the lanes of a warp; every warp has the same ones."""
        each = self.looked_at
        return Partition((32 * each,), Layout.of([(32, E(0)), (warps, 0)], [(each, 32 * E(0))]))

    @staticmethod
    def reference(offsets: Any, x: Any, w: Any) -> Any:
        return np.concatenate([x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(offsets))])


class GroupedMatmul(Grouped):
    """y[i] = x[i] @ w[e], for rows offsets[e] to offsets[e + 1] of x: a mixture of experts, on mma.sync"""

    m, n, k, experts = Grouped.m, Grouped.n, Grouped.k, Grouped.experts
    x = Input(KINDS, m, k, majors=("row", "col"))
    w = Input(of(FACTORS, *KINDS), experts, k, n, majors=("row", (experts, n, k)), follows=x)
    y = product(x, m, n)

    bm, bn, bk = Param(16, 32, 64, 128, 192, 256), Param(16, 32, 64, 96, 128, 192, 256), Param(16, 32, 64, 128)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5)
    prefetch = Param(0, 1)  # k-steps whose fragments are loaded a round ahead
    vx, vw, vy = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2)
    across_x, across_w = AccessPattern(), AccessPattern()
    layout_x, layout_w = UnknownLayout(), UnknownLayout()
    copy_x, copy_w, fragment_x, fragment_w = copied(vx), copied(vw), fragments(), fragments()
    mma, st, conversions = isa.MmaSync(), isa.StGlobal(vy), isa.arithmetic("f32")
    countable = Require(m + experts * bm < 2**31, "rows, with a tile more for each expert, are counted in 32 bits")

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        kind_x, kind_w, row_x, row_w = self.x.dtype, self.w.dtype, self.x.contiguous, self.w.contiguous - 1
        t = p.tiled(self.mma, kind_x, kind_w, (bm, bn), (self.warps_m, self.warps_n))
        who_x = blocked((bm, bk), threads=32 * warps, vector=self.vx, axis=row_x, across=self.across_x, name="x")
        who_w = blocked((bk, bn), threads=32 * warps, vector=self.vw, axis=row_w, across=self.across_w, name="w")
        x_stage = p.smem(kind_x, (bm, bk), contiguous=row_x, layout=self.layout_x)
        w_stage = p.smem(kind_w, (bk, bn), contiguous=row_w, layout=self.layout_w)
        with (
            p.grid((self.m, bm, self.experts), (self.n, bn), raster=self.raster) as (row, j),
            p.pipeline("ring", self.stages, x=x_stage, w=w_stage) as ring,
            p.role("all", warps=warps),
        ):
            e, first, begin, end = self.rows_of(p, row, warps)
            rows, results = self.x.segment(begin, end), self.y.segment(begin, end)
            with p.when(first < end):
                with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                    p.copy(self.copy_x, rows.tile(first - begin, kk, shape=(bm, bk)), s.x, who_x)
                    p.copy(self.copy_w, self.w.at(e).tile(kk, j, shape=(bk, bn)), s.w, who_w)
                total = p.full(t.c, self.mma.accumulator(kind_x, kind_w))
                with p.loop(self.k, step=bk), ring.consume(self.prefetch) as s, p.unroll(bk, step=t.k) as kt:
                    x = p.load(self.fragment_x, s.x.window((0, kt), (bm, t.k)), t.a)
                    w = p.load(self.fragment_w, s.w.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, total, x, w)
                wide = total if self.y.dtype.name == "s32" else p.cast(total, "f32")  # whole sums become f32 first
                p.store(self.st, results.tile(first - begin, j, shape=(bm, bn)), p.cast(wide, self.y.dtype))
