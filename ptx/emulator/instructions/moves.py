"""Moving and packing registers, and addresses: mov, cvta, isspacep (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run, generic_base
from tinygpu.ptx.emulator.instructions.integer import Compile, emit, last_type
from tinygpu.ptx.emulator.instructions.taint import make_taint
from tinygpu.ptx.emulator.source.syntax import (
    Instruction,
    Operand,
    RegisterOperand,
    SinkOperand,
    SpecialOperand,
    SymbolOperand,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.memory import WINDOW_BYTES

_SPACES = ("global", "shared", "local", "const", "param")


def _mov(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    d, x = b.operands(i, 2)
    bits = TYPES[name].bits
    if bits == 128:
        return _mov_128(b, i, d, x)
    if isinstance(d, VectorOperand):
        return _unpack(b, d, x, bits)
    if isinstance(x, VectorOperand):
        return _pack(b, d, x, bits)
    seen = "pred" if name == "pred" else f"u{bits}"
    if isinstance(x, SymbolOperand):
        return emit(b.destination(d, seen), lambda v: v, (b.symbol_address(x, seen, False),))
    if TYPES[name].is_float and not isinstance(x, RegisterOperand):
        return emit(b.destination(d, name), lambda v: v, (b.source(x, name),))
    if name == "pred" and isinstance(x, SpecialOperand):
        return emit(b.destination(d, "pred"), lambda v: v != 0, (b.source(x, "u32"),))
    source = b.source(x, seen)
    get = b.destination(d, seen)

    def run(c: Cohort) -> None:
        np.copyto(get(c), source(c), where=c.where)

    return run


def _mov_128(b: Binder, i: Instruction, d: Operand, x: Operand) -> Run:
    """mov.b128: 128-bit registers are pairs of halves, so each half is a move, packing or unpacking of 64 bits."""
    if not isinstance(d, VectorOperand) or not isinstance(x, VectorOperand):
        raise b.fail(f"`{i.name}` moves between 128-bit registers and two 64-bit or four 32-bit registers")
    counts = (len(d.elements), len(x.elements))
    if counts not in ((2, 2), (2, 4), (4, 2)):
        raise b.fail(f"{counts[1]} registers cannot fill {counts[0]} with 128 bits")
    halves: list[tuple[Run, Run]] = []
    for half in range(2):
        into, of = (_half(operand, half) for operand in (d, x))
        part = replace(i, modifiers=("b64",), types=("b64",), operands=(into, of))
        reads, writes = set(b.reads), set(b.writes)
        b.reads, b.writes = set(), set()
        if not isinstance(into, SinkOperand):
            run = _mov(b, part)
            halves.append((run, make_taint(b, part, run, "move", frozenset(b.reads), frozenset(b.writes))))
        b.reads |= reads
        b.writes |= writes
    b.owns_taint = True

    def run_both(c: Cohort) -> None:
        for plain, careful in halves:
            (careful if c.residents.tainted else plain)(c)

    return run_both


def _half(operand: VectorOperand, half: int) -> Operand:
    if len(operand.elements) == 2:
        return operand.elements[half]
    return VectorOperand(operand.elements[2 * half : 2 * half + 2])


def _pack(b: Binder, d: Operand, x: VectorOperand, bits: int) -> Run:
    """mov.b64 d, {lo, hi}: the first element is the lowest."""
    count = len(x.elements)
    if count not in (2, 4, 8) or bits % count:
        raise b.fail(f"{count} registers cannot make {bits} bits")
    part = bits // count
    sources = [b.source(element, f"u{part}") for element in x.elements]
    get = b.destination(d, f"u{bits}")
    wide: Any = np.dtype(f"u{bits // 8}")

    def run(c: Cohort) -> None:
        result: Array = np.zeros((1, 1), wide)
        for position, source in enumerate(sources):
            result = result | (np.asarray(source(c)).astype(wide) << wide.type(position * part))
        np.copyto(get(c), result, where=c.where)

    return run


def _unpack(b: Binder, d: VectorOperand, x: Operand, bits: int) -> Run:
    """mov.b64 {lo, hi}, x."""
    count = len(d.elements)
    if count not in (2, 4, 8) or bits % count:
        raise b.fail(f"{bits} bits cannot fill {count} registers")
    part = bits // count
    source = b.source(x, f"u{bits}")
    gets = [None if isinstance(e, SinkOperand) else b.destination(e, f"u{part}") for e in d.elements]
    narrow: Any = np.dtype(f"u{part // 8}")
    wide: Any = np.dtype(f"u{bits // 8}")

    def run(c: Cohort) -> None:
        value = source(c)
        # All parts are taken before the first write: a destination may be part of the source.
        parts = [(value >> wide.type(k * part)).astype(narrow) for k in range(count)]
        for get, piece in zip(gets, parts, strict=True):
            if get is not None:
                np.copyto(get(c), piece, where=c.where)

    return run


def _space(b: Binder, i: Instruction) -> str:
    for modifier in i.modifiers:
        base = modifier.split("::")[0]
        if base in _SPACES:
            return base
    raise b.fail(f"`{i.name}` names no state space")


def _cvta(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    space = _space(b, i)
    bits = TYPES[name].bits
    if bits not in (32, 64):
        raise b.fail(f"`{i.name}`: addresses have 32 or 64 bits")
    d, x = b.operands(i, 2)
    base = generic_base(space)
    dtype: Any = np.dtype(f"u{bits // 8}")
    offset = dtype.type(base & ((1 << bits) - 1))
    get = b.destination(d, f"u{bits}")
    if isinstance(x, SymbolOperand):
        lies = b.symbol(x.name).space
        if lies != space:
            raise b.fail(f"{x.name} lies in .{lies}, not in .{space}")
        value = b.address_of(x) + (0 if i.has("to") else base)
        constant = dtype.type(value & ((1 << bits) - 1))
        return emit(get, lambda: constant, ())
    source = b.source(x, f"u{bits}")
    if base == 0:
        return emit(get, lambda v: v, (source,))
    if i.has("to"):
        return emit(get, lambda v: v - offset, (source,))
    return emit(get, lambda v: v + offset, (source,))


def _isspacep(b: Binder, i: Instruction) -> Run:
    space = _space(b, i)
    d, x = b.operands(i, 2)
    source = b.source(x, "u64")
    base = generic_base(space)
    low, high = np.uint64(base), np.uint64(base + WINDOW_BYTES)
    windows = [generic_base(s) for s in _SPACES if s != "global"]
    lowest = np.uint64(min(windows))
    if space == "global":
        return emit(b.destination(d, "pred"), lambda v: np.asarray(v < lowest), (source,))
    return emit(b.destination(d, "pred"), lambda v: np.asarray((v >= low) & (v < high)), (source,))


MOVES: dict[str, Compile] = {"mov": _mov, "cvta": _cvta, "isspacep": _isspacep}
