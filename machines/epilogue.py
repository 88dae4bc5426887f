"""What follows a matmul: bias, activation, and the type of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.language.problem import Problem
from tinygpu.language.tile import Tile
from tinygpu.ptx import isa

NO_REGISTERS = "cp.async moves the same sectors without passing through registers (PTX ISA, cp.async)"
FOUR_MATRICES = "one ldmatrix.x4 brings what sixteen or more 32-bit and narrower loads bring (PTX ISA, ldmatrix)"

ACTIVATIONS = ("none", "relu", "gelu", "silu")
INTEGER_ACTIVATIONS = ("none", "relu")


def refuses_integers(problem: Problem) -> str:
    """Why a matmul on integers refuses a problem with this activation; "" where it does not."""
    kind, activation = problem.operand("a").dtype, dict(problem.options)["activation"]
    if kind.is_float or activation in INTEGER_ACTIVATIONS:
        return ""
    known = " or ".join(INTEGER_ACTIVATIONS)
    return f"{kind} operands give integers, for which the activation is {known}, not {activation}"


def activate(p: Any, value: Tile, name: str) -> Any:
    """The activation `name` of an f32 (relu: also s32) tile."""
    if name == "none":
        return value
    if name == "relu":
        return p.apply(isa.Max(value.dtype.name), value, 0.0)
    mul, fma, add = isa.Mul("f32"), isa.Fma("f32"), isa.Add("f32")
    if name == "silu":  # x / (1 + exp(-x))
        e = p.apply(isa.Ex2("f32"), p.apply(mul, value, -1.4426950408889634))
        return p.apply(mul, value, p.apply(isa.Rcp("f32"), p.apply(add, e, 1.0)))
    # gelu with tanh: 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3)))
    inner = p.apply(fma, p.apply(mul, value, value), 0.0356774081, 0.7978845608)
    t = p.apply(isa.Tanh("f32"), p.apply(mul, value, inner))
    half = p.apply(mul, value, 0.5)
    return p.apply(fma, half, t, half)


def convert(p: Any, value: Tile, to: DType) -> Any:
    """The tile in another type."""
    return value if value.dtype == to else p.apply(isa.Cvt(value.dtype.name, to.name), value)


def reference(product: Any, bias: Any, activation: str) -> Any:
    """The same in NumPy, in double precision."""
    x = product if bias is None else product + bias
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "silu":
        return x / (1 + np.exp(-x))
    if activation == "gelu":
        return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return x


def precision(activation: str) -> tuple[bool, float]:
    """(whether small integers stay exact, relative error of the approximate functions): tanh.approx is within 2^-11."""
    return (True, 0.0) if activation in ("none", "relu") else (False, 2.0**-10)
