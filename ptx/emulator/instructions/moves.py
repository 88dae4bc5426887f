"""Moving and packing registers, and addresses: mov, cvta, isspacep (PTX ISA, "Data Movement and Conversion")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Run, generic_base
from tinygpu.ptx.emulator.instructions.integer import Compile, emit, last_type
from tinygpu.ptx.emulator.source.syntax import (
    Instruction,
    Operand,
    RegisterOperand,
    SinkOperand,
    SymbolOperand,
    VectorOperand,
)
from tinygpu.ptx.emulator.source.types import TYPES, Array
from tinygpu.ptx.emulator.state.memory import WINDOW_BYTES
from tinygpu.ptx.emulator.state.residents import Cohort

_SPACES = ("global", "shared", "local", "const", "param")


def _mov(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    d, x = b.operands(i, 2)
    bits = TYPES[name].bits
    if isinstance(d, VectorOperand):
        return _unpack(b, d, x, bits)
    if isinstance(x, VectorOperand):
        return _pack(b, d, x, bits)
    seen = "pred" if name == "pred" else f"u{bits}"
    if isinstance(x, SymbolOperand):
        return emit(b.destination(d, seen), lambda v: v, (b.symbol_address(x, seen, False),))
    if TYPES[name].is_float and not isinstance(x, RegisterOperand):
        return emit(b.destination(d, name), lambda v: v, (b.source(x, name),))
    source = b.source(x, seen)
    get = b.destination(d, seen)

    def run(c: Cohort) -> None:
        np.copyto(get(c), source(c), where=c.where)

    return run


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
