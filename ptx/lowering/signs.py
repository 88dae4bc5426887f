"""Which numbers of a kernel may be below zero: those are compared, chosen and divided as signed ones.

Dims, indices and what data say are not negative, and registers hold them as unsigned numbers. What is subtracted from
another may be more than that, as rows behind the last in `s - t + row`. Sums and products are the same bits either
way; an order, a quotient and a remainder are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import sympy

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.expressions import Expr, compile_with

# A dim, an index, and what data say.
LARGEST = 2**31 - 1


def may_be_negative(node: Any, lowest: Mapping[str, int], known: Mapping[str, int]) -> bool:
    """Whether a value may be below zero, by its form.

    lowest  what symbols are at least; all others 0
    known   symbols that are numbers by now
    """
    if not _subtracts(node):
        return False
    spans = {}
    for name in Expr(node).symbols:
        spans[name] = Interval(known[name], known[name]) if name in known else Interval(lowest.get(name, 0), LARGEST)
    (found,) = _over_intervals(node)(spans)
    return (found.lo if isinstance(found, Interval) else int(found)) < 0


@lru_cache(maxsize=1 << 12)
def _subtracts(node: Any) -> bool:
    """Whether anything in an expression is taken away."""
    return any(part.is_Integer and part < 0 for part in sympy.preorder_traversal(node))


@lru_cache(maxsize=1 << 12)
def _over_intervals(node: Any) -> Callable[[Mapping[str, Any]], Any]:
    return compile_with(INTERVAL_NAMES, Expr(node))
