"""Floating-point arithmetic in f16, bf16, f32, f64 and packed pairs (PTX ISA, "Floating Point", "Half Precision").

Instructions with .rn, .rz, .rm or .rp are rounded correctly. For .approx and .full the correctly rounded value of the
function is given, which lies within PTX's error bounds of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Lanewise, Run
from tinygpu.ptx.emulator.instructions.extremes import EXTREMES
from tinygpu.ptx.emulator.instructions.float_functions import FLOAT_FUNCTIONS
from tinygpu.ptx.emulator.instructions.float_operands import (
    compile_float,
    element_dtype,
    finish,
    float_type,
    lane_write,
    rounding_mode,
)
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.rounding import (
    direct_f64,
    directed_f64,
    fma_f32,
    fma_f64,
    fma_odd,
    narrow,
    odd_quotient,
    signed_zero,
    to_odd,
    two_sum,
)
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort


def _directed_binary(opcode: str, mode: str, dtype: Any) -> Callable[..., Any]:
    """add, sub or mul in a directed mode: the exact result to odd in binary64, then rounded once."""

    def compute(x: Array, y: Array) -> Array:
        wide_x, wide_y = np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64)
        if opcode == "mul":
            return narrow(wide_x * wide_y, dtype, mode)
        other = wide_y if opcode == "add" else -wide_y
        total, error = two_sum(wide_x, other)
        return signed_zero(narrow(to_odd(total, error), dtype, mode), wide_x, other, mode)

    return compute


def _directed_f64(opcode: str, mode: str) -> Callable[..., Any]:
    table: dict[str, Callable[..., Array]] = {
        "add": lambda x, y: directed_f64(x, np.float64(1), y, mode),
        "sub": lambda x, y: directed_f64(x, np.float64(1), -np.asarray(y), mode),
        "mul": lambda x, y: directed_f64(x, y, None, mode),
    }
    return table[opcode]


def binary(ufunc: Any) -> Compile:
    """add, sub, mul."""

    def compile_binary(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        operands = b.operands(i, 3)
        mode = rounding_mode(i)
        dtype = element_dtype(name)
        if len(i.types) == 2:
            return _mixed(b, i, ufunc)
        if mode == "rn" and not (i.has("ftz") or i.has("sat")) and TYPES[name].kind != "packed" and dtype.itemsize >= 4:
            first, second = b.source(operands[1], name), b.source(operands[2], name)
            get = b.destination(operands[0], name)
            b.lanewise = Lanewise(ufunc, (first, second), lane_write(b, operands[0], name))

            def run(c: Cohort) -> None:
                ufunc(first(c), second(c), out=get(c), where=c.where)

            return run
        if mode == "rn":
            return compile_float(b, i, name, operands, ufunc)
        if dtype == np.float64:
            return compile_float(b, i, name, operands, _directed_f64(i.opcode, mode))
        return compile_float(b, i, name, operands, _directed_binary(i.opcode, mode, dtype))

    return compile_binary


def _mixed(b: Binder, i: Instruction, ufunc: Any) -> Run:
    """add.f32.bf16 d, a, c: a is narrow, c and d are f32."""
    wide, narrow_name = i.types
    if wide != "f32" or narrow_name not in ("f16", "bf16"):
        raise b.unsupported()
    operands = b.operands(i, 3)
    first, second = b.source(operands[1], narrow_name), b.source(operands[2], "f32")
    write = lane_write(b, operands[0], "f32")
    after = finish(i, "f32")
    mode = rounding_mode(i)

    def run(c: Cohort) -> None:
        x, y = np.asarray(first(c)).astype(np.float32), second(c)
        result = ufunc(x, y) if mode == "rn" else _directed_binary(i.opcode, mode, np.dtype(np.float32))(x, y)
        write(c, after(result) if after else result)

    return run


def fma(b: Binder, i: Instruction) -> Run:
    """fma and mad: one rounding."""
    name = float_type(b, i)
    operands = b.operands(i, 4)
    mode = rounding_mode(i)
    dtype = element_dtype(name)
    if len(i.types) == 2:
        return _mixed_fma(b, i, mode)
    if i.has("oob"):
        raise b.unsupported("which NaN marks an element out of bounds is not documented")
    if name == "f32" and mode == "rn" and not (i.has("ftz") or i.has("sat")):
        first, second, third = (b.source(operand, "f32") for operand in operands[1:])
        get = b.destination(operands[0], "f32")
        b.lanewise = Lanewise(fma_f32, (first, second, third), lane_write(b, operands[0], "f32"))

        def run(c: Cohort) -> None:
            if c.where is True:
                fma_f32(first(c), second(c), third(c), out=get(c))
            else:
                np.copyto(get(c), fma_f32(first(c), second(c), third(c)), where=c.where)

        return run
    if dtype == np.float64:
        if mode == "rn":
            return compile_float(b, i, name, operands, fma_f64)
        return compile_float(b, i, name, operands, lambda x, y, z: directed_f64(x, y, z, mode))
    if dtype == np.float32 and mode == "rn":
        return compile_float(b, i, name, operands, fma_f32)


    def directed(x: Array, y: Array, z: Array) -> Array:
        result = narrow(fma_odd(x, y, z), dtype, mode)
        return signed_zero(result, np.multiply(x, y, dtype=np.float64), np.asarray(z).astype(np.float64), mode)

    return compile_float(b, i, name, operands, directed)


def _mixed_fma(b: Binder, i: Instruction, mode: str) -> Run:
    wide, narrow_name = i.types
    if wide != "f32" or narrow_name not in ("f16", "bf16"):
        raise b.unsupported()
    operands = b.operands(i, 4)
    first, second = b.source(operands[1], narrow_name), b.source(operands[2], narrow_name)
    third = b.source(operands[3], "f32")
    write = lane_write(b, operands[0], "f32")
    after = finish(i, "f32")

    def run(c: Cohort) -> None:
        result = narrow(fma_odd(first(c), second(c), third(c)), np.float32, mode)
        write(c, after(result) if after else result)

    return run


def _approximate_quotient(x: Array, y: Array) -> Array:
    """div.approx.f32: a divisor above 2^126 gives 0, or NaN for an infinite dividend (PTX ISA, div)."""
    size = np.abs(y)
    huge = (size > np.float32(2.0**126)) & np.isfinite(y)
    quotient = np.true_divide(x, y)
    zero = np.copysign(np.float32(0), quotient)
    return np.where(huge, np.where(np.isinf(x), np.float32(np.nan), np.where(np.isnan(x), x, zero)), quotient)


def divide(b: Binder, i: Instruction) -> Run:
    """div: .approx and .full give the correctly rounded quotient."""
    name = float_type(b, i)
    operands = b.operands(i, 3)
    mode = rounding_mode(i)
    if name == "f32":
        if i.has("approx"):
            return compile_float(b, i, name, operands, _approximate_quotient)
        if mode == "rn":
            return compile_float(b, i, name, operands, np.true_divide)
        return compile_float(
            b, i, name, operands,
            lambda x, y: narrow(odd_quotient(np.asarray(x, np.float64), np.asarray(y, np.float64)), np.float32, mode),
        )  # fmt: skip
    if name != "f64":
        raise b.fail(f"`{i.name}`: div takes .f32 and .f64")
    if mode == "rn":
        return compile_float(b, i, name, operands, np.true_divide)

    def directed(x: Array, y: Array) -> Array:
        quotient = np.true_divide(x, y)
        rest = fma_f64(-np.asarray(quotient), y, x)
        return direct_f64(np.asarray(quotient), np.where(np.asarray(y) < 0, -rest, rest), mode)

    return compile_float(b, i, name, operands, directed)


FLOATING: dict[str, Compile] = {
    "add": binary(np.add),
    "sub": binary(np.subtract),
    "mul": binary(np.multiply),
    "fma": fma,
    "mad": fma,
    "div": divide,
    **EXTREMES,
    **FLOAT_FUNCTIONS,
}
