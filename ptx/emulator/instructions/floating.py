"""Floating-point arithmetic in f16, bf16, f32, f64 and packed pairs (PTX ISA, "Floating Point", "Half Precision").

Instructions with .rn, .rz, .rm or .rp are rounded correctly. For .approx and .full the correctly rounded value of the
function is given, which lies within PTX's error bounds of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, last_type
from tinygpu.ptx.emulator.instructions.rounding import (
    directed_f64,
    flush_subnormals,
    fma_f32,
    fma_f64,
    fma_odd,
    narrow,
    saturate,
    signed_zero,
    to_odd,
    two_sum,
)
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type
from tinygpu.ptx.emulator.state.residents import Cohort

_LANE_DTYPES: dict[str, Any] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)
}  # fmt: skip


def float_type(b: Binder, i: Instruction) -> str:
    """The instruction's floating type."""
    name = last_type(b, i)
    kind = TYPES[name]
    if not kind.is_float and kind.kind != "packed":
        raise b.fail(f"`{i.name}`: .{name} is no floating type")
    return name


def rounding_mode(i: Instruction) -> str:
    for mode in ("rz", "rm", "rp"):
        if i.has(mode):
            return mode
    return "rn"


def lane_source(b: Binder, operand: Operand, name: str) -> Getter:
    """Getter of a float operand; packed types as (n, 32 * elements) of their element type."""
    kind = TYPES[name]
    get = b.source(operand, name)
    if kind.kind != "packed":
        return get
    lane = _LANE_DTYPES[kind.lane]

    def packed(c: Cohort) -> Array:
        value = get(c)
        if np.ndim(value) == 0:
            value = np.full((1, 32), value)
        return np.asarray(value.view(lane))

    return packed


def lane_write(b: Binder, operand: Operand, name: str) -> Callable[[Cohort, Array], None]:
    """A function that writes float values into the active lanes of a register."""
    kind = TYPES[name]
    get = b.destination(operand, name)
    if kind.kind != "packed":

        def write(c: Cohort, value: Array) -> None:
            np.copyto(get(c), value, where=c.where, casting="unsafe")

        return write
    bits = numpy_type(name)

    def write_packed(c: Cohort, value: Array) -> None:
        np.copyto(get(c), np.ascontiguousarray(value).view(bits), where=c.where)

    return write_packed


def element_dtype(name: str) -> Any:
    kind = TYPES[name]
    return _LANE_DTYPES[kind.lane] if kind.kind == "packed" else numpy_type(name)


def finish(i: Instruction, name: str) -> Callable[[Array], Array] | None:
    """What .ftz, .sat and .relu do to a result, or None."""
    steps: list[Callable[[Array], Array]] = []
    dtype = element_dtype(name)
    if i.has("relu"):
        zero = dtype.type(0)
        steps.append(lambda v: np.where(np.isnan(v), v, np.where(v > zero, v, zero)).astype(dtype))
    if i.has("ftz") and dtype == np.float32:
        steps.append(flush_subnormals)
    if i.has("sat"):
        steps.append(saturate)
    if not steps:
        return None

    def apply(value: Array) -> Array:
        for step in steps:
            value = step(value)
        return value

    return apply


def compile_float(
    b: Binder, i: Instruction, name: str, operands: tuple[Operand, ...], compute: Callable[..., Any]
) -> Run:
    """Closure d = compute(sources...) with .ftz on inputs, and .ftz, .sat and .relu on the result."""
    sources = [lane_source(b, operand, name) for operand in operands[1:]]
    flush = i.has("ftz") and element_dtype(name) == np.float32
    after = finish(i, name)
    write = lane_write(b, operands[0], name)

    def run(c: Cohort) -> None:
        values = [source(c) for source in sources]
        if flush:
            values = [flush_subnormals(value) for value in values]
        result = compute(*values)
        if after is not None:
            result = after(result)
        write(c, result)

    return run


# ---- add, sub, mul, fma, div ------------------------------------------------------------------------------------


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


def _direct_f64(total: Array, error: Array, mode: str) -> Array:
    down = np.nextafter(total, -np.inf)
    up = np.nextafter(total, np.inf)
    if mode == "rz":
        return np.where((error < 0) & (total > 0), down, np.where((error > 0) & (total < 0), up, total))
    if mode == "rm":
        return np.where(error < 0, down, total)
    return np.where(error > 0, up, total)


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
        raise b.unsupported(".oob")
    if name == "f32" and mode == "rn" and not (i.has("ftz") or i.has("sat")):
        first, second, third = (b.source(operand, "f32") for operand in operands[1:])
        get = b.destination(operands[0], "f32")

        def run(c: Cohort) -> None:
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


def divide(b: Binder, i: Instruction) -> Run:
    """div: .approx and .full give the correctly rounded quotient."""
    name = float_type(b, i)
    operands = b.operands(i, 3)
    mode = rounding_mode(i)
    if name == "f32":
        if mode == "rn":
            return compile_float(b, i, name, operands, np.true_divide)
        return compile_float(
            b, i, name, operands,
            lambda x, y: narrow(_odd_quotient(np.asarray(x, np.float64), np.asarray(y, np.float64)), np.float32, mode),
        )  # fmt: skip
    if name != "f64":
        raise b.fail(f"`{i.name}`: div takes .f32 and .f64")
    if mode == "rn":
        return compile_float(b, i, name, operands, np.true_divide)

    def directed(x: Array, y: Array) -> Array:
        quotient = np.true_divide(x, y)
        rest = fma_f64(-np.asarray(quotient), y, x)
        return _direct_f64(np.asarray(quotient), np.where(np.asarray(y) < 0, -rest, rest), mode)

    return compile_float(b, i, name, operands, directed)


def _odd_quotient(x: Array, y: Array) -> Array:
    quotient = np.true_divide(x, y)
    rest = fma_f64(-quotient, y, x)
    error = np.where(y < 0, -rest, rest)
    return to_odd(quotient, np.where(np.isfinite(quotient), error, 0.0))


# ---- min, max, abs, neg, copysign, testp ------------------------------------------------------------------------


def _extreme(largest: bool) -> Compile:
    def compile_extreme(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        operands = b.operands(i, 3, 4)
        propagate = i.has("NaN")
        absolute = i.has("xorsign")

        def pair(x: Array, y: Array) -> Array:
            x, y = np.broadcast_arrays(np.asarray(x), np.asarray(y))
            sign = np.signbit(x) ^ np.signbit(y)
            if absolute:
                x, y = np.abs(x), np.abs(y)
            nan_x, nan_y = np.isnan(x), np.isnan(y)
            # +0 is greater than -0 (PTX ISA, min and max).
            if largest:
                first = (x > y) | ((x == y) & ~np.signbit(x))
            else:
                first = (x < y) | ((x == y) & np.signbit(x))
            result = np.where(first | nan_y, x, y)
            result = np.where(nan_x, y, result)
            nan = (nan_x | nan_y) if propagate else (nan_x & nan_y)
            if absolute:
                result = np.where(sign, -np.abs(result), np.abs(result))
            return np.asarray(np.where(nan, _canonical_nan(x.dtype), result).astype(x.dtype))

        def compute(*values: Array) -> Array:
            result = values[0]
            for value in values[1:]:
                result = pair(result, value)
            return result

        return compile_float(b, i, name, operands, compute)

    return compile_extreme


def _canonical_nan(dtype: Any) -> Any:
    # PTX ISA, "Floating Point Instructions": the canonical NaN is 0x7fffffff (f32), 0x7fff (f16, bf16).
    pattern = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0x7FFFFFFFFFFFFFFF}[dtype.itemsize]
    return np.array([pattern], f"u{dtype.itemsize}").view(dtype)[0]


def _sign(clear: bool) -> Compile:
    def compile_sign(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        operands = b.operands(i, 2)
        size = element_dtype(name).itemsize
        dtype = element_dtype(name)
        bits: Any = np.dtype(f"u{size}")
        top = bits.type(1 << (8 * size - 1))

        def compute(x: Array) -> Array:
            pattern = np.asarray(x).view(bits)
            return np.asarray((pattern & ~top if clear else pattern ^ top).view(dtype))

        return compile_float(b, i, name, operands, compute)

    return compile_sign


def _copysign(b: Binder, i: Instruction) -> Run:
    name = float_type(b, i)
    # copysign.f32 d, a, b: the sign of a on the magnitude of b.
    return compile_float(b, i, name, b.operands(i, 3), lambda x, y: np.copysign(y, x))


def _testp(b: Binder, i: Instruction) -> Run:
    name = float_type(b, i)
    d, x = b.operands(i, 2)
    source = b.source(x, name)
    get = b.destination(d, "pred")
    tiny = np.finfo(np.float32 if name == "f32" else np.float64).tiny
    tests: dict[str, Callable[[Array], Any]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda v: ~np.isnan(v),
        "notanumber": np.isnan,
        "normal": lambda v: np.isfinite(v) & (np.abs(v) >= tiny),
        "subnormal": lambda v: (v != 0) & (np.abs(v) < tiny),
    }
    chosen = [tests[m] for m in i.modifiers if m in tests]
    if len(chosen) != 1:
        raise b.fail(f"`{i.name}` needs one test such as .finite")

    def run(c: Cohort) -> None:
        np.copyto(get(c), chosen[0](source(c)), where=c.where)

    return run


# ---- functions --------------------------------------------------------------------------------------------------


def _function(compute: Callable[[Array], Any], types: tuple[str, ...]) -> Compile:
    """One-operand functions, computed in binary64 and rounded once."""

    def compile_function(b: Binder, i: Instruction) -> Run:
        name = float_type(b, i)
        if name not in types:
            raise b.fail(f"`{i.name}`: .{name} is not a type of this instruction")
        operands = b.operands(i, 2)
        dtype = element_dtype(name)
        mode = rounding_mode(i)
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
                return narrow(_odd_quotient(np.ones_like(wide), wide), dtype, mode)
            root = np.sqrt(wide)
            return narrow(to_odd(root, np.where(np.isfinite(root), fma_f64(-root, root, wide), 0.0)), dtype, mode)

        return compile_float(b, i, name, operands, directed)

    return compile_function


def _reciprocal_directed(x: Array, mode: str) -> Array:
    quotient = 1.0 / np.asarray(x)
    rest = fma_f64(-quotient, x, np.ones_like(quotient))
    return _direct_f64(quotient, np.where(np.asarray(x) < 0, -rest, rest), mode)


def _root_directed(x: Array, mode: str) -> Array:
    root = np.sqrt(np.asarray(x))
    return _direct_f64(root, fma_f64(-root, root, x), mode)


FLOATING: dict[str, Compile] = {
    "add": binary(np.add),
    "sub": binary(np.subtract),
    "mul": binary(np.multiply),
    "fma": fma,
    "mad": fma,
    "div": divide,
    "min": _extreme(False),
    "max": _extreme(True),
    "abs": _sign(True),
    "neg": _sign(False),
    "copysign": _copysign,
    "testp": _testp,
    "sqrt": _function(np.sqrt, ("f32", "f64")),
    "rsqrt": _function(lambda x: 1.0 / np.sqrt(x), ("f32", "f64")),
    "rcp": _function(lambda x: 1.0 / x, ("f32", "f64")),
    "ex2": _function(np.exp2, ("f32", "f16", "f16x2", "bf16", "bf16x2")),
    "lg2": _function(np.log2, ("f32",)),
    "sin": _function(np.sin, ("f32",)),
    "cos": _function(np.cos, ("f32",)),
    "tanh": _function(np.tanh, ("f32", "f16", "f16x2", "bf16", "bf16x2")),
}
