"""What the language has beside sympy's own operations: division and remainder of integers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import sympy


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """floor(a / b) for non-negative integers a and positive b."""

    nargs = 2

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if b == 1:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        return exact_quotient(a, b)


class Remainder(sympy.Function):  # type: ignore[misc]
    """a mod b for non-negative integers a and positive b."""

    nargs = 2

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        return sympy.Integer(0) if exact_quotient(a, b) is not None else None


def exact_quotient(a: Any, b: Any) -> Any:
    """a / b where every factor of b cancels whatever the values are (b is positive); else None."""
    if not (a.is_Mul or a.is_Symbol or a.is_Integer) or not (b.is_Mul or b.is_Symbol or b.is_Integer):
        return None
    quotient = a / b
    return quotient if sympy.denom(quotient) == 1 else None


def rounded_up(quotient: Any) -> Any:
    """What is divided and rounded up, where a FloorDiv has the form (a + b - 1) // b; else None."""
    dividend, divisor = quotient.args
    if not dividend.is_Add:
        return None
    rest = dividend - (divisor - 1)
    # Only if the divisor and the 1 vanish, nothing else changes and something is left.
    terms = 1 if divisor.is_Integer else 2
    gone = len(dividend.args) - len(sympy.Add.make_args(rest))
    return rest if rest != 0 and gone == terms else None


@lru_cache(maxsize=65536)  # large expressions share most of their parts
def _denominator(node: Any) -> int:
    """The least common multiple of the denominators of all numbers in an expression."""
    return int(node.q) if node.is_Rational else math.lcm(*map(_denominator, node.args))


def integer_sides(relation: Any) -> tuple[Any, Any]:
    """The two sides of a sympy relation, both multiplied by what makes every coefficient an integer.

    sympy solves the conditions of nested cases and then writes 2*a < b as a < b/2.
    """
    left, right = relation.lhs, relation.rhs
    scale = math.lcm(_denominator(left), _denominator(right))
    return (left, right) if scale == 1 else (sympy.expand_mul(scale * left), sympy.expand_mul(scale * right))
