"""Dims that no tile or loop goes along and into which windows reach all the same: each CTA has `chunk` elements of one.

A kernel knows of such a dim only where it ends. The few CTAs of a derived problem would not come near the end of the
real size: there the dim has what they reach, and ends within a CTA's part where the real one does. Where not all CTAs
of the real problem come to its end, a kernel leaves something out, and the dim keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinygpu.constraints.intervals import Interval
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.program.nodes import PART
from tinygpu.program.program import Program
from tinygpu.program.tree import places
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.lies import ANYTHING, Lies
from tinygpu.ptx.verification.named_rows import free_dims
from tinygpu.ptx.verification.traced import numbers_of, traced


def reached_sizes(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    dims: Mapping[str, int],
    legal: Callable[[Mapping[str, int]], bool],
) -> Iterator[tuple[str, int]]:
    """(dim, its size) for each that is only reached into, where that is smaller than the real size and legal.

    dims  of the derived problem
    """
    program = traced(kernel, machine, problem).program
    for dim in free_dims(kernel, machine, problem, program):
        if not reaches_end(kernel, machine, problem, dim, dims):
            continue
        reach = _Reach(program, dim, _known(kernel, problem, dims))
        unit = math.lcm(*(fact.divisor for fact in kernel.facts if fact.name == dim))
        size = _largest(reach, kernel.ctas_along(dims), problem.dim[dim], unit)
        if size < problem.dim[dim] and legal({**dims, dim: size}):
            yield dim, size


def reaches_end(
    kernel: Kernel, machine: type[Machine], problem: Problem, dim: str, dims: Mapping[str, int]
) -> bool:
    """Whether one of as many CTAs as the problem has may come to the end of a dim; else a kernel leaves something out.

    dims  the other sizes, as of a derived problem
    """
    reach = _Reach(traced(kernel, machine, problem).program, dim, _known(kernel, problem, dims))
    return reach.of([Interval(0, count - 1) for count in kernel.ctas_along(problem.dim)]) >= problem.dim[dim]


def _known(kernel: Kernel, problem: Problem, dims: Mapping[str, int]) -> dict[str, Interval]:
    """What expressions name, but for the indices of the grid."""
    numbers = numbers_of(kernel, problem) | dict(dims)
    return {name: Interval(v, v) for name, v in numbers.items()} | {PART: Interval(0, max(kernel.slices - 1, 0))}


def _largest(reach: _Reach, counts: Sequence[int], size: int, unit: int) -> int:
    """The largest size that CTAs reach and that leaves what the real one does, of the facts and of a CTA's part.

    counts  CTAs along each axis of the grid
    """
    most = reach.of([Interval(0, count - 1) for count in counts])
    if not 0 < most < min(size, ANYTHING.hi):
        return size
    alone = [Interval(0, 0) for _ in counts]
    nexts = [[Interval(int(a == axis), int(a == axis)) for a in range(len(counts))] for axis in range(len(counts))]
    parts = [abs(reach.of(at) - reach.of(alone)) for at in nexts]
    apart = math.lcm(unit, *(part for part in parts if part))
    return most - (most - size) % apart if most > (most - size) % apart else size % apart or apart


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far windows reach along one dim.

    known  what expressions name, beside the indices of the grid
    """

    program: Program
    dim: str
    known: Mapping[str, Interval]

    def of(self, at: list[Interval]) -> int:
        """One past the last element that a CTA may touch whose index along each axis of the grid lies there."""
        indices = {axis.index: interval for axis, interval in zip(self.program.grid.axes, at, strict=True)}
        return max((lies.among({**self.known, **indices})[1] for lies in self._windows()), default=0)

    def _windows(self) -> Iterator[Lies]:
        for place in places(self.program.body):
            for window in (t.finest for t in (*place.statement.reads, *place.statement.writes)):
                if window.tensor is not None:
                    for home in (axis for axis, d in enumerate(window.tensor.dims) if d == self.dim):
                        yield Lies(window, home, place.loops)
