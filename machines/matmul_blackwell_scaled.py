"""Matmul of factors with block scales on data-centre Blackwell: mxfp8, mxfp6, mxfp4 and nvfp4.

It is `matmul_blackwell` with two tensors more. Of mx factors (e4m3, e5m2, e2m3, e3m2 or e2m1, any with any) 32
neighbours along k share a power of two, whose exponent plus 127 is a u8. Of nvfp4 (e2m1) 16 share an e4m3 that is not
negative; the whole product has one scale more, by `scaling="number"`. Where both factors have 4 bits, they stay packed
from memory to the tensor cores; else those of 4 and 6 bits are padded on their way to shared memory. Scales come as
vendor libraries want them: chunks of 128 rows by 4 blocks along k, in each of which row r is 16 bytes from row r + 1,
and rows r, r + 32, r + 64 and r + 96 lie side by side, four blocks of each; chunks along k follow one another. Factors
beyond the tensors are zeros, so what pads the last chunks may be any scale but no number: 255, or the e4m3 that is NaN.

TMA brings whole chunks into a stage with the factors of theirs. One thread has tcgen05.cp copy them to a ring of
columns in tensor memory, where every warp's lanes have them; another multiplies, and tcgen05.mma reads them there: its
descriptor names the first of four scales in a cell. The manual orders a copy before later products of its thread, but
no product before a later copy, so the columns are a ring, in which commits say when scales are there and were read. A
stage is given back before its scales are told of: so who multiplies knows that arrivals at other CTAs have come as
well. CTAs may multiply in pairs: then each brings half of b, and the scales of its own rows and of all columns.
A tile of columns may begin within a chunk of scales. Searched are the tile, clusters, the depth of the three rings, the
order of tiles, CTAs that share tiles or take each other over, the piece, the swizzles, and whether results pass through
shared memory, from where TMA stores them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from tinygpu.language import TMEM, Choice, Dim, Input, Output, Param, Require, Tracer, integers, uniform
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.matmul_block_scaled import RESULTS
from tinygpu.machines.operands import MORE_FACTORS, RESIDUALS, of, stage
from tinygpu.machines.tensor_sums import TensorSums, where_idle, where_queued, widest_pieces
from tinygpu.ptx import isa

CHUNK, BLOCKS = 128, 4  # rows, and blocks along k, of a chunk of scales
# Types of b that go with those of a: any with any.
MX = of(MORE_FACTORS, "e4m3", "e5m2", "e2m1", "e2m3", "e3m2")


class ScaledInChunks(TensorSums):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, in tensor memory"""

    m, n, k, rows, row_bytes = Dim(), Dim(), Dim(), Dim(follows=lambda m: 32), Dim(follows=lambda m: 16)
    down_a, down_b = Dim(follows=lambda m: -(-m // CHUNK)), Dim(follows=lambda n: -(-n // CHUNK))

    bn, bk = Param(32, 64, 96, 128, 160, 192, 224, 256), Param(128, 256, 512)
    stages, swizzle = Param(2, 3, 4, 5, 6), Param(64, 128)
    piece = Param(16, 32, 64, 128)  # columns of a tile that the epilogue takes at a time
    scaled = Param(1, 2)  # stages whose scales are in tensor memory at a time
    shared, taken_over = where_idle(m, n, k, bn, bk), where_queued(m, n, bn)
    widest = widest_pieces(piece)
    needed = Require(
        scaled <= stages, "scales of no more stages are in tensor memory than there are stages", kind="dominance",
        why="scales come from a stage that is full, and what it held before was multiplied before it was filled",
    )  # fmt: skip
    ctas = Choice("one", "pairs")
    cp, cp_pair = isa.Tcgen05Cp(), isa.Tcgen05CpPair()

    block: int
    mma: Any
    mma_pair: Any
    b: Any
    scales_a: Any
    scales_b: Any

    def multiply(self, p: Tracer) -> None:
        bm, bn, bk, piece, kind = 128, self.bn, self.bk, self.piece, self.scales_a.dtype
        deep, pairs, types = BLOCKS * self.block, self.ctas == "pairs", (self.a.dtype, self.b.dtype)
        mma, cp, part = (self.mma_pair, self.cp_pair, bn // 2) if pairs else (self.mma, self.cp, bn)
        depth = mma.shape(*types)[2]
        along, down = bk // deep, mma.chunks(bn)  # chunks of scales of a stage; a tile may begin within one
        stages = {
            "a": stage(p, mma, types, 0, (bm, bk), 1, self.swizzle),
            "b": stage(p, mma, types, 1, (bk, part), 0, self.swizzle),
            "sa": p.smem(kind, (1, along, 32, 16), swizzle=16),
            "sb": p.smem(kind, (down, along, 32, 16), swizzle=16),
        }
        cells = {
            "sa": p.buffer(TMEM, kind, (32, 16 * along)),
            "sb": p.buffer(TMEM, kind, (32, 16 * along * down)),
        }
        rounds: dict[str, Any] = {"step": bk, "divided": True}
        rows = self.ld.held((bm, piece), mma.path(piece), vector=self.vc, name="c")
        c_tile = p.buffer(TMEM, "f32", (bm, bn), path=mma.path(bn))
        with (
            self.dealt(p, self.m, self.n, bm, bn) as (j, i),
            p.pipeline("ring", self.stages, **stages) as ring,
            p.pipeline("cells", self.scaled, **cells) as cell,
            p.pipeline("sums", self.tiles, c=c_tile) as sums,
            ExitStack() as around,
        ):
            with p.role("producer", warps=1), p.loop(self.k, **rounds) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a, multicast=0)
                mine = j + p.rank(1) % 2 * part if pairs else j
                p.copy(self.tma, self.b.tile(kk, mine, shape=(bk, part)), s.b, multicast=1, every=2 if pairs else 1)
                p.copy(self.tma, self.scales_a.tile(i // CHUNK, kk // deep, 0, 0, shape=(1, along, 32, 16)), s.sa)
                p.copy(self.tma, self.scales_b.tile(j // CHUNK, kk // deep, 0, 0, shape=(down, along, 32, 16)), s.sb)
            with p.role("scaler", warps=1, first=1), p.loop(self.k, **rounds), cell.produce() as t, ring.consume() as s:
                p.copy(cp, s.sa, t.sa)
                p.copy(cp, s.sb, t.sb)
            with p.role("multiplier", warps=1, first=2), sums.produce() as t:
                p.clear(t.c)
                loop, steps = p.loop(self.k, **rounds), p.unroll(bk, step=depth)
                with loop, ring.consume() as s, cell.consume() as by, steps as kt:
                    fa, fb = s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, part))
                    p.multiply(mma, t.c, fa, fb, scales=(by.sa, by.sb), at=kt, column=j % CHUNK)
            self.take_sums(p, sums, self.ld, rows, self.out(p, around, rows), i, j, bn)

    @staticmethod
    def unpacked(x: Any, scales: Any) -> Any:
        """Rows of x times the scales of their blocks: (chunks down, along, 32, 16); codes are powers of two."""
        down, along = scales.shape[:2]
        rows = np.reshape(scales, (down, along, 32, 4, 4)).transpose(0, 3, 2, 1, 4).reshape(down * CHUNK, along * 4)
        numbers, block = (np.ldexp(1.0, rows.astype(int) - 127), 32) if scales.dtype.kind == "u" else (rows, 16)
        return x * np.repeat(numbers, block, axis=1)[: x.shape[0], : x.shape[1]]

    @staticmethod
    def reference(
        a: Any, b: Any, with_bias: bool = False, activation: str = "none", scaling: str = "none",
        with_residual: bool = False, scale: Any = None, bias: Any = None, scales: Any = None, residual: Any = None,
        scales_a: Any = None, scales_b: Any = None,
    ) -> Any:  # fmt: skip
        a, b = ScaledInChunks.unpacked(a, scales_a), ScaledInChunks.unpacked(b.T, scales_b).T
        return Epilogue.reference(a, b, with_bias, activation, scaling, with_residual, scale, bias, scales, residual)


class MatmulBlackwellMx(ScaledInChunks):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, of mxfp8, mxfp6 and mxfp4"""

    m, n, k, block, bn = ScaledInChunks.m, ScaledInChunks.n, ScaledInChunks.k, 32, ScaledInChunks.bn
    along = Dim(follows=lambda k: -(-k // (32 * BLOCKS)))
    down_a, down_b, rows, row_bytes = (
        ScaledInChunks.down_a, ScaledInChunks.down_b, ScaledInChunks.rows, ScaledInChunks.row_bytes,
    )  # fmt: skip
    a = Input(tuple(MX), m, k)
    b = Input(MX, k, n, majors=("col",), follows=a)
    scales_a = Input("u8", down_a, along, rows, row_bytes, values=integers(117, 138))
    scales_b = Input("u8", down_b, along, rows, row_bytes, values=integers(117, 138))
    c = Output(dict.fromkeys(MX, RESULTS), m, n, follows=a)
    bias, scales, residual = Input("f32", n), Input("f32", n), Input(of(RESIDUALS, *RESULTS), m, n, follows=c)
    mma, mma_pair = isa.Tcgen05MmaScaled(bn, 32), isa.Tcgen05MmaScaledPair(bn, 32)

    def program(self, p: Tracer) -> None:
        self.multiply(p)


class MatmulBlackwellNvfp4(ScaledInChunks):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, of nvfp4"""

    m, n, k, block, bn = ScaledInChunks.m, ScaledInChunks.n, ScaledInChunks.k, 16, ScaledInChunks.bn
    along = Dim(follows=lambda k: -(-k // (16 * BLOCKS)))
    down_a, down_b, rows, row_bytes = (
        ScaledInChunks.down_a, ScaledInChunks.down_b, ScaledInChunks.rows, ScaledInChunks.row_bytes,
    )  # fmt: skip
    a, b = Input("e2m1", m, k), Input("e2m1", k, n, majors=("col",))
    scales_a = Input("e4m3", down_a, along, rows, row_bytes, values=uniform(0.25, 4))
    scales_b = Input("e4m3", down_b, along, rows, row_bytes, values=uniform(0.25, 4))
    c = Output(RESULTS, m, n)
    bias, scales, residual = Input("f32", n), Input("f32", n), Input(of(RESIDUALS, *RESULTS), m, n, follows=c)
    mma, mma_pair = isa.Tcgen05MmaScaled(bn, 16), isa.Tcgen05MmaScaledPair(bn, 16)

    def program(self, p: Tracer) -> None:
        self.multiply(p)
