"""The value of an expression: compiled to Python once, over integers, arrays or any other numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import sympy

from tinygpu.expressions.functions import FloorDiv, Remainder, integer_sides
from tinygpu.expressions.printing import written
from tinygpu.expressions.tables import Tabulated
from tinygpu.expressions.terms import Operand, expr, node_of

Value: TypeAlias = Any  # an int, a bool, or a NumPy array of either


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
            raise TypeError(f"{written(node)} has a case that is not covered")
        text = recurse(otherwise)
        for then, condition in reversed(cases):
            text = f"_where({recurse(condition)}, {recurse(then)}, {text})"
        return text
    if isinstance(node, Tabulated):
        return f"{type(node).__name__}({', '.join(map(recurse, node.args))})"
    if node.is_Relational:
        left, right = integer_sides(node)
        return f"({recurse(left)} {node.rel_op} {recurse(right)})"
    kind = type(node).__name__
    raise TypeError(f"{written(node)} cannot be evaluated: {kind} is not part of the expression language")


def _fold(function: str, parts: list[str]) -> str:
    out = parts[0]
    for part in parts[1:]:
        out = f"{function}({out}, {part})"
    return out


_ARRAYS: Mapping[str, Any] = {
    "_tabulated": lambda table: table.over_arrays,
    "_max": np.maximum,
    "_min": np.minimum,
    "_and": np.logical_and,
    "_or": np.logical_or,
    "_not": np.logical_not,
    "_where": np.where,
}
_SCALARS: Mapping[str, Any] = {
    "_tabulated": lambda table: table.rule,
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
             `_tabulated` makes of a `Table` a function for that domain. All other operators are Python's own.
    """
    tables = {type(f).table for e in expressions for f in node_of(e).atoms(Tabulated)}
    names = {**names, **{table.name: names["_tabulated"](table) for table in tables}}
    body = "".join(_source(node_of(e), checked) + ", " for e in expressions)
    function: Callable[[Mapping[str, Value]], Any] = eval(f"lambda e: ({body})", dict(names))
    return function


def evaluate(expression: Operand, values: Mapping[str, int]) -> Value:
    """The exact value of one expression; every symbol in it must have a value."""
    node = node_of(expression)
    if node.is_Integer:
        return int(node)
    missing = sorted(s.name for s in node.free_symbols if s.name not in values)
    if missing:
        raise ValueError(f"{written(node)} needs a value for {', '.join(missing)}")
    return compile_scalars(expr(expression))(values)[0]
