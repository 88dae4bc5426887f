"""Partitions: maps from Work (threads of a role, values of a thread) to the coordinates of a tile.

A partition is a list of *modes*, digits of a mixed-radix number: the thread id is spelled in the thread modes and the
value index in the value modes, fastest digit first, and each digit moves `stride` steps along one axis of the tile.
Extents and strides are expressions over parameters, so one partition describes all candidates of a structure.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, Operand, expr
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import Step


@dataclass(frozen=True, slots=True, eq=False)
class Mode:
    """One digit: `extent` values, each `stride` steps along `axis` (None: all of them hold the same)."""

    extent: Expr
    axis: int | None
    stride: Expr

    @staticmethod
    def of(extent: Operand, axis: int | None, stride: Operand = 1) -> Mode:
        return Mode(expr(extent), axis, expr(stride))

    def __str__(self) -> str:
        return f"{self.extent}@{'-' if self.axis is None else self.axis}*{self.stride}"


def modes_of(layout: Layout) -> tuple[Mode, ...]:
    """The digits of a layout into coordinates, without those of one value; each steps along one axis at most."""
    out = []
    for extent, step in layout.steps:
        if extent == 1:
            continue
        terms = step.terms if isinstance(step, Step) else ()
        if len(terms) > 1:
            raise ValueError(f"{layout}: a mode of a partition steps along one axis, not along {step}")
        axis, stride = terms[0] if terms else (None, 0)
        if isinstance(axis, str):
            raise ValueError(f"{layout}: the axes of a partition are those of its tile, 0, 1 and so on, not {axis!r}")
        out.append(Mode.of(extent, axis, stride))
    return tuple(out)


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Something that must hold for a partition to cover its tile: a condition and the sentence for it."""

    name: str
    condition: Expr
    sentence: str


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Who holds what of a tile.

    shape       extent of the tile along each axis, in elements
    threads     modes of the thread id (lane fastest), whose extents multiply to the threads of the role
    values      modes of the value index of one thread, the vector that one instruction moves first
    conditions  what must hold for the modes to cover the tile exactly once
    made_for    threads of the role that it was made for (None: as many as the thread modes have)
    """

    shape: tuple[Expr, ...]
    threads: tuple[Mode, ...]
    values: tuple[Mode, ...]
    conditions: tuple[Condition, ...] = ()
    made_for: Expr | None = None

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"[{shape}] threads({' '.join(map(str, self.threads))}) values({' '.join(map(str, self.values))})"

    @property
    def value_count(self) -> Expr:
        """Values that one thread holds."""
        out = expr(1)
        for mode in self.values:
            out = out * mode.extent
        return out

    @property
    def thread_count(self) -> Expr:
        out = expr(1)
        for mode in self.threads:
            out = out * mode.extent
        return out

    def reduced(self, axis: int) -> Partition:
        """The partition of a tile whose extent along `axis` is 1: threads that differed there hold the same."""
        shape = tuple(expr(1) if a == axis else s for a, s in enumerate(self.shape))
        threads = tuple(Mode(m.extent, None, expr(0)) if m.axis == axis else m for m in self.threads)
        values = tuple(m for m in self.values if m.axis != axis)
        return Partition(shape, threads, values, self.conditions, self.made_for)

    @property
    def T(self) -> Partition:
        """The partition of the transposed tile: everybody holds what they held, under exchanged coordinates."""
        if len(self.shape) != 2:
            raise ValueError(f"a partition of a tile with {len(self.shape)} axes has no transpose; it takes two")
        across = {0: 1, 1: 0, None: None}

        def exchanged(modes: tuple[Mode, ...]) -> tuple[Mode, ...]:
            return tuple(Mode(m.extent, across[m.axis], m.stride) for m in modes)

        threads, values = exchanged(self.threads), exchanged(self.values)
        return Partition(self.shape[::-1], threads, values, self.conditions, self.made_for)

    def along(self, *axes: int) -> Partition:
        """The part of the partition along some axes: all others shrink to extent 1."""
        out = self
        for axis in range(len(self.shape)):
            if axis not in axes:
                out = out.reduced(axis)
        return out
