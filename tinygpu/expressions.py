"""Integer expressions over parameters, dims and device figures, kept as sympy.

An `Expr` wraps one sympy expression. Python operators build bigger ones, comparisons build conditions, and a
condition refuses to be used as a Python truth value: a parameter has no value while a machine is declared.
Expressions are over non-negative integers, where Python, NumPy, Z3 and PTX agree on `//` and `%`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import sympy

Value: TypeAlias = Any  # an int, a bool, or a NumPy array of either


class FloorDiv(sympy.Function):  # type: ignore[misc]
    """floor(a / b) for non-negative integers a and positive b."""

    nargs = 2

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if b == 1:
            return a
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        return _exact_quotient(a, b)


class Remainder(sympy.Function):  # type: ignore[misc]
    """a mod b for non-negative integers a and positive b."""

    nargs = 2

    @classmethod
    def eval(cls, a: Any, b: Any) -> Any:
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        return sympy.Integer(0) if _exact_quotient(a, b) is not None else None


def _exact_quotient(a: Any, b: Any) -> Any:
    """a / b where every factor of b cancels whatever the values are (b is positive); else None."""
    if not (a.is_Mul or a.is_Symbol or a.is_Integer) or not (b.is_Mul or b.is_Symbol or b.is_Integer):
        return None
    quotient = a / b
    return quotient if sympy.denom(quotient) == 1 else None


class Tabulated(sympy.Function):  # type: ignore[misc]
    """A non-negative integer that has no closed form: what `rule`, a Python function, counts for given integers.

    Made by `tabulated`. Costs may hold such numbers; conditions do not, because no solver knows them.
    """

    rule: Callable[..., int]

    @classmethod
    def eval(cls, *args: Any) -> Any:
        return sympy.Integer(cls.rule(*map(int, args))) if all(a.is_Integer for a in args) else None

    def _eval_is_integer(self) -> bool:
        return True

    def _eval_is_nonnegative(self) -> bool:
        return True


class Expr:
    """One expression (an integer or a condition); `.sympy` is the wrapped sympy object."""

    __slots__ = ("sympy",)

    def __init__(self, node: Any) -> None:
        self.sympy = node

    def __add__(self, other: Operand) -> Expr:
        return Expr(self.sympy + _node(other))

    def __sub__(self, other: Operand) -> Expr:
        return Expr(self.sympy - _node(other))

    def __mul__(self, other: Operand) -> Expr:
        if not isinstance(other, (Expr, int, np.integer)):
            return NotImplemented  # a step along an axis multiplies itself by an expression
        return Expr(self.sympy * _node(other))

    def __floordiv__(self, other: Operand) -> Expr:
        return Expr(FloorDiv(self.sympy, _node(other)))

    def __mod__(self, other: Operand) -> Expr:
        return Expr(Remainder(self.sympy, _node(other)))

    def __radd__(self, other: Operand) -> Expr:
        return Expr(_node(other) + self.sympy)

    def __rsub__(self, other: Operand) -> Expr:
        return Expr(_node(other) - self.sympy)

    def __rmul__(self, other: Operand) -> Expr:
        return Expr(_node(other) * self.sympy)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return Expr(FloorDiv(_node(other), self.sympy))

    def __rmod__(self, other: Operand) -> Expr:
        return Expr(Remainder(_node(other), self.sympy))

    def __lt__(self, other: Operand) -> Expr:
        return Expr(sympy.Lt(self.sympy, _node(other)))

    def __le__(self, other: Operand) -> Expr:
        return Expr(sympy.Le(self.sympy, _node(other)))

    def __gt__(self, other: Operand) -> Expr:
        return Expr(sympy.Gt(self.sympy, _node(other)))

    def __ge__(self, other: Operand) -> Expr:
        return Expr(sympy.Ge(self.sympy, _node(other)))

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Expr(_equal(self.sympy, _node(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Expr(sympy.Ne(self.sympy, _node(other)))

    def __and__(self, other: Operand) -> Expr:
        return Expr(sympy.And(self.sympy, _node(other)))

    def __or__(self, other: Operand) -> Expr:
        return Expr(sympy.Or(self.sympy, _node(other)))

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
        return str(self.sympy)

    def __repr__(self) -> str:
        return f"Expr({self.sympy})"

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols that occur."""
        return _symbols(self.sympy)

    @property
    def is_number(self) -> bool:
        return bool(self.sympy.is_Integer)

    def same(self, other: Operand) -> bool:
        """True when both are the same expression (structurally, after sympy's own simplification)."""
        return bool(self.sympy == _node(other))

    def substitute(self, values: Mapping[str, Operand]) -> Expr:
        """The expression with some symbols replaced."""
        return Expr(_substituted(self.sympy, frozenset((name, _node(v)) for name, v in values.items())))


Operand: TypeAlias = "Expr | int"

# The structures of a machine ask the same questions of the same nodes, and sympy finds each answer anew.
REMEMBERED = 1 << 15


@lru_cache(maxsize=REMEMBERED)
def _symbols(node: Any) -> frozenset[str]:
    return frozenset(s.name for s in node.free_symbols)


@lru_cache(maxsize=REMEMBERED)
def _substituted(node: Any, values: frozenset[tuple[str, Any]]) -> Any:
    return node.xreplace({symbol(name).sympy: value for name, value in values})


@lru_cache(maxsize=REMEMBERED)
def _equal(left: Any, right: Any) -> Any:
    return sympy.Eq(left, right)


@lru_cache(maxsize=REMEMBERED)
def _all(nodes: tuple[Any, ...]) -> Any:
    return sympy.And(*nodes)


@lru_cache(maxsize=REMEMBERED)
def _any(nodes: tuple[Any, ...]) -> Any:
    return sympy.Or(*nodes)


@lru_cache(maxsize=REMEMBERED)
def _greatest(nodes: tuple[Any, ...]) -> Any:
    return sympy.Max(*nodes)


def _node(value: object) -> Any:
    if isinstance(value, Expr):
        return value.sympy
    if isinstance(value, bool):
        return sympy.true if value else sympy.false
    if isinstance(value, (int, np.integer)):
        return sympy.Integer(int(value))
    raise TypeError(f"{value!r} is not an integer or an expression")


def expr(value: Operand) -> Expr:
    """`value` as an `Expr`."""
    return value if isinstance(value, Expr) else Expr(_node(value))


def symbol(name: str) -> Expr:
    """The non-negative integer called `name`; two symbols with the same name are the same."""
    return Expr(sympy.Symbol(name, integer=True, nonnegative=True))


def ceil_div(a: Operand, b: Operand) -> Expr:
    """ceil(a / b)."""
    exact = _exact_quotient(_node(a), _node(b))
    if exact is not None:
        return Expr(exact)
    return (expr(a) + expr(b) - 1) // expr(b)


def maximum(*terms: Operand) -> Expr:
    """The largest of some numbers."""
    return Expr(_greatest(tuple(_node(t) for t in terms)))


def minimum(*terms: Operand) -> Expr:
    """The smallest of some numbers."""
    return Expr(sympy.Min(*[_node(t) for t in terms]))


def where(condition: Expr, then: Operand, otherwise: Operand) -> Expr:
    """`then` where the condition holds, else `otherwise`."""
    return Expr(sympy.Piecewise((_node(then), condition.sympy), (_node(otherwise), True)))


def all_of(conditions: Iterable[Expr | bool]) -> Expr:
    """The condition that all of some conditions hold."""
    return Expr(_all(tuple(_node(c) for c in conditions)))


def any_of(conditions: Iterable[Expr | bool]) -> Expr:
    """The condition that one of some conditions holds."""
    return Expr(_any(tuple(_node(c) for c in conditions)))


def tabulated(name: str, rule: Callable[..., int], *arguments: Operand) -> Expr:
    """What a rule counts for these arguments; over arrays it is asked once for each combination that occurs.

    name  an identifier of its own for each rule

    >>> evaluate(tabulated("ones", int.bit_count, symbol("n")), {"n": 7})
    3
    """
    kind = type(name, (Tabulated,), {"rule": staticmethod(rule)})
    return Expr(kind(*map(_node, arguments)))


def implies(premise: Expr, conclusion: Expr) -> Expr:
    """The condition that the conclusion holds where the premise does."""
    return Expr(sympy.Or(sympy.Not(premise.sympy), conclusion.sympy))


def integer_sides(relation: Any) -> tuple[Any, Any]:
    """The two sides of a sympy relation, both multiplied by what makes every coefficient an integer.

    sympy solves the conditions of nested cases and then writes 2*a < b as a < b/2.
    """
    left, right = relation.lhs, relation.rhs
    rationals = (c for side in (left, right) for c in side.atoms(sympy.Rational))
    scale = math.lcm(*(int(c.q) for c in rationals))
    return (left, right) if scale == 1 else (sympy.expand_mul(scale * left), sympy.expand_mul(scale * right))


def _source(node: Any, checked: bool = False) -> str:
    """Python source that computes a sympy node; symbols are read from the mapping `e`.

    checked  divisions are calls of `_div` and `_mod`, which may refuse their divisor, instead of operators
    """

    def recurse(child: Any) -> str:
        return _source(child, checked)

    if node is sympy.true or node is sympy.false:
        return str(bool(node))
    if node.is_Symbol:
        return f"e[{node.name!r}]"
    if node.is_Integer:
        return str(int(node))
    if node.is_Rational:
        return f"({int(node.p)} / {int(node.q)})"
    if node.is_Float:
        return repr(float(node))
    if node.is_Add:
        return "(" + " + ".join(recurse(a) for a in node.args) + ")"
    if node.is_Mul:
        return "(" + " * ".join(recurse(a) for a in node.args) + ")"
    if node.is_Pow:
        base, power = node.args
        return f"({recurse(base)} ** {recurse(power)})"
    if isinstance(node, (FloorDiv, Remainder)) and checked:
        function = "_div" if isinstance(node, FloorDiv) else "_mod"
        return f"{function}({recurse(node.args[0])}, {recurse(node.args[1])})"
    if isinstance(node, FloorDiv):
        return f"({recurse(node.args[0])} // {recurse(node.args[1])})"
    if isinstance(node, Remainder):
        return f"({recurse(node.args[0])} % {recurse(node.args[1])})"
    if isinstance(node, sympy.Max):
        return _fold("_max", [recurse(a) for a in node.args])
    if isinstance(node, sympy.Min):
        return _fold("_min", [recurse(a) for a in node.args])
    if isinstance(node, sympy.And):
        return _fold("_and", [recurse(a) for a in node.args])
    if isinstance(node, sympy.Or):
        return _fold("_or", [recurse(a) for a in node.args])
    if isinstance(node, sympy.Not):
        return f"_not({recurse(node.args[0])})"
    if isinstance(node, sympy.Piecewise):
        *cases, (otherwise, last) = node.args  # sympy flattens nested cases into one list
        if last is not sympy.true:
            raise TypeError(f"{node} has a case that is not covered")
        text = recurse(otherwise)
        for then, condition in reversed(cases):
            text = f"_where({recurse(condition)}, {recurse(then)}, {text})"
        return text
    if isinstance(node, Tabulated):
        return f"{type(node).__name__}({', '.join(map(recurse, node.args))})"
    if node.is_Relational:
        left, right = integer_sides(node)
        return f"({recurse(left)} {node.rel_op} {recurse(right)})"
    raise TypeError(f"{node} cannot be evaluated: {type(node).__name__} is not part of the expression language")


def _fold(function: str, parts: list[str]) -> str:
    out = parts[0]
    for part in parts[1:]:
        out = f"{function}({out}, {part})"
    return out


def _by_rows(rule: Callable[..., int]) -> Callable[..., Value]:
    """The rule over arrays, asked once for each combination of numbers."""

    def counted(*arguments: Value) -> Value:
        columns = np.broadcast_arrays(*arguments)
        rows, place = np.unique(np.stack([c.ravel() for c in columns], axis=1), axis=0, return_inverse=True)
        found = np.array([rule(*map(int, row)) for row in rows], dtype=np.int64)
        return found[place.reshape(-1)].reshape(columns[0].shape)

    return counted


_ARRAYS: Mapping[str, Any] = {
    "_tabulated": _by_rows,
    "_max": np.maximum,
    "_min": np.minimum,
    "_and": np.logical_and,
    "_or": np.logical_or,
    "_not": np.logical_not,
    "_where": np.where,
}
_SCALARS: Mapping[str, Any] = {
    "_tabulated": lambda rule: rule,
    "_max": lambda a, b: a if a > b else b,
    "_min": lambda a, b: a if a < b else b,
    "_and": lambda a, b: bool(a) and bool(b),
    "_or": lambda a, b: bool(a) or bool(b),
    "_not": lambda a: not a,
    "_where": lambda c, a, b: a if c else b,
}


def compile_arrays(*expressions: Operand) -> Callable[[Mapping[str, Value]], tuple[Value, ...]]:
    """A function from {symbol: int or int64 array} to the values of `expressions`, evaluated as NumPy arrays."""
    return compile_with(_ARRAYS, *expressions)


def compile_scalars(*expressions: Operand) -> Callable[[Mapping[str, Value]], tuple[Value, ...]]:
    """A function from {symbol: int} to the values of `expressions`, in exact Python integers."""
    return compile_with(_SCALARS, *expressions)


def compile_with(
    names: Mapping[str, Any], *expressions: Operand, checked: bool = False
) -> Callable[[Mapping[str, Value]], Any]:
    """A function from {symbol: value} to the values of `expressions` in any number domain.

    names    what `_max`, `_min`, `_and`, `_or`, `_not` and `_where` mean there; with `checked` also `_div` and `_mod`;
             `_tabulated` makes of a rule for integers one for that domain. All other operators are Python's own.
    """
    rules = {type(f).__name__: type(f).rule for e in expressions for f in _node(e).atoms(Tabulated)}
    names = {**names, **{name: names["_tabulated"](rule) for name, rule in rules.items()}}
    body = "".join(_source(_node(e), checked) + ", " for e in expressions)
    function: Callable[[Mapping[str, Value]], Any] = eval(f"lambda e: ({body})", dict(names))
    return function


def evaluate(expression: Operand, values: Mapping[str, int]) -> Value:
    """The exact value of one expression; every symbol in it must have a value."""
    node = _node(expression)
    if node.is_Integer:
        return int(node)
    missing = sorted(s.name for s in node.free_symbols if s.name not in values)
    if missing:
        raise ValueError(f"{node} needs a value for {', '.join(missing)}")
    return compile_scalars(expr(expression))(values)[0]
