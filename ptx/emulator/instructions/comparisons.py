"""Comparison and selection: setp, set, selp, slct (PTX ISA, "Comparison and Selection")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.instructions.binder import Binder, Getter, Run
from tinygpu.ptx.emulator.instructions.float_operands import lane_source
from tinygpu.ptx.emulator.instructions.integer import Compile, last_type
from tinygpu.ptx.emulator.instructions.rounding import flush_subnormals
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, PairOperand, SinkOperand
from tinygpu.ptx.emulator.source.types import TYPES, Array, numpy_type
from tinygpu.ptx.emulator.state.cohort import Cohort


def _unordered(compare: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    return lambda x, y: compare(x, y) | np.isnan(x) | np.isnan(y)


_COMPARE: dict[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    "equ": _unordered(np.equal), "neu": _unordered(np.not_equal), "ltu": _unordered(np.less),
    "leu": _unordered(np.less_equal), "gtu": _unordered(np.greater), "geu": _unordered(np.greater_equal),
    "num": lambda x, y: ~(np.isnan(x) | np.isnan(y)), "nan": lambda x, y: np.isnan(x) | np.isnan(y),
}  # fmt: skip
_BOOLEAN: dict[str, Callable[..., Any]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _ordered_not_equal(x: Array, y: Array) -> Any:
    """.ne of floats is false where an operand is NaN; NumPy's is true."""
    return np.not_equal(x, y) & ~(np.isnan(x) | np.isnan(y))


def _parts(b: Binder, i: Instruction, name: str) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
    names = [m for m in i.modifiers if m in _COMPARE]
    if len(names) != 1:
        raise b.fail(f"`{i.name}` needs one comparison such as .lt")
    kind = TYPES[name]
    floating = kind.is_float or kind.kind == "packed"
    which = names[0]
    if not floating and which in ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        raise b.fail(f".{which} compares floating types only")
    compare = _ordered_not_equal if floating and which == "ne" else _COMPARE[which]
    combine = [m for m in i.modifiers if m in _BOOLEAN]
    return compare, _BOOLEAN[combine[0]] if combine else None


def _sources(b: Binder, i: Instruction, name: str, x: Operand, y: Operand) -> tuple[Getter, Getter]:
    kind = TYPES[name]
    if kind.kind == "packed":
        return lane_source(b, x, name), lane_source(b, y, name)
    seen = f"u{kind.bits}" if kind.kind == "bits" or any(i.has(m) for m in ("lo", "ls", "hi", "hs")) else name
    return b.source(x, seen), b.source(y, seen)


def _setp(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    compare, combine = _parts(b, i, name)
    operands = b.operands(i, 4 if combine else 3)
    targets = operands[0]
    first_target: Operand = targets.first if isinstance(targets, PairOperand) else targets
    second_target = targets.second if isinstance(targets, PairOperand) else None
    first, second = _sources(b, i, name, operands[1], operands[2])
    extra = b.source(operands[3], "pred") if combine else None
    flush = i.has("ftz")
    packed = TYPES[name].kind == "packed"
    get = b.destination(first_target, "pred")
    other = None
    if second_target is not None and not isinstance(second_target, SinkOperand):
        other = b.destination(second_target, "pred")
    if combine is None and other is None and not packed and not flush and isinstance(compare, np.ufunc):
        ufunc: Any = compare

        def run_plain(c: Cohort) -> None:
            ufunc(first(c), second(c), out=get(c), where=c.where)

        return run_plain

    def run(c: Cohort) -> None:
        x, y = first(c), second(c)
        if flush:
            x, y = flush_subnormals(x), flush_subnormals(y)
        result = compare(x, y)
        if packed:
            # .f16x2: d is the comparison of the lower halves, the second predicate that of the upper halves.
            pairs = np.broadcast_to(result, (c.n, 64)).reshape(c.n, 32, 2)
            low, high = pairs[..., 0], pairs[..., 1]
        else:
            low, high = result, np.logical_not(result)
        if combine is not None and extra is not None:
            with_this = extra(c)
            low, high = combine(low, with_this), combine(high, with_this)
        low, high = np.array(low), np.array(high)
        np.copyto(get(c), low, where=c.where)
        if other is not None:
            np.copyto(other(c), high, where=c.where)

    return run


def _set(b: Binder, i: Instruction) -> Run:
    """set: 1.0 or all ones (as the destination type wants it) where the comparison holds, else zero."""
    if len(i.types) != 2:
        raise b.fail(f"`{i.name}` needs a destination type and a source type")
    to, name = i.types
    compare, combine = _parts(b, i, name)
    operands = b.operands(i, 4 if combine else 3)
    first, second = _sources(b, i, name, operands[1], operands[2])
    extra = b.source(operands[3], "pred") if combine else None
    flush = i.has("ftz")
    packed = TYPES[name].kind == "packed"
    if packed:
        get = b.destination(operands[0], "u32")
        half = 0x3C00 if to == "f16x2" else 0x3F80 if to == "bf16x2" else 0xFFFF
        true: Any = np.uint16(half)
    else:
        get = b.destination(operands[0], to)
        dtype = numpy_type(to)
        true = dtype.type(1) if TYPES[to].is_float else np.array([-1], f"i{dtype.itemsize}").view(dtype)[0]

    def run(c: Cohort) -> None:
        x, y = first(c), second(c)
        if flush:
            x, y = flush_subnormals(x), flush_subnormals(y)
        result = compare(x, y)
        if combine is not None and extra is not None:
            with_this = extra(c)
            result = combine(result, np.repeat(with_this, 2, axis=-1) if packed and np.ndim(with_this) else with_this)
        if packed:
            pairs = np.where(np.broadcast_to(result, (c.n, 64)), true, np.uint16(0)).astype(np.uint16)
            np.copyto(get(c), pairs.view(np.uint32), where=c.where)
            return
        np.copyto(get(c), np.where(result, true, type(true)(0)), where=c.where, casting="unsafe")

    return run


def _selp(b: Binder, i: Instruction) -> Run:
    name = last_type(b, i)
    seen = name if name == "pred" or TYPES[name].is_float else f"u{TYPES[name].bits}"
    d, x, y, p = b.operands(i, 4)
    first, second, choose = b.source(x, seen), b.source(y, seen), b.source(p, "pred")
    get = b.destination(d, seen)

    def run(c: Cohort) -> None:
        np.copyto(get(c), np.where(choose(c), first(c), second(c)), where=c.where)

    return run


def _slct(b: Binder, i: Instruction) -> Run:
    if len(i.types) != 2:
        raise b.fail(f"`{i.name}` needs two types")
    name, by = i.types
    d, x, y, z = b.operands(i, 4)
    first, second, choose = b.source(x, name), b.source(y, name), b.source(z, by)
    get = b.destination(d, name)
    flush = i.has("ftz")

    def run(c: Cohort) -> None:
        value = choose(c)
        if flush:
            value = flush_subnormals(value)
        np.copyto(get(c), np.where(value >= 0, first(c), second(c)), where=c.where)

    return run


COMPARISONS: dict[str, Compile] = {"setp": _setp, "set": _set, "selp": _selp, "slct": _slct}
