"""Which bits of a result are uninitialised when some bits of the sources are: rules beyond moves and selection.

Compilers pass registers around of which only a part was written: half of a pair of f16, a byte that the next
permutation drops, high bits that a narrowing conversion drops. Each rule gives the exact bits, or a set that contains
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.source.syntax import Instruction, IntegerOperand, Operand, RegisterOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import GROUP_DTYPES, Slot

Bits = Callable[[Cohort], Array]
Rule = Callable[[Binder, Instruction], Run | None]


def taint_rule(b: Binder, i: Instruction) -> Run | None:
    """What becomes of uninitialised bits, run before the instruction itself; None when only the general rule fits."""
    rule = _RULES.get(i.opcode)
    if rule is not None:
        found = rule(b, i)
        if found is not None:
            return found
    return _lane_rule(b, i)


def _taint(b: Binder, operand: Operand, bits: int) -> Bits:
    """Getter of an operand's uninitialised bits, as unsigned integers of `bits` bits."""
    dtype: Any = np.dtype(f"u{bits // 8}")
    if not isinstance(operand, RegisterOperand):
        return lambda c: np.zeros((c.n, 32), dtype)
    slot = b.slot(operand)

    def get(c: Cohort) -> Array:
        found = c.residents.registers.taint.get(slot)
        return np.zeros((c.n, 32), dtype) if found is None else np.asarray(found[c.set.rows]).astype(dtype)

    return get


def _set(b: Binder, target: Operand, compute: Bits) -> Run | None:
    """Run that gives `target` the uninitialised bits that `compute` says."""
    if not isinstance(target, RegisterOperand):
        return None
    slot: Slot = b.slot(target)
    dtype = GROUP_DTYPES[slot[0]]
    return lambda c: c.residents.set_taint(c, slot, compute(c).astype(dtype))


def _bitwise(b: Binder, i: Instruction) -> Run | None:
    """xor, not: bit by bit."""
    name = i.types[-1] if i.types else "pred"
    if name == "pred":
        return None
    parts = [_taint(b, operand, TYPES[name].bits) for operand in i.operands[1:]]
    return _set(b, i.operands[0], lambda c: np.bitwise_or.reduce([part(c) for part in parts]))


def _lop3(b: Binder, i: Instruction) -> Run | None:
    """A bit is known when the table gives the same for whatever the unknown bits of its sources may be."""
    if len(i.operands) != 5 or not isinstance(i.operands[4], IntegerOperand):
        return None
    table = i.operands[4].value
    values = [b.source(operand, "u32") for operand in i.operands[1:4]]
    taints = [_taint(b, operand, 32) for operand in i.operands[1:4]]

    def compute(c: Cohort) -> Array:
        may: list[tuple[Array, Array]] = []  # which bits may be 0, and which may be 1
        for value, taint in zip(values, taints, strict=True):
            v, t = np.asarray(value(c)), taint(c)
            may.append((~v | t, v | t))
        zero: Array = np.zeros((), np.uint32)
        one: Array = np.zeros((), np.uint32)
        for index in range(8):
            reached = may[0][index >> 2 & 1] & may[1][index >> 1 & 1] & may[2][index & 1]
            if table >> index & 1:
                one = np.asarray(one | reached)
            else:
                zero = np.asarray(zero | reached)
        return np.asarray(zero & one)

    return _set(b, i.operands[0], compute)


def _permute(b: Binder, i: Instruction) -> Run | None:
    """prmt: the bits of the chosen bytes; a replicated sign is as unknown as the sign."""
    if len(i.operands) != 4 or i.modifiers != ("b32",):
        return None
    low, high = _taint(b, i.operands[1], 32), _taint(b, i.operands[2], 32)
    selector, unknown = b.source(i.operands[3], "u32"), _taint(b, i.operands[3], 32)

    def compute(c: Cohort) -> Array:
        both = (high(c).astype(np.uint64) << np.uint64(32)) | low(c).astype(np.uint64)
        choose = np.asarray(selector(c)).astype(np.uint64)
        result = np.zeros((c.n, 32), np.uint32)
        for k in range(4):
            nibble = (choose >> np.uint64(4 * k)) & np.uint64(15)
            byte = (both >> (np.uint64(8) * (nibble & np.uint64(7)))) & np.uint64(0xFF)
            sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
            result |= np.where(nibble & np.uint64(8), sign, byte).astype(np.uint32) << np.uint32(8 * k)
        return np.where((unknown(c) & np.uint32(0xFFFF)) != 0, np.uint32(0xFFFFFFFF), result)

    return _set(b, i.operands[0], compute)


def _upwards(b: Binder, i: Instruction) -> Run | None:
    """add, sub, neg, and the low half of products: an unknown bit spoils itself and what lies above it."""
    if not i.types or any(i.has(word) for word in ("sat", "cc", "hi", "wide")):
        return None
    kind = TYPES[i.types[-1]]
    if kind.kind == "packed" or not kind.is_integer:
        return None
    parts = [_taint(b, operand, kind.bits) for operand in i.operands[1:]]

    def compute(c: Cohort) -> Array:
        unknown = np.bitwise_or.reduce([part(c) for part in parts])
        return np.asarray(unknown | (~unknown + unknown.dtype.type(1)))

    return _set(b, i.operands[0], compute)


def _convert(b: Binder, i: Instruction) -> Run | None:
    """cvt: between integers, bits above the narrower type are dropped or copy the sign; pairs keep their halves."""
    if len(i.types) != 2:
        return None
    to, source = TYPES[i.types[0]], TYPES[i.types[1]]
    # .rs takes random bits too, and its elements may be a vector: the general rule fits.
    if to.kind == "packed" and source.kind != "packed" and len(i.operands) == 3 and not i.has("rs"):
        half = to.bits // 2
        high, low = (_taint(b, operand, source.bits) for operand in i.operands[1:3])

        def pair(c: Cohort) -> Array:
            dtype: Any = np.dtype(f"u{to.bits // 8}")
            full = dtype.type((1 << half) - 1)
            upper = np.where(high(c) != 0, full, dtype.type(0)) << dtype.type(half)
            return np.asarray(upper | np.where(low(c) != 0, full, dtype.type(0)))

        return _set(b, i.operands[0], pair)
    if not (to.is_integer and source.is_integer) or len(i.operands) != 2 or i.has("sat"):
        return None
    target = i.operands[0]
    if not isinstance(target, RegisterOperand):
        return None
    held = TYPES[target.type_name].bits
    get = _taint(b, i.operands[1], 64)

    def compute(c: Cohort) -> Array:
        bits = _extended(get(c), source.bits, source.signed)
        return _extended(bits, min(to.bits, held), to.signed) if held > to.bits else bits

    return _set(b, target, compute)


def _extended(bits: Array, width: int, signed: bool) -> Array:
    """The low `width` of 64 bits; above them copies of the highest, or zeros."""
    if width >= 64:
        return bits
    mask = np.uint64((1 << width) - 1)
    low = bits & mask
    if not signed:
        return np.asarray(low)
    return np.asarray(np.where(low >> np.uint64(width - 1) != 0, low | ~mask, low))


def _extract(b: Binder, i: Instruction) -> Run | None:
    """bfe of a constant field."""
    if len(i.operands) != 4 or not i.types or not all(isinstance(o, IntegerOperand) for o in i.operands[2:]):
        return None
    kind = TYPES[i.types[-1]]
    place, length = (o.value & 0xFF for o in i.operands[2:] if isinstance(o, IntegerOperand))
    if length == 0 or place + length > kind.bits:
        return None
    get = _taint(b, i.operands[1], 64)
    return _set(b, i.operands[0], lambda c: _extended(get(c) >> np.uint64(place), length, kind.signed))


def _funnel(b: Binder, i: Instruction) -> Run | None:
    """shf by a constant."""
    if len(i.operands) != 4 or not isinstance(i.operands[3], IntegerOperand):
        return None
    amount = i.operands[3].value & 0xFFFFFFFF
    amount = amount & 31 if i.has("wrap") else min(amount, 32)
    low, high, left = _taint(b, i.operands[1], 64), _taint(b, i.operands[2], 64), i.has("l")

    def compute(c: Cohort) -> Array:
        both = (high(c) << np.uint64(32)) | low(c)
        return np.asarray(both >> np.uint64(32 - amount if left else amount)) & np.uint64(0xFFFFFFFF)

    return _set(b, i.operands[0], compute)


def _lane_rule(b: Binder, i: Instruction) -> Run | None:
    """Arithmetic on packed pairs: each half of the result comes from that half of the sources."""
    if not i.types or any(TYPES[name].kind != "packed" or not TYPES[name].lane for name in i.types):
        return None
    to = TYPES[i.types[0]]
    if i.opcode not in _LANEWISE or any(TYPES[name].bits != to.bits for name in i.types):
        return None
    parts = [_taint(b, operand, to.bits) for operand in i.operands[1:]]
    half = to.bits // 2

    def compute(c: Cohort) -> Array:
        unknown = np.bitwise_or.reduce([part(c) for part in parts])
        dtype = unknown.dtype.type
        low = dtype((1 << half) - 1)
        high = dtype(((1 << half) - 1) << half)
        return np.asarray(np.where(unknown & low, low, dtype(0)) | np.where(unknown & high, high, dtype(0)))

    return _set(b, i.operands[0], compute)


_LANEWISE = frozenset(("add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh", "set"))
_RULES: dict[str, Rule] = {
    "xor": _bitwise,
    "not": _bitwise,
    "lop3": _lop3,
    "prmt": _permute,
    "add": _upwards,
    "sub": _upwards,
    "neg": _upwards,
    "mul": _upwards,
    "mad": _upwards,
    "cvt": _convert,
    "bfe": _extract,
    "shf": _funnel,
}
