"""What values an input may have, as a machine declares it: a distribution whose ends may be dims.

Verification, `tinygpu check`, samples and timing draw from it. Its ends hold for whatever a user gives where kernels
make addresses of the numbers; for all others they say what results are judged on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.distributions import WHOLE, Distribution, Law
from tinygpu.dtypes import DType, cannot_hold
from tinygpu.expressions import Expr, evaluate, expr, maximum, minimum

# A normal law is cut off so many standard deviations from its mean; 2 of 10^9 numbers would lie beyond.
_DEVIATIONS = 6.0
# Condition numbers beyond this are lost in the double precision in which matrices are drawn.
_MOST_CONDITION = 2.0**40

Bound = Expr | float


@dataclass(frozen=True, slots=True)
class Values:
    """A declared distribution; the fields are those of `Distribution`, and may name dims.

    written  as its author wrote it: "integers(0, v)"
    mistake  what is wrong with it, in words; told where the declaration has a name
    """

    law: Law
    low: Bound
    high: Bound
    written: str
    mean: float = 0.0
    deviation: float = 1.0
    listed: tuple[Bound, ...] = ()
    weights: tuple[float, ...] = ()
    ends: bool = False
    shift: float = 0.0
    apart: Bound = 0
    condition: float = 1.0
    distinct: bool = False
    mistake: str = ""

    def __str__(self) -> str:
        return self.written

    @property
    def whole(self) -> bool:
        """Whether all of its numbers are whole, and its ends hold for whatever a user gives."""
        return self.law in WHOLE

    @property
    def symbols(self) -> frozenset[str]:
        """The dims that its ends name."""
        named = (self.low, self.high, self.apart, *self.listed)
        return frozenset[str]().union(*[b.symbols for b in named if isinstance(b, Expr)])

    def at(self, dims: Mapping[str, int]) -> Distribution:
        """With dims filled in; raises ValueError where there is no number between its ends."""
        low, high = (_value(end, dims) for end in (self.low, self.high))
        if low > high:
            sizes = ", ".join(f"{name} = {dims[name]}" for name in sorted(self.symbols))
            raise ValueError(f"{self.written} has no number{f' for {sizes}' if sizes else ''}")
        listed = tuple(_value(n, dims) for n in self.listed)
        return Distribution(
            self.law, low, high, self.mean, self.deviation, listed, self.weights, self.ends, self.shift,
            _value(self.apart, dims), self.condition, self.distinct,
        )  # fmt: skip

    def expectation(self, dims: Mapping[str, int], function: Callable[[float], float] = float) -> float:
        """The mean of a function of one number: of the number itself, where none is given."""
        return self.at(dims).expectation(function)

    def misfit(self, kind: DType) -> str:
        """Why no element of a type has such values, whatever the dims, as what follows the type's name; "" where one
        may.
        """
        if self.law == "definite":
            return self._misfit_of_matrices(kind)
        if kind.kind == "scale" and self.law != "magnitudes":
            return f"holds powers of two, and {self.written} has others; use between(low, high)"
        numbers = [n for n in (self.low, self.high, *self.listed) if not isinstance(n, Expr)]
        if not (kind.is_float or kind.kind == "scale" or self.whole):
            if self.law != "listed":
                return f"holds whole numbers, and {self.written} has others; use integers(low, high)"
            if any(n != int(n) for n in numbers):
                return f"holds whole numbers, and {self.written} has others"
        if kind.kind == "scale":
            return ""
        for number in numbers:
            if why := cannot_hold(kind, number):
                return f"{why}, and {self.written} goes {'down' if number < 0 else 'up'} to {number:g}"
        if self.whole and (beyond := [n for n in numbers if not least_whole(kind) <= n <= every_whole(kind)]):
            end = f"below {least_whole(kind):,}" if beyond[0] < 0 else f"beyond {every_whole(kind):,}"
            return f"has no element for some whole numbers {end}, and {self.written} goes there"
        if kind.is_float and len(numbers) == 2 and not _holds_some(kind, *numbers):
            return f"has no number from {numbers[0]:g} to {numbers[1]:g}"
        return ""


    def _misfit_of_matrices(self, kind: DType) -> str:
        """Rounding moves eigenvalues by about the largest times half a step of 1: the least has to be farther off."""
        if not kind.is_float:
            return f"is no type of real numbers, and {self.written} has such"
        most = 2.0 ** (kind.mantissa - 1)
        if self.condition > most:
            has = f"{self.written} has {self.condition:,.12g}"
            return f"holds matrices up to a condition number of {most:,.0f}, and {has}"
        return ""


def every_whole(kind: DType) -> int:
    """The largest number up to which every whole number above zero is an element."""
    if kind.is_float:
        return 1 << (kind.mantissa + 1)
    return (1 << (kind.bits - (kind.kind == "signed"))) - 1


def least_whole(kind: DType) -> int:
    """The least number from which on every whole number up to zero is an element."""
    if kind.is_float:
        return -every_whole(kind)
    return -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0


def _holds_some(kind: DType, low: float, high: float) -> bool:
    """Whether a float type has an element between two numbers."""
    if low <= 0 <= high:
        return True
    least, most = min(abs(low), abs(high)), max(abs(low), abs(high))
    exponent = max(math.frexp(least)[1] - 1, 2 - (1 << (kind.exponent - 1)))
    step = 2.0 ** (exponent - kind.mantissa)
    return math.ceil(least / step) * step <= most


def uniform(low: Bound, high: Bound) -> Values:
    """Numbers between two ends, all equally likely."""
    return _made("uniform", "uniform", low, high)


def normal(mean: float, deviation: float) -> Values:
    """Numbers around a mean, with a standard deviation; none is farther than six deviations from the mean."""
    text = f"normal({_text(mean)}, {_text(deviation)})"
    if any(isinstance(n, Expr) or _no_number(n) for n in (mean, deviation)) or deviation <= 0:
        return Values("normal", 0.0, 0.0, text, mistake=f"{text}: a mean and a standard deviation above 0 are numbers")
    far = _DEVIATIONS * deviation
    return Values("normal", mean - far, mean + far, text, mean=float(mean), deviation=float(deviation))


def between(low: float, high: float) -> Values:
    """Numbers above zero between two ends, all magnitudes equally likely: for eps, scales, variances."""
    made = _made("magnitudes", "between", low, high)
    if not made.mistake and not isinstance(low, Expr) and low <= 0:
        other = f"uniform({_text(low)}, {_text(high)})"
        return replace(made, mistake=f"{made}: it has numbers of every magnitude, from an end above 0 on; use {other}")
    return made


def positive(most: float = 1.0) -> Values:
    """Numbers above zero up to a largest, all of 20 binary magnitudes equally likely."""
    wrong = isinstance(most, Expr) or _no_number(most) or most <= 0
    made = between(1.0, 2.0) if wrong else between(most * 2.0**-20, most)
    text = f"positive({_text(most)})"
    return replace(made, written=text, mistake=f"{text}: the largest is a number above 0" if wrong else "")


def integers(low: Bound, high: Bound, *, distinct: bool = False) -> Values:
    """Whole numbers from `low` up to but without `high`, as Python's range: `integers(0, v)` for rows of a table.

    distinct  no two of a tensor are the same: a permutation, rows that are each written once. Numbers below zero
              name no row, and may be there again
    """
    more = ", distinct=True" if distinct else ""
    return replace(_made("integers", "integers", low, high, half_open=True, more=more), distinct=bool(distinct))


def ascending(low: Bound, high: Bound, *, ends: bool = False, apart: Bound = 0) -> Values:
    """Whole numbers from `low` to `high`, both included, in ascending order along the last axis: offsets of segments.

    ends   the first is `low`, and the last is `high`
    apart  neighbours are at most so far apart: no segment has more elements; 0: as far as may be
    """
    limited = isinstance(apart, Expr) or apart != 0
    more = (", ends=True" if ends else "") + (f", apart={_text(apart)}" if limited else "")
    made = _made("ascending", "ascending", low, high, more=more)
    if not made.mistake and (_no_number(apart) or (not isinstance(apart, Expr) and (apart < 0 or apart % 1))):
        said = f"neighbours are apart by a whole number above 0, or a dim, at most, not {_text(apart)}"
        return replace(made, mistake=f"{made}: {said}")
    return replace(made, ends=ends, apart=apart)


def one_of(*numbers: Bound, weights: tuple[float, ...] = ()) -> Values:
    """One of some numbers, drawn as often as its weight says: lengths as they were seen, flags."""
    more = f", weights={tuple(weights)}" if weights else ""
    text = f"one_of({', '.join(map(_text, numbers))}{more})"
    wrong = next((f"{text}: {_text(n)} is no number" for n in numbers if _no_number(n)), "")
    if not numbers:
        wrong = f"{text}: it needs at least one number"
    elif not wrong and weights and (len(weights) != len(numbers) or any(map(_no_number, weights)) or min(weights) <= 0):
        wrong = f"{text}: there is one weight above 0 for each of {len(numbers)} numbers"
    elif not wrong and any(isinstance(n, Expr) for n in numbers):
        wrong = next((f"{text}: beside a dim all numbers are whole, and {_text(n)} is not"
                      for n in numbers if not isinstance(n, Expr) and n != int(n)), "")  # fmt: skip
    if wrong:
        return Values("listed", 0.0, 0.0, text, mistake=wrong)
    if any(isinstance(n, Expr) for n in numbers):
        whole = [n if isinstance(n, Expr) else expr(int(n)) for n in numbers]
        low: Bound = minimum(*whole)
        high: Bound = maximum(*whole)
    else:
        plain = [float(n) for n in numbers if not isinstance(n, Expr)]
        low, high = min(plain), max(plain)
    return Values("listed", low, high, text, listed=tuple(numbers), weights=tuple(map(float, weights)))


def positive_definite(condition: float = 16.0) -> Values:
    """Symmetric positive definite matrices, of the last two axes: for Cholesky factors, solvers, covariances.

    Their eigenvalues lie between 1 / sqrt(condition) and its inverse, both among them. Each type holds condition
    numbers up to one that its rounding leaves about as it is: bf16 64, f16 and tf32 512, f32 4,194,304.
    """
    text = f"positive_definite(condition={_text(condition)})"
    if isinstance(condition, Expr) or _no_number(condition) or not 1 <= condition <= _MOST_CONDITION:
        return Values("definite", 0.0, 0.0, text, mistake=f"{text}: a condition number is a number from 1 to 2^40")
    far = math.sqrt(condition)
    return Values("definite", -far, far, text, condition=float(condition))


def shifted(values: Values, by: float) -> Values:
    """Other values, with one number between -by and `by` added to each line along the last axis.

    Logits as softmax must bear them: `shifted(normal(0, 4), by=1000)` has lines whose exponentials overflow, unless
    their maximum is subtracted, and whose results then depend on all of their elements.
    """
    text = f"shifted({values}, by={_text(by)})"
    if not isinstance(values, Values) or values.law not in ("uniform", "normal"):
        return Values("uniform", 0.0, 0.0, text, mistake=f"{text}: what is shifted is uniform or normal")
    if isinstance(by, Expr) or _no_number(by) or by <= 0:
        return replace(values, written=text, mistake=f"{text}: the shift is a number above 0")
    low, high = values.low, values.high
    if isinstance(low, Expr) or isinstance(high, Expr):
        return replace(values, written=text, mistake=f"{text}: the ends of what is shifted are numbers")
    return replace(values, low=low - by, high=high + by, shift=float(by), written=text)


def _made(law: Law, name: str, low: Bound, high: Bound, *, half_open: bool = False, more: str = "") -> Values:
    text = f"{name}({_text(low)}, {_text(high)}{more})"
    for end in (low, high):
        if _no_number(end):
            return Values(law, 0.0, 0.0, text, mistake=f"{text}: its ends are numbers or dims, not {_text(end)}")
        if law in WHOLE and not isinstance(end, Expr) and end != int(end):
            return Values(law, 0.0, 0.0, text, mistake=f"{text}: its ends are whole numbers or dims, not {_text(end)}")
    last: Bound = high - 1 if half_open else high
    if not isinstance(low, Expr) and not isinstance(last, Expr):
        if low > last:
            return Values(law, 0.0, 0.0, text, mistake=f"{text}: it has no number; the lower end comes first")
        return Values(law, float(low), float(last), text)
    return Values(law, low, last, text)


def _no_number(value: Any) -> bool:
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    named = isinstance(value, Expr) and hasattr(value, "sympy")
    return not (named or plain)


def _text(value: Any) -> str:
    if isinstance(value, Expr) and not hasattr(value, "sympy"):
        return "a Dim that has no name yet"
    return str(value) if isinstance(value, (Expr, Values)) else repr(value)


def _value(end: Bound, dims: Mapping[str, int]) -> float:
    return float(evaluate(end, dims)) if isinstance(end, Expr) else float(end)
