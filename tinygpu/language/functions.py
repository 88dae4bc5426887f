"""Functions of tiles, as they are of NumPy's arrays: an expression may be a program's and its reference's at once.

Of tiles, each is the instruction that the machine declares for it by its `sign`, or is made of others. Of all else it
is NumPy's; `maximum`, `minimum` and `where` are of dims and parameters too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinygpu import expressions
from tinygpu.expressions import Expr
from tinygpu.language.operators import Alone, OfNumbers, are_tiles, offers, operate, waiting_among

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


def _of(
    sign: str, plain: Callable[..., Any], *operands: Any, made_of: Callable[..., Any] | None = None
) -> Any:
    """A function of tiles by its instruction, else made of others where it can be; of arrays NumPy's."""
    if (waiting := waiting_among(operands)) is not None:
        return waiting.later(sign, partial(_of, sign, plain, made_of=made_of), operands)
    if not are_tiles(*operands):
        if any(isinstance(o, (Alone, Expr)) for o in operands):
            return OfNumbers(sign, lambda *made: _of(sign, plain, *made, made_of=made_of), operands)
        return plain(*operands)
    if made_of is not None and not offers(sign, *operands):
        return made_of(*operands)
    return operate(sign, *operands)


def exp2(x: Any) -> Any:
    """2 ** x."""
    return _of("exp2", np.exp2, x)


def exp(x: Any) -> Any:
    """e ** x; of tiles exp2(x * log2(e))."""
    return _of("exp", np.exp, x, made_of=lambda t: exp2(t * LOG2_E))


def log2(x: Any) -> Any:
    """The logarithm to base 2."""
    return _of("log2", np.log2, x)


def log(x: Any) -> Any:
    """The natural logarithm; of tiles log2(x) * ln(2)."""
    return _of("log", np.log, x, made_of=lambda t: log2(t) * LN_2)


def sqrt(x: Any) -> Any:
    """The square root."""
    return _of("sqrt", np.sqrt, x)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    return _of("rsqrt", lambda v: 1 / np.sqrt(v), x, made_of=lambda t: reciprocal(sqrt(t)))


def reciprocal(x: Any) -> Any:
    """1 / x."""
    return _of("reciprocal", lambda v: 1 / v, x, made_of=lambda t: operate("/", 1.0, t))


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return _of("tanh", np.tanh, x)


def sin(x: Any) -> Any:
    """The sine."""
    return _of("sin", np.sin, x)


def cos(x: Any) -> Any:
    """The cosine."""
    return _of("cos", np.cos, x)


def floor(x: Any) -> Any:
    """The largest whole number that is not larger."""
    return _of("floor", np.floor, x)


def ceil(x: Any) -> Any:
    """The smallest whole number that is not smaller."""
    return _of("ceil", np.ceil, x)


def trunc(x: Any) -> Any:
    """The whole part."""
    return _of("trunc", np.trunc, x)


def rint(x: Any) -> Any:
    """The nearest whole number, ties to even."""
    return _of("rint", np.rint, x)


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z, rounded once."""
    return _of("fma", lambda a, b, c: a * b + c, x, y, z)


def equal(x: Any, y: Any) -> Any:
    """Whether elements are equal: predicates."""
    return _of("==", np.equal, x, y)


def not_equal(x: Any, y: Any) -> Any:
    """Whether elements differ: predicates."""
    return _of("!=", np.not_equal, x, y)


def maximum(*terms: Any) -> Any:
    """The largest of some tiles, arrays or numbers, element by element; or of dims and parameters."""
    return _extreme("maximum", np.maximum, expressions.maximum, terms)


def minimum(*terms: Any) -> Any:
    """The smallest of some tiles, arrays or numbers, element by element; or of dims and parameters."""
    return _extreme("minimum", np.minimum, expressions.minimum, terms)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`: of tiles, arrays, or dims and parameters."""
    if isinstance(condition, Expr):
        return expressions.where(condition, then, otherwise)
    return _of("where", np.where, condition, then, otherwise)


def relu(x: Any) -> Any:
    """max(x, 0)."""
    return maximum(x, 0.0)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return _of("sigmoid", lambda v: 1 / (1 + np.exp(-v)), x, made_of=lambda t: reciprocal(exp(-t) + 1.0))


def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    """The form with tanh: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    return x * 0.5 * (tanh((x + x * x * x * 0.044715) * 0.7978845608028654) + 1.0)


def _extreme(
    sign: str, of_arrays: Callable[..., Any], of_numbers: Callable[..., Any], terms: tuple[Any, ...]
) -> Any:
    if not are_tiles(*terms) and all(isinstance(t, (Expr, int)) for t in terms):
        return of_numbers(*terms)
    found = terms[0]
    for term in terms[1:]:
        found = _of(sign, of_arrays, found, term)
    return found
