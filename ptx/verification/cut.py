"""What tiles of a problem need of its tensors: along dims of the grid their own part, or all that there is.

One rule decides, whatever a machine goes by: where can each window of its program lie, for the tiles that are run? A
number that data say, a row that a value names and the round of a loop are anything that they may be. Where all windows
along a dim of the grid are in the tiles' own part, every tensor is cut to that. Where one may lie elsewhere, nothing is
cut along the dim, and the reference has it whole; but where single rows are named and nothing else, the cut has rows
of its own, which the tensors that name them name in memory by where they lie. Nor is a dim cut whose tiles say by their
number where windows lie along another one, as `table[i % 5]`: the reference could not know it of a part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.intervals import Interval
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program.nodes import PART, Store
from tinygpu.program.program import Program
from tinygpu.program.tree import places
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.backed import Spans, Window, joined, shape_of
from tinygpu.ptx.verification.lies import Known, Lies
from tinygpu.ptx.verification.named_rows import rows_named
from tinygpu.ptx.verification.traced import numbers_of, traced


@dataclass(frozen=True, slots=True)
class Stray:
    """A window that may lie elsewhere along a dim than in the part of its own tile."""

    tile: Tile
    tensor: Tensor
    axis: int
    written: bool

    @property
    def dim(self) -> str:
        return self.tensor.dims[self.axis]


@dataclass(frozen=True, slots=True)
class Cut:
    """How the tensors of a problem are cut to what some tiles need of them.

    places   of dims of the grid that are cut: (elements of a tile, or a cluster of them, the size of the dim)
    whole    dims of the grid that are not cut, each with a tensor of which all is needed along it
    named    of tensors whose elements name rows along a dim that is cut: that dim
    unknown  why it is not known what the tiles leave; "" where it is
    """

    kernel: Kernel
    problem: Problem
    whole: Mapping[str, str]
    named: Mapping[str, str]
    unknown: str = ""

    def spans(self, tiles: Sequence[tuple[int, ...]], cut_all: bool = False) -> dict[str, Spans]:
        """Where tiles lie along the dims of the grid that are cut; along all of them, where that is asked."""
        return {
            d: joined((t * e, min((t + 1) * e, self.problem.dim[d])) for t in {tile[axis] for tile in tiles})
            for axis, (d, e) in enumerate(extents(self.kernel))
            if cut_all or d not in self.whole
        }

    def window(self, operand: Operand, tiles: Sequence[tuple[int, ...]], own: bool = False) -> Window:
        """What tiles need of an operand; what is their own, where that is asked."""
        spans = self.spans(tiles, own)
        names = dict(self.kernel.shapes)[operand.name]
        return tuple(spans.get(d, ((0, size),)) for d, size in zip(names, operand.shape, strict=True))

    def part(self, operand: Operand, tiles: Sequence[tuple[int, ...]], tile: tuple[int, ...]) -> tuple[slice, ...]:
        """Where what is one tile's own lies in the window of several."""
        out = []
        windows = self.window(operand, tiles), self.window(operand, [tile], own=True)
        for spans, ((first, last),) in zip(*windows, strict=True):
            before = sum(min(end, first) - start for start, end in spans if start < first)
            out.append(slice(before, before + last - first))
        return tuple(out)

    def elements(self, tiles: Sequence[tuple[int, ...]]) -> int:
        """Elements of all windows."""
        return sum(math.prod(shape_of(self.window(o, tiles))) for o in self.problem.operands)

    def posed(self, tiles: Sequence[tuple[int, ...]]) -> Problem:
        """The problem as inputs are drawn for it: dims along which rows are named have as many as the cut."""
        spans = self.spans(tiles)
        rows = {dim: sum(end - start for start, end in spans[dim]) for dim in self.named.values()}
        return replace(self.problem, dims=tuple((d, rows.get(d, size)) for d, size in self.problem.dims))

    def renamed(self, name: str, array: NDArray[Any], tiles: Sequence[tuple[int, ...]]) -> NDArray[Any]:
        """What lies in memory of a tensor: rows of the cut are named by their numbers in the problem."""
        if name not in self.named:
            return array
        spans = self.spans(tiles)[self.named[name]]
        numbers = np.concatenate([np.arange(start, end, dtype=np.int64) for start, end in spans])
        return np.asarray(numbers[array.astype(np.int64)].astype(array.dtype))


def extents(kernel: Kernel) -> list[tuple[str, int]]:
    """(dim, elements of a tile, or of a cluster of them) per axis of the grid."""
    clusters = kernel.clusters or (1,) * len(kernel.tiles)
    return [(d, e * c) for (d, e), c in zip(kernel.tiles, clusters, strict=True)]


def cut_of(kernel: Kernel, machine: type[Machine], problem: Problem, tiles: Sequence[tuple[int, ...]]) -> Cut:
    """How the tensors of a problem are cut to what some tiles need of them.

    tiles  numbers of each along the axes of the grid, in clusters of them
    """
    program = traced(kernel, machine, problem).program
    following = {name for d in machine.following_dims() for name in (d.name, *d.reads)}
    whole = {d: "" for d, _ in extents(kernel) if d in following}
    whole |= {d: whole.get(d) or name for d, name in _numbering(program, kernel, problem)}
    strays: dict[str, list[Stray]] = {}
    for stray in _strays(program, kernel, problem, tiles):
        strays.setdefault(stray.dim, []).append(stray)
    named: dict[str, str] = {}
    for dim, found in strays.items():
        by = rows_named(program, problem, dim, [(s.tile, s.axis) for s in found]) if dim not in whole else ()
        if by:
            named |= dict.fromkeys(by, dim)
        else:
            whole[dim] = found[0].tensor.name
    written = [s for found in strays.values() for s in found if s.written] + list(_scattered(program))
    unknown = next((f"what each leaves of {s.tensor.name} lies anywhere along {s.dim}" for s in written), "")
    return Cut(kernel, problem, whole, named, unknown)


def _numbering(program: Program, kernel: Kernel, problem: Problem) -> Iterator[tuple[str, str]]:
    """(dim of the grid, tensor) where the number of a tile along the one says where a window lies along another dim."""
    counts = kernel.counts(problem)
    for place in places(program.body):
        for window in (t.finest for t in (*place.statement.reads, *place.statement.writes)):
            if window.tensor is None:
                continue
            for home, d in enumerate(window.tensor.dims):
                axes = [axis for axis, (of, _) in enumerate(extents(kernel)) if of != d and counts[axis] > 1]
                if not axes:
                    continue
                lies = Lies(window, home, place.loops)
                for axis in axes:
                    first, *others = (
                        [lies.among(numbers) for numbers in _numbers(program, kernel, problem, tile)]
                        for tile in _along(axis, counts)
                    )
                    if any(other != first for other in others):
                        yield extents(kernel)[axis][0], window.tensor.name


def _along(axis: int, counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Some tiles along an axis, the first along all others."""
    for number in sorted({n for n in (0, 1, 2, counts[axis] - 1) if 0 <= n < counts[axis]}):
        yield tuple(number if a == axis else 0 for a in range(len(counts)))


def _scattered(program: Program) -> Iterator[Stray]:
    """Windows that plain stores write where data say, or what is no dim of the grid hangs on the tile."""
    along = {d for axis in program.grid.axes for d in axis.size.symbols}
    decided = {axis.index for axis in program.grid.axes} | program.said_by_data
    for place in places(program.body):
        s = place.statement
        if isinstance(s, Store) and getattr(s.instruction, "combines", False):
            continue
        loops = {loop.index: loop.first.symbols | loop.trips.symbols for loop in place.loops}
        for window, tensor in ((t.finest, t.finest.tensor) for t in s.writes):
            for home, d in enumerate(tensor.dims if tensor is not None else ()):
                by = window.begins[home].symbols
                by |= {name for index in by & loops.keys() for name in loops[index]}
                picked = window.pick is not None and window.pick.home == home
                if tensor is not None and d not in along and (picked or by & decided):
                    yield Stray(window, tensor, home, True)


def _strays(program: Program, kernel: Kernel, problem: Problem, tiles: Sequence[tuple[int, ...]]) -> Iterator[Stray]:
    """The windows that may lie elsewhere along a dim of the grid than in the own part of one of the tiles."""
    axis_of = {d: axis for axis, (d, _) in enumerate(extents(kernel))}
    known = [(tile, numbers) for tile in tiles for numbers in _numbers(program, kernel, problem, tile)]
    seen: set[tuple[int, int]] = set()
    for place in places(program.body):
        s = place.statement
        for window, written in (*((t.finest, False) for t in s.reads), *((t.finest, True) for t in s.writes)):
            if window.tensor is None:
                continue
            for home, d in enumerate(window.tensor.dims):
                if d not in axis_of or (id(window), home) in seen:
                    continue
                lies = Lies(window, home, place.loops)
                elements, size = extents(kernel)[axis_of[d]][1], problem.dim[d]
                for tile, numbers in known:
                    low, high = lies.among(numbers)
                    start = tile[axis_of[d]] * elements
                    if max(low, 0) < start or min(high, size) > min(start + elements, size):
                        seen.add((id(window), home))
                        yield Stray(window, window.tensor, home, written)
                        break


def _numbers(
    program: Program, kernel: Kernel, problem: Problem, tile: tuple[int, ...]
) -> Iterator[Mapping[str, Interval]]:
    """What expressions name for each CTA of a tile, or of a cluster of tiles."""
    sizes = numbers_of(kernel, problem)
    clusters = kernel.clusters or (1,) * len(tile)
    for ranks in itertools.product(*map(range, clusters)):
        at = {a.index: t * c + r for a, t, c, r in zip(program.grid.axes, tile, clusters, ranks, strict=True)}
        exact = {name: Interval(v, v) for name, v in {**sizes, **at}.items()}
        yield Known({**exact, PART: Interval(0, max(kernel.slices - 1, 0))})
