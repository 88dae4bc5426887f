"""Quantise rows by blocks to 8 or 4 bits, each block with a scale of its own, and back.

A block is as many neighbours of a row as its largest element scales: some lanes of a warp hold it, meet by shuffles for
that element, and multiply all by what makes it the largest number of the narrow type. Elements are read once in wide
vectors, and leave as packed registers, so that a thread wants as many neighbours as fill one. The last block of a row
may be shorter. Searched are how many lanes lie along a row, how much of it and how many rows each has, and the vectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Option, Output, Param, Require, Tracer, blocked, maximum
from tinygpu.ptx import isa

KINDS = ("f16", "bf16", "f32")
LEAST = 2.0**-100  # a block of zeros has a scale too, and one over it is finite


class Blocks(Machine):
    """What both ways have: so many elements of a row to a scale, and those who hold them"""

    m, n = Dim(), Dim()
    block = Option(128, 16, 32, 64, 256)
    blocks = Dim(follows=lambda n, block: -(-n // block))

    warps, across = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16, 32, 64, 128)
    vector, together, rows = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2)  # together: blocks of a row
    ld, st, ld_one, st_one = isa.LdGlobal(vector), isa.StGlobal(vector), isa.LdGlobalReadOnly(1), isa.StGlobal(1)
    arithmetic, larger, shuffle = isa.arithmetic("f32"), isa.Max("f32"), isa.ShflBfly()
    compute, exact = "f32", False

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")

    def held(self) -> tuple[Any, Any, Any]:
        """Rows and columns of a tile, its columns as blocks, and who holds it."""
        tile = (32 * self.warps // self.across * self.rows, self.together * self.block)
        who = blocked(tile, threads=32 * self.warps, vector=self.vector, across=self.across)
        return tile, (self.together, self.block), who


class Quantised(Blocks):
    """q = x / scales, rounded: a scale makes the largest element of its block the largest number of q's type"""

    x = Input(KINDS, Blocks.m, Blocks.n)
    limit: float
    q: Any
    scales: Any

    def quantise(self, p: Tracer) -> None:
        tile, apart, who = self.held()
        with p.grid((self.m, tile[0]), (self.n, tile[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=tile), who), "f32").split(1, apart)
            most = maximum(p.reduce(self.larger, abs(x), axis=2, by=self.shuffle), LEAST)
            q = p.cast(x * (self.limit / most), self.q.dtype)
            p.store(self.st, self.q.tile(i, j, shape=tile), q.merge(1, 2))
            scales = self.scales.tile(i, j // self.block, shape=(tile[0], apart[0]))
            p.store(self.st_one, scales, (most * (1 / self.limit)).squeeze(2))

    @staticmethod
    def quantised(x: Any, block: int, limit: float) -> tuple[Any, Any]:
        """x as multiples of the scales of its blocks, and the scales."""
        m, n = x.shape
        apart = np.pad(x, ((0, 0), (0, -n % block))).reshape(m, -1, block)
        most = np.maximum(np.abs(apart).max(axis=2), LEAST)
        return (apart * (limit / most)[:, :, None]).reshape(m, -1)[:, :n], most / limit


class QuantiseInt8(Quantised):
    """q = x / scales in s8, where the largest element of each block is 127 or -127"""

    q, scales, limit = Output("s8", Blocks.m, Blocks.n), Output("f32", Blocks.m, Blocks.blocks), 127.0

    def program(self, p: Tracer) -> None:
        self.quantise(p)

    @staticmethod
    def reference(x: Any, block: int) -> Any:
        q, scales = Quantised.quantised(x, block, QuantiseInt8.limit)
        return {"q": np.rint(q), "scales": scales}


class QuantiseFp8(Quantised):
    """q = x / scales in e4m3, where the largest element of each block is 448 or -448"""

    q, scales, limit = Output("e4m3", Blocks.m, Blocks.n), Output("f32", Blocks.m, Blocks.blocks), 448.0

    def program(self, p: Tracer) -> None:
        self.quantise(p)

    @staticmethod
    def reference(x: Any, block: int) -> Any:
        q, scales = Quantised.quantised(x, block, QuantiseFp8.limit)
        return {"q": q, "scales": scales}


class QuantiseFp4(Quantised):
    """q = x / scales in e2m1, where the largest element of each block is 6 or -6"""

    q, scales, limit = Output("e2m1", Blocks.m, Blocks.n), Output("f32", Blocks.m, Blocks.blocks), 6.0

    def program(self, p: Tracer) -> None:
        self.quantise(p)

    @staticmethod
    def reference(x: Any, block: int) -> Any:
        q, scales = Quantised.quantised(x, block, QuantiseFp4.limit)
        return {"q": q, "scales": scales}


class Dequantise(Blocks):
    """y = q * scales, or (q - zeros) * scales: every element by the scale, and the zero point, of its block"""

    q = Input(("s8", "e4m3", "e5m2", "s4", "e2m1"), Blocks.m, Blocks.n)
    scales, zeros = Input("f32", Blocks.m, Blocks.blocks), Input("f32", Blocks.m, Blocks.blocks)
    y = Output(KINDS, Blocks.m, Blocks.n)
    with_zeros = Option(False, True)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "zeros" or bool(options["with_zeros"])

    def program(self, p: Tracer) -> None:
        tile, apart, who = self.held()
        with p.grid((self.m, tile[0]), (self.n, tile[1])) as (i, j), p.role("all", warps=self.warps):
            q: Any = p.cast(p.load(self.ld, self.q.tile(i, j, shape=tile), who), "f32").split(1, apart)
            at, held = (i, j // self.block), q.partition.reduced(2).squeeze(2)
            if self.with_zeros:
                q = q - p.load(self.ld_one, self.zeros.tile(*at, shape=(tile[0], apart[0])), held).unsqueeze(2)
            scales = p.load(self.ld_one, self.scales.tile(*at, shape=(tile[0], apart[0])), held)
            p.store(self.st, self.y.tile(i, j, shape=tile), p.cast((q * scales.unsqueeze(2)).merge(1, 2), self.y.dtype))

    @staticmethod
    def reference(q: Any, scales: Any, block: int, with_zeros: bool, zeros: Any = 0) -> Any:
        wide = q.astype(np.float32)
        if with_zeros:
            wide = wide - np.repeat(zeros, block, axis=1)[:, : q.shape[1]]
        return wide * np.repeat(scales, block, axis=1)[:, : q.shape[1]]
