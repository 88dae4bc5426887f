"""2-D convolution of images (n, h, w, c): a product on tensor cores with a window, and a filter for each channel alone.

A tile of the result is a rectangle of pixels by some output channels. For one tap of the filter the pixels that it
needs are a window with steps, which begins where stride, dilation and padding say, and is zero beyond the image: as a
matrix of pixels by channels it is one stage of a ring, and nothing is ever unfolded in memory. Searched are the
rectangle, the tile of channels, who multiplies what, the depth of the ring and the vectors that move. Filters of
single channels multiply in f32 what lies in registers; there, neighbouring pixels find each other's reads in L1, and
how many taps are under way together is searched: few pixels wait for each of them in turn otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
)
from tinygpu.machines.operands import FACTORS, RESULTS, copied, of
from tinygpu.ptx import isa

HALVES = ("f16", "bf16")


def taken(h: Any, r: Any, stride: Any, dilation: Any, pad: Any) -> Any:
    """How often a filter of r taps fits along h pixels that have `pad` zeros at either side."""
    return (h + 2 * pad - dilation * (r - 1) - 1) // stride + 1


class Images(Machine):
    """What both have: images, the taps of a filter, and where these lie"""

    n, h, w, c = Dim(), Dim(), Dim(), Dim()
    r, s = Dim(), Dim()
    x: Any  # which the subclasses declare, each with its types
    stride, dilation, pad = Option(1, 2, 3, 4), Option(1, 2, 3, 4), Option(*range(9))
    p = Dim(follows=lambda h, r, stride, dilation, pad: taken(h, r, stride, dilation, pad))
    q = Dim(follows=lambda w, s, stride, dilation, pad: taken(w, s, stride, dilation, pad))

    def window(self, at: tuple[Any, ...], tap: tuple[Any, Any], c: Any, shape: tuple[Any, ...]) -> Any:
        """What a rectangle of results at image z and pixel (i, j) needs of x for one tap, as pixels by channels."""
        z, *pixel = at
        h, w = (a * self.stride + t * self.dilation - self.pad for a, t in zip(pixel, tap, strict=True))
        steps = (1, self.stride, self.stride, 1)
        return self.x.tile(z, h, w, c, shape=(1, *shape), step=steps).as_matrix()

    @staticmethod
    def taps(x: Any, f: Any, stride: int, dilation: int, pad: int) -> Any:
        """Pairs of what a tap sees of every image, and of the filter there, in f32."""
        wide = np.pad(x.astype(np.float32), ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        p, q = (taken(x.shape[1 + a], f.shape[a], stride, dilation, pad) * stride for a in (0, 1))
        for r, s in np.ndindex(f.shape[:2]):
            seen = wide[:, r * dilation :, s * dilation :]
            yield seen[:, :p:stride, :q:stride], f[r, s].astype(np.float32)


class Convolution(Images):
    """y = x * f for images (n, h, w, c) and filters (r, s, c, k), with stride, dilation and padding, on mma.sync"""

    k = Dim()
    x = Input(HALVES, Images.n, Images.h, Images.w, Images.c)
    f = Input(of(FACTORS, *HALVES), Images.r, Images.s, Images.c, k, follows=x)
    y = Output(of(RESULTS, *HALVES), Images.n, Images.p, Images.q, k, follows=x)

    bh, bw, bn, bk = Param(1, 2, 4, 8, 16), Param(8, 16, 32), Param(32, 64, 128), Param(16, 32, 64)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5)
    prefetch = Param(0, 1)  # k-steps whose fragments are loaded a round ahead
    vx, vf, vy = Param(1, 2, 4, 8), Param(1, 2, 4, 8), Param(1, 2)
    across_x, across_f = AccessPattern(), AccessPattern()
    layout_x, layout_f = UnknownLayout(), UnknownLayout()
    copy_x, copy_f = copied(vx), copied(vf)
    fragment, mma, st = isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(vy)
    conversions, compute = isa.arithmetic("f32"), "f32"

    big_enough = Require(
        bh * bw * bn >= 32 * warps_m * warps_n * 16, "every thread accumulates at least 16 values", kind="dominance",
        why="fewer accumulators per thread read each operand more often from shared memory than fewer warps would",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bh * self.bw, self.bn, self.bk, self.warps_m * self.warps_n
        kind, pixels = self.x.dtype, (self.bh, self.bw)
        who_x = blocked((bm, bk), threads=32 * warps, vector=self.vx, across=self.across_x, name="x")
        who_f = blocked((bk, bn), threads=32 * warps, vector=self.vf, across=self.across_f, name="f")
        t = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps_m, self.warps_n))
        stages = {"x": p.smem(kind, (bm, bk), layout=self.layout_x), "f": p.smem(kind, (bk, bn), layout=self.layout_f)}
        grid = p.grid((self.n, 1), (self.p, self.bh), (self.q, self.bw), (self.k, bn))
        taps = (self.r, 1), (self.s, 1), (self.c, bk)
        with grid as (z, i, j, o), p.role("all", warps=warps), p.pipeline("ring", self.stages, **stages) as ring:
            total = p.full(t.c, "f32")
            with p.loops(*taps) as (r, s, kk), ring.produce() as slot:
                p.copy(self.copy_x, self.window((z, i, j), (r, s), kk, (*pixels, bk)), slot.x, who_x)
                p.copy(self.copy_f, self.f.at(r, s).tile(kk, o, shape=(bk, bn)), slot.f, who_f)
            with p.loops(*taps), ring.consume(self.prefetch) as slot, p.unroll(bk, step=t.k) as kt:
                a = p.load(self.fragment, slot.x.window((0, kt), (bm, t.k)), t.a)
                b = p.load(self.fragment, slot.f.window((kt, 0), (t.k, bn)), t.b)
                p.multiply(self.mma, total, a, b)
            p.store(self.st, self.y.tile(z, i, j, o, shape=(1, *pixels, bn)).as_matrix(), total)

    @staticmethod
    def reference(x: Any, f: Any, stride: int, dilation: int, pad: int) -> Any:
        return sum(seen @ tap for seen, tap in Images.taps(x, f, stride, dilation, pad))


class DepthwiseConvolution(Images):
    """y = x * f for images (n, h, w, c) and a filter (r, s) for each channel, with stride, dilation and padding"""

    x = Input(("f32", *HALVES), Images.n, Images.h, Images.w, Images.c)
    f = Input(of(FACTORS, "f32", *HALVES), Images.r, Images.s, Images.c, follows=x)
    y = Output(of(RESULTS, "f32", *HALVES), Images.n, Images.p, Images.q, Images.c, follows=x)

    bh, bw, bc = Param(1, 2, 4, 8), Param(4, 8, 16, 32), Param(8, 16, 32, 64, 128)
    warps, vector, across = Param(1, 2, 4, 8), Param(1, 2, 4, 8), AccessPattern()
    down, along = Param(1, 3), Param(1, 2, 3, 5, 7)  # taps that are under way together
    divided = Require((Images.r % down == 0) & (Images.s % along == 0), "a filter is whole blocks of such taps")
    few = Require(
        (down * along == 1) | (down * along * bh * bw * bc <= 32 * warps * 256),
        "a thread has at most 256 elements under way", kind="dominance", why="no registers hold more of f32",
    )  # fmt: skip
    ld, ld_f, st = isa.LdGlobal(vector), isa.LdGlobalReadOnly(vector), isa.StGlobal(vector)
    arithmetic, compute, contract = isa.arithmetic("f32"), "f32", True

    def program(self, p: Tracer) -> None:
        pixels, bc = (self.bh, self.bw), self.bc
        shape = (self.bh * self.bw, bc)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        grid = p.grid((self.n, 1), (self.p, self.bh), (self.q, self.bw), (self.c, bc))
        with grid as (z, i, j, o), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with (
                p.loops((self.r, self.down), (self.s, self.along)) as (first_r, first_s),
                p.unroll(self.down) as a,
                p.unroll(self.along) as b,
            ):
                r, s = first_r + a, first_s + b
                x = p.load(self.ld, self.window((z, i, j), (r, s), o, (*pixels, bc)), who)
                total += x * p.load(self.ld_f, self.f.at(r, s).row(o, bc), who.along(1))
            p.store(self.st, self.y.tile(z, i, j, o, shape=(1, *pixels, bc)).as_matrix(), total)

    @staticmethod
    def reference(x: Any, f: Any, stride: int, dilation: int, pad: int) -> Any:
        return sum(seen * tap for seen, tap in Images.taps(x, f, stride, dilation, pad))
