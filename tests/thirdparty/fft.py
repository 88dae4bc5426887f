"""Fourier transforms of rows: butterflies between lanes and warps, and bits of places in reversed order."""

import math
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, cos, equal, sin, uniform, where
from tinygpu.ptx import isa

N = 256


class Fft(Machine):
    """y = the discrete Fourier transform of each row of 256 complex numbers, by butterflies of radix 2"""

    m = Dim()
    x, y = Input("f32", m, N, 2, values=uniform(-1, 1)), Output("f32", m, N, 2)  # of an infinity parts may be finite

    warps, rows = Param(1, 2, 4), Param(1, 2)
    ld, st, add, exchange = isa.LdGlobal(2), isa.StGlobal(1), isa.Add("f32"), isa.Exchange("shuffles")
    arithmetic, whole, exact = isa.arithmetic("f32"), isa.arithmetic("s32"), False

    def program(self, p: Tracer) -> None:
        shape, half = (self.rows, N, 2), N // 2
        who = blocked(shape, threads=32 * self.warps, vector=2, across=1)
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, 0, shape=shape), who)
            re, im = (x.window((0, 0, part), (self.rows, N, 1)).squeeze(2) for part in range(2))
            place = p.index(who.reduced(2).squeeze(2), 1)
            while half:  # results come in the order of reversed bits
                pairs = (N // (2 * half), 2, half)
                first = equal(place & half, 0).split(1, pairs)
                angle = p.cast(place & (half - 1), "f32") * (-math.pi / half)
                c, s = cos(angle).split(1, pairs), sin(angle).split(1, pairs)
                parts = [value.split(1, pairs) for value in (re, im)]
                total = [p.reduce(self.add, v, axis=2, by=self.exchange) for v in parts]
                less = [p.reduce(self.add, where(first, v, -v), axis=2, by=self.exchange) for v in parts]
                re = where(first, total[0], less[0] * c - less[1] * s).merge(1, 2, 3)
                im = where(first, total[1], less[0] * s + less[1] * c).merge(1, 2, 3)
                half //= 2
            for part, value in enumerate((re, im)):
                bits = value.split(1, (2,) * 8).permute(0, 8, 7, 6, 5, 4, 3, 2, 1)
                window = self.y.tile(i, 0, part, shape=(self.rows, N, 1)).squeeze(2)
                p.store(self.st, window, bits.merge(1, 2, 3, 4, 5, 6, 7, 8))

    @staticmethod
    def reference(x: Any) -> Any:
        y = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)
        return np.stack([y.real, y.imag], axis=2)
