"""Matmul of factors with block scales, mxfp8, on data-centre Blackwell: scales go to tensor memory beside the sums.

It is `matmul_blackwell` with two tensors more. Of factors e4m3 or e5m2, 32 neighbours along k share a power of two,
whose exponent plus 127 is a u8. Scales come as vendor libraries want them: chunks of 128 rows by 4 blocks along k, in
each of which row r is 16 bytes from row r + 1, and rows r, r + 32, r + 64 and r + 96 lie side by side, four blocks of
each; chunks along k follow one another. Factors beyond the tensors are zeros, so the codes that pad the last chunks may
be anything but 255, which stands for no number.

TMA brings whole chunks into a stage with the factors of theirs. One thread has tcgen05.cp copy them to a ring of
columns in tensor memory, where every warp's lanes have them; another multiplies, and tcgen05.mma reads them there: its
descriptor names the first of four scales in a cell. The manual orders a copy before later products of its thread, but
no product before a later copy, so the columns are a ring, in which commits say when scales are there and were read.
Searched are the tile, the depth of the three rings, the order of tiles, the piece, and the swizzle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import TMEM, Dim, Input, Output, Param, Require, Tracer, blocked, integers
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import FACTORS, RESIDUALS, of
from tinygpu.ptx import isa

FP8, RESULTS = ("e4m3", "e5m2"), ("bf16", "f16", "f32")
BLOCK, CHUNK = 32, 128  # elements along k that share a scale; rows, and elements along k, of a chunk of scales


class MatmulBlackwellMx(Epilogue):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, of mxfp8 in tensor memory"""

    m, n, k = Dim(), Dim(), Dim()
    down_a, down_b, along = (
        Dim(follows=lambda m: -(-m // CHUNK)), Dim(follows=lambda n: -(-n // CHUNK)),
        Dim(follows=lambda k: -(-k // CHUNK)),
    )  # fmt: skip
    rows, row_bytes = Dim(follows=lambda m: 32), Dim(follows=lambda m: 16)
    a = Input(FP8, m, k)
    b = Input(of(FACTORS, *FP8), k, n, majors=("col",), follows=a)
    scales_a = Input("u8", down_a, along, rows, row_bytes, values=integers(117, 138))
    scales_b = Input("u8", down_b, along, rows, row_bytes, values=integers(117, 138))
    c = Output(dict.fromkeys(FP8, RESULTS), m, n, follows=a)
    bias, scales, residual = Input("f32", n), Input("f32", n), Input(of(RESIDUALS, *RESULTS), m, n, follows=c)

    bn, bk = Param(128, 256), Param(128, 256)
    stages = Param(2, 3, 4, 5, 6)
    scaled = Param(1, 2, 4)  # stages whose scales are in tensor memory at a time
    needed = Require(
        scaled <= stages, "scales of no more stages are in tensor memory than there are stages", kind="dominance",
        why="scales come from a stage that is full, and what it held before was multiplied before it was filled",
    )  # fmt: skip
    tiles = Param(1, 2)  # whose sums are in tensor memory at a time
    raster = Param(1, 4, 8, 16)  # tile rows visited together, for L2
    piece = Param(16, 32, 64)  # columns of a tile that the epilogue takes at a time
    swizzle = Param(32, 64, 128)
    vc = Param(1, 2, 4, 8)  # neighbours that one thread stores at once

    tma, cp, mma, ld = isa.TmaLoad(), isa.Tcgen05Cp(), isa.Tcgen05MmaScaled(bn), isa.Tcgen05Ld()
    st, ld_bias, ld_residual = isa.StGlobal(vc), isa.LdGlobal(1), isa.LdGlobal(1)

    def program(self, p: Tracer) -> None:
        bm, bn, bk, piece = 128, self.bn, self.bk, self.piece
        down, along, depth = bn // CHUNK, bk // CHUNK, 32
        stage = {
            "a": p.smem(self.a.dtype, (bm, bk), swizzle=self.swizzle),
            "b": p.smem(self.b.dtype, (bk, bn), contiguous=0, swizzle=self.swizzle),
            "sa": p.smem("u8", (1, along, 32, 16), swizzle=16),
            "sb": p.smem("u8", (down, along, 32, 16), swizzle=16),
        }
        cells = {
            "sa": p.buffer(TMEM, "u8", (32, 16 * along)),
            "sb": p.buffer(TMEM, "u8", (32, 16 * along * down)),
        }
        rows = blocked((bm, piece), threads=bm, vector=self.vc, across=1, name="c")
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster, persistent=True) as (i, j),
            p.pipeline("ring", self.stages, **stage) as ring,
            p.pipeline("cells", self.scaled, **cells) as cell,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, "f32", (bm, bn))) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)
                p.copy(self.tma, self.scales_a.tile(i // CHUNK, kk // CHUNK, 0, 0, shape=(1, along, 32, 16)), s.sa)
                p.copy(self.tma, self.scales_b.tile(j // CHUNK, kk // CHUNK, 0, 0, shape=(down, along, 32, 16)), s.sb)
            with p.role("scaler", warps=1, first=1), p.loop(self.k, step=bk), ring.consume() as s, cell.produce() as t:
                p.copy(self.cp, s.sa, t.sa)
                p.copy(self.cp, s.sb, t.sb)
            with p.role("multiplier", warps=1, first=2), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, cell.consume() as by, p.unroll(bk, step=depth) as kt:
                    fa, fb = s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, bn))
                    p.multiply(self.mma, t.c, fa, fb, scales=(by.sa, by.sb), at=kt)
            with p.role("epilogue", warps=4, first=4), sums.consume() as t, p.unroll(bn, step=piece) as at:
                values = p.load(self.ld, t.c.window((0, at), (bm, piece)), rows)
                p.store(self.st, self.c.tile(i, j + at, shape=(bm, piece)), self.finish(p, values, i, j + at))

    @staticmethod
    def unpacked(x: Any, scales: Any) -> Any:
        """Rows of x times the scales of their blocks: (chunks down, along, 32, 16) codes of powers of two."""
        down, along = scales.shape[:2]
        codes = np.reshape(scales, (down, along, 32, 4, 4)).transpose(0, 3, 2, 1, 4).reshape(down * CHUNK, along * 4)
        return x * np.repeat(2.0 ** (codes - 127.0), BLOCK, axis=1)[: x.shape[0], : x.shape[1]]

    @staticmethod
    def reference(
        a: Any, b: Any, with_bias: bool = False, activation: str = "none", scaling: str = "none",
        with_residual: bool = False, scale: Any = None, bias: Any = None, scales: Any = None, residual: Any = None,
        scales_a: Any = None, scales_b: Any = None,
    ) -> Any:  # fmt: skip
        unpacked = MatmulBlackwellMx.unpacked
        a, b = unpacked(a, scales_a), unpacked(b.T, scales_b).T
        return Epilogue.reference(a, b, with_bias, activation, scaling, with_residual, scale, bias, scales, residual)
