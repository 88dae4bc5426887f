"""Integer arithmetic: add, sub, mul, mad, div, rem, min, max, and their relatives (PTX ISA, "Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type
from tinygpu.ptx.emulator.state.cohort import Cohort

Compile = Callable[[Binder, Instruction], Run]


def last_type(b: Binder, i: Instruction) -> str:
    """The type of an instruction that has one, refusing an instruction without."""
    if not i.types:
        raise b.fail(f"`{i.name}` has no type")
    return i.types[-1]


def unsigned_of(type_name: str) -> str:
    """The unsigned type of the same width."""
    return f"u{TYPES[type_name].bits}"


def signed_of(type_name: str) -> str:
    """The signed type of the same width."""
    return f"s{TYPES[type_name].bits}"


def integer_type(b: Binder, i: Instruction, widths: tuple[int, ...]) -> str:
    """The instruction's type, refusing what is no integer of these widths."""
    name = last_type(b, i)
    kind = TYPES[name]
    if not kind.is_integer or kind.bits not in widths:
        raise b.fail(f"`{i.name}`: .{name} is not a type of this instruction")
    return name


def emit(get: Getter, compute: Callable[..., Any], sources: tuple[Getter, ...]) -> Run:
    """A closure that writes compute(sources) into the active lanes of the destination."""
    if len(sources) == 1:
        (only,) = sources

        def run_one(c: Cohort) -> None:
            np.copyto(get(c), compute(only(c)), where=c.where, casting="unsafe")

        return run_one
    if len(sources) == 2:
        first, second = sources

        def run_two(c: Cohort) -> None:
            np.copyto(get(c), compute(first(c), second(c)), where=c.where, casting="unsafe")

        return run_two

    def run(c: Cohort) -> None:
        np.copyto(get(c), compute(*[source(c) for source in sources]), where=c.where, casting="unsafe")

    return run


def emit_ufunc(get: Getter, ufunc: Any, first: Getter, second: Getter) -> Run:
    """A closure for a NumPy ufunc of two operands that writes straight into the destination."""

    def run(c: Cohort) -> None:
        ufunc(first(c), second(c), out=get(c), where=c.where)

    return run


def simple(
    widths: tuple[int, ...], count: int, compute: Callable[[str], Callable[..., Any]], view: str = "own"
) -> Compile:
    """Compile function of an instruction d, a, b, ... whose operands all have one type.

    compute  given the type's name, the function of the sources
    view     "own" type, "unsigned" or "signed" view of the registers
    """

    def compile_simple(b: Binder, i: Instruction) -> Run:
        name = integer_type(b, i, widths)
        seen = {"own": name, "unsigned": unsigned_of(name), "signed": signed_of(name)}[view]
        operands = b.operands(i, count + 1)
        sources = tuple(b.source(operand, seen) for operand in operands[1:])
        return emit(b.destination(operands[0], seen), compute(name), sources)

    return compile_simple


# ---- add, sub, carries ------------------------------------------------------------------------------------------


def _carry(b: Binder) -> RegisterOperand:
    return b.scratch("pred", "%carry.flag")


def _saturating(first: Array, second: Array, subtract: bool) -> Array:
    wide = np.subtract(first, second, dtype=np.int64) if subtract else np.add(first, second, dtype=np.int64)
    return np.asarray(np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32))


def add_or_sub(ufunc: Any) -> Compile:
    """add and sub, with .sat and .cc; addc and subc read the carry."""
    subtract = ufunc is np.subtract

    def compile_add(b: Binder, i: Instruction) -> Run:
        name = last_type(b, i)
        if name in ("u16x2", "s16x2"):
            return _packed16(b, i, ufunc)
        name = integer_type(b, i, (16, 32, 64))
        d, x, y = b.operands(i, 3)
        if i.has("sat"):
            if name != "s32":
                raise b.fail(".sat applies to .s32 only")
            return emit(
                b.destination(d, "s32"), lambda p, q: _saturating(p, q, subtract),
                (b.source(x, "s32"), b.source(y, "s32")),
            )  # fmt: skip
        seen = unsigned_of(name)
        first, second = b.source(x, seen), b.source(y, seen)
        with_carry = i.opcode in ("addc", "subc")
        if not with_carry and not i.has("cc"):
            return emit_ufunc(b.destination(d, seen), ufunc, first, second)
        return _with_carry(b, i, d, seen, first, second, subtract, with_carry)

    return compile_add


def _with_carry(
    b: Binder, i: Instruction, d: Operand, seen: str, first: Getter, second: Getter, subtract: bool, reads: bool
) -> Run:
    one = numpy_type(seen).type(1)
    zero = numpy_type(seen).type(0)
    carry_in = b.source(_carry(b), "pred") if reads else None
    get = b.destination(d, seen)
    carry_out = b.destination(_carry(b), "pred") if i.has("cc") else None

    def run(c: Cohort) -> None:
        x, y = first(c), second(c)
        if subtract:
            # The flag is the carry out of x + ~y + 1: set where nothing was borrowed. nvcc's division of 128-bit
            # integers reads it so, with addc behind subc.cc.
            extra = zero if carry_in is None else np.where(carry_in(c), zero, one)
            total = x - y - extra
            out = (x > y) | ((x == y) & (extra == 0))
        else:
            extra = zero if carry_in is None else np.where(carry_in(c), one, zero)
            total = x + y + extra
            out = (total < x) | ((total == x) & ((y != 0) & (extra != 0)))
        np.copyto(get(c), total, where=c.where)
        if carry_out is not None:
            np.copyto(carry_out(c), out, where=c.where)

    return run


def _packed16(b: Binder, i: Instruction, ufunc: Any) -> Run:
    name = last_type(b, i)
    half: Any = np.uint16 if name == "u16x2" else np.int16
    operands = b.operands(i, 3)
    sources = tuple(b.source(operand, "u32") for operand in operands[1:])
    relu = i.has("relu")

    def compute(x: Array, y: Array) -> Array:
        pair = [np.asarray(v, np.uint32) for v in (x, y)]
        x2, y2 = np.broadcast_arrays(*pair)
        total = ufunc(np.ascontiguousarray(x2).view(half), np.ascontiguousarray(y2).view(half))
        if relu:
            total = np.maximum(total, half(0))
        return np.asarray(total.view(np.uint32))

    return emit(b.destination(operands[0], "u32"), compute, sources)


# ---- mul, mad ---------------------------------------------------------------------------------------------------


def high_product(x: Array, y: Array, bits: int, signed: bool) -> Array:
    """The upper half of the exact product of two integers of `bits` bits."""
    if bits < 64:
        wide: Any = np.int64 if signed else np.uint64
        product = np.multiply(x, y, dtype=wide)
        return np.asarray((product >> wide(bits)).astype(f"{'i' if signed else 'u'}{bits // 8}"))
    ux, uy = np.asarray(x).astype(np.uint64), np.asarray(y).astype(np.uint64)
    low32, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    xl, xh, yl, yh = ux & low32, ux >> shift, uy & low32, uy >> shift
    middle = xh * yl + (xl * yl >> shift)
    other = xl * yh + (middle & low32)
    high = xh * yh + (middle >> shift) + (other >> shift)
    if not signed:
        return np.asarray(high)
    high = high - np.where(np.asarray(x) < 0, uy, np.uint64(0)) - np.where(np.asarray(y) < 0, ux, np.uint64(0))
    return np.asarray(high.view(np.int64))


def product_mode(b: Binder, i: Instruction) -> str:
    """Which part of a product is wanted: "lo", "hi" or "wide"."""
    for mode in ("lo", "hi", "wide"):
        if i.has(mode):
            return mode
    raise b.fail(f"`{i.name}` needs .lo, .hi or .wide")


def mul(b: Binder, i: Instruction) -> Run:
    """mul.lo, mul.hi, mul.wide."""
    name = integer_type(b, i, (16, 32, 64))
    mode = product_mode(b, i)
    d, x, y = b.operands(i, 3)
    bits = TYPES[name].bits
    if mode == "lo":
        seen = unsigned_of(name)
        first, second = b.source(x, seen), b.source(y, seen)
        return emit_ufunc(b.destination(d, seen), np.multiply, first, second)
    signed = TYPES[name].signed
    first, second = b.source(x, name), b.source(y, name)
    if mode == "hi":
        return emit(b.destination(d, name), lambda p, q: high_product(p, q, bits, signed), (first, second))
    if bits == 64:
        raise b.fail(".wide takes 16- and 32-bit types only")
    wide_name = f"{'s' if signed else 'u'}{2 * bits}"
    wide = numpy_type(wide_name)
    get = b.destination(d, wide_name)

    def run(c: Cohort) -> None:
        np.multiply(first(c), second(c), out=get(c), where=c.where, dtype=wide)

    return run


def mad(b: Binder, i: Instruction) -> Run:
    """mad.lo, mad.hi, mad.wide; madc and .cc with the carry flag."""
    name = integer_type(b, i, (16, 32, 64))
    mode = product_mode(b, i)
    d, x, y, z = b.operands(i, 4)
    bits = TYPES[name].bits
    signed = TYPES[name].signed
    if mode == "wide" and bits == 64:
        raise b.fail(".wide takes 16- and 32-bit types only")
    seen = name if mode != "lo" else unsigned_of(name)
    first, second = b.source(x, seen), b.source(y, seen)
    result = unsigned_of(name) if mode != "wide" else f"u{2 * bits}"
    third = b.source(z, result)
    unsigned = numpy_type(result)

    def product(c: Cohort) -> Array:
        if mode == "lo":
            return np.asarray(np.multiply(first(c), second(c)))
        if mode == "wide":
            wide: Any = np.dtype(f"{'i' if signed else 'u'}{bits // 4}")
            return np.asarray(np.multiply(first(c), second(c), dtype=wide).astype(unsigned))
        return high_product(first(c), second(c), bits, signed).astype(unsigned)

    if i.opcode == "madc" or i.has("cc"):
        return _with_carry(b, i, d, result, product, third, False, i.opcode == "madc")
    if i.has("sat"):
        if mode != "hi" or name != "s32":
            raise b.fail(".sat applies to mad.hi.s32 only")
        signed_third = b.source(z, "s32")
        return emit(
            b.destination(d, "s32"), lambda p, q, r: _saturating(high_product(p, q, 32, True), r, False),
            (first, second, signed_third),
        )  # fmt: skip
    get = b.destination(d, result)

    def run(c: Cohort) -> None:
        np.add(product(c), third(c), out=get(c), where=c.where)

    return run


# ---- div, rem ---------------------------------------------------------------------------------------------------


def divide(x: Array, y: Array, signed: bool) -> Array:
    """Quotient truncated toward zero. A division by zero gives all ones, as sm_80 hardware does for unsigned types."""
    x, y = np.asarray(x), np.asarray(y)
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    if not signed:
        return np.where(zero, y.dtype.type(np.iinfo(y.dtype).max), x // safe)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    magnitude = np.abs(x).view(unsigned) // np.abs(safe).view(unsigned)
    quotient = np.where((x < 0) != (safe < 0), unsigned.type(0) - magnitude, magnitude).view(x.dtype)
    return np.asarray(np.where(zero, x.dtype.type(-1), quotient))


def remainder(x: Array, y: Array, signed: bool) -> Array:
    """Remainder with the sign of the dividend; x where y is zero."""
    x, y = np.asarray(x), np.asarray(y)
    zero = y == 0
    safe = np.where(zero, y.dtype.type(1), y)
    if not signed:
        return np.where(zero, x, x % safe)
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    magnitude = np.abs(x).view(unsigned) % np.abs(safe).view(unsigned)
    result = np.where(x < 0, unsigned.type(0) - magnitude, magnitude).view(x.dtype)
    return np.where(zero, x, result)


def _div(name: str) -> Callable[..., Any]:
    signed = TYPES[name].signed
    return lambda x, y: divide(x, y, signed)


def _rem(name: str) -> Callable[..., Any]:
    signed = TYPES[name].signed
    return lambda x, y: remainder(x, y, signed)


# ---- min, max, abs, neg -----------------------------------------------------------------------------------------


def _extreme(ufunc: Any) -> Compile:
    def compile_extreme(b: Binder, i: Instruction) -> Run:
        name = last_type(b, i)
        if name in ("u16x2", "s16x2"):
            return _packed16(b, i, ufunc)
        name = integer_type(b, i, (16, 32, 64))
        d, x, y = b.operands(i, 3)
        first, second = b.source(x, name), b.source(y, name)
        if i.has("relu"):
            zero = numpy_type(name).type(0)
            return emit(b.destination(d, name), lambda p, q: np.maximum(ufunc(p, q), zero), (first, second))
        return emit_ufunc(b.destination(d, name), ufunc, first, second)

    return compile_extreme


INTEGER: dict[str, Compile] = {
    "add": add_or_sub(np.add),
    "addc": add_or_sub(np.add),
    "sub": add_or_sub(np.subtract),
    "subc": add_or_sub(np.subtract),
    "mul": mul,
    "mad": mad,
    "madc": mad,
    "div": simple((16, 32, 64), 2, _div),
    "rem": simple((16, 32, 64), 2, _rem),
    "min": _extreme(np.minimum),
    "max": _extreme(np.maximum),
    "abs": simple((16, 32, 64), 1, lambda name: np.abs, "signed"),
    "neg": simple((16, 32, 64), 1, lambda name: np.negative, "signed"),
}
