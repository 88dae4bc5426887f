"""Integer expressions over parameters, dims and device figures, kept as sympy.

An `Expr` wraps one sympy expression. Python operators build bigger ones, comparisons build conditions, and a
condition refuses to be used as a Python truth value: a parameter has no value while a machine is declared.
Expressions are over non-negative integers, where Python, NumPy, Z3 and PTX agree on `//` and `%`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import sympy

from tinygpu.expressions.functions import FloorDiv, Remainder, exact_quotient
from tinygpu.expressions.printing import grouped, written
from tinygpu.expressions.tables import Table, function_of


class Expr:
    """One expression (an integer or a condition); `.sympy` is the wrapped sympy object."""

    __slots__ = ("sympy",)

    def __init__(self, node: Any) -> None:
        self.sympy = node

    def __add__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(self.sympy + node_of(other))

    def __sub__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(self.sympy - node_of(other))

    def __mul__(self, other: Operand) -> Expr:
        if not isinstance(other, (Expr, int, np.integer)):
            return NotImplemented  # a step along an axis multiplies itself by an expression
        return Expr(self.sympy * node_of(other))

    def __floordiv__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(FloorDiv(self.sympy, node_of(other)))

    def __truediv__(self, other: Any) -> Any:
        return NotImplemented if _takes_over(other) else _no_quotient(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _no_quotient(other, self)

    def __mod__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(Remainder(self.sympy, node_of(other)))

    def __radd__(self, other: Operand) -> Expr:
        return Expr(node_of(other) + self.sympy)

    def __rsub__(self, other: Operand) -> Expr:
        return Expr(node_of(other) - self.sympy)

    def __rmul__(self, other: Operand) -> Expr:
        return Expr(node_of(other) * self.sympy)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return Expr(FloorDiv(node_of(other), self.sympy))

    def __rmod__(self, other: Operand) -> Expr:
        return Expr(Remainder(node_of(other), self.sympy))

    def __lt__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(_compared(sympy.Lt, self.sympy, node_of(other)))

    def __le__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(_compared(sympy.Le, self.sympy, node_of(other)))

    def __gt__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(_compared(sympy.Gt, self.sympy, node_of(other)))

    def __ge__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(_compared(sympy.Ge, self.sympy, node_of(other)))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Expr(_equal(self.sympy, node_of(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Expr(sympy.Ne(self.sympy, node_of(other)))

    def __and__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(sympy.And(self.sympy, node_of(other)))

    def __or__(self, other: Operand) -> Expr:
        if _takes_over(other):
            return NotImplemented
        return Expr(sympy.Or(self.sympy, node_of(other)))

    def __invert__(self) -> Expr:
        return Expr(sympy.Not(self.sympy))

    def __hash__(self) -> int:
        return hash(self.sympy)

    def __bool__(self) -> bool:
        if self.sympy in (sympy.true, sympy.false):
            return bool(self.sympy)
        raise TypeError(
            f"the condition {self} has no value while a machine is declared: branch on a structural parameter, "
            "or write where(condition, a, b)"
        )

    def __index__(self) -> int:
        if self.sympy.is_Integer:
            return int(self.sympy)
        raise TypeError(f"{self} has no value while a machine is declared; loops over it are written with loop(...)")

    def __int__(self) -> int:
        return self.__index__()

    def __str__(self) -> str:
        return written(self.sympy)

    def __repr__(self) -> str:
        return f"Expr({self})"

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur."""
        return _symbols(self.sympy)

    @property
    def is_number(self) -> bool:
        return bool(self.sympy.is_Integer)

    def same(self, other: Operand) -> bool:
        """True when both are the same expression (structurally, after sympy's own simplification)."""
        return bool(self.sympy == node_of(other))

    @property
    def split(self) -> tuple[Expr, int]:
        """What the expression is without its constant, and that constant: n and n - 1 differ in the latter alone."""
        constant, rest = self.sympy.as_coeff_Add()
        return Expr(rest), int(constant)

    def substitute(self, values: Mapping[str, Operand]) -> Expr:
        """The expression with some symbols replaced."""
        return Expr(_substituted(self.sympy, frozenset((name, node_of(v)) for name, v in values.items())))


def _no_quotient(left: Any, right: Any) -> Any:
    """Sizes and indices are whole numbers; a quotient of them is a tile's."""
    said = "sizes are whole numbers; write // for a whole quotient, or divide a tile, as x / n"
    raise TypeError(f"{left} / {right}: {said}")


def _takes_over(other: object) -> bool:
    """Whether an operator is left to what stands on its other side, as NumPy asks it: a tile."""
    return getattr(other, "__array_ufunc__", other) is None


Operand: TypeAlias = "Expr | int"

# The structures of a machine ask the same questions of the same nodes, and sympy finds each answer anew.
REMEMBERED = 1 << 15


_integer = lru_cache(maxsize=REMEMBERED)(sympy.Integer)


@lru_cache(maxsize=REMEMBERED)
def _symbols(node: Any) -> frozenset[str]:
    return frozenset(s.name for s in node.free_symbols)


@lru_cache(maxsize=REMEMBERED)
def _substituted(node: Any, values: frozenset[tuple[str, Any]]) -> Any:
    if node.is_Symbol:
        return next((value for name, value in values if name == node.name), node)
    parts = tuple(_substituted(part, values) for part in node.args)
    if all(new is old for new, old in zip(parts, node.args, strict=True)):
        return node
    made = {sympy.Max: _greatest, sympy.Min: _least}.get(node.func)
    return node.func(*parts) if made is None else made(parts)


@lru_cache(maxsize=REMEMBERED)
def _equal(left: Any, right: Any) -> Any:
    return sympy.Eq(left, right)


@lru_cache(maxsize=REMEMBERED)
def _compared(relation: Any, left: Any, right: Any) -> Any:
    return relation(left, right)


@lru_cache(maxsize=REMEMBERED)
def _all(nodes: tuple[Any, ...]) -> Any:
    return sympy.And(*nodes)


@lru_cache(maxsize=REMEMBERED)
def _any(nodes: tuple[Any, ...]) -> Any:
    return sympy.Or(*nodes)


@lru_cache(maxsize=REMEMBERED)
def _greatest(nodes: tuple[Any, ...]) -> Any:
    return _extreme(sympy.Max, nodes)


@lru_cache(maxsize=REMEMBERED)
def _least(nodes: tuple[Any, ...]) -> Any:
    return _extreme(sympy.Min, nodes)


# Parts of the expressions that sympy compares with each other to find the largest: it factors their difference, which
# takes tenths of a second for some hundreds of parts, and hardly ever tells.
COMPARED_PARTS = 64


def _extreme(kind: Any, nodes: tuple[Any, ...]) -> Any:
    """Max or Min of some nodes; of large ones as it is written, since sympy would compare each with each."""
    if sum(map(_parts, nodes)) <= COMPARED_PARTS:
        return kind(*nodes)
    flat = [part for node in nodes for part in (node.args if isinstance(node, kind) else (node,))]
    return kind(*flat, evaluate=False)


@lru_cache(maxsize=REMEMBERED)
def _parts(node: Any) -> int:
    """Operations, symbols and numbers that a node is made of."""
    return 1 + sum(map(_parts, node.args))


def node_of(value: object) -> Any:
    if isinstance(value, Expr):
        return value.sympy
    if type(value) is int:
        return _integer(value)
    if isinstance(value, bool):
        return sympy.true if value else sympy.false
    if isinstance(value, (int, np.integer)):
        return sympy.Integer(int(value))
    raise TypeError(f"{value!r} is not an integer or an expression")


def expr(value: Operand) -> Expr:
    """`value` as an `Expr`."""
    return value if isinstance(value, Expr) else Expr(node_of(value))


def joined(values: Iterable[Operand], sign: str) -> str:
    """Texts with a sign between them: several have parentheses, where they are more than a name or a number.

    >>> joined((symbol("n"), symbol("bn") * 2), "/")
    'n/(2*bn)'
    """
    listed = list(values)
    return sign.join(map(beside, listed)) if len(listed) > 1 else "".join(map(str, listed))


def beside(value: Operand) -> str:
    """The text of what stands beside a sign: in parentheses, unless it is one name, number or call."""
    return grouped(node_of(value)) if isinstance(value, Expr) else str(value)


def symbol(name: str) -> Expr:
    """The non-negative integer called `name`; two symbols with the same name are the same."""
    return Expr(sympy.Symbol(name, integer=True, nonnegative=True))


def ceil_div(a: Operand, b: Operand) -> Expr:
    """ceil(a / b)."""
    exact = exact_quotient(node_of(a), node_of(b))
    if exact is not None:
        return Expr(exact)
    return (expr(a) + expr(b) - 1) // expr(b)


def maximum(*terms: Operand) -> Expr:
    """The largest of some numbers."""
    return Expr(_greatest(tuple(node_of(t) for t in terms)))


def minimum(*terms: Operand) -> Expr:
    """The smallest of some numbers."""
    return Expr(_least(tuple(node_of(t) for t in terms)))


def where(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    """`then` where the condition holds, else `otherwise`."""
    return Expr(sympy.Piecewise((node_of(then), condition.sympy), (node_of(otherwise), True)))


def all_of(conditions: Iterable[Expr | bool]) -> Expr:
    """The condition that all of some conditions hold."""
    return Expr(_all(tuple(node_of(c) for c in conditions)))


def any_of(conditions: Iterable[Expr | bool]) -> Expr:
    """The condition that one of some conditions holds."""
    return Expr(_any(tuple(node_of(c) for c in conditions)))


def tabulated(table: Table, *arguments: Operand) -> Expr:
    """What a table counts for these arguments.

    >>> from tinygpu.expressions import evaluate
    >>> evaluate(tabulated(Table("ones", int.bit_count), symbol("n")), {"n": 7})
    3
    """
    return Expr(function_of(table)(*map(node_of, arguments)))


def implies(premise: Expr, conclusion: Expr) -> Expr:
    """The condition that the conclusion holds where the premise does."""
    return Expr(sympy.Or(sympy.Not(premise.sympy), conclusion.sympy))
