"""An image resized by cubic convolution: pixels are rows that each thread computes, weights are made of places."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, Tracer, blocked, maximum, minimum
from tinygpu.ptx import isa

SHARPNESS = -0.75


class Quotient(Elementwise):
    """a // b, of numbers from 0 on"""

    operands, result, sign = ("s32", "s32"), "s32", "//"
    template = "div.s32 {d}, {a}, {b};"
    unit, source = "alu", "PTX ISA, integer arithmetic instructions: div"

    def meaning(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return np.where(b == 0, 0, np.trunc(a / np.where(b == 0, 1, b))).astype(np.int32)

    def defined(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
        return (b != 0) & ~((a == -(2**31)) & (b == -1))


def weights(t: Any) -> tuple[Any, ...]:
    """Those of four neighbours, of which the second is as far below as t."""

    def near(x: Any) -> Any:
        return ((SHARPNESS + 2) * x - (SHARPNESS + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((SHARPNESS * x - 5 * SHARPNESS) * x + 8 * SHARPNESS) * x - 4 * SHARPNESS

    return far(t + 1), near(t), near(1 - t), far(2 - t)


class Bicubic(Machine):
    """x (h w, c) resized to y (p, q, c): pixels are squares whose middles correspond, and edges go on as they end"""

    h, w, c, p, q = Dim(), Dim(), Dim(), Dim(), Dim()
    size = Dim(follows=lambda h, w: h * w)
    x, y = Input("f32", size, c), Output("f32", p, q, c)
    warps, columns = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, divide = isa.LdGlobal(1), isa.StGlobal(1), Quotient()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (1, self.warps * self.columns, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.p, 1), (self.q, shape[1]), (self.c, 32)) as (i, j, c), p.role("all", warps=self.warps):
            row, down = self.place(p, who, 0, i, self.h, self.p)
            column, across = self.place(p, who, 1, j, self.w, self.q)
            total = p.full(who, "f32")
            for a, weight in enumerate(weights(down)):
                line = p.full(who, "f32")
                r = minimum(maximum(row + (a - 1), 0), self.h - 1)
                for b, part in enumerate(weights(across)):
                    s = minimum(maximum(column + (b - 1), 0), self.w - 1)
                    pixels = (r * self.w + s).squeeze(2)
                    line += p.load(self.ld, self.x.rows(pixels).tile(0, 0, c, shape=shape), who) * part
                total += line * weight
            p.store(self.st, self.y.tile(i, j, c, shape=shape), total)

    def place(self, p: Tracer, who: Any, axis: int, first: Any, inner: Any, outer: Any) -> tuple[Any, Any]:
        """Along an axis the pixel of x below each one of y, and how far behind it that is."""
        ahead = (2 * (p.index(who.along(axis), axis) + first) + 1) * inner + outer  # of a pixel more: none is below 0
        step = p.full(who.along(axis), "s32", 2 * outer)
        pixel = ahead // step
        return pixel - 1, p.cast(ahead - pixel * step, "f32") / p.cast(step, "f32")

    @staticmethod
    def reference(x: Any, h: int, w: int, p: int, q: int) -> Any:
        def places(count: int, of: int) -> tuple[Any, Any]:
            pixel, rest = np.divmod((2 * np.arange(count) + 1) * of - count, 2 * count)
            return pixel, rest / (2 * count)

        (rows, down), (columns, across) = places(p, h), places(q, w)
        image, total = x.reshape(h, w, -1), 0
        for a, weight in enumerate(weights(down)):
            lines, line = image[np.clip(rows + a - 1, 0, h - 1)], 0
            for b, part in enumerate(weights(across)):
                line = line + lines[:, np.clip(columns + b - 1, 0, w - 1)] * part[None, :, None]
            total = total + line * weight[:, None, None]
        return total
