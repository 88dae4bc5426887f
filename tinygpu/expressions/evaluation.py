"""The value of an expression: compiled to Python once, over integers, arrays or any other numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import sympy

from tinygpu.expressions.functions import FloorDiv, Remainder, integer_sides
from tinygpu.expressions.printing import written
from tinygpu.expressions.tables import Table, Tabulated
from tinygpu.expressions.terms import REMEMBERED, Expr, Operand, node_of

Value: TypeAlias = Any  # an int, a bool, or a NumPy array of either


class _Writer:
    """Python source that computes sympy nodes; symbols are read from the mapping `e`, and what occurs several times is
    computed once.

    checked  divisions are calls of `_div` and `_mod`, which may refuse their divisor, instead of operators
    """

    def __init__(self, nodes: Iterable[Any], checked: bool) -> None:
        self.checked = checked
        self.lines: list[str] = []
        self._names: dict[Any, str] = {}
        self._uses = Counter[Any]()
        waiting = list(nodes)
        while waiting:
            node = waiting.pop()
            self._uses[node] += 1
            if self._uses[node] == 1:
                waiting += _operands(node)

    def text(self, node: Any) -> str:
        """The source of a node; of one that occurs several times the name of a variable that `lines` assign to."""
        if node in self._names:
            return self._names[node]
        found = self._text(node)
        if self._uses[node] < 2 or not _operands(node):
            return found
        self._names[node] = name = f"v{len(self._names)}"
        self.lines.append(f"{name} = {found}")
        return name

    def _text(self, node: Any) -> str:
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
        parts = [self.text(a) for a in _operands(node)]
        if node.is_Add:
            return "(" + " + ".join(parts) + ")"
        if node.is_Mul:
            return "(" + " * ".join(parts) + ")"
        if node.is_Pow:
            return f"({parts[0]} ** {parts[1]})"
        if isinstance(node, (FloorDiv, Remainder)):
            function, sign = ("_div", "//") if isinstance(node, FloorDiv) else ("_mod", "%")
            return f"{function}({', '.join(parts)})" if self.checked else f"({parts[0]} {sign} {parts[1]})"
        for kind, function in _FOLDS.items():
            if isinstance(node, kind):
                return _fold(function, parts)
        if isinstance(node, sympy.Not):
            return f"_not({parts[0]})"
        if isinstance(node, sympy.Piecewise):
            return _cases(node, parts)
        if isinstance(node, Tabulated):
            return f"{type(node).__name__}({', '.join(parts)})"
        if node.is_Relational:
            return f"({parts[0]} {node.rel_op} {parts[1]})"
        kind = type(node).__name__
        raise TypeError(f"{written(node)} cannot be evaluated: {kind} is not part of the expression language")


_FOLDS = {sympy.Max: "_max", sympy.Min: "_min", sympy.And: "_and", sympy.Or: "_or"}


def _operands(node: Any) -> tuple[Any, ...]:
    """What the value of a node is computed from; of cases each value and then its condition."""
    if node.is_Relational:
        return integer_sides(node)
    if isinstance(node, sympy.Piecewise):
        return tuple(part for case in node.args for part in case.args)
    operands: tuple[Any, ...] = node.args
    return operands


def _cases(node: Any, parts: list[str]) -> str:
    """The cases from the last, which covers the rest; sympy flattens nested ones into one list."""
    if node.args[-1][1] is not sympy.true:
        raise TypeError(f"{written(node)} has a case that is not covered")
    text = parts[-2]
    for then, condition in zip(parts[-4::-2], parts[-3::-2], strict=True):
        text = f"_where({condition}, {then}, {text})"
    return text


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
    nodes = [node_of(e) for e in expressions]
    names = {**names, **{table.name: names["_tabulated"](table) for node in nodes for table in _tables(node)}}
    writer = _Writer(nodes, checked)
    body = "".join(f"{writer.text(node)}, " for node in nodes)
    source = "".join(f"    {line}\n" for line in [*writer.lines, f"return ({body})"])
    scope = dict(names)
    exec(f"def computed(e):\n{source}", scope)
    function: Callable[[Mapping[str, Value]], Any] = scope["computed"]
    return function


@lru_cache(maxsize=REMEMBERED, typed=True)
def _tables(node: Any) -> frozenset[Table]:
    """The tables that an expression looks numbers up in."""
    own = frozenset((type(node).table,)) if isinstance(node, Tabulated) else frozenset()
    return own.union(*[_tables(a) for a in node.args])


@lru_cache(maxsize=REMEMBERED, typed=True)  # every candidate asks for the values of the same expressions
def _scalar(node: Any) -> Callable[[Mapping[str, Value]], tuple[Value, ...]]:
    return compile_scalars(Expr(node))


def evaluate(expression: Operand, values: Mapping[str, int]) -> Value:
    """The exact value of one expression; every symbol in it must have a value."""
    node = node_of(expression)
    if node.is_Integer:
        return int(node)
    missing = sorted(name for name in Expr(node).symbols if name not in values)
    if missing:
        raise ValueError(f"{written(node)} needs a value for {', '.join(missing)}")
    return _scalar(node)(values)[0]
