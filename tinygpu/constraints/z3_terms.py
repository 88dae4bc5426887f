"""Conditions as Z3 terms over integers.

Symbols become Z3 integers in the context that the caller passes in. Z3's `div` and `mod` are Euclidean; for a positive
divisor they equal floor division and its remainder, as in Python and NumPy, also when the dividend is negative.
Where a divisor is not a constant, the fact that it is positive is kept as a *guard*, to be asserted with the terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import z3

from tinygpu.expressions import Expr, FloorDiv, Remainder, integer_sides, written


class Z3Terms:
    """Translates expressions within one Z3 context.

    values  symbols that are known numbers; all others become Z3 integers, which `assumptions` keeps non-negative
    """

    def __init__(self, context: Any, values: Mapping[str, int] | None = None) -> None:
        self.context = context
        self.symbols: dict[str, Any] = {}
        self.guards: list[Any] = []
        self._values = dict(values or {})
        self._known: dict[Any, Any] = {}

    def term(self, expression: Expr) -> Any:
        """The Z3 term (integer or Boolean) of an expression. Raises TypeError for what is not in the language."""
        return self._term(expression.sympy)

    def symbol(self, name: str) -> Any:
        """The Z3 integer called `name`, or its number where it is known."""
        if name in self._values:
            return z3.IntVal(self._values[name], ctx=self.context)
        if name not in self.symbols:
            self.symbols[name] = z3.Int(name, ctx=self.context)
        return self.symbols[name]

    def one_of(self, name: str, values: Iterable[int]) -> Any:
        """The term: `name` has one of the values."""
        return self._many(z3.Or, [self.symbol(name) == value for value in values])

    def assumptions(self) -> list[Any]:
        """What every question must assert beside its terms: symbols are non-negative, divisors are positive."""
        return [s >= 0 for s in self.symbols.values()] + self.guards

    def _term(self, node: Any) -> Any:
        known = self._known.get(node)
        if known is None:
            known = self._known[node] = self._translate(node)
        return known

    def _translate(self, node: Any) -> Any:
        if node is sympy.true or node is sympy.false:
            return z3.BoolVal(bool(node), ctx=self.context)
        if node.is_Symbol:
            return self.symbol(node.name)
        if node.is_Integer:
            return z3.IntVal(int(node), ctx=self.context)
        if isinstance(node, sympy.Piecewise):
            return self._cases(node)
        if node.is_Pow and node.args[1].is_Integer and node.args[1].is_positive:
            return z3.Product([self._term(node.args[0])] * int(node.args[1]))
        if isinstance(node, (FloorDiv, Remainder)):
            return self._divide(node)
        if node.is_Relational and node.rel_op in _RELATIONS:
            return _RELATIONS[node.rel_op](*(self._term(side) for side in integer_sides(node)))
        parts = [self._term(a) for a in node.args]
        if node.is_Add:
            return z3.Sum(parts)
        if node.is_Mul:
            return z3.Product(parts)
        if isinstance(node, (sympy.Max, sympy.Min)):
            out = parts[0]
            for part in parts[1:]:
                out = z3.If(out >= part if isinstance(node, sympy.Max) else out <= part, out, part)
            return out
        if isinstance(node, sympy.And):
            return self._many(z3.And, parts)
        if isinstance(node, sympy.Or):
            return self._many(z3.Or, parts)
        if isinstance(node, sympy.Not):
            return z3.Not(parts[0])
        raise TypeError(f"{written(node)} has no Z3 term: {type(node).__name__} is not part of the expression language")

    def _cases(self, node: Any) -> Any:
        *cases, (otherwise, last) = node.args
        if last is not sympy.true:
            raise TypeError(f"{written(node)} has a case that is not covered")
        out = self._term(otherwise)
        for then, condition in reversed(cases):
            out = z3.If(self._term(condition), self._term(then), out)
        return out

    def _divide(self, node: Any) -> Any:
        dividend, divisor = (self._term(a) for a in node.args)
        if not z3.is_int_value(divisor):
            self.guards.append(divisor > 0)
        elif divisor.as_long() < 1:
            raise TypeError(f"{written(node)} divides by {divisor.as_long()}; divisors are positive integers")
        return dividend / divisor if isinstance(node, FloorDiv) else dividend % divisor

    def _many(self, connective: Any, parts: list[Any]) -> Any:
        return connective(*parts) if parts else z3.BoolVal(connective is z3.And, ctx=self.context)


_RELATIONS: dict[str, Any] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
