"""Distributions: where the numbers of an input come from, with every end filled in. Needs nothing but NumPy.

The machine that times kernels draws from them as well; a machine declares them in `tinygpu.language.values`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.definite_matrices import definite, whole_definite

Law = Literal["uniform", "normal", "magnitudes", "integers", "ascending", "listed", "definite"]
# Laws whose numbers are whole, in ranges that addresses may be made of.
WHOLE: frozenset[Law] = frozenset(("integers", "ascending"))
# Every whole number up to here is one of double precision.
_WHOLE = 2.0**53
# Points at which an expectation looks.
_QUANTILES = 1024


@dataclass(frozen=True, slots=True)
class Distribution:
    """Numbers between two ends, both of which are drawn too.

    law        uniform; normal, cut off at the ends; magnitudes: their logarithms are uniform; integers; ascending:
               integers, sorted along the last axis; listed: one of some numbers; definite: elements of symmetric
               positive definite matrices, of the last two axes
    low, high  the least and the greatest number
    mean       of a normal law, and its standard `deviation`
    listed     the numbers, and how often each is drawn beside the others; as often as each other, where none are given
    ends       of an ascending law: the first is the least number, and the last, where there is another, the greatest
    apart      of an ascending law: neighbours are at most so far apart; 0: as far as may be
    shift      up to so much, more or less, is added to all numbers along the last axis; within the ends
    condition  of definite matrices: the largest eigenvalue over the least; their product is 1
    distinct   of integers: no two of an array are the same, but for those below zero, which name no row
    """

    law: Law
    low: float
    high: float
    mean: float = 0.0
    deviation: float = 1.0
    listed: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    ends: bool = False
    shift: float = 0.0
    apart: float = 0.0
    condition: float = 1.0
    distinct: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"a distribution lies between a number and one above it, not {self.low} and {self.high}")
        if self.law in WHOLE and not all(abs(end) <= _WHOLE and end == int(end) for end in (self.low, self.high)):
            raise ValueError(f"integers lie between whole numbers up to 2^53, not {self.low} and {self.high}")
        if self.law == "magnitudes" and self.low <= 0:
            raise ValueError(f"magnitudes are above zero, and {self.low} is not")
        if self.law == "listed" and not self.listed:
            raise ValueError("a listed distribution lists at least one number")
        if self.weights and (len(self.weights) != len(self.listed) or min(self.weights) < 0 or not any(self.weights)):
            raise ValueError(f"listed numbers have a weight each, none below zero, not {self.weights}")
        if self.apart < 0 or self.apart != int(self.apart):
            raise ValueError(f"neighbours are a whole number apart at most, not {self.apart}")
        if not (0 <= self.shift <= (self.high - self.low) / 2 and self.deviation > 0):
            raise ValueError(f"a shift lies within the ends, a deviation is above 0: {self.shift}, {self.deviation}")

        if not 1 <= self.condition <= max(self.high, 1.0) ** 2 * (1 + 1e-9):
            span = f"from {self.low:g} to {self.high:g}"
            raise ValueError(f"matrices with numbers {span} have no condition number of {self.condition:g}")

    @property
    def ends_drawn(self) -> tuple[float, float]:
        """The least and the greatest number that is ever drawn."""
        used = [n for n, w in zip(self.listed, self.weights or (1.0,) * len(self.listed), strict=True) if w]
        return (min(used), max(used)) if used else (self.low, self.high)

    # -- drawing ---------------------------------------------------------------------------------------------------
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """An array of numbers, the two ends among them; of matrices the ends of their eigenvalues."""
        if self.law == "ascending" and shape:
            return self._sorted(rng, shape)
        if self.law == "definite":
            return definite(rng, shape, self.condition)
        if self.distinct and shape:
            return self._different(rng, shape)
        low, high = self.low + self.shift, self.high - self.shift
        match self.law:
            case "normal":
                found = np.clip(rng.normal(self.mean, self.deviation, shape), low, high)
            case "magnitudes":
                found = np.exp(rng.uniform(math.log(low), math.log(high), shape))
            case "integers" | "ascending":
                found = np.asarray(rng.integers(int(low), int(high) + 1, shape), dtype=np.float64)
            case "listed":
                share = np.asarray(self.weights or (1.0,) * len(self.listed))
                found = np.asarray(rng.choice(self.listed, shape, p=share / share.sum()), dtype=np.float64)
            case _:
                found = rng.uniform(low, high, shape)
        if self.shift:
            found = found + rng.uniform(-self.shift, self.shift, (*shape[:-1], 1) if shape else ())
        return self._edged(rng, np.clip(found, self.low, self.high))

    def draw_whole(self, rng: np.random.Generator, shape: tuple[int, ...], most: int) -> NDArray[np.float64]:
        """An array of its whole numbers, those up to `most` where there are such: sums of them are exact.

        Of a law between whose ends there are two whole numbers at most, multiples of a power of two, of which there are
        a few: of two numbers none lies between the ends. Integers are drawn as ever; so is what has no whole number
        between its ends, or only such beyond 2^53.
        """
        if self.law == "definite":
            return whole_definite(rng, shape, self.condition)
        if (span := self._whole_span(most)) is None:
            return self.draw(rng, shape)
        if span[1] - span[0] < 2 and self.low < self.high:
            part = 2.0 ** math.floor(math.log2((self.high - self.low) / 4))
            least, greatest = math.ceil(self.low / part), math.floor(self.high / part)
            return rng.integers(least, greatest + 1, shape).astype(np.float64) * part
        return rng.integers(span[0], span[1] + 1, shape).astype(np.float64)

    def whole_ends(self, most: int) -> tuple[float, float]:
        """The least and the greatest number that `draw_whole` draws."""
        return self._whole_span(most) or self.ends_drawn

    def _whole_span(self, most: int) -> tuple[int, int] | None:
        least, greatest = math.ceil(self.low), math.floor(self.high)
        if self.law in WHOLE or self.law == "listed" or least > greatest or least > _WHOLE or greatest < -_WHOLE:
            return None
        if least > most:
            return least, min(greatest, least + 2 * most)
        if greatest < -most:
            return max(least, greatest - 2 * most), greatest
        return max(least, -most), min(greatest, most)

    def _edged(self, rng: np.random.Generator, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The values with both ends among them; where numbers lie on both sides of zero, zero too if they are integers,
        and the one below it and the one above the least, and else one that is next to zero on either side, which
        roundings tell apart. Of a single number, one end or the other at times.
        """
        values = np.array(values, dtype=np.float64)
        ends: tuple[float, ...] = self.ends_drawn
        if values.size == 1:
            values[...] = (*ends, float(values.item()), float(values.item()))[int(rng.integers(4))]
        elif values.size:
            if self.low < 0 < self.high and self.law == "integers":
                ends = (*ends, 0.0, -1.0, self.low + 1)
            elif self.low < 0 < self.high and self.law in ("uniform", "normal"):
                ends = (*ends, *(rng.uniform(0.25, 0.75) * near for near in (max(self.low, -1.0), min(self.high, 1.0))))
            places = rng.permutation(values.size)[: len(ends)]
            values.reshape(-1)[places] = ends[: len(places)]
        return values

    def _sorted(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Sorted integers; the ends are there at times, or always, and two neighbours are equal."""
        if self.apart:
            return self._stepped(rng, shape)
        found = np.sort(rng.integers(int(self.low), int(self.high) + 1, shape), axis=-1)
        if not found.size:
            return found.astype(np.float64)
        if self.ends or rng.integers(2):
            found[..., -1] = int(self.high)
        if self.ends or rng.integers(2):
            found[..., 0] = int(self.low)
        if found.shape[-1] > 3:
            at = int(rng.integers(1, found.shape[-1] - 2))
            found[..., at + 1] = found[..., at]
        return found.astype(np.float64)

    def _different(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Integers of which no two are the same, the two ends among them; those below zero may be there again.

        Raises ValueError where there are fewer of them than elements.
        """
        if self.low < 0:
            return self._different_rows(rng, shape)
        count, there = math.prod(shape), int(self.high - self.low) + 1
        if count > there:
            span = f"from {int(self.low):,} to {int(self.high):,}"
            raise ValueError(f"{count:,} numbers {span} are not all different: there are {there:,}")
        found = rng.choice(there, count, replace=False)
        for end in (0, there - 1) if count > 1 else ():
            if end not in found:
                free = np.flatnonzero((found != 0) & (found != there - 1))
                found[rng.choice(free)] = end
        return (self.low + found.reshape(shape)).astype(np.float64)

    def _different_rows(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Rows of which no two are the same, and numbers below zero, which are none: one in eight, or more."""
        count, last = math.prod(shape), int(self.high)
        rows = min(count - min(count, max(count // 8, 2)), last + 1) if count > 2 else int(rng.integers(count + 1))
        named = rng.choice(max(last + 1, 1), max(min(rows, last + 1), 0), replace=False)
        if named.size and last not in named:
            named[0] = last
        others = rng.integers(int(self.low), min(last, -1) + 1, count - named.size)
        ends = rng.permuted([int(self.low), min(last, -1)])
        others[: others.size > 1] = int(self.low)
        others[others.size - 1 :] = ends[0]
        return rng.permutation(np.concatenate([named, others])).reshape(shape).astype(np.float64)

    def _stepped(self, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """Ascending integers of which neighbours are near enough: none of them, one at least, and all that may be.

        Raises ValueError where so few numbers do not get from one end to the other.
        """
        (*lines, count), span, apart = shape, int(self.high - self.low), int(self.apart)
        steps = np.zeros((*lines, count), dtype=np.int64)
        if self.ends:
            if count > 1 and span > (count - 1) * apart:
                ends = f"from {int(self.low):,} to {int(self.high):,}"
                raise ValueError(f"{count} numbers that are at most {apart:,} apart do not reach {ends}")
            left = np.full(lines, span if count > 1 else 0, dtype=np.int64)
        else:
            left = rng.integers(0, min(span, max(count - 1, 0) * apart) + 1, lines)
            steps[..., :1] = rng.integers(0, span - left + 1, lines)[..., None]
        for at in range(1, count):
            least, most = np.maximum(left - (count - 1 - at) * apart, 0), np.minimum(left, apart)
            drawn = rng.integers(least, most + 1)
            extreme = rng.integers(4, size=lines)  # segments of no elements, and longest ones, are there
            steps[..., at] = np.where(extreme == 0, least, np.where(extreme == 1, most, drawn))
            left = left - steps[..., at]
        steps[..., 1:] = rng.permuted(steps[..., 1:], axis=-1)
        return (self.low + np.cumsum(steps, axis=-1)).astype(np.float64)

    # -- what is promised ------------------------------------------------------------------------------------------
    def fault(self, values: NDArray[Any]) -> str:
        """What is wrong with a user's whole numbers, as what follows their name; "" where nothing is.

        Kernels make addresses of them. Other laws promise nothing that a kernel relies on.
        """
        if self.law not in WHOLE or not values.size:
            return ""
        outside = (values < self.low) | (values > self.high)
        span = f"from {int(self.low):,} to {int(self.high):,}"
        if outside.any():
            place, found = _first(values, outside)
            return f"{place} is {found:,}, and must be a whole number {span}"
        if self.distinct and values.ndim:
            _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
            if (again := (counts[where].reshape(values.shape) > 1) & (values >= 0)).any():
                place, found = _first(values, again)
                return f"{place} is {found:,}, and so is another one; no two may be the same"
        if self.law == "integers" or not values.ndim:
            return ""
        falls = np.zeros(values.shape, dtype=bool)
        falls[..., 1:] = values[..., 1:] < values[..., :-1]
        if falls.any():
            place, found = _first(values, falls)
            return f"{place} is {found:,}, less than the number before it, and they must be in ascending order"
        if self.apart and values.shape[-1] > 1:
            far = np.zeros(values.shape, dtype=bool)
            far[..., 1:] = values[..., 1:].astype(np.int64) - values[..., :-1] > self.apart
            if far.any():
                place, found = _first(values, far)
                more = f"more than {int(self.apart):,} above the number before it"
                return f"{place} is {found:,}, {more}, and neighbours are at most so far apart"
        for at, end, which in ((0, self.low, "first"), (-1, self.high, "last")):
            wrong = values[..., at] != end
            if self.ends and wrong.any() and (at == 0 or values.shape[-1] > 1):
                found = int(values[..., at][wrong].ravel()[0])
                return f" has {found:,} as its {which} number, and it must be {int(end):,}"
        return ""

    def expectation(self, function: Callable[[float], float] = float) -> float:
        """The mean of a function of one number, at 1,024 quantiles, or at every number of a short list or range."""
        if self.law == "definite":
            raise ValueError("the numbers of a matrix depend on their places: one alone has no mean of its own")
        if self.law == "listed":
            share = self.weights or (1.0,) * len(self.listed)
            return math.fsum(w * function(n) for n, w in zip(self.listed, share, strict=True)) / math.fsum(share)
        if self.law in WHOLE and self.high - self.low < _QUANTILES:
            numbers = range(int(self.low), int(self.high) + 1)
            return math.fsum(function(float(n)) for n in numbers) / len(numbers)
        found = [function(self._quantile((k + 0.5) / _QUANTILES)) for k in range(_QUANTILES)]
        return math.fsum(found) / _QUANTILES

    def _quantile(self, share: float) -> float:
        """The number below which so large a share of all lies."""
        match self.law:
            case "normal":
                there = statistics.NormalDist(self.mean, self.deviation).inv_cdf(share)
                return min(max(there, self.low), self.high)
            case "magnitudes":
                return math.exp(math.log(self.low) + share * math.log(self.high / self.low))
            case "integers" | "ascending":
                return math.floor(self.low + share * (self.high + 1 - self.low))
            case _:
                return self.low + share * (self.high - self.low)


def _first(values: NDArray[Any], wrong: NDArray[np.bool_]) -> tuple[str, int]:
    """(place, number) of the first element that is marked."""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = f"[{', '.join(str(int(i)) for i in at)}]" if at else ""
    return place, int(values[at])
