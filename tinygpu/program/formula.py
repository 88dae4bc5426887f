"""An expression as text in Python's syntax, and back.

    write(symbol("k") * 2 + 1)      'k * 2 + 1' up to the order of terms
    read("a.ld % 8 == 0")           the condition; a.ld is one symbol

Integers, symbols (dots belong to the name), + - * // % ** , max and min, comparisons, and, or, not, and
`a if condition else b`. Reading what was written gives the same expression, term for term, except where sympy now sees
what it had not seen before: that one of `a == 0 or b or a != 0` always holds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from tinygpu.expressions import Expr, FloorDiv, Remainder, symbol


class FormulaError(ValueError):
    """Text that is no expression of the language."""


def write(expression: Expr) -> str:
    """The expression in Python's syntax, without needless parentheses."""
    return ast.unparse(ast.parse(_written(expression.sympy), mode="eval"))


def read(text: str) -> Expr:
    """The expression that `write` wrote."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        raise FormulaError(f"{text!r} is not an expression in Python's syntax") from None
    return Expr(_read(tree.body, text))


_JOINED: Mapping[Any, str] = {sympy.Add: " + ", sympy.Mul: " * ", sympy.And: " and ", sympy.Or: " or "}
_BETWEEN: Mapping[Any, str] = {FloorDiv: " // ", Remainder: " % ", sympy.Pow: " ** "}
_CALLED: Mapping[Any, str] = {sympy.Max: "max", sympy.Min: "min"}


def _written(node: Any) -> str:
    """Python source with every operation in parentheses."""
    if node is sympy.true or node is sympy.false:
        return str(bool(node))
    if node.is_Symbol:
        return str(node.name)
    if node.is_Integer:
        return f"({int(node)})"
    if node.is_Rational:
        return f"({int(node.p)} / {int(node.q)})"
    parts = [_written(a) for a in node.args] if not isinstance(node, sympy.Piecewise) else []
    for kinds in (_JOINED, _BETWEEN):
        if node.func in kinds:
            return f"({kinds[node.func].join(parts)})"
    if node.func in _CALLED:
        return f"{_CALLED[node.func]}({', '.join(parts)})"
    if isinstance(node, sympy.Not):
        return f"(not {parts[0]})"
    if isinstance(node, sympy.Piecewise):
        *cases, (otherwise, last) = node.args
        if last is not sympy.true:
            raise FormulaError(f"{node} has a case that is not covered")
        chain = "".join(f"{_written(then)} if {_written(condition)} else " for then, condition in cases)
        return f"({chain}{_written(otherwise)})"
    if node.is_Relational:
        return f"({parts[0]} {node.rel_op} {parts[1]})"
    raise FormulaError(f"{node} cannot be written: {type(node).__name__} is not part of the expression language")


_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.FloorDiv: FloorDiv,
    ast.Mod: Remainder,
    ast.Pow: sympy.Pow,
    ast.Sub: lambda a, b: a - b,
}
_RELATIONS: Mapping[type, Any] = {
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
}


def _read(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=bool(value)):
            return sympy.true if value else sympy.false
        case ast.Constant(value=int(value)):
            return sympy.Integer(value)
        case ast.Name() | ast.Attribute():
            return symbol(_name(node, text)).sympy
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return sympy.Not(_read(operand, text))
        case ast.BinOp(op=ast.Add()):
            return sympy.Add(*[_read(n, text) for n in _chain(node, ast.Add)])
        case ast.BinOp(op=ast.Mult()):
            return sympy.Mul(*[_read(n, text) for n in _chain(node, ast.Mult)])
        case ast.BinOp(op=ast.Div(), left=ast.expr() as a, right=ast.Constant(value=int(q))) if q:
            return _read(a, text) / sympy.Integer(q)
        case ast.BinOp(op=op, left=a, right=b) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_read(a, text), _read(b, text))
        case ast.BoolOp(op=op, values=values):
            return (sympy.And if isinstance(op, ast.And) else sympy.Or)(*[_read(v, text) for v in values])
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _RELATIONS:
            return _RELATIONS[type(op)](_read(a, text), _read(b, text))
        case ast.IfExp():
            return _cases(node, text)
        case ast.Call(func=ast.Name(id=("max" | "min") as called), args=[_, *_] as args, keywords=[]):
            return (sympy.Max if called == "max" else sympy.Min)(*[_read(a, text) for a in args])
    raise FormulaError(f"{text!r} is not an expression of the language: {ast.unparse(node)!r} is not part of it")


def _name(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, text)}.{node.attr}"
    raise FormulaError(f"{text!r} is not an expression of the language: {ast.unparse(node)!r} is not a name")


def _chain(node: ast.expr, kind: type) -> list[ast.expr]:
    """The terms of a + b + c: taken together, because a sum or product simplifies as a whole."""
    terms: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, kind):
        terms.append(node.right)
        node = node.left
    return [node, *reversed(terms)]


def _cases(node: ast.expr, text: str) -> Any:
    cases = []
    while isinstance(node, ast.IfExp):
        cases.append((_read(node.body, text), _read(node.test, text)))
        node = node.orelse
    return sympy.Piecewise(*cases, (_read(node, text), True))
