"""That numbers are multiples of a unit, as conditions."""

from __future__ import annotations

from collections.abc import Iterable

from tinygpu.expressions.terms import Expr, Operand, expr


def multiples(numbers: Iterable[Expr], unit: Operand) -> list[Expr]:
    """The conditions under which all of these are multiples of a unit, but for those that hold anyway."""
    magnitudes = [expr(0) - s if s.sympy.could_extract_minus_sign() else s for s in numbers]
    return [m % unit == 0 for m in magnitudes if not (m % unit).same(0)]
