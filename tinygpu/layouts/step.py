"""Step: a stride into coordinates instead of offsets, a combination of basis vectors such as 2@1+1@0.

An axis is a number (0, 1: the axes of a tile) or a word ("lane" and "column" of tensor memory, "cta" of a cluster).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.expressions import Expr, beside
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.leaf import Leaf, filled, leaf, same, times

Axis: TypeAlias = int | str


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """So many steps along each axis; `terms` is sorted, numbers before words, and has no axis twice and no 0.

    >>> print(2 * E(1) + E(0))
    1@0+2@1
    """

    terms: tuple[tuple[Axis, Leaf], ...]

    def __post_init__(self) -> None:
        if len(self.terms) == 1:
            axis, count = self.terms[0]
            if type(axis) is int and type(count) is int and axis >= 0 and count > 0:
                return  # most are plain
        total: dict[Axis, Leaf] = {}
        for axis, count in self.terms:
            if not isinstance(axis, str) and (isinstance(axis, bool) or not isinstance(axis, int) or axis < 0):
                raise LayoutError(f"an axis is a number from 0 on or a word such as 'lane', not {axis!r}")
            if isinstance(axis, str) and not axis.isidentifier():
                raise LayoutError(f"an axis is a number from 0 on or a word such as 'lane', not {axis!r}")
            count = leaf(count, f"the number of steps along axis {axis}")
            if isinstance(count, int) and count < 0:
                raise LayoutError(f"{count} steps along axis {axis}: coordinates count up from 0")
            total[axis] = leaf(total[axis] + count, "a sum of steps") if axis in total else count
        kept = ((axis, count) for axis, count in total.items() if not same(count, 0))
        object.__setattr__(self, "terms", tuple(sorted(kept, key=lambda term: place(term[0]))))

    def __add__(self, other: Step) -> Step:
        return Step(self.terms + other.terms)

    def __mul__(self, count: Leaf) -> Step:
        return Step(tuple((axis, times(c, count)) for axis, c in self.terms))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return "+".join(f"{beside(count)}@{axis}" for axis, count in self.terms) or "0"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Step):
            return NotImplemented
        return len(self.terms) == len(other.terms) and all(
            a == b and same(x, y) for (a, x), (b, y) in zip(self.terms, other.terms, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.terms)

    def along(self, axis: Axis) -> Leaf:
        """Steps along one axis."""
        return next((count for found, count in self.terms if found == axis), 0)

    def replaced(self, function: Callable[[Expr], Expr]) -> Step:
        """The same with every expression replaced."""
        if all(isinstance(count, int) for _, count in self.terms):
            return self
        changed = (
            (axis, leaf(function(count), "a step") if isinstance(count, Expr) else count) for axis, count in self.terms
        )
        return Step(tuple(changed))

    def fill(self, values: Mapping[str, int]) -> Step:
        """The same with numbers in place of its expressions."""
        return Step(tuple((axis, filled(count, values)) for axis, count in self.terms))

    @classmethod
    def parse(cls, source: str) -> Step:
        """The step written as "2@1+1@0" or "1@lane"."""
        terms: list[tuple[Axis, int]] = []
        for part in source.split("+"):
            found = re.fullmatch(r"(\d+)@(\w+)", part)
            if found is None:
                raise LayoutError(f"the stride {source!r} is no number and no sum of steps such as 2@1+1@0 or 1@lane")
            terms.append((int(found[2]) if found[2].isdecimal() else found[2], int(found[1])))
        return cls(tuple(terms))


def E(axis: Axis) -> Step:
    """One step along an axis: a basis vector."""
    return Step(((axis, 1),))


def place(axis: Axis) -> tuple[bool, int, str]:
    """Where an axis stands among others: numbers in their order, then words in theirs."""
    return (True, 0, axis) if isinstance(axis, str) else (False, axis, "")


def axes_of(strides: Iterable[Leaf | Step]) -> tuple[Axis, ...]:
    """The axes that some stride moves along, in their order."""
    found = {axis for stride in strides if isinstance(stride, Step) for axis, _ in stride.terms}
    return tuple(sorted(found, key=place))
