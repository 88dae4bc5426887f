"""Walking a program: its statements, and the expressions inside any of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

from tinygpu.expressions import Expr
from tinygpu.program import nodes as n


def walk(body: tuple[n.Statement, ...]) -> Iterator[n.Statement]:
    """All statements, nested ones included, in order."""
    for s in body:
        yield s
        if isinstance(s, (n.Loop, n.Produce, n.Consume, n.FixUp, n.Scope, n.InRole)):
            yield from walk(s.body)
        elif isinstance(s, n.Pipelined):
            yield from walk(s.produce)
            yield from walk(s.consume)


@lru_cache(maxsize=256)
def field_names(kind: type) -> tuple[str, ...]:
    """The fields that a value of this class is made of."""
    return tuple(f.name for f in fields(kind))


def expressions(value: Any) -> Iterator[Expr]:
    """All expressions inside a value."""
    if isinstance(value, Expr):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from expressions(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for name in field_names(type(value)):
            yield from expressions(getattr(value, name))


def replace_expressions(value: Any, function: Callable[[Expr], Expr]) -> Any:
    """The same value with every expression replaced; what does not change stays the same object."""
    if isinstance(value, Expr):
        return function(value)
    if isinstance(value, tuple):
        new = tuple(replace_expressions(v, function) for v in value)
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    if is_dataclass(value) and not isinstance(value, type):
        old = [getattr(value, name) for name in field_names(type(value))]
        made = [replace_expressions(v, function) for v in old]
        return value if all(a is b for a, b in zip(old, made, strict=True)) else type(value)(*made)
    return value
