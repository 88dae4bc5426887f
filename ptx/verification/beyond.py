"""Problems beyond the numbers that programs and references write: derived ones may never come to what these decide.

Derived problems have few tiles and rounds. Where the real one comes to a side of a decision to which none of them does
(`tinygpu.ptx.verification.decisions`), one dim is so much larger that it does. What a reference decides by its numbers
nobody knows: each dim that may have to do with one is larger than that, where this is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tinygpu.constraints.intervals import Interval
from tinygpu.language.machine import Machine
from tinygpu.language.posing import followed
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.program.nodes import PART
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.verification.decisions import Decision, Sides, decisions
from tinygpu.ptx.verification.derived import legality, resized
from tinygpu.ptx.verification.naming import NAMED, some_of
from tinygpu.ptx.verification.plan import Run, ctas_of
from tinygpu.ptx.verification.reference_numbers import deciding_numbers
from tinygpu.ptx.verification.traced import numbers_of, traced

# Sizes of a dim that are looked at, behind the first with which all sides are reached: some may not be legal.
MOST_TRIED = 8
# A larger problem takes so many times the work of the largest derived one, at most, or so many rounds of one warp: some
# seconds. What may say nothing takes a part of that.
MOST_WORK, MOST_ROUNDS, ON_TRIAL = 16, 4096, 2
WHERE = "beyond numbers that are written"


@dataclass(frozen=True, slots=True)
class Beyond:
    """problems  larger ones
    dear      decisions of which a side is left out, since the problem would be too large
    numbers   of the reference that no size of any problem is beyond, for the same reason
    counts    whether some are there for what counts data
    """

    problems: tuple[Problem, ...] = ()
    dear: tuple[Decision, ...] = ()
    numbers: tuple[int, ...] = ()
    counts: bool = False


NOTHING = Beyond()


def beyond(kernel: Kernel, machine: type[Machine], problem: Problem, posed: Sequence[Problem]) -> Beyond:
    """What reaches the sides of the real problem that none of `posed` does."""
    search = _Search(kernel, machine, problem)
    wanted = search.sides(problem.dim)
    seen = [frozenset[int]().union(*of) for of in zip(*(search.sides(p.dim) for p in posed), strict=True)]
    small = min(posed, key=search.work)
    bases = dict.fromkeys((small, posed[0]))  # the first has several rounds, where there are several
    most = max(MOST_WORK * max(map(search.work, posed)), MOST_ROUNDS * 32 // kernel.threads)
    problems, dear = [], []
    for number, decision in enumerate(search.made):
        if not wanted[number] - seen[number]:
            continue
        found = [p for base in bases for p in search.larger(base, number, wanted[number] - seen[number], most)]
        chosen = min(found, key=search.work, default=None)
        if chosen is None or search.work(chosen) > most:
            if any(side for side, _ in wanted[number] - seen[number]):  # more than that two numbers are never the same
                dear.append(decision)
            continue
        problems.append(chosen)
        seen = [a | b for a, b in zip(seen, search.sides(chosen.dim), strict=True)]
    for dim in small.dim:
        for number in deciding_numbers(machine):
            if max(p.dim[dim] for p in (*posed, *problems)) > number:
                break
            above = search.above(small, dim, number)
            if above is not None and ON_TRIAL * search.work(above) <= most:
                problems.append(above)
                break
    sizes = [max(p.dim[dim] for p in (*posed, *problems)) for dim in small.dim if dim not in search.fixed]
    passed, real = max(sizes, default=0), max((problem.dim[d] for d in small.dim if d not in search.fixed), default=0)
    numbers = tuple(number for number in deciding_numbers(machine) if passed <= number < real)
    return Beyond(tuple(problems), tuple(dear), numbers, search.found.counts)


def runs_of(kernel: Kernel, found: Beyond, order: Order) -> Iterator[Run]:
    """A run of each larger problem."""
    for number, larger in enumerate(found.problems):
        sizes = ",".join(f"{name}={size}" for name, size in larger.dims)
        # lines of one sign, above zero where there is one: what is lost of a long sum, or of what is counted, shows
        yield Run(larger, "other signs", order, ctas_of(kernel, larger, number), f"{WHERE} ({sizes})")
        if found.counts:  # of lines of equal numbers there are as many as there may be
            yield Run(larger, "lines", order, ctas_of(kernel, larger, number), f"{WHERE} ({sizes})")


def told(found: Beyond) -> Iterator[str]:
    """Sentences about what no run comes to."""
    if found.dear:
        yield _of_decisions(found.dear)
    if found.numbers:
        listed = " or ".join(f"{number:,}" for number in found.numbers[:NAMED])
        yield (
            f"no run has more elements along a dim than {listed}, which the reference names, and this shape has: that "
            "takes more than is emulated; verify the machine with smaller numbers, too"
        )


def _of_decisions(dear: Sequence[Decision]) -> str:
    named = [f"`{decision.said}`" for decision in dear]
    decide = "decides" if len(named) == 1 else "decide"
    return (
        f"no run comes to all that {some_of(named)} {decide} at this shape: that "
        "takes more than is emulated; verify the machine with smaller numbers, too"
    )


class _Search:
    def __init__(self, kernel: Kernel, machine: type[Machine], problem: Problem) -> None:
        program = traced(kernel, machine, problem).program
        self.kernel, self.machine, self.problem = kernel, machine, problem
        self.axes = [axis.index for axis in program.grid.axes]
        self.found = decisions(program)
        self.made = self.found.made
        self.legal = legality(kernel, machine, problem)
        self.numbers = {name: Interval(v, v) for name, v in numbers_of(kernel, problem).items()}
        self.numbers[PART] = Interval(0, max(kernel.slices - 1, 0))
        listed = {name for name, sizes in machine.dim_values().items() if sizes}
        self.fixed = {*listed, *dict(kernel.known), *(d.name for d in machine.following_dims())}

    def sides(self, dims: Mapping[str, int]) -> tuple[Sides, ...]:
        """The sides of every decision to which a problem comes."""
        ctas = self.kernel.ctas_along(dims)
        known = self.numbers | {name: Interval(size, size) for name, size in dims.items()}
        known |= {index: Interval(0, count - 1) for index, count in zip(self.axes, ctas, strict=True)}
        return self.found.sides(known)

    def work(self, posed: Problem) -> int:
        """Rounds of the loops in all tiles."""
        rounds = math.prod(1 + -(-posed.dim[d] // step) for d, step in self.kernel.steps if d in posed.dim)
        return self.kernel.tiles_of(posed) * self.kernel.slices * rounds

    def larger(self, small: Problem, number: int, missing: Sides, most: int) -> Iterator[Problem]:
        """For each dim that has a say, the problem with as much of it as reaches what is missing of a decision.

        Twice as much, where that takes no more than the most work: of what lies beyond is then as much as before it.
        """
        for dim in sorted(self.made[number].dims & small.dim.keys() - self.fixed):
            sizes = self._sizes(dim, small.dim[dim])

            def reaches(at: int, dim: str = dim, sizes: range = sizes) -> bool:
                return missing <= self.sides({**small.dim, dim: sizes[at]})[number]

            if not sizes or not reaches(len(sizes) - 1):
                continue
            first = _first(reaches, len(sizes))
            enough = self._first_posed(small, dim, sizes[first:])
            aim = min(2 * sizes[first], sizes[-1])
            more = self._first_posed(small, dim, _from(sizes[first + 1 :], aim))
            if more is not None and self.work(more) <= most:
                yield more
            elif enough is not None:
                yield enough

    def above(self, small: Problem, dim: str, number: int) -> Problem | None:
        """The problem with more of a dim than a number, where the real one has more; None where that is not legal."""
        if dim in self.fixed:
            return None
        return self._first_posed(small, dim, _from(self._sizes(dim, small.dim[dim]), number + 2))

    def _first_posed(self, small: Problem, dim: str, sizes: range) -> Problem | None:
        """The problem with the first of some sizes that is legal; few are looked at."""
        found = (self._posed({**small.dim, dim: size}) for size in sizes[:MOST_TRIED])
        return next((posed for posed in found if posed is not None), None)

    def _sizes(self, dim: str, small: int) -> range:
        """Larger sizes, up to the real one, that leave its remainders."""
        k = self.kernel
        cuts = [size for d, size in (*k.tiles, *k.steps) if d == dim]
        apart = math.lcm(*cuts, *(f.divisor for f in k.facts if f.name == dim))
        real = self.problem.dim[dim]
        if apart > max([1, *cuts]) * 4:
            apart = max(cuts)
        return range(small + 1 + (real - small - 1) % apart, real + 1, apart)

    def _posed(self, dims: Mapping[str, int]) -> Problem | None:
        following, options = self.machine.following_dims(), dict(self.problem.options)
        full = {**dims, **followed(self.machine.__name__, following, dims, options)}
        if not self.legal(full):
            return None
        try:
            return resized(self.kernel, self.problem, full)
        except (LaunchError, ProblemError):
            return None


def _from(sizes: range, least: int) -> range:
    """Those that are at least so large."""
    return sizes[max(-(-(least - sizes.start) // sizes.step), 0) :]


def _first(holds: Callable[[int], bool], count: int) -> int:
    """The first of some numbers for which something holds that holds for the last, and behind the first for all."""
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
