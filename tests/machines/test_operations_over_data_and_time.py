"""What users write of recurrences, windows with steps, pairs, hashes and ragged rows: verified against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from agreeing import check

from tinygpu.language import (
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    ascending,
    blocked,
    integers,
    maximum,
    silu,
    uniform,
    where,
)
from tinygpu.ptx import isa


class Recurrence(Machine):
    """h[i, t] = a[i, t] * h[i, t - 1] + b[i, t], from h = 0, over the grid"""

    m, t = Dim(), Dim()
    # of an infinity and a product of many a, which is 0, the scan makes a NaN where steps one by one keep the infinity
    a, b = Input("f32", m, t, values=uniform(0, 1)), Input("f32", m, t, values=uniform(-1, 1))
    h = Output("f32", m, t)

    warps, vector, step = Param(2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, arithmetic = isa.LdGlobal(vector), isa.StGlobal(vector), isa.arithmetic("f32")
    exchange = isa.Exchange("shuffles", "pairs")
    exact, contract = False, True

    def after(self, p: Tracer, left: Any, right: Any) -> Any:
        (a, b), (c, d) = left, right
        return a * c, b * c + d

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1), (self.t, shape[1])) as (i, t), p.role("all", warps=self.warps):
            a = p.load(self.ld, self.a.tile(i, t, shape=shape), who, fill=1.0)
            b = p.load(self.ld, self.b.tile(i, t, shape=shape), who)
            _, h = p.scan(Combine(self.after, identity=(1.0, 0.0)), (a, b), axis=1, by=self.exchange, grid=1)
            p.store(self.st, self.h.tile(i, t, shape=shape), h)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        h, out = 0 * b[:, 0], []
        for t in range(a.shape[1]):
            h = a[:, t] * h + b[:, t]
            out.append(h)
        return np.stack(out, axis=1)


class MaxPool(Machine):
    """y = the largest of each 3 x 3 window with stride 2 and padding 1, and where it lies in its image (h * w + w)"""

    n, h, w = Dim(), Dim(), Dim()
    p = Dim(follows=lambda h: (h - 1) // 2 + 1)
    q = Dim(follows=lambda w: (w - 1) // 2 + 1)
    x = Input("f32", n, h, w, values=uniform(-100, 100))
    y, at = Output("f32", n, p, q), Output("s32", n, p, q)

    warps, rows, cols = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        shape = (1, self.warps * self.rows, 32 * self.cols)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.n, 1), (self.p, shape[1]), (self.q, shape[2])) as (z, i, j), p.role("all", warps=self.warps):
            best, at = p.full(who, "f32", -math.inf), p.full(who, "s32", 0)
            row, column = p.index(who.along(1), 1) + i, p.index(who.along(2), 2) + j
            for r in range(3):
                for s in range(3):
                    window = self.x.tile(z, 2 * i + r - 1, 2 * j + s - 1, shape=shape, step=(1, 2, 2))
                    x = p.load(self.ld, window, who, fill=-math.inf)
                    here = (row * 2 + (r - 1)) * self.w + (column * 2 + (s - 1))
                    better = x > best
                    at = where(better, here, at)
                    best = maximum(best, x)
            p.store(self.st, self.y.tile(z, i, j, shape=shape), best)
            p.store(self.st, self.at.tile(z, i, j, shape=shape), at)

    @staticmethod
    def reference(x: Any) -> Any:
        _, h, w = x.shape
        wide = np.pad(x, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        p, q = (h - 1) // 2 + 1, (w - 1) // 2 + 1
        taps = np.stack([wide[:, r : r + 2 * p - 1 : 2, s : s + 2 * q - 1 : 2] for r in range(3) for s in range(3)])
        k = taps.argmax(axis=0)
        i, j = np.arange(p)[:, None] * 2 - 1 + k // 3, np.arange(q) * 2 - 1 + k % 3
        return {"y": taps.max(axis=0), "at": i * w + j}


class Butterfly(Machine):
    """One radix-2 step of an FFT, (a + w b, a - w b), complex numbers interleaved as (re, im)"""

    m, half = Dim(), Dim()
    two = Dim(2)
    a, b = Input("f32", m, half, two), Input("f32", m, half, two)
    w = Input("f32", half, two)
    y = Output("f32", m, two, half, two)

    warps, each = Param(1, 2, 4, 8), Param(1, 2)
    ld, st = isa.LdGlobal(2), isa.StGlobal(2)
    arithmetic, contract = isa.arithmetic("f32"), False

    def program(self, p: Tracer) -> None:
        cols = 32 * self.warps * self.each
        shape = (1, cols, 2)
        who = blocked(shape, threads=32 * self.warps, vector=2, across=1)
        one = who.squeeze(0)
        with p.grid((self.m, 1), (self.half, cols)) as (i, j), p.role("all", warps=self.warps):
            a = p.load(self.ld, self.a.tile(i, j, 0, shape=shape), who)
            b = p.load(self.ld, self.b.tile(i, j, 0, shape=shape), who)
            w = p.load(self.ld, self.w.tile(j, 0, shape=(cols, 2)), one).unsqueeze(0)
            parts = {}
            for name, t in (("b", b), ("w", w)):
                for c in (0, 1):
                    parts[name, c] = t.window((0, 0, c), (1, cols, 1))
            real = parts["b", 0] * parts["w", 0] - parts["b", 1] * parts["w", 1]
            imag = parts["b", 0] * parts["w", 1] + parts["b", 1] * parts["w", 0]
            t = p.where(p.apply(self.zero, p.index(who, 2), 0), real, imag)
            for c, value in ((0, a + t), (1, a - t)):
                p.store(self.st, self.y.tile(i, c, j, 0, shape=(1, 1, cols, 2)), value.unsqueeze(1))

    select = isa.Select("f32")
    zero = isa.Compare("s32", "==")

    @staticmethod
    def reference(a: Any, b: Any, w: Any) -> Any:
        real = b[..., 0] * w[..., 0] - b[..., 1] * w[..., 1]
        imag = b[..., 0] * w[..., 1] + b[..., 1] * w[..., 0]
        t = np.stack([real, imag], axis=-1)
        return np.stack([a + t, a - t], axis=1)


class Dropout(Machine):
    """y = x / (1 - rate) where a hash of (seed, place) is at least rate * 2^32, else 0"""

    n = Dim()
    seed = Scalar("u32")
    threshold = Scalar("u32")
    scale = Scalar("f32", values=uniform(1, 2))
    x = Input(("f32", "bf16"), n)
    y = Output({"f32": ("f32",), "bf16": ("bf16",)}, n, follows=x)

    warps, vector = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    arithmetic, bits, cvt = isa.arithmetic("f32"), isa.arithmetic("u32"), isa.Cvt("s32", "u32")
    compute = "f32"

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            z = p.cast(p.index(who, 0), "u32") + i
            z = z ^ self.seed
            for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
                z = (z ^ (z >> shift)) * factor
            z = z ^ (z >> 15)
            p.store(self.st, self.y.tile(i, shape=shape), p.where(z >= self.threshold, x * self.scale, 0.0))

    @staticmethod
    def reference(seed: Any, threshold: Any, scale: Any, x: Any) -> Any:
        z = np.arange(len(x)) ^ seed
        for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
            z = ((z ^ (z >> shift)) * factor) & 0xFFFFFFFF
        z = z ^ (z >> 15)
        return np.where(z >= threshold, x * scale, 0)


class Csr(Machine):
    """y = A x, A in compressed rows: values and columns from start[i] to start[i + 1]"""

    m, m1 = Dim(), Dim(follows=lambda m: m + 1)
    n, nnz = Dim(), Dim()
    start = Input("s32", m1, values=ascending(0, nnz, ends=True))
    columns = Input("s32", nnz, values=integers(0, n))
    values, x = Input("f32", nnz), Input("f32", n)
    y = Output("f32", m)

    vector, across = Param(1, 2), Param(32)
    ld, st, single, shuffle = isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1), isa.ShflBfly()
    ld_i = isa.LdGlobalReadOnly(1)
    arithmetic, add, contract = isa.arithmetic("f32"), isa.Add("f32"), True

    def program(self, p: Tracer) -> None:
        shape = (32 * self.vector,)
        who = blocked(shape, threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            begin, end = self.start[i], self.start[i + 1]
            total = p.full(who, "f32")
            with p.loop(p.until(end - begin), step=shape[0]) as j:
                at = p.load(self.ld, self.columns.segment(begin, end).tile(j, shape=shape), who, fill=-1)
                a = p.load(self.ld, self.values.segment(begin, end).tile(j, shape=shape), who)
                total += a * p.load(self.ld, self.x.rows(at).tile(0, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=(1,)), p.reduce(self.add, total, axis=0, by=self.shuffle))

    @staticmethod
    def reference(start: Any, columns: Any, values: Any, x: Any) -> Any:
        products = np.concatenate([values * x[columns], 0 * values[:1]])
        return np.stack([products[a:b].sum() for a, b in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)])


class CausalConv(Machine):
    """y[b, c, t] = silu(bias[c] + sum over k of w[c, k] * x[b, c, t - 3 + k])"""

    b, c, t = Dim(), Dim(), Dim()
    k = Dim(4)
    x, w, bias = Input(("bf16", "f16", "f32"), b, c, t), Input("f32", c, k), Input("f32", c)
    y = Output({"bf16": ("bf16",), "f16": ("f16",), "f32": ("f32",)}, b, c, t, follows=x)

    warps, cols = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, ld1, st = isa.LdGlobal(1), isa.LdGlobalReadOnly(1), isa.StGlobal(1)
    arithmetic = isa.arithmetic("f32")
    compute, contract, exact = "f32", True, False

    def program(self, p: Tracer) -> None:
        shape = (1, self.warps, 32 * self.cols)
        who = blocked(shape, threads=32 * self.warps, across=32)
        one = who.along(1)
        grid = p.grid((self.b, 1), (self.c, self.warps), (self.t, shape[2]))
        with grid as (z, c, t), p.role("all", warps=self.warps):
            total = p.cast(p.load(self.ld1, self.bias.column(c, self.warps), one.squeeze(0)).unsqueeze(0), "f32")
            for k in range(4):
                w = p.load(self.ld1, self.w.tile(c, k, shape=(self.warps, 1)), one.squeeze(0)).unsqueeze(0)
                total = p.load(self.ld, self.x.tile(z, c, t - 3 + k, shape=shape), who) * w + total
            p.store(self.st, self.y.tile(z, c, t, shape=shape), silu(total))

    @staticmethod
    def reference(x: Any, w: Any, bias: Any) -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (3, 0)))
        total = sum(wide[:, :, k : k + x.shape[2]] * w[:, k : k + 1] for k in range(4)) + bias[:, None]
        return total / (1 + np.exp(-total))


CASES: list[tuple[type[Machine], dict[str, Any]]] = [
    (Recurrence, {"m": 3, "t": 1}),
    (Recurrence, {"m": 3, "t": 1537}),
    (MaxPool, {"n": 3, "h": 1, "w": 1}),
    (MaxPool, {"n": 3, "h": 17, "w": 131}),
    (Butterfly, {"m": 3, "half": 1}),
    (Butterfly, {"m": 3, "half": 257}),
    (Dropout, {"n": 1}),
    (Dropout, {"n": 1031, "dtypes": {"x": "bf16"}}),
    (Csr, {"m": 101, "n": 37, "nnz": 1}),
    (Csr, {"m": 101, "n": 37, "nnz": 1009}),
    (CausalConv, {"b": 2, "c": 9, "t": 1, "dtypes": {"x": "f32"}}),
    (CausalConv, {"b": 2, "c": 9, "t": 131}),
]


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "asked"), CASES)
def test_an_operation_over_data_or_time_agrees_with_numpy(machine: type[Machine], asked: dict[str, Any]) -> None:
    check(machine, 2, **asked)


def test_a_product_in_a_merge_is_none_of_the_program() -> None:
    """Values of a merge have names that those of the program have again: a product there was taken for one of these."""
    assert Recurrence.contract
    check(Recurrence, 1, m=2, t=300)
