"""What loops run over is not negative: its least value by its form, and 0 where that is less."""

from __future__ import annotations

import math
from typing import Any

import sympy

from tinygpu.expressions import Expr, FloorDiv, Operand, Remainder, expr, maximum, rounded_up
from tinygpu.language.tracing.record import Record


def extent_of(record: Record, value: Operand) -> Expr:
    """How many elements a loop runs over: none where the number is negative."""
    said = expr(value)
    return maximum(said, 0) if _least(record, said.sympy.expand()) < 0 else said


def _least(record: Record, node: Any) -> float:
    """What a number is at least, as far as its form shows: a dim is 1 or more, what data say and indices 0."""
    if node.is_Integer:
        return int(node)
    if node.is_Symbol:
        values = next((p.values for p in record.machine.params() if p.name == node.name), None)
        return min(values) if values else int(node.name in record.machine.dim_names())
    parts = [_least(record, a) for a in node.args]
    if isinstance(node, FloorDiv):
        up = rounded_up(node)
        least = parts[0] if up is None else _least(record, up)
        return -math.inf if least < 0 else float(up is not None and least > 0)
    if isinstance(node, Remainder):
        return 0
    if isinstance(node, sympy.Max):
        return max(parts)
    if isinstance(node, sympy.Min):
        return min(parts)
    if node.is_Add:
        return sum(parts)
    return math.prod(parts) if node.is_Mul and min(parts) >= 0 else -math.inf
