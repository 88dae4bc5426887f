"""How uninitialised bits travel from sources to results.

The rule for most instructions: a lane with any uninitialised source bit gets a wholly uninitialised result. Where
compilers pass half-defined registers around (moves, packing, logic, selection), bits are followed one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.deciding import deciding
from tinygpu.ptx.emulator.instructions.taint_rules import taint_rule
from tinygpu.ptx.emulator.source.syntax import (
    AddressOperand,
    Instruction,
    IntegerOperand,
    Operand,
    PairOperand,
    RegisterOperand,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import ALL_BITS, GROUP_DTYPES, Slot


def make_taint(
    b: Binder, i: Instruction, run: Run, kind: str, reads: frozenset[Slot], writes: frozenset[Slot]
) -> Run:
    """The careful form of `run`: the same, and what becomes of uninitialised bits."""
    owns, before, sees_to_busy = b.owns_taint, b.taint_before, b.owns_busy
    # Worked out when it is first needed: most runs have neither uninitialised registers nor any in flight.
    used: frozenset[Slot] | None = None
    follow: Run | None = None

    def careful(c: Cohort) -> None:
        nonlocal used, follow
        residents = c.residents
        in_flight = residents.in_flight
        if used is None:
            used = reads | writes
        if not sees_to_busy and (in_flight.busy or in_flight.awaited):
            in_flight.check(c, reads, used, i)
        if residents.tainted.keys().isdisjoint(used):
            run(c)
            return
        if follow is None:
            b.begin(i)
            follow = _following(b, i, run, kind, reads, writes, owns, before)
        follow(c)

    return careful


def _following(
    b: Binder, i: Instruction, run: Run, kind: str, reads: frozenset[Slot], writes: frozenset[Slot], owns: bool,
    before: Run | None,
) -> Run:  # fmt: skip
    """The instruction, and what becomes of uninitialised bits."""
    address = _address_slots(b, i)
    registers, use = deciding(i)
    decides = tuple(b.slot(register) for register in registers)
    data_reads = tuple(sorted(reads - address)) if kind in ("memory", "atomic", "async") else tuple(sorted(reads))
    targets = tuple(sorted(writes))
    exact = before if before is not None else None if owns else _exact_rule(b, i)

    def follow(c: Cohort) -> None:
        for slot in address:
            c.residents.require_initialised(c, slot, i, "forms an address")
        for slot in decides:
            c.residents.require_initialised(c, slot, i, use)
        if owns:
            run(c)
        elif exact is not None:
            exact(c)
            run(c)
        else:
            bad = c.residents.any_taint(c, data_reads)
            run(c)
            for slot in targets:
                c.residents.set_taint(c, slot, 0 if bad is None else np.where(bad, ALL_BITS[slot[0]], 0))

    return follow


def _address_slots(b: Binder, i: Instruction) -> frozenset[Slot]:
    return frozenset(
        b.slot(operand.base)
        for operand in i.operands
        if isinstance(operand, AddressOperand) and isinstance(operand.base, RegisterOperand)
    )


def _exact_rule(b: Binder, i: Instruction) -> Run | None:
    """Bit-exact rules for moves, packing, and selection, then those of taint_rules; None for the general rule."""
    if i.opcode == "mov" and len(i.operands) == 2:
        return _mov_rule(b, i.operands[0], i.operands[1], TYPES[i.types[-1]].bits if i.types else 32)
    if i.opcode == "selp" and len(i.operands) == 4:
        return _selp_rule(b, i)
    if i.opcode in ("and", "or") and i.types and len(i.operands) == 3:
        return _logic_rule(b, i)
    if i.opcode == "setp" and len(i.operands) == 4 and (i.has("and") or i.has("or")):
        return _compare_and_combine_rule(b, i)
    if i.opcode in ("shl", "shr") and len(i.operands) == 3 and isinstance(i.operands[2], IntegerOperand):
        return _shift_rule(b, i)
    return taint_rule(b, i)


def _slot(b: Binder, operand: Operand) -> Slot | None:
    return b.slot(operand) if isinstance(operand, RegisterOperand) else None


def _bits(c: Cohort, slot: Slot | None, dtype: Any) -> Array:
    if slot is None:
        return np.zeros((c.n, 32), dtype)
    found = c.residents.registers.taint.get(slot)
    if found is None:
        return np.zeros((c.n, 32), GROUP_DTYPES[slot[0]])
    return np.asarray(found[c.set.rows])


def _mov_rule(b: Binder, d: Operand, x: Operand, bits: int) -> Run | None:
    if isinstance(d, VectorOperand):
        source = _slot(b, x)
        targets = [_slot(b, e) for e in d.elements]
        part = bits // len(targets)
        wide: Any = np.dtype(f"u{bits // 8}")

        def unpack(c: Cohort) -> None:
            value = _bits(c, source, wide)
            for k, target in enumerate(targets):
                if target is not None:
                    c.residents.set_taint(c, target, (value >> wide.type(k * part)).astype(f"u{part // 8}"))

        return unpack
    target = _slot(b, d)
    if target is None:
        return None
    if isinstance(x, VectorOperand):
        sources = [_slot(b, e) for e in x.elements]
        part = bits // len(sources)
        full: Any = np.dtype(f"u{bits // 8}")
        into = target

        def pack(c: Cohort) -> None:
            value: Array = np.zeros((c.n, 32), full)
            for k, item in enumerate(sources):
                value = value | (_bits(c, item, f"u{part // 8}").astype(full) << full.type(k * part))
            c.residents.set_taint(c, into, value)

        return pack
    source = _slot(b, x)
    to = target

    def move(c: Cohort) -> None:
        c.residents.set_taint(c, to, _bits(c, source, GROUP_DTYPES[to[0]]))

    return move


def _selp_rule(b: Binder, i: Instruction) -> Run | None:
    d, x, y, p = i.operands
    target, first, second, choose = _slot(b, d), _slot(b, x), _slot(b, y), _slot(b, p)
    if target is None or choose is None:
        return None
    predicate = b.source(p, "pred")
    to, dtype = target, np.dtype(GROUP_DTYPES[target[0]])

    def select(c: Cohort) -> None:
        chosen = np.where(predicate(c), _bits(c, first, dtype), _bits(c, second, dtype))
        unknown = _bits(c, choose, np.bool_)
        c.residents.set_taint(c, to, np.where(unknown, ALL_BITS[to[0]], chosen))

    return select


def _logic_rule(b: Binder, i: Instruction) -> Run | None:
    """A known 0 decides an and, a known 1 decides an or."""
    d, x, y = i.operands
    target, first, second = _slot(b, d), _slot(b, x), _slot(b, y)
    if target is None:
        return None
    predicates = i.types[-1] == "pred"
    name = "pred" if predicates else f"u{TYPES[i.types[-1]].bits}"
    get_x, get_y = b.source(x, name), b.source(y, name)
    to, is_and = target, i.opcode == "and"
    dtype: Any = np.dtype(np.bool_) if predicates else np.dtype(name.replace("u", "uint"))

    def logic(c: Cohort) -> None:
        tx, ty = _bits(c, first, dtype), _bits(c, second, dtype)
        vx, vy = np.asarray(get_x(c)), np.asarray(get_y(c))
        if is_and:
            decided = (~tx & ~vx) | (~ty & ~vy)
        else:
            decided = (~tx & vx) | (~ty & vy)
        c.residents.set_taint(c, to, ((tx | ty) & ~decided).astype(dtype))

    return logic


def _compare_and_combine_rule(b: Binder, i: Instruction) -> Run | None:
    """setp with a predicate: a known 0 decides .and, a known 1 decides .or, whatever was compared."""
    targets, x, y, p = i.operands
    written = (targets.first, targets.second) if isinstance(targets, PairOperand) else (targets,)
    slots = [slot for slot in (_slot(b, d) for d in written) if slot is not None]
    compared = [slot for slot in (_slot(b, x), _slot(b, y)) if slot is not None]
    choose = _slot(b, p)
    predicate, is_and = b.source(p, "pred"), i.has("and")

    def combine(c: Cohort) -> None:
        unknown: Array = _bits(c, choose, np.bool_)
        value = np.asarray(predicate(c))
        decided = ~unknown & (~value if is_and else value)
        for slot in compared:
            unknown = unknown | (_bits(c, slot, GROUP_DTYPES[slot[0]]) != 0)
        for slot in slots:
            c.residents.set_taint(c, slot, unknown & ~decided)

    return combine


def _shift_rule(b: Binder, i: Instruction) -> Run | None:
    d, x, amount = i.operands
    target, source = _slot(b, d), _slot(b, x)
    if target is None or not isinstance(amount, IntegerOperand):
        return None
    kind = TYPES[i.types[-1]]
    count = min(amount.value & 0xFFFFFFFF, kind.bits - 1)
    to, left = target, i.opcode == "shl"
    dtype: Any = np.dtype(f"{'i' if kind.signed and not left else 'u'}{kind.bytes}")

    def shift(c: Cohort) -> None:
        bits = _bits(c, source, f"u{kind.bytes}").view(dtype)
        moved = bits << dtype.type(count) if left else bits >> dtype.type(count)
        c.residents.set_taint(c, to, moved.view(f"u{kind.bytes}"))

    return shift


def any_of(parts: list[NDArray[np.bool_]]) -> NDArray[np.bool_] | None:
    """Their union, None when there is none or it is empty."""
    result: NDArray[np.bool_] | None = None
    for part in parts:
        result = part if result is None else result | part
    return result if result is not None and result.any() else None
