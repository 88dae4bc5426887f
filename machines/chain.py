"""Chains of element-wise functions, written once: on tiles of a traced program instructions, on arrays NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.language.tile import Tile
from tinygpu.ptx import isa

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


class Traced:
    """An f32 tile in a chain; Python's operators and the functions below apply instructions to it."""

    def __init__(self, tracer: Any, tile: Tile) -> None:
        self.tracer = tracer
        self.tile = tile

    def __add__(self, other: Any) -> Traced:
        return _apply(isa.Add("f32"), self, other)

    def __radd__(self, other: Any) -> Traced:
        return _apply(isa.Add("f32"), self, other)

    def __sub__(self, other: Any) -> Traced:
        return _apply(isa.Sub("f32"), self, other)

    def __rsub__(self, other: Any) -> Traced:
        return _apply(isa.Sub("f32"), other, self)

    def __mul__(self, other: Any) -> Traced:
        return _apply(isa.Mul("f32"), self, other)

    def __rmul__(self, other: Any) -> Traced:
        return _apply(isa.Mul("f32"), self, other)

    def __truediv__(self, other: Any) -> Traced:
        return _apply(isa.Div("f32"), self, other)

    def __rtruediv__(self, other: Any) -> Traced:
        return _apply(isa.Div("f32"), other, self)

    def __neg__(self) -> Traced:
        return _apply(isa.Neg("f32"), self)

    def __abs__(self) -> Traced:
        return _apply(isa.Abs("f32"), self)


def _apply(instruction: Any, *operands: Any) -> Traced:
    tracer = next(o.tracer for o in operands if isinstance(o, Traced))
    tiles = [o.tile if isinstance(o, Traced) else o for o in operands]
    return Traced(tracer, tracer.apply(instruction, *tiles))


def _either(instruction: Any, function: Callable[..., Any], *operands: Any) -> Any:
    if any(isinstance(o, Traced) for o in operands):
        return _apply(instruction, *operands)
    return function(*operands)


def maximum(a: Any, b: Any) -> Any:
    return _either(isa.Max("f32"), np.maximum, a, b)


def minimum(a: Any, b: Any) -> Any:
    return _either(isa.Min("f32"), np.minimum, a, b)


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return _either(isa.Fma("f32"), lambda x, y, z: x * y + z, a, b, c)


def exp(x: Any) -> Any:
    return _either(isa.Ex2("f32"), np.exp2, x * LOG2_E)


def log(x: Any) -> Any:
    return _either(isa.Lg2("f32"), np.log2, x) * LN_2


def sqrt(x: Any) -> Any:
    return _either(isa.Sqrt("f32"), np.sqrt, x)


def rsqrt(x: Any) -> Any:
    return _either(isa.Rsqrt("f32"), lambda v: 1 / np.sqrt(v), x)


def tanh(x: Any) -> Any:
    return _either(isa.Tanh("f32"), np.tanh, x)


def reciprocal(x: Any) -> Any:
    return _either(isa.Rcp("f32"), np.reciprocal, x)


def relu(x: Any) -> Any:
    return maximum(x, 0.0)


def sigmoid(x: Any) -> Any:
    return reciprocal(exp(-x) + 1.0)


def silu(x: Any) -> Any:
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    """The form with tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * 0.7978845608028654) + 1.0)
