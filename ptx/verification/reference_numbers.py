"""Numbers at which a reference cuts, compares or divides: a program that leaves them out is right on smaller arrays,
and on data that never come to them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from tinygpu.language.declared import Declared

# Smaller ones every problem is beyond.
LEAST, MOST = 4, 1 << 20
_LIMITS, _LIMITS_OF_PYTHON = ("minimum", "maximum", "clip"), ("min", "max")  # arrays' own min and max name axes
_ENDS = ("a_min", "a_max", "min", "max")
# What is asked of an array beside its elements.
_OF_SHAPES = frozenset(("shape", "ndim", "size", "dtype", "len"))

Number: TypeAlias = int | float


@lru_cache(maxsize=256)
def deciding_numbers(machine: type[Declared]) -> tuple[int, ...]:
    """The whole numbers of a reference's slices, comparisons, quotients, remainders and limits, the largest first; none
    where its source is not known.
    """
    found = {
        abs(int(number))
        for tree, names in _sources(machine.reference)
        for node in ast.walk(tree)
        for part in (*_compared(node), *_cut(node))
        for number in _numbers(part, names)
        if number == int(number)
    }
    return tuple(sorted((number for number in found if LEAST <= number <= MOST), reverse=True))


@lru_cache(maxsize=256)
def compared_numbers(machine: type[Declared]) -> tuple[float, ...]:
    """The numbers, whole or not, that stand alone in a reference's comparisons and limits, or as terms of sums there;
    the least first, and none where its source is not known.
    """
    found = {
        float(number)
        for tree, names in _sources(machine.reference)
        for node in ast.walk(tree)
        if not _asks_for_shapes(node)
        for part in _compared(node)
        for term in _terms(part)
        if (number := _value(term, names)) is not None
    }
    return tuple(sorted(found))


@lru_cache(maxsize=256)
def reduces_over_axes(machine: type[Declared]) -> bool:
    """Whether a reference says `axis=` of several axes."""
    nodes = [node for tree, _ in _sources(machine.reference) for node in ast.walk(tree)]
    named = [k.value for node in nodes if isinstance(node, ast.Call) for k in node.keywords if k.arg == "axis"]
    return any(isinstance(value, ast.Tuple) and len(value.elts) > 1 for value in named)


def _sources(reference: Callable[..., Any]) -> Iterator[tuple[ast.AST, Mapping[str, Any]]]:
    """What a reference and the functions of its module that it names are written as, and what their names are."""
    seen, ahead = list[Any](), [reference]
    while ahead:
        function = ahead.pop()
        if function in seen:
            continue
        seen.append(function)
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            outside = inspect.getclosurevars(function)
            given = inspect.signature(function).parameters.values()
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        defaults = {p.name: p.default for p in given if p.default is not p.empty}
        names = {**outside.globals, **outside.nonlocals, **defaults}
        yield tree, names
        ahead += [f for f in names.values() if inspect.isfunction(f) and f.__module__ == function.__module__]


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    """What is compared: operands of comparisons, of the least and the greatest, and ends that clip."""
    match node:
        case ast.Compare(left=left, comparators=others):
            yield from (left, *others)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=given, keywords=named) if name in _LIMITS:
            yield from given
            yield from (k.value for k in named if k.arg in _ENDS)
        case ast.Call(func=ast.Name(id=name), args=given) if name in _LIMITS_OF_PYTHON:
            yield from given


def _asks_for_shapes(node: ast.AST) -> bool:
    """Whether what is compared are sizes, or what types are."""
    named = [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
    named += [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return isinstance(node, ast.Compare) and not _OF_SHAPES.isdisjoint(named)


def _cut(node: ast.AST) -> Iterator[ast.expr]:
    """What arrays are cut at, and numbers divided by."""
    match node:
        case ast.Slice(lower=lower, upper=upper, step=step):
            yield from (part for part in (lower, upper, step) if part is not None)
        case ast.BinOp(op=ast.Mod() | ast.FloorDiv(), right=right):
            yield right


def _terms(part: ast.expr) -> Iterator[ast.expr]:
    """An expression, and the terms of the sum that it is."""
    yield part
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add | ast.Sub):
        yield from (*_terms(part.left), *_terms(part.right))


def _numbers(part: ast.AST, names: Mapping[str, Any]) -> Iterator[Number]:
    """The finite numbers in an expression, and the one that it is where it is made of numbers alone."""
    for node in ast.walk(part):
        if isinstance(node, ast.expr) and (number := _value(node, names)) is not None:
            yield number


def _value(node: ast.expr, names: Mapping[str, Any]) -> Number | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return _finite(value)
        case ast.Name(id=name):
            return _finite(names.get(name))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _value(operand, names)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _value(left, names), _value(right, names)
            return None if a is None or b is None else _made(op, a, b)
        case _:
            return None


def _finite(value: Any) -> Number | None:
    """A number that is one, and no truth value."""
    return value if type(value) in (int, float) and abs(value) <= 2.0**63 else None


def _made(op: ast.operator, a: Number, b: Number) -> Number | None:
    match op:
        case ast.Add():
            return a + b
        case ast.Sub():
            return a - b
        case ast.Mult():
            return a * b
        case ast.Div() if b:
            return a / b
        case ast.FloorDiv() if b:
            return a // b
        case ast.LShift() if isinstance(a, int) and isinstance(b, int) and 0 <= b < 20:
            return a << b
        case ast.Pow() if 0 <= b < 20 and 0 < abs(a) < 100:
            return _finite(a**b)
        case _:
            return None
