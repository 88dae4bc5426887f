"""cvt in all its forms (PTX ISA, "cvt" and "cvt.pack")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.conversions_packed import (
    clear_negative,
    pack_integers,
    rounding_of,
    to_half,
    to_packed,
    to_tf32,
)
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.rounding import flush_subnormals, narrow, saturate, to_odd
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort

_INTEGER_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip
_FLOAT_DTYPES: dict[str, Any] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}  # fmt: skip


def _integer_mode(i: Instruction) -> str | None:
    for mode in _INTEGER_ROUNDING:
        if i.has(mode):
            return mode
    return None


def float_to_integer(value: Array, name: str, mode: str) -> Array:
    """Rounded to an integer and clamped to the type's range; NaN gives 0 (PTX ISA, cvt: "NaN ... converted to 0").

    For 64-bit destinations and for f64 sources NaN gives the integer with only the top bit set.
    """
    kind = TYPES[name]
    wide = np.asarray(value).astype(np.float64)
    whole = _INTEGER_ROUNDING[mode](wide)
    low = -(2 ** (kind.bits - 1)) if kind.signed else 0
    high = 2 ** (kind.bits - 1) - 1 if kind.signed else 2**kind.bits - 1
    dtype: Any = np.dtype(f"{'i' if kind.signed else 'u'}{kind.bytes}")
    nan = np.isnan(wide)
    # The limits are compared as floats: values at or beyond 2^63 or 2^64 must not be cast.
    too_high = whole >= float(high + 1)
    too_low = whole < float(low)
    safe = np.where(nan | too_high | too_low, 0.0, whole)
    result = safe.astype(dtype)
    result = np.asarray(np.where(too_high, dtype.type(high), np.where(too_low, dtype.type(low), result)))
    top = np.array([1 << (kind.bits - 1)], f"u{kind.bytes}").view(dtype)[0]
    special = kind.bits == 64 or (np.asarray(value).dtype == np.float64 and kind.bits == 32)
    return np.asarray(np.where(nan, top if special else dtype.type(0), result))


def integer_to_float(value: Array, target: Any, mode: str) -> Array:
    """Rounded once from the exact integer."""
    value = np.asarray(value)
    if value.dtype.itemsize < 8:
        return narrow(value.astype(np.float64), target, mode)
    # 64-bit integers: binary64 rounded to odd first, from the two exact halves.
    high = (value >> value.dtype.type(32)).astype(np.float64) * 4294967296.0
    low = (value & value.dtype.type(0xFFFFFFFF)).astype(np.float64)
    total = high + low
    error = low - (total - high)
    if np.dtype(target) == np.float64:
        if mode == "rn":
            return np.asarray(total)
        down, up = np.nextafter(total, -np.inf), np.nextafter(total, np.inf)
        if mode == "rp":
            return np.asarray(np.where(error > 0, up, total))
        if mode == "rm":
            return np.asarray(np.where(error < 0, down, total))
        return np.asarray(np.where((error < 0) & (total > 0), down, np.where((error > 0) & (total < 0), up, total)))
    return narrow(to_odd(total, error), target, mode)


def _cvt(b: Binder, i: Instruction) -> Run:
    if i.has("pack"):
        return pack_integers(b, i)
    if len(i.types) != 2:
        raise b.fail(f"`{i.name}` needs a destination type and a source type")
    to, name = i.types
    if TYPES[to].kind == "packed" or TYPES[name].kind == "packed":
        return to_packed(b, i, to, name)
    if to == "tf32":
        return to_tf32(b, i)
    if i.has("rs"):
        raise b.unsupported("random bits for a single value")
    d, x = b.operands(i, 2)
    target, source_type = TYPES[to], TYPES[name]
    if target.kind == "pred" or source_type.kind == "pred":
        raise b.fail("cvt does not take predicates")
    source = _typed_source(b, x, name)
    write = _writer(b, d, to)
    flush = i.has("ftz")
    sat = i.has("sat") or i.has("satfinite")

    def convert(value: Array) -> Array:
        if flush and name == "f32":
            value = flush_subnormals(value)
        if source_type.is_float and target.is_float:
            result = _float_to_float(i, value, to)
            if i.has("relu"):
                result = clear_negative(result)
            if flush and to == "f32":
                result = flush_subnormals(result)
            return saturate(result) if i.has("sat") else result
        if source_type.is_float:
            return float_to_integer(value, to, _integer_mode(i) or "rzi")
        if target.is_float:
            result = integer_to_float(value, _FLOAT_DTYPES[to], rounding_of(i))
            return saturate(result) if i.has("sat") else result
        return _integer_to_integer(value, to, sat)

    if source_type.is_float and not target.is_float and _integer_mode(i) is None:
        raise b.fail(f"`{i.name}` needs .rni, .rzi, .rmi or .rpi")
    if target.is_float and to not in _FLOAT_DTYPES:
        raise b.unsupported()
    return write(lambda c: convert(source(c)))


def _float_to_float(i: Instruction, value: Array, to: str) -> Array:
    mode = _integer_mode(i)
    value = np.asarray(value)
    target = _FLOAT_DTYPES[to]
    if mode is not None:
        return np.asarray(_INTEGER_ROUNDING[mode](value.astype(np.float64)).astype(target))
    if target.itemsize > value.dtype.itemsize or target == value.dtype:
        return np.asarray(value.astype(target))
    if target.itemsize == 2:
        return to_half(value, target, rounding_of(i), i.has("satfinite"))
    return narrow(value.astype(np.float64), target, rounding_of(i))


def _integer_to_integer(value: Array, to: str, sat: bool) -> Array:
    kind = TYPES[to]
    value = np.asarray(value)
    dtype: Any = np.dtype(f"{'i' if kind.signed else 'u'}{kind.bytes}")
    if not sat:
        return np.asarray(value.astype(dtype))
    low = -(2 ** (kind.bits - 1)) if kind.signed else 0
    high = 2 ** (kind.bits - 1) - 1 if kind.signed else 2**kind.bits - 1
    info = np.iinfo(value.dtype)
    low, high = max(low, int(info.min)), min(high, int(info.max))
    return np.asarray(np.clip(value, value.dtype.type(low), value.dtype.type(high)).astype(dtype))


def _typed_source(b: Binder, operand: Operand, name: str) -> Getter:
    """The operand's low bits read as `name` (its register may be wider)."""
    kind = TYPES[name]
    get = b.wide_source(operand, name)
    if name in _FLOAT_DTYPES:
        dtype = _FLOAT_DTYPES[name]
    elif kind.is_integer:
        dtype = np.dtype(f"{'i' if kind.signed else 'u'}{kind.bytes}")
    else:
        raise b.unsupported(f"from .{name}")
    return lambda c: np.asarray(get(c)).view(dtype)


def _writer(b: Binder, operand: Operand, to: str) -> Callable[[Callable[[Cohort], Array]], Run]:
    """Write values of type `to` into a register that may be wider: sign- or zero-extended."""
    kind = TYPES[to]
    get, bits = b.wide_destination(operand, to)
    unsigned: Any = np.dtype(f"u{max(kind.bytes, 1)}")
    extended: Any = np.dtype(f"{'i' if kind.signed else 'u'}{bits // 8}")

    def make(compute: Callable[[Cohort], Array]) -> Run:
        def run(c: Cohort) -> None:
            value = np.asarray(compute(c))
            if value.dtype.itemsize * 8 != bits:
                value = value.astype(extended) if kind.is_integer else value.view(unsigned).astype(f"u{bits // 8}")
            target = get(c)
            np.copyto(target, value.view(target.dtype), where=c.where)

        return run

    return make


CONVERSIONS: dict[str, Compile] = {"cvt": _cvt}
