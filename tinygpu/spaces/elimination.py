"""Axis by axis elimination: builds the diagram of one group of axes and counts what each row of the funnel removes.

Prefixes are kept as columns of arrays. A condition is applied at the axis that completes it. Once no later condition
reads an axis, prefixes that differ only there are merged and their number is kept, so that the work follows the
distinct states and not the number of points. The raw product is never listed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.condition import Condition, DivisorNotPositive
from tinygpu.constraints.explanation import describe
from tinygpu.constraints.intervals import Interval
from tinygpu.expressions import Expr
from tinygpu.spaces.diagram import Diagram, Layer, reduce
from tinygpu.spaces.exact import exact_type
from tinygpu.spaces.part import Axis, SpaceError
from tinygpu.spaces.summaries import Plan, keep_axes, summarise

# Cells (prefix x value) judged at once; a few arrays of this size stay in a core's cache.
_CHUNK_CELLS = 1 << 16
# Beyond so many rows, summaries are kept instead of axes where that is possible.
_PLAIN_ROWS = 1_000_000


class TooLarge(SpaceError):
    """Exact counting would need more rows than the budget allows."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One condition to apply.

    row        the funnel row to which its rejections count
    name       the constraint that it belongs to, for errors
    condition  the condition
    exact      whether it needs integers beyond 64 bits, or has a divisor that may be zero
    strict     whether a divisor that is not positive is an error; else the condition fails there
    """

    row: int
    name: str
    condition: Condition
    exact: bool
    strict: bool


@dataclass(frozen=True, slots=True, eq=False)
class Elimination:
    """What eliminating a group of axes gives.

    layers   one per axis, dead ends included
    raw      number of combinations of the group
    removed  funnel row -> combinations of the group that it is the first to reject
    size     survivors of the group
    """

    layers: list[Layer]
    raw: int
    removed: dict[int, int]
    size: int

    def diagram(self) -> Diagram:
        if self.size:
            return reduce(self.layers, self.raw)
        nothing = np.zeros(0, dtype=np.int32)
        none = np.zeros(1, dtype=np.int64)
        return Diagram(tuple(Layer(x.axis, x.width, none, nothing, nothing) for x in self.layers), self.raw)


def eliminate(
    axes: Sequence[Axis], steps: Sequence[Sequence[Step]], constants: Mapping[str, int], row_budget: int
) -> Elimination:
    """Eliminates `axes` in the order given.

    steps       per axis: the conditions that it completes, in the order in which they reject
    row_budget  greatest number of prefixes kept over all axes. Raises `TooLarge` beyond
    """
    names = [a.name for a in axes]
    flat = [(depth, step) for depth, level in enumerate(steps) for step in level]
    plan = keep_axes(names, [(depth, step.condition) for depth, step in flat])
    if row_budget <= _PLAIN_ROWS:
        return _Elimination(axes, steps, constants, row_budget, plan).run()
    try:
        return _Elimination(axes, steps, constants, _PLAIN_ROWS, plan).run()
    except TooLarge:
        ranges = {n: Interval(v, v) for n, v in constants.items()}
        for axis in axes:
            if axis.numeric:
                numbers = [int(v) for v in axis.values]
                ranges[axis.name] = Interval(min(numbers), max(numbers))
        short = summarise(names, [(depth, step.condition, step.exact) for depth, step in flat], ranges)
        if short.summarises:
            plan, left = short, iter(short.conditions)
            steps = [[replace(step, condition=next(left)) for step in level] for level in steps]
        return _Elimination(axes, steps, constants, row_budget, plan).run()


class _Columns(dict[str, Any]):
    """The values of symbols for one chunk, computed when a condition first reads them."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __missing__(self, name: str) -> Any:
        value = self[name] = self._make(name)
        return value


@dataclass(slots=True, eq=False)
class _Frontier:
    """The distinct states reached so far.

    columns  what later conditions still read: value indices of axes, and values of summaries
    weights  how many prefixes lead to each state
    """

    columns: dict[str, NDArray[Any]]
    weights: NDArray[Any]


@dataclass(slots=True, eq=False)
class _Elimination:
    axes: Sequence[Axis]
    steps: Sequence[Sequence[Step]]
    constants: Mapping[str, int]
    row_budget: int
    plan: Plan
    values: dict[str, NDArray[Any]] = field(init=False)
    widths: dict[str, int] = field(init=False)
    raw: int = field(init=False)
    removed: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {a.name: a.array() for a in self.axes if a.numeric}
        self.widths = {a.name: len(a.values) for a in self.axes}
        self.raw = 1
        for axis in self.axes:
            self.raw *= len(axis.values)

    def run(self) -> Elimination:
        frontier = _Frontier({}, np.ones(1, dtype=exact_type(self.raw)))
        layers: list[Layer] = []
        rows, rest = 0, self.raw
        for depth, axis in enumerate(self.axes):
            width = len(axis.values)
            rest //= width
            source, choice = self._expand(frontier, axis, self.steps[depth], rest)
            rows += len(source)
            if rows > self.row_budget:
                raise TooLarge(
                    f"counting exactly needs more than the budget of {self.row_budget:,} rows (reached at "
                    f"{axis.name}); raise the budget, offer fewer values, or add a constraint that reads few parameters"
                )
            degree = np.bincount(source, minlength=len(frontier.weights))
            first = np.concatenate(([0], np.cumsum(degree))).astype(np.int64)
            frontier, target = self._merge(frontier, axis, source, choice, depth)
            layers.append(Layer(axis.name, width, first, choice, target))
        return Elimination(layers, self.raw, self.removed, int(frontier.weights.sum()))

    def _expand(
        self, frontier: _Frontier, axis: Axis, steps: Sequence[Step], rest: int
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """The (state, value index) pairs that the steps admit, by state and then by value.

        rest  number of combinations of the axes still to come
        """
        width, states = len(axis.values), len(frontier.weights)
        if not steps:
            every = np.arange(width, dtype=np.min_scalar_type(width))
            return np.repeat(np.arange(states), width), np.tile(every, states)
        stride = -(-_CHUNK_CELLS // width)
        pieces = [
            self._filter(frontier, axis, steps, rest, start, min(start + stride, states))
            for start in range(0, states, stride)
        ]
        if not pieces:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])

    def _filter(
        self, frontier: _Frontier, axis: Axis, steps: Sequence[Step], rest: int, start: int, stop: int
    ) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """As `_expand`, for the states start .. stop.

        Judges the whole grid (values, states) while most of it is alive, and single cells afterwards.
        """
        width = len(axis.values)
        weights = frontier.weights[start:stop]
        local = {name: column[start:stop] for name, column in frontier.columns.items()}
        grid = np.ones((width, stop - start), dtype=np.bool_)
        left: NDArray[Any] = np.full(stop - start, width, dtype=np.int64)
        columns = _Columns(lambda n: self._column(n, axis.name, local))
        done = 0
        for step in steps:
            if step.exact or 2 * int(left.sum()) < grid.size:
                break
            mask = step.condition.mask(columns)
            grid &= mask
            after = np.count_nonzero(grid, axis=0)
            self._remove(step.row, (left - after) * weights, rest)
            left = after
            done += 1
        source, choice = np.nonzero(np.ascontiguousarray(grid.T))
        for step in steps[done:]:
            if not len(source):
                break
            cells = _Columns(partial(self._cells, axis=axis.name, local=local, source=source, choice=choice))
            keep = np.broadcast_to(np.asarray(_judge(step, cells), dtype=np.bool_), source.shape)
            self._remove(step.row, weights[source[~keep]], rest)
            source, choice = source[keep], choice[keep]
        return source + start, choice.astype(np.min_scalar_type(width))

    def _column(self, name: str, axis: str, local: Mapping[str, NDArray[Any]]) -> Any:
        """A symbol's values for the grid: (values, 1) for the new axis, (states,) for earlier ones, or a number."""
        if name == axis:
            return self.values[name][:, np.newaxis]
        if name not in local:
            return self.constants[name]
        return self.values[name][local[name]] if name in self.values else local[name]

    def _cells(
        self, name: str, axis: str, local: Mapping[str, NDArray[Any]], source: NDArray[Any], choice: NDArray[Any]
    ) -> Any:
        """A symbol's values for single cells: (cells,), or a number."""
        if name == axis:
            return self.values[name][choice]
        if name not in local:
            return self.constants[name]
        column = local[name][source]
        return self.values[name][column] if name in self.values else column

    def _remove(self, row: int, weights: NDArray[Any], rest: int) -> None:
        self.removed[row] = self.removed.get(row, 0) + int(weights.sum()) * rest

    def _merge(
        self, frontier: _Frontier, axis: Axis, source: NDArray[Any], choice: NDArray[Any], depth: int
    ) -> tuple[_Frontier, NDArray[Any]]:
        """The states after an axis, and (pairs,) the state that each pair leads to."""
        weights = frontier.weights[source]
        kept = self.plan.kept[depth]
        columns = {n: c[source] for n, c in frontier.columns.items() if n in kept}
        if axis.name in kept:
            columns[axis.name] = choice
        if len(source):
            pairs = _Columns(lambda n: self._cells(n, axis.name, frontier.columns, source, choice))
            for summary in self.plan.made[depth]:
                (values,) = summary.compute(pairs)
                columns[summary.name] = np.broadcast_to(np.asarray(values), source.shape)
        if not len(source) or (len(columns) == len(frontier.columns) + 1 and not self.plan.made[depth]):
            return _Frontier(columns, weights), np.arange(len(source), dtype=np.int32)  # every pair is a state
        target, states = number_rows([self._numbered(n, c) for n, c in columns.items()], len(source))
        example = np.empty(states, dtype=np.int64)
        example[target] = np.arange(len(source))
        merged = _Frontier({n: c[example] for n, c in columns.items()}, self._sum(target, weights, states))
        return merged, target.astype(np.int32)

    def _numbered(self, name: str, column: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """A column as indices below a width."""
        if name in self.widths:
            return column, self.widths[name]
        distinct, indices = np.unique(column, return_inverse=True)
        return indices, len(distinct)

    def _sum(self, target: NDArray[Any], weights: NDArray[Any], states: int) -> NDArray[Any]:
        total = np.zeros(states, dtype=weights.dtype)
        np.add.at(total, target, weights)
        return total


def _judge(step: Step, cells: _Columns) -> Any:
    if not step.exact:
        return step.condition.mask(cells)
    try:
        return step.condition.exact_mask(cells, strict=step.strict)
    except DivisorNotPositive as refused:
        raise SpaceError(
            f"[{step.name}] {describe(Expr(step.condition.node))} cannot be judged for every point: {refused}"
        ) from refused


def number_rows(columns: Sequence[tuple[NDArray[Any], int]], rows: int) -> tuple[NDArray[np.int64], int]:
    """Numbers the distinct rows of index columns: (rows,) the number of each row, and how many there are."""
    key = np.zeros(rows, dtype=np.int64)
    radix = 1
    for column, width in columns:
        if exact_type(radix * width) is object:
            distinct, key = np.unique(key, return_inverse=True)
            radix = len(distinct)
        key = key * width + column
        radix *= width
    if radix <= max(1 << 16, 8 * rows):
        present = np.zeros(radix, dtype=np.bool_)
        present[key] = True
        number = np.cumsum(present) - 1
        return number[key], int(number[-1]) + 1
    distinct, target = np.unique(key, return_inverse=True)
    return target, len(distinct)
