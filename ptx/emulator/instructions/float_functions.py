"""Functions of one float: rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh (PTX ISA, "Floating Point").

With .rn, .rz, .rm or .rp they are rounded correctly. For .approx the correctly rounded value of the function is given,
which lies within PTX's error bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.float_operands import compile_float, element_dtype, float_type, rounding_mode
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.rounding import direct_f64, fma_f64, narrow, odd_quotient, to_odd
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array


def _function(compute: Callable[[Array], Any], types: tuple[str, ...]) -> Compile:
    """One-operand functions, computed in binary64 and rounded once."""

    def compile_function(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        if name not in types:
            raise b.fail(f"`{i.name}`: .{name} is not a type of this instruction")
        operands = b.operands(i, 2)
        dtype = element_dtype(name)
        mode = rounding_mode(i)
        if dtype == np.float64 and i.has("ftz"):
            return compile_float(b, i, name, operands, lambda x: _coarse(compute, x))
        if dtype == np.float64:
            if mode == "rn":
                return compile_float(b, i, name, operands, lambda x: np.asarray(compute(x)))
            if i.opcode == "rcp":
                return compile_float(b, i, name, operands, lambda x: _reciprocal_directed(x, mode))
            if i.opcode == "sqrt":
                return compile_float(b, i, name, operands, lambda x: _root_directed(x, mode))
            raise b.unsupported("this rounding mode")
        if mode == "rn":
            return compile_float(
                b, i, name, operands, lambda x: narrow(compute(np.asarray(x).astype(np.float64)), dtype, "rn")
            )

        def directed(x: Array) -> Array:
            wide = np.asarray(x).astype(np.float64)
            if i.opcode == "rcp":
                return narrow(odd_quotient(np.ones_like(wide), wide), dtype, mode)
            root = np.sqrt(wide)
            return narrow(to_odd(root, np.where(np.isfinite(root), fma_f64(-root, root, wide), 0.0)), dtype, mode)

        return compile_float(b, i, name, operands, directed)

    return compile_function


def _coarse(compute: Callable[[Array], Any], x: Array) -> Array:
    """rcp and rsqrt.approx.ftz.f64: only the upper halves of source and result count; subnormals are zero."""
    upper = np.uint64(0xFFFFFFFF00000000)
    bits = np.asarray(x, np.float64).view(np.uint64) & upper
    bits = np.where((bits & np.uint64(0x7FF0000000000000)) == 0, bits & np.uint64(1 << 63), bits)
    result = np.asarray(compute(bits.view(np.float64))).view(np.uint64) & upper
    result = np.where((result & np.uint64(0x7FF0000000000000)) == 0, result & np.uint64(1 << 63), result)
    return np.asarray(result.view(np.float64))


def _reciprocal_directed(x: Array, mode: str) -> Array:
    quotient = 1.0 / np.asarray(x)
    rest = fma_f64(-quotient, x, np.ones_like(quotient))
    return direct_f64(quotient, np.where(np.asarray(x) < 0, -rest, rest), mode)


def _root_directed(x: Array, mode: str) -> Array:
    root = np.sqrt(np.asarray(x))
    return direct_f64(root, fma_f64(-root, root, x), mode)


FLOAT_FUNCTIONS: dict[str, Compile] = {
    "sqrt": _function(np.sqrt, ("f32", "f64")),
    "rsqrt": _function(lambda x: 1.0 / np.sqrt(x), ("f32", "f64")),
    "rcp": _function(lambda x: 1.0 / x, ("f32", "f64")),
    "ex2": _function(np.exp2, ("f32", "f16", "f16x2", "bf16", "bf16x2")),
    "lg2": _function(np.log2, ("f32",)),
    "sin": _function(np.sin, ("f32",)),
    "cos": _function(np.cos, ("f32",)),
    "tanh": _function(np.tanh, ("f32", "f16", "f16x2", "bf16", "bf16x2")),
}
