"""cvt between floats and packed narrow floats, to tf32, with random bits, and cvt.pack (PTX ISA, "cvt", "cvt.pack").

The first source of two goes to the upper half of the result, the first of four to the uppermost quarter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Lanewise, Run
from tinygpu.ptx.emulator.instructions.float_operands import lane_write
from tinygpu.ptx.emulator.instructions.integer import emit
from tinygpu.ptx.emulator.instructions.rounding import flush_subnormals, narrow
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS, NarrowRounding

HALF_DTYPES: dict[str, Any] = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
# PTX ISA, "Floating Point Instructions": the canonical NaN of both 16-bit formats.
_HALF_NAN = np.uint16(0x7FFF)
Encode = Callable[[Array], Array]
"""binary32 values to codes, as uint32."""


def rounding_of(i: Instruction) -> str:
    """The instruction's float rounding; to nearest even where it names none."""
    return next((mode for mode in ("rna", "rn", "rz", "rm", "rp", "rs") if i.has(mode)), "rn")


def clear_negative(value: Array) -> Array:
    """.relu: negative values become +0; NaN stays."""
    value = np.asarray(value)
    return np.where(np.signbit(value) & ~np.isnan(value), value.dtype.type(0), value)


def to_half(value: Array, lane: Any, mode: str, satfinite: bool) -> Array:
    """Values rounded once to f16 or bf16; NaN becomes the canonical one, and with satfinite no infinity remains."""
    value = np.asarray(value)
    single = value.dtype == np.float32 and mode == "rn"
    half = value.astype(lane) if single else narrow(value.astype(np.float64), lane, mode)
    if satfinite:
        top = np.asarray(ml_dtypes.finfo(lane).max, lane)
        half = np.where(np.isinf(half), np.copysign(top, half), half).astype(lane)
    nan = np.isnan(half)
    if nan.any():
        half = np.where(nan, _HALF_NAN, half.view(np.uint16)).view(lane)
    return half


def to_packed(b: Binder, i: Instruction, to: str, name: str) -> Run:
    """cvt to a packed type, or from one."""
    kind = TYPES[to]
    if kind.kind != "packed":
        raise b.unsupported()
    count = int(to[-1])
    if name == "f32" and i.has("rs"):
        return _random(b, i, to, count)
    if kind.lane not in HALF_DTYPES and not (i.has("satfinite") or kind.lane == "ue8m0"):
        raise b.fail(f"`{i.name}` needs .satfinite")
    if name == "f32":
        operands = b.operands(i, 3)
        sources = (b.source(operands[1], "f32"), b.source(operands[2], "f32"))
        encode, bits = _encoder(b, i, kind.lane)
        flush = i.has("ftz")

        def pack(high: Array, low: Array) -> Array:
            if flush:
                high, low = flush_subnormals(high), flush_subnormals(low)
            return (encode(np.asarray(high)) << np.uint32(bits)) | encode(np.asarray(low))

        b.lanewise = Lanewise(pack, sources, lane_write(b, operands[0], f"u{kind.bits}"))
        return b.lanewise.run
    source_kind = TYPES[name]
    if source_kind.kind != "packed" or count != 2 or not name.endswith("x2"):
        raise b.unsupported()
    if (kind.lane in HALF_DTYPES) == (source_kind.lane in HALF_DTYPES):
        raise b.unsupported()
    d, x = b.operands(i, 2)
    source = b.source(x, f"u{source_kind.bits}")
    decode, width = _decoder(b, source_kind.lane)
    encode, bits = _encoder(b, i, kind.lane)

    def convert(value: Array) -> Array:
        wide = np.asarray(value).astype(np.uint32)
        high, low = decode(wide >> np.uint32(width)), decode(wide)
        return (encode(high) << np.uint32(bits)) | encode(low)

    b.lanewise = Lanewise(convert, (source,), lane_write(b, d, f"u{kind.bits}"))
    return b.lanewise.run


def _encoder(b: Binder, i: Instruction, lane: str) -> tuple[Encode, int]:
    """(binary32 values to codes, bits from one code to the next)."""
    relu, satfinite, mode = i.has("relu"), i.has("satfinite"), rounding_of(i)
    if lane in HALF_DTYPES:
        dtype = HALF_DTYPES[lane]

        def half(value: Array) -> Array:
            value = clear_negative(value) if relu else value
            return np.asarray(to_half(value, dtype, mode, satfinite).view(np.uint16).astype(np.uint32))

        return half, 16
    form = NARROW_FLOATS.get(lane)
    rounding: NarrowRounding | None = {"rn": "rn", "rz": "rz", "rp": "rp"}.get(mode)  # type: ignore[assignment]
    if form is None or rounding is None:
        raise b.unsupported()
    chosen: NarrowRounding = rounding
    saturate = satfinite or lane != "ue8m0"

    def narrow_code(value: Array) -> Array:
        value = clear_negative(value) if relu else value
        return np.asarray(form.encode(value, chosen, saturate).astype(np.uint32))

    return narrow_code, 4 if lane == "e2m1" else 8


def _decoder(b: Binder, lane: str) -> tuple[Callable[[Array], Array], int]:
    """(codes in the low bits of uint32 to binary32 values, bits from one code to the next)."""
    if lane in HALF_DTYPES:
        dtype = HALF_DTYPES[lane]
        return (lambda codes: codes.astype(np.uint16).view(dtype).astype(np.float32)), 16
    form = NARROW_FLOATS.get(lane)
    if form is None:
        raise b.unsupported()
    return form.decode, 4 if lane == "e2m1" else 8


# ---- random bits ------------------------------------------------------------------------------------------------


def _random(b: Binder, i: Instruction, to: str, count: int) -> Run:
    """cvt.rs: the magnitude is rounded up where its dropped bits plus the random bits carry.

    Which of the 32 random bits belong to which element is the implementation's: two elements take a half each, four
    take a byte each, the first element the uppermost.
    """
    lane = TYPES[to].lane
    if count == 2:
        operands = b.operands(i, 4)
        values = operands[1:3]
    else:
        operands = b.operands(i, 3)
        values = b.vector(operands[1], count, "this conversion")
    if lane not in HALF_DTYPES and not i.has("satfinite"):
        raise b.fail(f"`{i.name}` needs .satfinite")
    sources = (*(b.source(value, "f32") for value in values), b.source(operands[-1], "u32"))
    relu, satfinite = i.has("relu"), i.has("satfinite") or lane not in HALF_DTYPES
    share = 32 // count

    def compute(*arrays: Array) -> Array:
        bits = np.asarray(arrays[-1])
        result: Array = np.zeros((1, 1), np.uint32)
        for position, value in enumerate(arrays[:-1]):
            mine = (bits >> np.uint32(share * (count - 1 - position))) & np.uint32((1 << share) - 1)
            value = clear_negative(value) if relu else np.asarray(value)
            code, width = random_code(value, mine, share, lane, satfinite)
            result = (result << np.uint32(width)) | code
        return result

    return emit(b.destination(operands[0], f"u{TYPES[to].bits}"), compute, sources)


def random_code(value: Array, random: Array, bits: int, lane: str, satfinite: bool) -> tuple[Array, int]:
    """(codes of binary32 values rounded by `bits` random bits, bits from one code to the next)."""
    value = np.asarray(value)
    if lane in HALF_DTYPES:
        dtype = HALF_DTYPES[lane]
        low = narrow(value.astype(np.float64), dtype, "rz")
        codes = low.view(np.uint16).astype(np.uint32)
        down = low.astype(np.float64)
        up = (codes + np.uint32(1)).astype(np.uint16).view(dtype).astype(np.float64)
        width = 16
    else:
        form = NARROW_FLOATS[lane]
        codes = form.encode(value, "rz").astype(np.uint32)
        down = form.decode(codes).astype(np.float64)
        top = np.uint32(form.largest_code)
        sign = np.uint32(1 << (form.bits - 1))
        up = np.where((codes & ~sign) == top, down, form.decode(codes + np.uint32(1)).astype(np.float64))
        width = 4 if lane == "e2m1" else 8
    wide = value.astype(np.float64)
    gap = np.abs(up - down)
    finite = np.isfinite(wide) & np.isfinite(gap) & (gap != 0)
    part = np.floor(np.where(finite, np.abs(wide - down) / np.where(finite, gap, 1.0), 0.0) * (1 << bits))
    carry = finite & (part + np.asarray(random).astype(np.float64) >= (1 << bits))
    codes = np.where(carry, codes + np.uint32(1), codes)
    if lane in HALF_DTYPES:
        half = to_half(codes.astype(np.uint16).view(HALF_DTYPES[lane]), HALF_DTYPES[lane], "rn", satfinite)
        codes = half.view(np.uint16).astype(np.uint32)
    return np.asarray(codes.astype(np.uint32)), width


# ---- tf32 -------------------------------------------------------------------------------------------------------


def to_tf32(b: Binder, i: Instruction) -> Run:
    """cvt.{rna,rn,rz}.tf32.f32: the low 13 bits rounded away."""
    d, x = b.operands(i, 2)
    mode, relu, satfinite = rounding_of(i), i.has("relu"), i.has("satfinite")

    def compute(value: Array) -> Array:
        bits = np.asarray(value).view(np.uint32)
        if mode == "rna":
            rounded = bits + np.uint32(0x1000)
        elif mode == "rn":
            rounded = bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        else:
            rounded = bits
        nan = np.isnan(value)
        special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
        result = np.where(special, bits, rounded & np.uint32(0xFFFFE000))
        if satfinite:
            over = ((result & np.uint32(0x7F800000)) == np.uint32(0x7F800000)) & ~nan
            result = np.where(over, (bits & np.uint32(0x80000000)) | np.uint32(0x7F7FE000), result)
        if relu:
            result = np.where((result >> np.uint32(31) != 0) & ~nan, np.uint32(0), result)
        return np.where(nan, np.uint32(0x7FFFFFFF), result).astype(np.uint32)

    return emit(b.destination(d, "u32"), compute, (b.source(x, "f32"),))


# ---- cvt.pack ---------------------------------------------------------------------------------------------------


def pack_integers(b: Binder, i: Instruction) -> Run:
    """cvt.pack.sat.TO.s32{.b32} d, a, b{, c}: a and b saturated, a above b; c's low bits fill what is above them."""
    to = i.modifiers[2] if len(i.modifiers) > 2 else ""
    if to not in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2") or not i.has("sat"):
        raise b.unsupported()
    width, signed = int(to[1:]), to[0] == "s"
    with_rest = width < 16
    operands = b.operands(i, 4 if with_rest else 3)
    sources = [b.source(operand, "s32") for operand in operands[1:3]]
    if with_rest:
        sources.append(b.source(operands[3], "u32"))
    low = -(1 << (width - 1)) if signed else 0
    high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    mask = np.uint32((1 << width) - 1)

    def compute(first: Array, second: Array, rest: Array | None = None) -> Array:
        upper, lower = (np.clip(v, low, high).astype(np.int64).astype(np.uint32) & mask for v in (first, second))
        result = (upper << np.uint32(width)) | lower
        return result if rest is None else result | (np.asarray(rest) << np.uint32(2 * width))

    return emit(b.destination(operands[0], "u32"), compute, tuple(sources))
