"""cvt in all its forms (PTX ISA, "cvt" and "cvt.pack")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import Compile, emit
from tinygpu.ptx.emulator.instructions.rounding import flush_subnormals, narrow, saturate
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.residents import Cohort

_INTEGER_ROUNDING: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip
_FLOAT_DTYPES: dict[str, Any] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}  # fmt: skip
_FP8_DTYPES: dict[str, Any] = {
    "e4m3x2": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2x2": np.dtype(ml_dtypes.float8_e5m2)
}  # fmt: skip


def _mode(i: Instruction) -> str:
    for mode in ("rna", "rn", "rz", "rm", "rp"):
        if i.has(mode):
            return mode
    return "rn"


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
    from tinygpu.ptx.emulator.instructions.rounding import to_odd

    return narrow(to_odd(total, error), target, mode)


def _cvt(b: Binder, i: Instruction) -> Run:
    if i.has("pack"):
        return _cvt_pack(b, i)
    if len(i.types) != 2:
        raise b.fail(f"`{i.name}` needs a destination type and a source type")
    to, name = i.types
    if TYPES[to].kind == "packed" or TYPES[name].kind == "packed":
        return _cvt_packed(b, i, to, name)
    if to == "tf32":
        return _cvt_tf32(b, i)
    if i.has("rs"):
        raise b.unsupported("stochastic rounding")
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
                result = np.where(np.isnan(result), result, np.maximum(result, np.zeros_like(result)))
            if flush and to == "f32":
                result = flush_subnormals(result)
            return saturate(result) if i.has("sat") else result
        if source_type.is_float:
            return float_to_integer(value, to, _integer_mode(i) or "rzi")
        if target.is_float:
            result = integer_to_float(value, _FLOAT_DTYPES[to], _mode(i))
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
    return narrow(value.astype(np.float64), target, _mode(i))


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


def _cvt_tf32(b: Binder, i: Instruction) -> Run:
    d, x = b.operands(i, 2)
    mode = _mode(i)
    relu = i.has("relu")

    def compute(value: Array) -> Array:
        bits = np.asarray(value).view(np.uint32)
        if mode == "rna":
            rounded = bits + np.uint32(0x1000)
        elif mode == "rn":
            rounded = bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        else:
            rounded = bits
        special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        result = np.where(special, bits, rounded & np.uint32(0xFFFFE000))
        if i.has("satfinite"):
            over = ((result & np.uint32(0x7F800000)) == np.uint32(0x7F800000)) & ~np.isnan(value)
            result = np.where(over, (bits & np.uint32(0x80000000)) | np.uint32(0x7F7FE000), result)
        if relu:
            result = np.where((result >> np.uint32(31)) & np.uint32(1) & ~np.isnan(value), np.uint32(0), result)
        return np.asarray(result.astype(np.uint32))

    return emit(b.destination(d, "u32"), compute, (b.source(x, "f32"),))


def to_fp8(value: Array, dtype: Any) -> Array:
    """Rounded to nearest even and saturated to the largest finite value, as unsigned bytes."""
    limit = float(ml_dtypes.finfo(dtype).max)
    wide = np.asarray(value).astype(np.float32)
    clamped = np.clip(wide, -limit, limit)
    bits = clamped.astype(dtype).view(np.uint8)
    # NaN: 0x7f in both formats (PTX ISA, cvt with e4m3 and e5m2).
    return np.where(np.isnan(wide), np.uint8(0x7F), bits)


def _cvt_packed(b: Binder, i: Instruction, to: str, name: str) -> Run:
    if i.has("rs"):
        raise b.unsupported("stochastic rounding")
    mode, relu = _mode(i), i.has("relu")
    if name == "f32" and to in ("f16x2", "bf16x2", "e4m3x2", "e5m2x2"):
        d, upper, lower = b.operands(i, 3)
        # The first source goes to the upper half (PTX ISA, cvt).
        sources = (b.source(upper, "f32"), b.source(lower, "f32"))
        if to in _FP8_DTYPES:
            return emit(b.destination(d, "u16"), lambda high, low: _pair8(high, low, _FP8_DTYPES[to], relu), sources)
        lane = _FLOAT_DTYPES[TYPES[to].lane]
        satfinite, flush = i.has("satfinite"), i.has("ftz")

        def pack(high: Array, low: Array) -> Array:
            halves = []
            for value in (high, low):
                value = flush_subnormals(value) if flush else np.asarray(value)
                half = narrow(value.astype(np.float64), lane, mode)
                if relu:
                    half = np.where(np.isnan(half), half, np.maximum(half, np.zeros_like(half)))
                if satfinite:
                    top = ml_dtypes.finfo(lane).max
                    half = np.where(np.isinf(half), np.copysign(np.asarray(top, lane), half), half)
                halves.append(half.astype(lane).view(np.uint16).astype(np.uint32))
            return np.asarray((halves[0] << np.uint32(16)) | halves[1])

        return emit(b.destination(d, "u32"), pack, sources)
    if to in _FP8_DTYPES and name in ("f16x2", "bf16x2"):
        d, x = b.operands(i, 2)
        lane = _FLOAT_DTYPES[TYPES[name].lane]

        def from_half(value: Array) -> Array:
            value = np.asarray(value)
            high = (value >> np.uint32(16)).astype(np.uint16).view(lane).astype(np.float32)
            low = value.astype(np.uint16).view(lane).astype(np.float32)
            return _pair8(high, low, _FP8_DTYPES[to], relu)

        return emit(b.destination(d, "u16"), from_half, (b.source(x, "u32"),))
    if name in _FP8_DTYPES and to in ("f16x2", "bf16x2"):
        d, x = b.operands(i, 2)
        lane = _FLOAT_DTYPES[TYPES[to].lane]

        def to_half(value: Array) -> Array:
            value = np.asarray(value)
            result = np.zeros(value.shape, np.uint32)
            for position in range(2):
                byte = (value >> np.uint16(8 * position)).astype(np.uint8).view(_FP8_DTYPES[name])
                half = byte.astype(np.float32).astype(lane)
                if relu:
                    half = np.where(np.isnan(half), half, np.maximum(half, np.zeros_like(half))).astype(lane)
                result |= half.view(np.uint16).astype(np.uint32) << np.uint32(16 * position)
            return result

        return emit(b.destination(d, "u32"), to_half, (b.source(x, "u16"),))
    raise b.unsupported()


def _pair8(high: Array, low: Array, dtype: Any, relu: bool) -> Array:
    parts = []
    for value in (high, low):
        value = np.asarray(value)
        if relu:
            value = np.where(np.isnan(value), value, np.maximum(value, np.float32(0)))
        parts.append(to_fp8(value, dtype).astype(np.uint16))
    return np.asarray((parts[0] << np.uint16(8)) | parts[1])


def _cvt_pack(b: Binder, i: Instruction) -> Run:
    """cvt.pack.sat.TO.s32{.b32}: a and b saturated into the low bits, a above b; c fills the rest."""
    types = i.types
    to = types[0]
    width = {"u8": 8, "s8": 8, "u16": 16, "s16": 16}.get(to)
    if width is None or not i.has("sat"):
        raise b.unsupported()
    with_rest = len(types) == 3
    operands = b.operands(i, 4 if with_rest else 3)
    if with_rest != (width == 8):
        raise b.unsupported()
    sources = tuple(b.source(operand, "s32") for operand in operands[1:3])
    rest = b.source(operands[3], "u32") if with_rest else None
    get = b.destination(operands[0], "u32")
    low = -(1 << (width - 1)) if TYPES[to].signed else 0
    high = (1 << (width - 1)) - 1 if TYPES[to].signed else (1 << width) - 1
    mask = np.uint32((1 << width) - 1)

    def run(c: Cohort) -> None:
        first, second = (np.clip(s(c), low, high).astype(np.int64).astype(np.uint32) & mask for s in sources)
        result = (first << np.uint32(width)) | second
        if rest is not None:
            result = result | (np.asarray(rest(c)) << np.uint32(2 * width))
        np.copyto(get(c), result, where=c.where)

    return run


CONVERSIONS: dict[str, Compile] = {"cvt": _cvt}
