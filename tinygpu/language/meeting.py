"""Who must meet where a tile is combined along an axis: lanes of a warp, warps of a role, as its holders are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tinygpu.expressions import Expr, Table, all_of, ceil_div, expr, maximum, minimum, tabulated, where
from tinygpu.language.partition import Partition
from tinygpu.layouts.step import Step

LANES = 32
WORD_BITS = 32
WORD_BYTES = 4
# Words that a thread stores or loads at once, where neighbours are neighbours in shared memory.
WIDEST = 4
# Copies of what warps leave for each other begin at a multiple of this: a vector.
ALIGN_BYTES = 16
# They leave it in two places by turns: who has passed the barrier of one has read what was left before it.
TURNS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """A digit of the thread id.

    size, below  how many values it has; threads from one to the next
    lanes        lanes of a warp in which it differs
    warps        warps in which it does
    along        whether it steps along the axis
    copies       whether threads that differ in it hold the same
    step         elements along the axis from one value to the next
    """

    size: Expr
    below: Expr
    along: bool
    copies: bool
    step: Expr

    @property
    def lanes(self) -> Expr:
        return minimum(self.below * self.size, LANES) // minimum(self.below, LANES)

    @property
    def warps(self) -> Expr:
        return self.size // maximum(self.lanes, 1)

    @property
    def within(self) -> Expr:
        """Whether it is a power of two of the lanes of one warp."""
        return (self.size == 1) | (expr(LANES) % (self.below * self.size) == 0)

    @property
    def whole(self) -> Expr:
        """Whether it is such a part of a warp, whole warps, or both."""
        both = (expr(LANES) % self.below == 0) & (self.below * self.size % LANES == 0)
        return self.within | (self.below % LANES == 0) | both


@dataclass(frozen=True, slots=True, eq=False)
class Meeting:
    """The threads that meet: numbers where the partition has numbers.

    axis    along which they differ
    digits  of the thread id, the fastest first
    values  (size, step) of the digits of a thread's values along the axis
    results values of the tile that is left, per thread
    """

    axis: int
    digits: tuple[Digit, ...]
    values: tuple[tuple[Expr, Expr], ...]
    results: Expr

    @property
    def members(self) -> Expr:
        """Values of the tile that become one result in each thread."""
        return _product(size for size, _ in self.values)

    @property
    def lanes(self) -> Expr:
        """Lanes of a warp that meet."""
        return _product(d.lanes for d in self.digits if d.along)

    @property
    def warps(self) -> Expr:
        """Warps that meet."""
        return _product(d.warps for d in self.digits if d.along)

    @property
    def groups(self) -> Expr:
        """Groups of threads of the role that meet, each for results of its own."""
        return _product(d.size for d in self.digits if not d.along and not d.copies)

    @property
    def together(self) -> Expr:
        """Such groups within one warp."""
        return _product(d.lanes for d in self.digits if not d.along and not d.copies)

    @property
    def whole(self) -> Expr:
        """Whether lanes can meet by shuffles, and warps as whole warps."""
        return all_of([d.whole for d in self.digits if d.along])

    @property
    def within_warps(self) -> Expr:
        """Whether nobody meets but lanes of a warp."""
        return all_of([d.within for d in self.digits if d.along])

    @property
    def apart(self) -> Expr:
        """Whether everybody has all of its results by itself."""
        return all_of([d.size == 1 for d in self.digits if d.along])

    def paired(self, in_pairs: bool) -> Expr:
        """Lanes among which what the warps left is divided."""
        return tabulated(PAIRED, self.warps, self.lanes, self.together) if in_pairs else expr(1)

    def vector(self, in_pairs: bool) -> Expr:
        """Warps whose words a thread takes at once."""
        return tabulated(VECTOR, self.warps, self.paired(in_pairs), self.together)

    def left_bytes(self, words: int) -> Expr:
        """Shared memory in which warps leave what they have, of values of so many words; none within a warp."""
        size = self.groups * self.warps * self.results * (words * WORD_BYTES)
        return where(self.warps > 1, ceil_div(size, ALIGN_BYTES) * ALIGN_BYTES, 0)

    def of_ctas_bytes(self, words: int) -> Expr:
        """Shared memory in which a CTA leaves its results for others of its cluster, of values of so many words."""
        size = self.groups * self.results * (words * WORD_BYTES)
        return ceil_div(size, ALIGN_BYTES) * ALIGN_BYTES

    def scanned_bytes(self, words: int) -> Expr:
        """The same of a scan: at the level of each digit of warps, the blocks of all threads that have none in common.

        Digits that move by fewer elements along the axis have been gone through.
        """
        most = expr(0)
        for whole in self.digits:
            if not whole.along:
                continue
            step = whole.step * whole.lanes
            blocks = self.groups * self.results * whole.warps
            for size, moves in self.values:
                blocks = blocks * where(moves < step, 1, size)
            for d in self.digits:
                if d.along and d is not whole:
                    blocks = blocks * where(d.step < step, 1, d.lanes) * where(d.step * d.lanes < step, 1, d.warps)
            most = maximum(most, where(whole.warps > 1, ceil_div(blocks * (words * WORD_BYTES), ALIGN_BYTES), 0))
        return most * ALIGN_BYTES


def meeting(partition: Partition, axis: int) -> Meeting:
    """Who meets where a tile is combined along an axis. Raises ValueError where holders step along two axes at once."""
    digits, below = [], expr(1)
    for size, step in partition.threads.steps:
        moved = _axes(step)
        _check(partition, axis, moved)
        digits.append(Digit(expr(size), below, axis in moved, not moved, _step(step, axis)))
        below = below * size
    values, results = [], expr(1)
    for size, step in partition.values.steps:
        moved = _axes(step)
        _check(partition, axis, moved)
        if axis in moved:
            values.append((expr(size), _step(step, axis)))
        elif moved:
            results = results * size
    return Meeting(axis, tuple(digits), tuple(values), results)


def paired(warps: int, lanes: int, together: int) -> int:
    """Lanes among which what warps left is divided: a power of two that divides both, where lanes have one result."""
    return math.gcd(warps, lanes, LANES) if together == 1 else 1


def vector(warps: int, lanes: int, together: int) -> int:
    """Warps of a lane's share whose words it takes at once: they are neighbours where lanes have one result."""
    return math.gcd(warps // max(lanes, 1), WIDEST) if together == 1 else 1


PAIRED, VECTOR = Table("paired", paired), Table("vector_of_warps", vector)


def _axes(step: object) -> tuple[int | str, ...]:
    return tuple(axis for axis, _ in step.terms) if isinstance(step, Step) else ()


def _step(step: object, axis: int) -> Expr:
    return expr(step.along(axis)) if isinstance(step, Step) else expr(0)


def _check(partition: Partition, axis: int, moved: tuple[int | str, ...]) -> None:
    if axis in moved and len(moved) > 1:
        raise ValueError(f"holders of {partition} step along axis {axis} and another one at once")


def words_of(bits: int) -> int:
    """Words of 32 bits in which a value goes to other threads."""
    return -(-bits // WORD_BITS)


def _product(factors: Iterator[Expr]) -> Expr:
    out = expr(1)
    for factor in factors:
        out = out * factor
    return out
