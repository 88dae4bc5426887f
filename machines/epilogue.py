"""What follows a matmul: c = activation(scale * (a @ b) + bias) + residual, in f32, then the type of c.

Every matmul machine is an `Epilogue` beside being a matmul, so that the whole family takes the same operands
(`operands.py`), and calls `finish` on its accumulator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.language import Machine, Option, Problem, Scalar, Tracer
from tinygpu.language.tile import Tile
from tinygpu.ptx import isa

ACTIVATIONS = ("none", "relu", "gelu", "silu")
INTEGER_ACTIVATIONS = ("none", "relu")
SCALINGS = ("none", "number", "columns")

# Of this many products of s8, 2^14 at most, no sum leaves s32.
MOST_S8_TERMS = (2**31 - 1) // 2**14


class Epilogue(Machine):
    """c = activation(scale * (a @ b) + bias) + residual, for machines with the operands of the same names.

    with_bias      adds bias[n] to every row
    activation     none, relu, gelu (the form with tanh) or silu
    scaling        "number": multiplies by the scalar `scale`; "columns": column j by scales[j] (quantised weights)
    with_residual  adds residual[m, n], of the type of c, after the activation

    Operands of 8-bit integers give integers where c is s32 (then without scale); else all of this is done in f32.
    """

    with_bias = Option(False, True)
    activation = Option(*ACTIVATIONS)
    scaling = Option(*SCALINGS)
    with_residual = Option(False, True)
    scale = Scalar("f32")

    # What a matmul machine declares, by `operands`, and the instructions that read it.
    a: Any
    bias: Any
    scales: Any
    residual: Any
    c: Any
    ld_bias: Any
    ld_residual: Any

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        there = {"bias": "with_bias", "residual": "with_residual"}
        return bool(options[there[name]]) if name in there else name != "scales" or options["scaling"] == "columns"

    @classmethod
    def uses_scalar(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "scale" or options["scaling"] == "number"

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        """(whether sums of small integers stay exact, relative error of the approximate functions).

        tanh.approx is within 2^-11 (PTX ISA, tanh); ex2.approx and rcp.approx are as good as functions are taken to be.
        """
        return True, 2.0**-11 if options["activation"] == "gelu" else 0.0

    @classmethod
    def refuses(cls, problem: Problem) -> str:
        """Why integers refuse a combination of options and types; "" where they do not."""
        kind, result, options = problem.operand("a").dtype, problem.operand("c").dtype, dict(problem.options)
        if kind.is_float:
            return ""
        if problem.dim["k"] > MOST_S8_TERMS:
            return (
                f"the sum of k = {problem.dim['k']:,} products of s8 may leave s32: 131,072 times -128 * -128 is 2^31; "
                f"k is at most {MOST_S8_TERMS:,}, so split the product and add the parts"
            )
        bias = next((o.dtype for o in problem.operands if o.name == "bias"), None)
        if result.is_float:
            wrong = bias is not None and not bias.is_float
            return f"where c is {result} the bias is added in f32: it is f32, not {bias}" if wrong else ""
        if options["activation"] not in INTEGER_ACTIVATIONS:
            known = " or ".join(INTEGER_ACTIVATIONS)
            return f"where c is {result} the activation is {known}, not {options['activation']}; c may be f32 instead"
        if options["scaling"] != "none":
            return f"where c is {result} the product is not scaled; let c be f32, f16 or bf16"
        if bias is not None and bias.is_float:
            return f"where c is {result} the bias is {result} too, not {bias}"
        return ""

    def finish(self, p: Tracer, product: Tile, i: Any, j: Any) -> Any:
        """The result of one tile: its accumulators, to the type of c. The tile begins at row i, column j of c.
        """
        who: Any = product.partition
        rows, columns = product.shape
        wide = "s32" if self.c.dtype.name == "s32" else "f32"
        value = product if product.dtype.name == wide else p.apply(isa.Cvt(product.dtype.name, wide), product)
        bias = p.load(self.ld_bias, self.bias.row(j, columns), who.along(1)) if self.with_bias else None
        scale: Any = self.scale
        if self.scaling == "columns":
            scale = p.load(self.ld_bias, self.scales.row(j, columns), who.along(1))
        if self.scaling != "none":
            scaled = (isa.Mul(wide), value, scale) if bias is None else (isa.Fma(wide), value, scale, bias)
            value = p.apply(*scaled)
        elif bias is not None:
            value = p.apply(isa.Add(wide), value, bias)
        value = activate(p, value, self.activation)
        if self.with_residual:
            more = p.load(self.ld_residual, self.residual.tile(i, j, shape=(rows, columns)), who)
            value = p.apply(isa.Add(wide), value, convert(p, more, value.dtype))
        return convert(p, value, self.c.dtype)

    @staticmethod
    def reference(
        a: Any,
        b: Any,
        with_bias: bool = False,
        activation: str = "none",
        scaling: str = "none",
        with_residual: bool = False,
        scale: Any = None,
        bias: Any = None,
        scales: Any = None,
        residual: Any = None,
    ) -> Any:
        """The same in NumPy, in double precision."""
        x = a @ b
        if scaling != "none":
            x = x * (scale if scaling == "number" else scales)
        if with_bias:
            x = x + bias
        if activation == "relu":
            x = np.maximum(x, 0)
        elif activation == "silu":
            x = x / (1 + np.exp(-x))
        elif activation == "gelu":
            # the cube of an s32 has no place in 64 bits, its square has
            x = 0.5 * x * (1 + np.tanh(0.7978845608028654 * x * (1 + 0.044715 * x**2)))
        return x + residual if with_residual else x


def activate(p: Tracer, value: Tile, name: str) -> Any:
    """The activation `name` of an f32 (relu: also s32) tile."""
    if name == "none":
        return value
    if name == "relu":
        return p.apply(isa.Max(value.dtype.name), value, 0.0)
    mul, fma, add = isa.Mul("f32"), isa.Fma("f32"), isa.Add("f32")
    if name == "silu":  # x / (1 + exp(-x))
        e = p.apply(isa.Ex2("f32"), p.apply(mul, value, -1.4426950408889634))
        return p.apply(mul, value, p.apply(isa.RcpApprox("f32"), p.apply(add, e, 1.0)))
    # gelu with tanh: 0.5 x (1 + tanh(0.79788 (x + 0.044715 x^3)))
    inner = p.apply(fma, p.apply(mul, value, value), 0.0356774081, 0.7978845608)
    t = p.apply(isa.Tanh("f32"), p.apply(mul, value, inner))
    half = p.apply(mul, value, 0.5)
    return p.apply(fma, half, t, half)


def convert(p: Tracer, value: Tile, to: DType) -> Any:
    """The tile in another type."""
    return value if value.dtype == to else p.apply(isa.Cvt(value.dtype.name, to.name), value)
