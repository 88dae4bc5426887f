"""Constraints in words and numbers: why a point is out, and what a condition says.

The numbers stand where the symbols stood: "3 x (128 x 64 + 256 x 64) x 2 = 147,456 > 101,376
(device.max_smem_per_block_optin)".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from tinygpu.constraints.condition import DivisorNotPositive, evaluator
from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, FloorDiv, Remainder, integer_sides, rounded_up, written

_SAID = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "==": "=", "!=": "!="}
_DENIED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "="}

# A longer formula says nothing to a reader: its value at a point says more.
LONGEST = 300
# How tightly a rendered expression holds together.
_OR, _AND, _RELATION, _SUM, _PRODUCT, _ATOM = range(6)


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """One reason why a point is out.

    constraint  the broken constraint; None where the point has a value that is not on offer
    sentence    what is wrong, with the numbers put in
    """

    constraint: Constraint | None
    sentence: str

    def __str__(self) -> str:
        return self.sentence


def find_violation(
    constraint: Constraint, values: Mapping[str, int], order: Sequence[str] = ()
) -> Violation | None:
    """Why the constraint rejects the values, or None where it admits them.

    values  a number for every symbol of the condition
    order   symbols in the order in which products and sums list them; others follow by name
    """
    try:
        if evaluator(constraint.condition.sympy)(values):
            return None
        numbers = _Rendering(values, order).failure(constraint.condition.sympy)
    except DivisorNotPositive as refused:
        numbers = f"{describe(constraint.condition, order=order)} cannot be judged here: {refused}"
    return Violation(constraint, f"{_heading(constraint)}; {numbers}")


def describe(condition: Expr, values: Mapping[str, int] | None = None, order: Sequence[str] = ()) -> str:
    """The condition (or integer expression) in the notation of explanations, with known symbols as numbers.

    >>> from tinygpu.expressions import symbol
    >>> describe(symbol("k") % symbol("bk") == 0, {"k": 4096})
    '4,096 mod bk = 0'
    """
    return _Rendering(values or {}, order).text(condition.sympy)[0]


def state(constraint: Constraint, values: Mapping[str, int] | None = None, order: Sequence[str] = ()) -> str:
    """The constraint as a sentence, with what it says of the symbols that `values` leaves open.

    A known number that stands alone on one side of a relation replaces its symbol: "... <= 101,376 (device.smem)".
    Known numbers elsewhere follow the condition: "k mod bk = 0 with k = 4,096".
    """
    condition, known = constraint.condition.sympy, values or {}
    rendering = _Rendering({}, order, alone=known)
    text = rendering.text(condition)[0]
    if rendering.inside:
        text += " with " + ", ".join(f"{name} = {known[name]:,}" for name in rendering.inside)
    return f"{_heading(constraint)}; {text}"


def _heading(constraint: Constraint) -> str:
    source = f" ({constraint.source})" if constraint.source else ""
    return f"{constraint.name}{source}: {constraint.sentence}"


class _Rendering:
    """Renders sympy nodes with some symbols as numbers.

    alone   symbols that become a number followed by their name where they stand alone on one side of a relation
    inside  symbols of `alone` that were met elsewhere, each once, in order
    """

    def __init__(
        self, values: Mapping[str, int], order: Sequence[str], alone: Mapping[str, int] | None = None
    ) -> None:
        self.values = values
        self.places = {name: i for i, name in enumerate(order)}
        self.alone = alone or {}
        self.inside: dict[str, None] = {}

    # -- what holds ---------------------------------------------------------------------------------------------

    def text(self, node: Any) -> tuple[str, int]:
        """The rendered node and how tightly it holds together."""
        if node is sympy.true or node is sympy.false:
            return ("always" if node is sympy.true else "never"), _ATOM
        if node.is_Symbol:
            known = self.values.get(node.name)
            if node.name in self.alone:
                self.inside[node.name] = None
            return (node.name if known is None else f"{known:,}"), _ATOM
        if node.is_Integer:
            return f"{int(node):,}", _ATOM
        if node.is_Relational:
            left, right = integer_sides(node)
            return f"{self._side(left)} {_SAID[node.rel_op]} {self._side(right)}", _RELATION
        if node.is_Add:
            return self._sum(node)
        if node.is_Mul:
            return self._product(node)
        if node.is_Pow:
            return f"{self._tight(node.args[0], _ATOM)}^{self._tight(node.args[1], _ATOM)}", _ATOM
        if isinstance(node, FloorDiv) and (dividend := rounded_up(node)) is not None:
            return f"ceil({self._tight(dividend, _PRODUCT)} / {self._tight(node.args[1], _ATOM)})", _ATOM
        if isinstance(node, (FloorDiv, Remainder)):
            sign = "//" if isinstance(node, FloorDiv) else "mod"
            return f"{self._tight(node.args[0], _ATOM)} {sign} {self._tight(node.args[1], _ATOM)}", _PRODUCT
        if isinstance(node, (sympy.Max, sympy.Min)):
            name = "max" if isinstance(node, sympy.Max) else "min"
            return f"{name}({', '.join(self.text(a)[0] for a in self._sorted(node.args))})", _ATOM
        if isinstance(node, (sympy.And, sympy.Or)):
            level, word = (_AND, " and ") if isinstance(node, sympy.And) else (_OR, " or ")
            return word.join(self._tight(a, _RELATION) for a in self._sorted(node.args)), level
        if isinstance(node, sympy.Not):
            return f"not ({self.text(node.args[0])[0]})", _ATOM
        if isinstance(node, sympy.Piecewise):
            return self._cases(node)
        kind = type(node).__name__
        raise TypeError(f"{written(node)} cannot be explained: {kind} is not part of the expression language")

    def _cases(self, node: Any) -> tuple[str, int]:
        parts = []
        for then, condition in node.args:
            value = self.text(then)[0]
            if condition is sympy.true:
                parts.append(f"else {value}")
            elif {s.name for s in condition.free_symbols} <= self.values.keys():
                if evaluator(condition)(self.values):
                    if not parts:
                        return self.text(then)
                    parts.append(f"else {value}")
                    break
            else:
                parts.append(f"{value} if {self.text(condition)[0]}")
        if len(parts) == 1:
            return self.text(node.args[-1][0])
        return f"({', '.join(parts)})", _ATOM

    def _sum(self, node: Any) -> tuple[str, int]:
        out = ""
        signed = [(term.could_extract_minus_sign() and not term.is_Add, term) for term in self._sorted(node.args)]
        for negative, term in sorted(signed, key=lambda pair: pair[0]):  # what is taken away comes last
            text = self._tight(-term if negative else term, _PRODUCT)
            if not out:
                out = f"-{text}" if negative else text
            else:
                out += f" - {text}" if negative else f" + {text}"
        return out, _SUM

    def _product(self, node: Any) -> tuple[str, int]:
        if node.args[0] == -1:
            return f"-{self._tight(-node, _ATOM)}", _PRODUCT
        return " x ".join(self._tight(a, _ATOM) for a in self._sorted(node.args)), _PRODUCT

    def _tight(self, node: Any, needed: int) -> str:
        text, level = self.text(node)
        return text if level >= needed else f"({text})"

    def _side(self, node: Any) -> str:
        if node.is_Symbol and node.name in self.alone:
            return f"{self.alone[node.name]:,} ({node.name})"
        return self._tight(node, _SUM)

    def _sorted(self, nodes: Any) -> list[Any]:
        return sorted(nodes, key=self._place)

    def _place(self, node: Any) -> tuple[Any, ...]:
        """Symbols first, then compound terms, numbers last; each in the order given, then by name."""
        compound = node.is_Add or (node.is_Boolean and not node.is_Relational)
        names = sorted((self.places.get(s.name, len(self.places)), s.name) for s in node.free_symbols)
        return node.is_number, compound, names, str(node)

    # -- what fails ---------------------------------------------------------------------------------------------

    def failure(self, node: Any) -> str:
        """Why a condition that is false under the values (all of them known) is false."""
        if isinstance(node, sympy.And):
            broken = [a for a in self._sorted(node.args) if not evaluator(a)(self.values)]
            return "; ".join(self.failure(a) for a in broken)
        if isinstance(node, sympy.Or):
            return f"none of these holds: {', '.join(self._denied(a) for a in self._sorted(node.args))}"
        if isinstance(node, sympy.Not):
            return f"this holds: {self.text(node.args[0])[0]}"
        if node.is_Relational:
            return self._denied(node)
        return "it never holds" if node is sympy.false else f"{self.text(node)[0]} is false"

    def _denied(self, node: Any) -> str:
        if not node.is_Relational:
            return f"({self.failure(node)})"
        lhs, rhs = integer_sides(node)
        left = self._left(lhs)
        if node.rel_op == "!=" and rhs.is_Integer:
            return left  # "k mod bk = 0" says it already
        return f"{left} {_DENIED[node.rel_op]} {self._right(rhs)}"

    def _left(self, node: Any) -> str:
        value = f"{evaluator(node)(self.values):,}"
        text = node.name if node.is_Symbol else self.text(node)[0]
        return value if text == value or len(text) > LONGEST else f"{text} = {value}"

    def _right(self, node: Any) -> str:
        value = f"{evaluator(node)(self.values):,}"
        if node.is_Symbol:
            return f"{value} ({node.name})"
        text = self.text(node)[0]
        return value if text == value or len(text) > LONGEST else f"{value} = {text}"
