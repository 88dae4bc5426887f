"""Rows that values name, counted before the values are known: how many of a warp's lanes meet, on average.

What an input is declared to be drawn from says how likely two lanes name the same row, or rows that lie in one sector
of 32 bytes, or words of shared memory in one bank. Draws are independent of each other. Rows that a warp names are d
draws from places with probabilities p; the means are exact, by generating functions: a word with probability p is drawn
k times in (p x)^k / k! of the ways, and the coefficient of x^d, times d!, is a probability.
"""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.banks import BANK_BYTES, BANKS
from tinygpu.expressions import Expr, Table, expr, minimum, tabulated
from tinygpu.language.tile import Tile
from tinygpu.language.values import Values
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.access import WARP, Access
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# (probability, of how many places), of all places that draws may name.
Places = tuple[tuple[float, int], ...]
Series = NDArray[np.float64]


def drawn_from(program: Program, tile: Tile) -> Values | None:
    """What the numbers of a tile's rows are drawn from, as the input that they are loaded from declares it; None where
    they are computed, or nothing is declared of them, or their order says where neighbours lie (ascending).
    """
    if tile.pick is None:
        return None
    for s in walk(program.body):
        if isinstance(s, n.Load) and s.result.name == tile.pick.by.name and s.source.tensor is not None:
            values = s.source.tensor.values
            return values if values is not None and values.law in ("integers", "listed") else None
    return None


def rows_of_a_warp(access: Access) -> Expr:
    """Rows that one warp instruction names: those lanes that do not lie along one row."""
    if access.tile.pick is None:
        raise ValueError(f"no values name rows of {access.tile.name}")
    lanes, rows = expr(WARP), expr(1)
    for size, step in access.starts.threads.steps:
        here = minimum(size, lanes)
        lanes = lanes // here
        if isinstance(step, Step) and any(not expr(step.along(axis)).same(0) for axis in access.tile.pick.along):
            rows = rows * here
    return rows


def apart(values: Values, draws: Expr, row_bits: Expr, piece_bits: int) -> Expr:
    """Of so many drawn rows the share whose piece (a sector) was not counted for another, on average.

    row_bits  from one row to the next
    """

    def rule(draws: int, row_bits: int, *ends: int) -> float:
        if draws < 1 or row_bits < 1:
            return 1.0
        return _kept(_distinct(_places(values, ends, max(piece_bits // row_bits, 1)), draws) / draws)

    return _tabulated(f"apart_{piece_bits}", values, rule, draws, row_bits)


def bank_rounds(values: Values, draws: Expr, row_bits: Expr) -> Expr:
    """Wavefronts in which shared memory serves so many lanes, each with a word of a row that is drawn, on average: the
    most words that one bank is asked for. Lanes that name one word share it.
    """

    def rule(draws: int, row_bits: int, *ends: int) -> float:
        words = row_bits // (8 * BANK_BYTES)
        return _kept(_fullest(_in_banks(values, ends, words), draws)) if words and draws > 0 else 1.0

    return _tabulated("bank_rounds", values, rule, draws, row_bits)


def bank_turns(values: Values, draws: Expr, row_bits: Expr) -> Expr:
    """Turns in which the banks of shared memory combine what so many lanes have with words of rows that are drawn, on
    average: the most lanes that come to one bank, with one word or with several.
    """

    def rule(draws: int, row_bits: int, *ends: int) -> float:
        words = row_bits // (8 * BANK_BYTES)
        return _kept(_longest(_in_banks(values, ends, words), draws)) if words and draws > 0 else 1.0

    return _tabulated("bank_turns", values, rule, draws, row_bits)


def to_one_place(values: Values, draws: Expr, row_bits: Expr, piece_bits: int) -> Expr:
    """Of the pieces that draws touch, the share that is one and the same: the one that is drawn most often."""

    def rule(draws: int, row_bits: int, *ends: int) -> float:
        if draws < 1 or row_bits < 1:
            return 0.0
        places = _places(values, ends, max(piece_bits // row_bits, 1))
        likely = _distinct(((max(p for p, _ in places), 1),), draws)
        return _kept(likely / _distinct(places, draws) / max(row_bits / piece_bits, 1))

    return _tabulated(f"to_one_place_{piece_bits}", values, rule, draws, row_bits)


def _tabulated(name: str, values: Values, rule: Callable[..., float], *leaves: Expr) -> Expr:
    ends = [n if isinstance(n, Expr) else expr(int(n)) for n in values.listed or (values.low, values.high)]
    mark = zlib.crc32(f"{values.written} {values.weights}".encode())
    return tabulated(Table(f"{name}_{mark}", lru_cache(maxsize=4096)(rule)), *leaves, *ends)


def _kept(mean: float) -> float:
    """A mean that sums and products of counts hold exactly: to a 4,096th."""
    return round(mean * 4096) / 4096


def _places(values: Values, ends: tuple[int, ...], together: int) -> Places:
    """The places that draws may name, with `together` rows in each."""
    if values.law == "listed":
        return _of(_listed(values, ends, together).values())
    return tuple(_probabilities(values, ends, together))


def _probabilities(values: Values, ends: tuple[int, ...], together: int) -> Iterator[tuple[float, int]]:
    """Of whole numbers between two ends, all as likely."""
    low, high = ends
    count = high - low + 1
    first, last = low // together, high // together
    cut = Counter(min(high, (p + 1) * together - 1) - max(low, p * together) + 1 for p in {first, last})
    if last - first > 1:
        cut[together] += last - first - 1
    yield from ((rows / count, often) for rows, often in cut.items())


def _listed(values: Values, ends: tuple[int, ...], together: int) -> dict[int, float]:
    weights = values.weights or (1.0,) * len(ends)
    found: dict[int, float] = {}
    for number, weight in zip(ends, weights, strict=True):
        if weight:
            place = number // together
            found[place] = found.get(place, 0.0) + weight / math.fsum(weights)
    return found


def _of(likely: Iterable[float]) -> Places:
    return tuple(Counter(likely).items())


def _in_banks(values: Values, ends: tuple[int, ...], apart: int) -> tuple[tuple[Places, int], ...]:
    """(the words of a bank that draws may name, how many banks have such), of rows that lie `apart` words apart."""
    period = BANKS // math.gcd(apart, BANKS)  # rows until one lies in the same bank again
    banks: Counter[Places] = Counter()
    for first in range(period):
        if values.law == "listed":
            here = _of(p for row, p in _listed(values, ends, 1).items() if row % period == first)
        else:
            low, high = ends
            rows = (high - first) // period - (low - 1 - first) // period
            here = ((1 / (high - low + 1), rows),) if rows else ()
        if here:
            banks[here] += 1
    return tuple(banks.items())


def _distinct(places: Places, draws: int) -> float:
    return math.fsum(often * -math.expm1(draws * math.log1p(-p)) if p < 1 else often for p, often in places)


@lru_cache(maxsize=4096)
def _fullest(banks: tuple[tuple[Places, int], ...], draws: int) -> float:
    """The mean of the most words of one bank."""
    words = max(sum(often for _, often in places) for places, _ in banks)
    return _mean_of_most(
        min(draws, words),
        lambda most: _product((_some(places, draws, most), often) for places, often in banks)[draws],
        draws,
    )


@lru_cache(maxsize=4096)
def _longest(banks: tuple[tuple[Places, int], ...], draws: int) -> float:
    """The mean of the most draws that come to one bank."""
    likely = [(math.fsum(p * often for p, often in places), count) for places, count in banks]

    def at_most(most: int, p: float) -> Series:
        return np.array([p**k / math.factorial(k) if k <= most else 0.0 for k in range(draws + 1)])

    return _mean_of_most(draws, lambda most: _product((at_most(most, p), count) for p, count in likely)[draws], draws)


def _mean_of_most(most: int, within: Callable[[int], float], draws: int) -> float:
    """The mean of a number from 1 to `most`; `within` gives the share of 1 / draws! in which it is at most so much."""
    scale = math.factorial(draws)
    return 1 + math.fsum(max(0.0, 1 - scale * within(k)) for k in range(1, most))


def _some(places: Places, draws: int, most: int) -> Series:
    """The series of draws from a bank that name at most `most` of its words."""
    by_words = np.zeros((most + 1, draws + 1))  # words that are named; draws
    by_words[0, 0] = 1.0
    for p, often in places:
        named = np.array([0.0, *(p**k / math.factorial(k) for k in range(1, draws + 1))])
        power, grown = np.eye(1, draws + 1)[0], np.zeros_like(by_words)
        for words in range(min(most, often) + 1):
            chosen = math.comb(often, words) * power
            for before in range(most + 1 - words):
                grown[before + words] += np.convolve(by_words[before], chosen)[: draws + 1]
            power = np.convolve(power, named)[: draws + 1]
        by_words = grown
    return np.asarray(by_words.sum(axis=0), dtype=np.float64)


def _product(factors: Iterable[tuple[Series, int]]) -> Series:
    first, *others = (_power(series, often) for series, often in factors)
    for other in others:
        first = np.convolve(first, other)[: len(other)]
    return np.asarray(first, dtype=np.float64)


def _power(series: Series, exponent: int) -> Series:
    out, square = np.eye(1, len(series))[0], series
    while exponent:
        if exponent % 2:
            out = np.convolve(out, square)[: len(series)]
        square = np.convolve(square, square)[: len(series)]
        exponent //= 2
    return np.asarray(out, dtype=np.float64)


__all__ = ["apart", "bank_rounds", "bank_turns", "drawn_from", "rows_of_a_warp", "to_one_place"]
