"""Quotients that say the same: (n + b - 1) // b is (n - 1) // b + 1, wherever n is 1 at least."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sympy

from tinygpu.expressions.functions import FloorDiv
from tinygpu.expressions.terms import Expr


def same_quotients(a: Expr, b: Expr, positive: Collection[str]) -> bool:
    """Whether two expressions are the same once whole multiples of divisors are taken out of what they divide.

    So a loop over `n - b` in steps of b, and once more behind it, is as often as a loop over n.

    positive  names whose values are 1 at least; those of all others are 0 at least, and divisors are above 0
    """
    return a.same(b) or bool(_taken_out(a.sympy, positive) == _taken_out(b.sympy, positive))


def _taken_out(node: Any, positive: Collection[str]) -> Any:
    if not node.args:
        return node
    inner = node.func(*(_taken_out(child, positive) for child in node.args))
    if inner.func is sympy.Max:
        return _greatest(inner.args, positive)
    if inner.func is not FloorDiv:
        return inner
    dividend, divisor = inner.args
    return _quotient(dividend, divisor, positive)


def _quotient(dividend: Any, divisor: Any, positive: Collection[str]) -> Any:
    """A quotient that is rounded down. That of the greatest of several is the greatest quotient."""
    for term in sympy.Add.make_args(dividend):
        if term.func is sympy.Max:
            rest = dividend - term
            return _greatest([_quotient(one + rest, divisor, positive) for one in term.args], positive)
    factor, name = divisor.as_coeff_Mul()
    if name == 1:
        whole = sympy.ceiling(dividend.as_coeff_Add()[0] / divisor)
    else:
        whole = sympy.floor(dividend.as_coefficients_dict().get(name, 0) / factor)
    above = {*positive, *map(str, divisor.free_symbols)}
    least, rest = _least(dividend, above), dividend - whole * divisor
    if least >= 0 and (dividend - divisor).is_Integer and (dividend - divisor).is_negative:
        return sympy.Integer(0)
    if least < 0 or _least(rest, above) < 0:
        return FloorDiv(dividend, divisor)
    return FloorDiv(rest, divisor) + whole


def _greatest(values: Collection[Any], positive: Collection[str]) -> Any:
    """The greatest of some values; zero is none of them where another is not negative."""
    not_negative = [v for v in values if v.func is FloorDiv and _least(v.args[0], positive) >= 0]
    return sympy.Max(*(v for v in values if v != 0 or not not_negative))


def _least(node: Any, positive: Collection[str]) -> Any:
    """The least value of a sum of names; minus infinity where it is not known."""
    least = sympy.Integer(0)
    for term in sympy.Add.make_args(node):
        factor, name = term.as_coeff_Mul()
        if name == 1:
            least += factor
        elif factor < 0 or not (name.is_Symbol or name.is_nonnegative):
            return -sympy.oo
        elif name.is_Symbol and str(name) in positive:
            least += factor
    return least
