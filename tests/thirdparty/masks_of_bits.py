"""Flags that are stored as bits of words: what a random number keeps, and which boxes overlap."""

from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Elementwise,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    blocked,
    maximum,
    minimum,
    uniform,
    where,
)
from tinygpu.ptx import isa

# Salmon and others, Parallel random numbers: as easy as 1, 2, 3 (2011): Philox2x32.
MULTIPLIER, WEYL, ROUNDS = 0xD256D193, 0x9E3779B9, 10


class MulHigh(Elementwise):
    """d = the upper half of a * b"""

    operands, result, sign = ("u32", "u32"), "u32", "upper half"
    template = "mul.hi.u32 {d}, {a}, {b};"
    unit, source = "fma", "PTX ISA, integer arithmetic instructions: mul"

    def meaning(self, a: Any, b: Any) -> Any:
        return (np.asarray(a).astype(np.uint64) * np.asarray(b).astype(np.uint64) >> np.uint64(32)).astype(np.uint32)


class PhiloxDropout(Machine):
    """y = x * scale where Philox2x32-10 of an element's place is at least a limit, else 0; kept has a bit for each"""

    n = Dim()
    words = Dim(follows=lambda n: (n + 31) // 32)
    seed, limit, scale = Scalar("u32"), Scalar("u32"), Scalar("f32")
    x, y, kept = Input("f32", n), Output("f32", n), Output("u32", words)

    warps, each = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    high, either = MulHigh(), isa.Or("u32")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("u32")

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.each, 32)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.words, shape[0])) as (i,), p.role("all", warps=self.warps):
            x, y = (t.tile(i * 32, shape=(shape[0] * 32,)).split(0, shape) for t in (self.x, self.y))
            lane = p.cast(p.index(who, 1), "u32")
            place = (p.cast(p.index(who, 0), "u32") + i) * 32 + lane
            left, right = place, p.full(who, "u32")
            for number in range(ROUNDS):
                product = left * MULTIPLIER if number < ROUNDS - 1 else None  # the last one's is not looked at
                key = self.seed + WEYL * number % 2**32
                left, right = p.apply(self.high, left, MULTIPLIER) ^ right ^ key, product
            keep = left >= self.limit
            p.store(self.st, y, where(keep, p.load(self.ld, x, who) * self.scale, 0.0))
            bits = where(keep & (place < self.n), p.full(who, "u32", 1) << lane, 0)
            p.store(self.st, self.kept.column(i, shape[0]), p.reduce(self.either, bits, axis=1, by=self.shuffle))

    @staticmethod
    def reference(seed: Any, limit: Any, scale: Any, x: Any) -> Any:
        n = len(x)
        left, right = np.arange(n, dtype=np.uint64), np.zeros(n, dtype=np.uint64)
        for number in range(ROUNDS):
            product = left * np.uint64(MULTIPLIER)
            key = (seed + WEYL * number) % 2**32
            left, right = (product >> np.uint64(32)) ^ right ^ key, product % np.uint64(2**32)
        keep = left >= limit
        bits = np.pad(keep, (0, -n % 32)).reshape(-1, 32) << np.arange(32)
        return {"y": np.where(keep, x * scale, 0.0), "kept": bits.sum(axis=1)}


class Suppressed(Machine):
    """Bit j % 32 of word j // 32 of row i: box j comes behind box i, and overlaps it by more than a share of both"""

    n = Dim()
    words = Dim(follows=lambda n: (n + 31) // 32)
    share = Scalar("f32", values=uniform(0.2, 0.8))
    boxes = Input("f32", n, 4, values=uniform(0.25, 1))  # where the middle is, width, height
    mask = Output("u32", n, words)

    warps, rows = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, shuffle, either = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.Or("u32")
    arithmetic, whole, bits = isa.arithmetic("f32"), isa.arithmetic("s32"), isa.arithmetic("u32")

    def program(self, p: Tracer) -> None:
        shape = (self.rows * self.warps, 32)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.n, shape[0]), (self.words, 1)) as (i, word), p.role("all", warps=self.warps):
            mine = [p.load(self.ld, self.boxes.tile(i, c, shape=(shape[0], 1)), who.along(0)) for c in range(4)]
            others = [p.load(self.ld, self.boxes.tile(word * 32, c, shape=(32, 1)).T, who.along(1)) for c in range(4)]
            (x, y, w, h), (x2, y2, w2, h2) = mine, others
            wide = minimum(x + w / 2, x2 + w2 / 2) - maximum(x - w / 2, x2 - w2 / 2)
            high = minimum(y + h / 2, y2 + h2 / 2) - maximum(y - h / 2, y2 - h2 / 2)
            both = maximum(wide, 0.0) * maximum(high, 0.0)
            row, column = p.index(who.along(0), 0) + i, p.index(who.along(1), 1) + word * 32
            on = (both > self.share * (w * h + w2 * h2 - both)) & (column > row) & (column < self.n)
            bit = p.full(who, "u32", 1) << p.cast(p.index(who, 1), "u32")
            found = p.reduce(self.either, where(on, bit, 0), axis=1, by=self.shuffle)
            p.store(self.st, self.mask.tile(i, word, shape=(shape[0], 1)), found)

    @staticmethod
    def reference(share: Any, boxes: Any) -> Any:
        x, y, w, h = boxes.T
        n, area = len(x), w * h
        wide = np.minimum.outer(x + w / 2, x + w / 2) - np.maximum.outer(x - w / 2, x - w / 2)
        high = np.minimum.outer(y + h / 2, y + h / 2) - np.maximum.outer(y - h / 2, y - h / 2)
        both = np.maximum(wide, 0) * np.maximum(high, 0)
        on = (both > share * (area[:, None] + area - both)) & (np.arange(n) > np.arange(n)[:, None])
        return (np.pad(on, ((0, 0), (0, -n % 32))).reshape(n, -1, 32) << np.arange(32)).sum(axis=2)
