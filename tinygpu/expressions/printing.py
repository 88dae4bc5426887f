"""Expressions as they are written in a machine: `(k + bk - 1) // bk`, `min(a, b)`, `bm % 8 == 0`.

The text is Python's syntax, and `tinygpu.expressions.formula` reads it back. Its order is for readers: what is
subtracted and numbers come last, and what is rounded up comes first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import sympy

from tinygpu.expressions.functions import FloorDiv, Remainder, rounded_up

# How tightly a text holds together, as Python reads it; a product that begins with a minus counts as a sum.
_CASES, _OR, _AND, _RELATION, _SUM, _PRODUCT, _POWER, _ATOM = range(8)

REMEMBERED = 1 << 15


def written(node: Any) -> str:
    """A sympy node of the language, with as few parentheses as a reader wants.

    >>> from tinygpu.expressions import ceil_div, symbol
    >>> written((ceil_div(symbol("k"), symbol("bk")) % 2 == 0).sympy)
    '(k + bk - 1) // bk % 2 == 0'
    """
    return _text(node)[0]


def grouped(node: Any) -> str:
    """The same where it stands beside a sign of the text around it: in parentheses, unless it is one name or number."""
    return _within(node, _ATOM)


@lru_cache(maxsize=REMEMBERED)
def _text(node: Any) -> tuple[str, int]:
    """The text and how tightly it holds together."""
    if isinstance(node, sympy.Rational):
        return _number(node)
    if node.is_Add:
        return _sum(node), _SUM
    if node.is_Mul:
        return _product(node)
    if isinstance(node, (FloorDiv, Remainder)):
        return _division(node), _PRODUCT
    if node.is_Pow:
        return f"{_within(node.args[0], _ATOM)}**{_within(node.args[1], _ATOM)}", _POWER
    if isinstance(node, (sympy.Max, sympy.Min)):
        return f"{'max' if isinstance(node, sympy.Max) else 'min'}({_listed(_numbers_last(node.args))})", _ATOM
    if isinstance(node, (sympy.And, sympy.Or)):
        level, word = (_AND, " and ") if isinstance(node, sympy.And) else (_OR, " or ")
        return word.join(sorted(_within(a, _RELATION) for a in node.args)), level
    if isinstance(node, sympy.Not):
        return f"not ({written(node.args[0])})", _RELATION
    if isinstance(node, sympy.Piecewise):
        return _cases(node), _CASES
    if node.is_Relational:
        return f"{_within(node.lhs, _SUM)} {node.rel_op} {_within(node.rhs, _SUM)}", _RELATION
    if node.is_Function:
        return f"{node.func.__name__}({_listed(node.args)})", _ATOM
    return str(node), _ATOM  # a symbol, a truth value


def _within(node: Any, needed: int) -> str:
    text, level = _text(node)
    return text if level >= needed else f"({text})"


def _listed(nodes: Iterable[Any]) -> str:
    return ", ".join(map(written, nodes))


def _number(node: Any) -> tuple[str, int]:
    if node.is_Integer:
        return str(node), _ATOM if node >= 0 else _SUM
    return f"{node.p} / {node.q}", _PRODUCT if node.p >= 0 else _SUM


def _numbers_last(nodes: Iterable[Any]) -> list[Any]:
    return sorted(nodes, key=lambda node: bool(node.is_number))


def _sum(node: Any, first: tuple[Any, ...] = ()) -> str:
    """The terms in sympy's order, those of `first` before all others, what is subtracted behind them."""
    text = ""
    ordered = sorted(node.as_ordered_terms(), key=lambda term: (term not in first, _is_negative(term)))
    for term in ordered:
        negative = _is_negative(term)
        if not text:
            text = _negated(-term) if negative else _within(term, _PRODUCT)
        else:
            text += f" - {_within(-term, _PRODUCT)}" if negative else f" + {_within(term, _PRODUCT)}"
    return text


def _is_negative(term: Any) -> bool:
    return bool(term.as_coeff_Mul()[0] < 0)


def _negated(node: Any) -> str:
    """With a minus in front, which Python takes to the dividend alone where a quotient follows."""
    return f"-{_factor(node) if isinstance(node, (FloorDiv, Remainder)) else _within(node, _PRODUCT)}"


def _product(node: Any) -> tuple[str, int]:
    number, _ = node.as_coeff_Mul()
    if number < 0:
        return _negated(-node), _SUM
    over = "" if number.q == 1 else f" / {number.q}"
    factors = (node * number.q).as_ordered_factors() if over else node.as_ordered_factors()
    return "*".join(map(_factor, factors)) + over, _PRODUCT


def _factor(node: Any) -> str:
    """Of a product, and a dividend that is no product: a quotient in it has parentheses, which Python may not need."""
    return _within(node, _POWER)


def _division(node: Any) -> str:
    dividend, divisor = node.args
    sign = "//" if isinstance(node, FloorDiv) else "%"
    if isinstance(node, FloorDiv) and (rounded := rounded_up(node)) is not None:
        return f"({_sum(dividend, sympy.Add.make_args(rounded))}) // {_factor(divisor)}"
    quotient_first = isinstance(dividend, FloorDiv) and isinstance(node, Remainder)
    left = _within(dividend, _PRODUCT) if dividend.is_Mul or quotient_first else _factor(dividend)
    return f"{left} {sign} {_factor(divisor)}"


def _cases(node: Any) -> str:
    text = ""
    for then, condition in node.args:
        value = _within(then, _OR)
        text += value if condition is sympy.true else f"{value} if {_within(condition, _OR)} else "
    return text.removesuffix(" else ")
