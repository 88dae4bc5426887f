"""An expression as text that files keep, in Python's syntax, and back.

    write(symbol("k") * 2 + 1)      'k * 2 + 1' up to the order of terms
    read("a.ld % 8 == 0")           the condition; a.ld is one symbol

Integers, symbols (dots belong to the name), + - * // % ** , max and min, comparisons, and, or, not, and
`a if condition else b`. Reading what was written gives the same expression, term for term, except where sympy now sees
what it had not seen before: that one of `a == 0 or b or a != 0` always holds. What `str` prints for people is read too
(`printing`); what `write` gives has sympy's own order, and stays the same whatever is printed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from tinygpu.expressions.functions import FloorDiv, Remainder
from tinygpu.expressions.printing import written
from tinygpu.expressions.terms import Expr, symbol


class FormulaError(ValueError):
    """Text that is no expression of the language."""


def write(expression: Expr) -> str:
    """The expression in Python's syntax, without needless parentheses."""
    return ast.unparse(ast.parse(_written(expression.sympy), mode="eval"))


def read(text: str) -> Expr:
    """The expression that `write` wrote. Raises FormulaError for another text, and for one that would take long."""
    if len(text) > MOST_CHARACTERS:
        raise FormulaError(f"an expression has at most {MOST_CHARACTERS:,} characters, not {len(text):,}")
    try:
        body = ast.parse(text, mode="eval").body
    except (SyntaxError, MemoryError, RecursionError, ValueError):  # ValueError: a zero byte, before Python 3.12
        raise FormulaError(f"{_shown(text)} is not an expression in Python's syntax") from None
    parts = list(ast.walk(body))
    if len(parts) > MOST_NODES:
        raise FormulaError(f"{_shown(text)} has more than {MOST_NODES:,} parts")
    calls = [node for node in parts if isinstance(node, ast.Call)]
    if len(calls) > _MOST_EXTREMES or any(len(call.args) > _MOST_OPERANDS for call in calls):
        raise FormulaError(
            f"{_shown(text)} has more than {_MOST_EXTREMES} of max and min, or one with more than {_MOST_OPERANDS} "
            "operands"
        )
    try:
        return Expr(_read(body, text))
    except FormulaError:
        raise
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        raise FormulaError(f"{_shown(text)} has no value among the integers") from None


# The longest expression of the shipped machines has 57 characters and 33 parts.
MOST_CHARACTERS, MOST_NODES = 4_000, 500
# What sympy compares with one another: the time grows with the square of their number and more.
_MOST_EXTREMES, _MOST_OPERANDS = 40, 16
# Bits of a whole number, and the largest exponent.
_MOST_BITS, _MOST_EXPONENT = 512, 16


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


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
            raise FormulaError(f"{written(node)} has a case that is not covered")
        chain = "".join(f"{_written(then)} if {_written(condition)} else " for then, condition in cases)
        return f"({chain}{_written(otherwise)})"
    if node.is_Relational:
        return f"({parts[0]} {node.rel_op} {parts[1]})"
    kind = type(node).__name__
    raise FormulaError(f"{written(node)} cannot be written: {kind} is not part of the expression language")


_DIVISIONS: Mapping[type, Callable[[Any, Any], Any]] = {ast.FloorDiv: FloorDiv, ast.Mod: Remainder}
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
            return _bounded(sympy.Integer(value), text)
        case ast.Name() | ast.Attribute():
            return symbol(_name(node, text)).sympy
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return sympy.Not(_truth(operand, text))
        case ast.BinOp(op=ast.Add()):
            return _bounded(sympy.Add(*[_number(n, text) for n in _chain(node, ast.Add)]), text)
        case ast.BinOp(op=ast.Mult()):
            return _bounded(sympy.Mul(*[_number(n, text) for n in _chain(node, ast.Mult)]), text)
        case ast.BinOp(op=ast.Div(), left=ast.expr() as a, right=ast.Constant(value=int(q))) if q and type(q) is int:
            return _number(a, text) / _bounded(sympy.Integer(q), text)
        case ast.BinOp(op=ast.Pow(), left=a, right=b):
            return _power(_number(a, text), b, text)
        case ast.BinOp(op=ast.Sub(), left=a, right=b):
            return _number(a, text) - _number(b, text)
        case ast.BinOp(op=op, left=a, right=b) if type(op) in _DIVISIONS:
            divisor = _number(b, text)
            if divisor.is_zero:
                raise FormulaError(f"{_shown(text)} divides by zero")
            return _DIVISIONS[type(op)](_number(a, text), divisor)
        case ast.BoolOp(op=op, values=values):
            return (sympy.And if isinstance(op, ast.And) else sympy.Or)(*[_truth(v, text) for v in values])
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _RELATIONS:
            return _RELATIONS[type(op)](_number(a, text), _number(b, text))
        case ast.IfExp():
            return _cases(node, text)
        case ast.Call(func=ast.Name(id=("max" | "min") as called), args=[_, *_] as args, keywords=[]):
            return (sympy.Max if called == "max" else sympy.Min)(*[_number(a, text) for a in args])
    raise FormulaError(f"{_shown(text)} is not an expression of the language: {ast.unparse(node)!r} is not part of it")


def _number(node: ast.expr, text: str) -> Any:
    found = _read(node, text)
    if isinstance(found, sympy.logic.boolalg.Boolean) and not found.is_Symbol:
        raise FormulaError(f"{_shown(text)} is not an expression of the language: a condition stands for a number")
    return found


def _truth(node: ast.expr, text: str) -> Any:
    found = _read(node, text)
    if not isinstance(found, sympy.logic.boolalg.Boolean):
        raise FormulaError(f"{_shown(text)} is not an expression of the language: a number stands for a condition")
    return found


def _bounded(number: Any, text: str) -> Any:
    if number.is_Rational and max(int(number.p).bit_length(), int(number.q).bit_length()) > _MOST_BITS:
        raise FormulaError(f"{_shown(text)} has a number of more than {_MOST_BITS} bits")
    return number


def _power(base: Any, exponent: ast.expr, text: str) -> Any:
    """Powers are written out: what is to a high power, or to one that is not known, is no expression of a machine."""
    match exponent:
        case ast.Constant(value=int(n)) if type(n) is int and 0 <= n <= _MOST_EXPONENT:
            return _bounded(sympy.Pow(base, n), text)
    raise FormulaError(
        f"{_shown(text)} is not an expression of the language: an exponent is a number from 0 to {_MOST_EXPONENT}"
    )


def _name(node: ast.expr, text: str) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value, text)}.{node.attr}"
    raise FormulaError(f"{_shown(text)} is not an expression of the language: {ast.unparse(node)!r} is not a name")


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
        cases.append((_number(node.body, text), _truth(node.test, text)))
        node = node.orelse
    return sympy.Piecewise(*cases, (_number(node, text), True))
