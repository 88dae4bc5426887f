"""Logic, shifts and bit fields (PTX ISA, "Logic and Shift" and the bit instructions of "Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.integer import (
    Compile,
    emit,
    emit_ufunc,
    integer_type,
    last_type,
    signed_of,
    unsigned_of,
)
from tinygpu.ptx.emulator.instructions.video import VIDEO
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand, PairOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type
from tinygpu.ptx.emulator.state.cohort import Cohort


def _logic(ufunc: Any) -> Compile:
    def compile_logic(b: Binder, i: Instruction) -> Run:
        name = last_type(b, i)
        if name != "pred":
            name = unsigned_of(integer_type(b, i, (16, 32, 64)))
        d, x, y = b.operands(i, 3)
        first, second = b.source(x, name), b.source(y, name)
        return emit_ufunc(b.destination(d, name), ufunc, first, second)

    return compile_logic


def _not(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    if name != "pred":
        name = unsigned_of(integer_type(b, i, (16, 32, 64)))
    d, x = b.operands(i, 2)
    source = b.source(x, name)
    return emit(b.destination(d, name), np.invert, (source,))


def _cnot(b: Binder, i: Instruction) -> Run:
    name = unsigned_of(integer_type(b, i, (16, 32, 64)))
    d, x = b.operands(i, 2)
    source = b.source(x, name)
    return emit(b.destination(d, name), lambda v: v == 0, (source,))


def lop3(x: Array, y: Array, z: Array, table: int) -> Array:
    """Any function of three bits: bit (4x + 2y + z) of `table` is its value."""
    x, y, z = (np.asarray(v) for v in (x, y, z))
    shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
    result = np.zeros(shape, x.dtype)
    for index in range(8):
        if table >> index & 1:
            result |= (x if index & 4 else ~x) & (y if index & 2 else ~y) & (z if index & 1 else ~z)
    return result


def _lop3_function(table: int) -> Callable[..., Any]:
    """The usual tables as one or two NumPy calls; the rest through their sum of products."""
    known: dict[int, Callable[..., Any]] = {
        0x96: lambda x, y, z: x ^ y ^ z,
        0x80: lambda x, y, z: x & y & z,
        0xFE: lambda x, y, z: x | y | z,
        0xEA: lambda x, y, z: (x & y) | z,
        0xF8: lambda x, y, z: x | (y & z),
        0x6A: lambda x, y, z: (x & y) ^ z,
        0x78: lambda x, y, z: x ^ (y & z),
        0xCA: lambda x, y, z: (x & y) | (~x & z),
        0xE2: lambda x, y, z: (x & y) | (~y & z),
        0xE8: lambda x, y, z: (x & y) | (z & (x | y)),
    }
    return known.get(table, lambda x, y, z: lop3(x, y, z, table))


def _lop3(b: Binder, i: Instruction) -> Run:
    combine = np.logical_and if i.has("and") else np.logical_or if i.has("or") else None
    d, x, y, z, table = b.operands(i, 5 if combine is None else 6)[:5]
    value = b.integer(table, "the table of lop3")
    if not 0 <= value <= 255:
        raise b.fail(f"the table of lop3 is 0 to 255, not {value}")
    sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(z, "u32"))
    if combine is None:
        return emit(b.destination(d, "u32"), _lop3_function(value), sources)
    if not isinstance(d, PairOperand):
        raise b.fail(f"`{i.name}` writes d|p")
    function = _lop3_function(value)
    other = b.source(i.operands[5], "pred")
    get, get_pred = b.destination(d.first, "u32"), b.destination(d.second, "pred")

    def run(c: Cohort) -> None:
        # lop3.BoolOp d|p, a, b, c, table, q: p = (d != 0) BoolOp q.
        result = function(*(source(c) for source in sources))
        holds = combine(result != 0, other(c))
        np.copyto(get(c), result, where=c.where)
        np.copyto(get_pred(c), holds, where=c.where)

    return run


def _shift(left: bool) -> Compile:
    def compile_shift(b: Binder, i: Instruction) -> Run:
        name = integer_type(b, i, (16, 32, 64))
        bits = TYPES[name].bits
        d, x, amount = b.operands(i, 3)
        seen = unsigned_of(name) if left or not TYPES[name].signed else name
        value = b.source(x, seen)
        dtype = numpy_type(seen)
        # Amounts beyond the width count as the width (PTX ISA, shl and shr).
        if isinstance(amount, IntegerOperand):
            fixed = dtype.type(min(amount.value & 0xFFFFFFFF, bits - 1))
            emptied = (amount.value & 0xFFFFFFFF) >= bits and not (TYPES[name].signed and not left)
            get = b.destination(d, seen)
            if emptied:
                return emit(get, lambda v: v & dtype.type(0), (value,))
            constant: Getter = lambda c: fixed  # noqa: E731
            return emit_ufunc(get, np.left_shift if left else np.right_shift, value, constant)
        by = b.source(amount, "u32")
        get = b.destination(d, seen)

        def run(c: Cohort) -> None:
            count = by(c)
            capped = np.minimum(count, np.uint32(bits - 1)).astype(dtype)
            result = np.left_shift(value(c), capped) if left else np.right_shift(value(c), capped)
            if left or not TYPES[name].signed:
                result = np.where(count >= np.uint32(bits), dtype.type(0), result)
            np.copyto(get(c), result, where=c.where)

        return run

    return compile_shift


def _funnel(b: Binder, i: Instruction) -> Run:
    """shf: shift the 64 bits b:a, and keep the upper (left) or lower (right) half."""
    if not (i.has("l") or i.has("r")) or not (i.has("wrap") or i.has("clamp")):
        raise b.fail(f"`{i.name}` needs .l or .r, and .wrap or .clamp")
    d, x, y, amount = b.operands(i, 4)
    sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(amount, "u32"))
    left, wrap = i.has("l"), i.has("wrap")

    def compute(low: Array, high: Array, count: Array) -> Array:
        by = np.asarray(count & np.uint32(31) if wrap else np.minimum(count, np.uint32(32))).astype(np.uint64)
        both = (np.asarray(high).astype(np.uint64) << np.uint64(32)) | np.asarray(low).astype(np.uint64)
        moved = (both << by) >> np.uint64(32) if left else both >> by
        if left and not wrap:
            moved = np.where(by == 32, np.asarray(low).astype(np.uint64), moved)
        return np.asarray((moved & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    return emit(b.destination(d, "u32"), compute, sources)


# The byte selectors of prmt's modes for the low two bits of c (PTX ISA, prmt).
_PRMT_MODES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "f4e": ((3, 2, 1, 0), (4, 3, 2, 1), (5, 4, 3, 2), (6, 5, 4, 3)),
    "b4e": ((5, 6, 7, 0), (6, 7, 0, 1), (7, 0, 1, 2), (0, 1, 2, 3)),
    "rc8": ((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)),
    "ecl": ((3, 2, 1, 0), (3, 2, 1, 1), (3, 2, 2, 2), (3, 3, 3, 3)),
    "ecr": ((0, 0, 0, 0), (1, 1, 1, 0), (2, 2, 1, 0), (3, 2, 1, 0)),
    "rc16": ((1, 0, 1, 0), (3, 2, 3, 2), (1, 0, 1, 0), (3, 2, 3, 2)),
}


def permute(x: Array, y: Array, selector: Array) -> Array:
    """prmt in its default mode: each nibble of `selector` picks a byte of y:x; its top bit spreads the byte's sign."""
    both = (np.asarray(y).astype(np.uint64) << np.uint64(32)) | np.asarray(x).astype(np.uint64)
    select = np.asarray(selector).astype(np.uint64)
    result = np.zeros(np.broadcast_shapes(both.shape, select.shape), np.uint64)
    for byte in range(4):
        nibble = (select >> np.uint64(4 * byte)) & np.uint64(15)
        value = (both >> ((nibble & np.uint64(7)) << np.uint64(3))) & np.uint64(0xFF)
        spread = np.where(value & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        value = np.where(nibble & np.uint64(8), spread, value)
        result |= value << np.uint64(8 * byte)
    return np.asarray(result.astype(np.uint32))


def _prmt(b: Binder, i: Instruction) -> Run:
    d, x, y, z = b.operands(i, 4)
    sources = (b.source(x, "u32"), b.source(y, "u32"), b.source(z, "u32"))
    modes = [mode for mode in _PRMT_MODES if i.has(mode)]
    if not modes:
        return emit(b.destination(d, "u32"), permute, sources)
    selectors = np.array(
        [sum(byte << 4 * (3 - k) for k, byte in enumerate(row)) for row in _PRMT_MODES[modes[0]]], np.uint32
    )
    return emit(
        b.destination(d, "u32"), lambda p, q, s: permute(p, q, selectors[np.asarray(s) & np.uint32(3)]), sources
    )


def _extract(b: Binder, i: Instruction) -> Run:
    """bfe: the field of `length` bits at `position`, with its sign where the type has one."""
    name = integer_type(b, i, (32, 64))
    bits, signed = TYPES[name].bits, TYPES[name].signed
    d, x, position, length = b.operands(i, 4)
    seen = unsigned_of(name)
    dtype = numpy_type(seen)
    sources = (b.source(x, seen), b.source(position, "u32"), b.source(length, "u32"))

    def compute(value: Array, start: Array, count: Array) -> Array:
        # Position and length are their low 8 bits; a field beyond the top is filled with the sign (PTX ISA, bfe).
        at = np.asarray(start).astype(np.int64) & 0xFF
        width = np.asarray(count).astype(np.int64) & 0xFF
        value = np.asarray(value)
        top = np.minimum(at + width - 1, bits - 1)
        sign = np.where(width == 0, 0, (value >> np.maximum(top, 0).astype(dtype)) & dtype.type(1)).astype(dtype)
        sign = sign if signed else np.zeros_like(sign)
        body = np.where(at >= bits, dtype.type(0), value >> np.minimum(at, bits - 1).astype(dtype))
        kept = np.maximum(np.minimum(width, bits - at), 0)
        ones = np.where(
            kept >= bits, dtype.type(np.iinfo(dtype).max),
            (dtype.type(1) << np.minimum(kept, bits - 1).astype(dtype)) - dtype.type(1),
        )  # fmt: skip
        fill = np.where(sign != 0, ~ones, dtype.type(0))
        return np.asarray((body & ones) | np.where(width == 0, dtype.type(0), fill))

    return emit(b.destination(d, seen), compute, sources)


def _insert(b: Binder, i: Instruction) -> Run:
    """bfi: put the low `length` bits of a into b at `position`."""
    name = unsigned_of(integer_type(b, i, (32, 64)))
    bits = TYPES[name].bits
    dtype = numpy_type(name)
    d, x, y, position, length = b.operands(i, 5)
    sources = (b.source(x, name), b.source(y, name), b.source(position, "u32"), b.source(length, "u32"))

    def compute(field: Array, base: Array, start: Array, count: Array) -> Array:
        at = np.asarray(start).astype(np.int64) & 0xFF
        width = np.asarray(count).astype(np.int64) & 0xFF
        kept = np.maximum(np.minimum(width, bits - at), 0)
        ones = np.where(
            kept >= bits, dtype.type(np.iinfo(dtype).max),
            (dtype.type(1) << np.minimum(kept, bits - 1).astype(dtype)) - dtype.type(1),
        )  # fmt: skip
        shift = np.minimum(at, bits - 1).astype(dtype)
        mask = np.where(at >= bits, dtype.type(0), ones << shift)
        return np.asarray((np.asarray(base) & ~mask) | ((np.asarray(field) << shift) & mask))

    return emit(b.destination(d, name), compute, sources)


def _bmsk(b: Binder, i: Instruction) -> Run:
    d, x, y = b.operands(i, 3)
    sources = (b.source(x, "u32"), b.source(y, "u32"))
    clamp = i.has("clamp")

    def compute(start: Array, count: Array) -> Array:
        at = np.asarray(start).astype(np.uint64)
        width = np.asarray(count).astype(np.uint64)
        if clamp:
            at, width = np.minimum(at, np.uint64(32)), np.minimum(width, np.uint64(32))
        else:
            at, width = at & np.uint64(31), width & np.uint64(31)
        mask = ((np.uint64(1) << width) - np.uint64(1)) << at
        return np.asarray((mask & np.uint64(0xFFFFFFFF)).astype(np.uint32))

    return emit(b.destination(d, "u32"), compute, sources)


def _szext(b: Binder, i: Instruction) -> Run:
    name = integer_type(b, i, (32,))
    signed, clamp = TYPES[name].signed, i.has("clamp")
    d, x, y = b.operands(i, 3)
    sources = (b.source(x, "u32"), b.source(y, "u32"))

    def compute(value: Array, count: Array) -> Array:
        width = np.asarray(count).astype(np.int64)
        width = np.minimum(width, 32) if clamp else width & 31
        wide = np.asarray(value).astype(np.int64) & ((np.int64(1) << width) - 1)
        if signed:
            top = np.where(width > 0, (wide >> np.maximum(width - 1, 0)) & 1, 0)
            wide = wide - (top << width)
        return np.asarray((wide & 0xFFFFFFFF).astype(np.uint32))

    return emit(b.destination(d, "u32"), compute, sources)


def count_leading_zeros(value: Array, bits: int) -> Array:
    """Zeros above the highest one; `bits` for zero."""
    value = np.asarray(value).astype(np.uint64)
    result = np.full(value.shape, bits, np.uint32)
    rest = value.copy()
    step = bits // 2
    length = np.zeros(value.shape, np.uint32)
    while step:
        high = rest >> np.uint64(step)
        has = high != 0
        length = np.where(has, length + np.uint32(step), length)
        rest = np.where(has, high, rest)
        step //= 2
    return np.where(value != 0, np.uint32(bits - 1) - length, result)


def _to_u32(compute: Callable[[Array, int], Array]) -> Compile:
    """popc, clz: a 32-bit result of a 32- or 64-bit source."""

    def compile_count(b: Binder, i: Instruction) -> Run:
        name = unsigned_of(integer_type(b, i, (32, 64)))
        bits = TYPES[name].bits
        d, x = b.operands(i, 2)
        source = b.source(x, name)
        return emit(b.destination(d, "u32"), lambda v: compute(v, bits), (source,))

    return compile_count


def _find(b: Binder, i: Instruction) -> Run:
    """bfind: position of the highest one (for negative values of signed types: of the highest zero)."""
    name = integer_type(b, i, (32, 64))
    bits, signed = TYPES[name].bits, TYPES[name].signed
    d, x = b.operands(i, 2)
    source = b.source(x, signed_of(name) if signed else unsigned_of(name))
    unsigned: Any = np.dtype(f"u{bits // 8}")
    amount = i.has("shiftamt")

    def compute(value: Array) -> Array:
        value = np.asarray(value)
        if signed:
            value = np.where(value < 0, ~value, value).view(unsigned)
        zeros = count_leading_zeros(value, bits)
        found = zeros if amount else np.uint32(bits - 1) - zeros
        return np.where(value == 0, np.uint32(0xFFFFFFFF), found)

    return emit(b.destination(d, "u32"), compute, (source,))


def reverse_bits(value: Array, bits: int) -> Array:
    """The bits in opposite order."""
    value = np.asarray(value)
    one = value.dtype.type(1)
    result = np.zeros_like(value)
    for bit in range(bits):
        result |= ((value >> value.dtype.type(bit)) & one) << value.dtype.type(bits - 1 - bit)
    return result


def _brev(b: Binder, i: Instruction) -> Run:
    name = unsigned_of(integer_type(b, i, (32, 64)))
    d, x = b.operands(i, 2)
    source = b.source(x, name)
    return emit(b.destination(d, name), lambda v: reverse_bits(v, TYPES[name].bits), (source,))


def _popcount(value: Array, bits: int) -> Array:
    return np.asarray(np.bitwise_count(value)).astype(np.uint32)


def _fns(b: Binder, i: Instruction) -> Run:
    """fns: position of the n-th one counted from `base` upwards (n > 0) or downwards (n < 0); base itself for n = 0."""
    d, x, start, nth = b.operands(i, 4)
    sources = (b.source(x, "u32"), b.source(start, "u32"), b.source(nth, "s32"))

    def compute(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(np.asarray(mask), np.asarray(base), np.asarray(offset))
        result = np.full(mask.shape, 0xFFFFFFFF, np.uint32)
        up = np.zeros(mask.shape, np.int64)
        down = np.zeros(mask.shape, np.int64)
        for bit in range(32):
            one = (mask >> np.uint32(bit)) & np.uint32(1) == 1
            up += one & (bit >= base)
            result = np.where(one & (bit >= base) & (offset > 0) & (up == offset), np.uint32(bit), result)
            result = np.where(one & (offset == 0) & (base == bit), np.uint32(bit), result)
        for bit in range(31, -1, -1):
            one = (mask >> np.uint32(bit)) & np.uint32(1) == 1
            down += one & (bit <= base)
            result = np.where(one & (bit <= base) & (offset < 0) & (down == -offset), np.uint32(bit), result)
        return result

    return emit(b.destination(d, "u32"), compute, sources)


BITS: dict[str, Compile] = {
    "and": _logic(np.bitwise_and),
    "or": _logic(np.bitwise_or),
    "xor": _logic(np.bitwise_xor),
    "not": _not,
    "cnot": _cnot,
    "lop3": _lop3,
    "shl": _shift(True),
    "shr": _shift(False),
    "shf": _funnel,
    "prmt": _prmt,
    "bfe": _extract,
    "bfi": _insert,
    "bmsk": _bmsk,
    "szext": _szext,
    "popc": _to_u32(_popcount),
    "clz": _to_u32(count_leading_zeros),
    "bfind": _find,
    "brev": _brev,
    "fns": _fns,
    **VIDEO,
}
