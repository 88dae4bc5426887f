"""Values that repeat alike before and behind: only one of the repeats is planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.layout import Layout
from tinygpu.layouts.relayout.plan import Pick, RelayoutPlan, Shuffle, Step
from tinygpu.layouts.step import Step as Along

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of the number of a value: `size` values, `step` apart along an axis; None: along several, or none."""

    size: int
    axis: int | None
    step: int


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The numbers of values, before and behind: (repeats, values of one)."""

    before: Places
    behind: Places
    packing: tuple[int, int]

    @classmethod
    def none(cls, before: int, behind: int, packing: tuple[int, int]) -> Repeats:
        """All of so many values are one."""
        return cls(np.arange(before)[None], np.arange(behind)[None], packing)

    @property
    def times(self) -> int:
        return len(self.before)

    def of(self, once: RelayoutPlan) -> RelayoutPlan:
        """The plan of all repeats."""
        if self.times == 1:
            return once
        taken, left = (
            places[:, ::values] // values
            for places, values in zip((self.before, self.behind), self.packing, strict=True)
        )
        inputs = once.inputs * self.times
        steps: list[Step] = []
        outputs = [0] * (len(once.outputs) * self.times)
        for repeat in range(self.times):
            number = taken[repeat].tolist()
            for step in once.steps:
                number.append(inputs + len(steps))
                if isinstance(step, Shuffle):
                    steps.append(replace(step, word=number[step.word]))
                else:
                    steps.append(Pick(number[step.first], number[step.second], step.bytes_of))
            for register, word in enumerate(once.outputs):
                outputs[int(left[repeat, register])] = number[word]
        return RelayoutPlan(once.kind, inputs, tuple(steps), tuple(outputs))


def repeats(source: Layout, target: Layout, word_values: int, packing: tuple[int, int]) -> Repeats:
    """The digits of the values that move alike before and behind.

    A word's worth of digits of two stays, because what is planned together shares words; so does what is in a register.
    """
    one, other = _digits(source), _digits(target)
    ends = [(d.axis, d.step * k) for d in (*one, *other) for k in (1, d.size)]
    one, other = _cut(one, ends), _cut(other, ends)
    common = {d for d in one if d.axis is not None and d.size > 1 and one.count(d) == 1 == other.count(d)}
    together = 1
    for d in common:
        together *= d.size & -d.size
    chosen: list[Digit] = []
    for d in sorted(common, key=lambda d: -_below(one, d)):
        if _below(one, d) % packing[0] or _below(other, d) % packing[1]:
            continue
        if d.size % 2 == 0:
            if together // d.size < word_values:
                continue
            together //= d.size
        chosen.append(d)
    return Repeats(_places(one, chosen), _places(other, chosen), packing)


def _digits(layout: Layout) -> list[Digit]:
    out = []
    for size, step in layout[1].steps:
        terms = step.terms if isinstance(step, Along) else ()
        alone = len(terms) == 1 and isinstance(terms[0][0], int)
        axis, count = terms[0] if alone else (None, 0)
        out.append(Digit(int(size), axis if isinstance(axis, int) else None, int(count)))
    return out


def _cut(digits: list[Digit], ends: list[tuple[int | None, int]]) -> list[Digit]:
    """Digits in factors: cut where others begin or end, and then into twos and what is odd."""
    out = []
    for d in digits:
        if d.axis is None or not d.step:
            out.append(d)
            continue
        within = sorted({at // d.step for axis, at in ends if axis == d.axis and at % d.step == 0})
        below = 1
        for until in (*(w for w in within if 1 < w < d.size), d.size):
            if until % below or d.size % until:
                continue
            size = until // below
            while size % 2 == 0:
                out.append(Digit(2, d.axis, d.step * below))
                below, size = below * 2, size // 2
            if size > 1:
                out.append(Digit(size, d.axis, d.step * below))
                below *= size
    return out


def _below(digits: list[Digit], digit: Digit) -> int:
    """Values from one of a digit to the next."""
    below = 1
    for d in digits[: digits.index(digit)]:
        below *= d.size
    return below


def _places(digits: list[Digit], chosen: Sequence[Digit]) -> Places:
    sizes = [d.size for d in digits]
    values = np.arange(int(np.prod(sizes, dtype=np.int64)), dtype=np.int64).reshape(sizes[::-1])
    axis_of = {d: len(digits) - 1 - place for place, d in enumerate(digits)}
    first = [axis_of[d] for d in chosen]
    rest = [axis for axis in range(len(digits)) if axis not in first]
    times = int(np.prod([d.size for d in chosen], dtype=np.int64))
    return values.transpose(*first, *rest).reshape(times, -1)
