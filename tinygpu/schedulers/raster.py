"""Rasterisation: in which order the tiles of a grid are numbered."""

from __future__ import annotations

from collections.abc import Sequence

from tinygpu.schedulers.run_time import RunTime, Value


def place_of(run: RunTime, number: Value, counts: Sequence[Value], group: int) -> list[Value]:
    """The numbers along the axes of tile `number`, of a grid with so many tiles along each axis.

    The last axis runs fastest. With groups of g, g rows of tiles are visited column by column before the next g rows,
    so that CTAs that run at the same time share rows and columns in L2.
    """
    if len(counts) < 2 or group == 1:
        return _digits(run, number, counts)
    rows, columns = counts[-2], counts[-1]
    outer: list[Value] = []
    if len(counts) > 2:
        inner = run.mul(rows, columns)
        outer = _digits(run, run.div(number, inner), counts[:-2])
        number = run.rem(number, inner)
    per_group = run.mul(columns, group)
    first = run.mul(run.div(number, per_group), group)
    inside = run.rem(number, per_group)
    last = run.maximum(run.rem(rows, group), 1)  # rows of the last group, where it is not whole
    height = run.select(last, group, run.less(rows, run.add(first, group)))
    return [*outer, run.add(run.rem(inside, height), first), run.div(inside, height)]


def _digits(run: RunTime, number: Value, counts: Sequence[Value]) -> list[Value]:
    """The digits of a number, the last one fastest; the first is not bounded."""
    out: list[Value] = []
    for count in reversed(counts[1:]):
        out.append(run.rem(number, count))
        number = run.div(number, count)
    return [number, *reversed(out)]
