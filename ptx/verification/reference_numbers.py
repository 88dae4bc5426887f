"""Numbers at which a reference cuts, compares or divides: a program that leaves them out is right on smaller arrays."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tinygpu.language.declared import Declared

# Smaller ones every problem is beyond.
LEAST, MOST = 4, 1 << 20
_LIMITS = ("min", "max", "minimum", "maximum", "clip")


@lru_cache(maxsize=256)
def deciding_numbers(machine: type[Declared]) -> tuple[int, ...]:
    """The whole numbers of a reference's slices, comparisons, quotients, remainders and limits, the largest first; none
    where its source is not known.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(machine.reference)))
        outside = inspect.getclosurevars(machine.reference)
    except (OSError, TypeError, SyntaxError, ValueError):
        return ()
    names = {**outside.globals, **outside.nonlocals}
    found = {abs(number) for node in ast.walk(tree) for part in _parts(node) for number in _numbers(part, names)}
    return tuple(sorted((number for number in found if LEAST <= number <= MOST), reverse=True))


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What stands where a number decides."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from (part for part in (lower, upper, step) if part is not None)
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), right=right):
            yield right
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given) if name in _LIMITS:
            yield from given


def _numbers(part: ast.AST, names: Mapping[str, Any]) -> Iterator[int]:
    """The whole numbers in an expression, and the one that it is where it is made of numbers alone."""
    for node in ast.walk(part):
        if isinstance(node, ast.expr) and (number := _value(node, names)) is not None:
            yield number


def _value(node: ast.expr, names: Mapping[str, Any]) -> int | None:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if type(names.get(name)) is int:
            return int(names[name])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _value(operand, names)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, names), _value(right, names)
            return None if a is None or b is None else _made(op, a, b)
        case _:
            return None


def _made(op: ast.operator, a: int, b: int) -> int | None:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.FloorDiv() if b:
            return a // b
        case ast.LShift() if 0 <= b < 20:
            return a << b
        case ast.Pow() if 0 <= b < 20:
            return int(a**b)
        case _:
            return None
