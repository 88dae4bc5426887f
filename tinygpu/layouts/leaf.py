"""Leaves of shapes and strides: whole numbers, or expressions over parameters that a candidate fills in."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, TypeAlias

from tinygpu.expressions import Expr, evaluate, expr
from tinygpu.layouts.errors import LayoutError

Leaf: TypeAlias = int | Expr


def leaf(value: Any, what: str) -> Leaf:
    """`value` as a plain int, or as an expression that is no number; `what` names it in the error."""
    if isinstance(value, Expr):
        return int(value) if value.is_number else value
    if isinstance(value, bool):
        raise LayoutError(f"{what} must be an integer or a tuple of them, not {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        raise LayoutError(f"{what} must be an integer or a tuple of them, not {value!r}") from None


def same(a: Leaf, b: Leaf) -> bool:
    """Whether both are the same number, or the same expression."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return expr(a).same(b)


def times(a: Leaf, b: Leaf) -> Leaf:
    """The product; a number where both are."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return b if same(a, 1) else a if same(b, 1) else leaf(a * b, "a product")


def filled(value: Leaf, values: Mapping[str, int]) -> int:
    """The number of a leaf for these values of its symbols."""
    return value if isinstance(value, int) else int(evaluate(value, values))
