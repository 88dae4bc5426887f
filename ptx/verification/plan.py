"""The runs that verify a kernel: the smallest set on which its rings show their mistakes.

Every mistake of a ring shows once its slots begin again: in both phases, where the next tile begins in the middle of
the slots and where it begins with the first of them, and where a tile uses fewer slots than there are. No order of
asynchronous work needs all of these, so each order gets one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.compared import numbers_compared, turns_of
from tinygpu.ptx.verification.derived import (
    AGAIN,
    DEEP,
    LITTLE,
    OTHER,
    TURNS,
    WHOLE,
    Aim,
    Tiles,
    derive,
    exactly,
    of_integers,
    tiles_per_cta,
)
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.last_elements import has_single_lines
from tinygpu.ptx.verification.lines import has_blocks, has_few_blocks, has_few_lines, has_lines
from tinygpu.ptx.verification.little import little_left
from tinygpu.ptx.verification.neighbours import has_few_neighbours, has_neighbours
from tinygpu.ptx.verification.signs import has_other_signs
from tinygpu.ptx.verification.specials import has_few_specials
from tinygpu.ptx.verification.starts import has_lines_and_vectors, starts_of
from tinygpu.ptx.verification.undeclared import free_floats
from tinygpu.ptx.verification.values import SMALL
from tinygpu.schedulers.run_time import Numbers

# What the words mean that name a run.
RUNS = (
    "its inputs (integers: small whole numbers, whose sums are exact; signs: the same, lines of the first tensor below "
    "zero and above in turn, all others above; other signs: the same of the second; last: whole numbers, of which the "
    "last of each line is the largest or the least, in turn; other last: the other way round; specials: NaN, "
    "infinities and extremes among random ones; other specials: the same of few rows, one in each; lines: random "
    "ones, of which lines are far below zero, next to zero, or zero; other lines: the same of fewer than four lines, "
    "which begin with another kind; blocks, other blocks: the same of all that "
    "has one place along the first axis; "
    "neighbours: random ones, and no numbers beside lines that integers name or cut off; other neighbours: the same "
    "of few lines, of which the first run left a half; rising: random ones that rise along every axis; compared: "
    "random ones, among them the numbers with which the reference or the program compares data; beyond: random ones, "
    "of which every other line lies beyond a number with which the program starts, fills or masks; other beyond: the "
    "same of vectors alone), and "
    "when asynchronous work gets done (late: as late as it may; early: as early; random: at any time between; "
    "spurious: and what may fail at first does)"
)

# A problem, the kind of its inputs, and the numbers among them: runs with the same have the same trial.
Posing: TypeAlias = tuple[Problem, Inputs, tuple[float, ...]]

# Of the first, the second and all later orders.
_WHOLE: tuple[Inputs, Inputs, Inputs] = ("integers", "integers", "signs")


@dataclass(frozen=True, slots=True)
class Run:
    """One emulation of a whole grid.

    ctas     CTAs at most that are launched of a persistent kernel
    alone    clusters run one after another, so that those with lower numbers leave what they share first
    where    how its rings go round, and for which sizes, where these are not those of the first run
    numbers  with which data are compared, where these are among its inputs; or the one beyond which lines lie
    """

    problem: Problem
    inputs: Inputs
    order: Order
    ctas: int
    where: str = ""
    alone: bool = False
    numbers: tuple[float, ...] = ()

    @property
    def posing(self) -> Posing:
        return self.problem, self.inputs, self.numbers

    def rounds(self, kernel: Kernel) -> int:
        """What the run costs beside others: tiles of its grid, times the slots that each uses."""
        slots = sum(int(r.slots_of(self.problem.dim)) for r in kernel.rings)
        return kernel.tiles_of(self.problem) * kernel.slices * (1 + slots)


def plan(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    orders: Sequence[Order],
    random_inputs: bool,
    short: bool,
    derived: Problem | None = None,
) -> tuple[Run, ...]:
    """The runs, the one that finds most first.

    short    also tiles that use fewer slots than there are
    derived  a problem for all runs but the short ones
    """
    ends = _ends(kernel, machine)
    ways: list[tuple[Inputs, Order, Aim, Tiles]] = []
    for number, order in enumerate(orders):
        ways.append((_WHOLE[min(number, 2)], order, *_ways(kernel)[min(number, 2)]))
    if random_inputs:
        # Late like the first order, and every wait fails first: one that is not tried again shows.
        ways.append(("specials", "spurious", OTHER if kernel.goes_on else WHOLE, ends))
        if has_lines(machine, problem):
            ways.append(("lines", orders[0] if orders else "late", WHOLE, ends))
        if has_blocks(machine, problem):
            ways.append(("blocks", orders[0] if orders else "late", WHOLE, ends))
        if of_integers(machine):  # of two rows there are two numbers, both ends
            beside = has_neighbours(machine, problem, free_floats(machine, problem))
            ways.append(("neighbours" if beside else "random", orders[0] if orders else "late", WHOLE, "pieces"))
    numbers = numbers_compared(kernel, machine, problem) if random_inputs else ()
    if turns_of(machine, problem, numbers, SMALL):
        ways.append(("compared", orders[0] if orders else "late", WHOLE, ends))
    starts = starts_of(kernel, machine, problem) if random_inputs else ()
    if starts:
        ways.append(("beyond", orders[0] if orders else "late", WHOLE, ends))
    if short:
        turns = (exactly(1), TURNS) if kernel.dealt else (TURNS,)
        ones = turns if kernel.turns > 1 else (exactly(1),)
        aims = [aim for count in _short(kernel) for aim in (ones if count == 1 else (exactly(count),))]
        # Turns that nobody waits for promptly: one too many is missed, and never comes again.
        ways += [("integers", "spurious" if aim is TURNS else orders[0], aim, "row") for aim in aims]
    if random_inputs and has_other_signs(machine, problem):
        ways.append(("other signs", orders[0] if orders else "late", WHOLE, ends))
    little = None if derived else little_left(kernel, machine, problem)
    if little is not None:
        ways.append(("last", orders[0] if orders else "late", LITTLE, ends))
    first: Problem | None = None
    runs: list[Run] = []
    for number, (inputs, order, aim, tiles) in enumerate(ways):
        like = little if little is not None and aim is LITTLE else problem
        of = derived if derived and aim.exactly is None else _derived(kernel, machine, like, aim, tiles)
        if aim.exactly is not None and not _reached(kernel, of, aim):
            continue
        first = first or of
        sizes = ",".join(f"{name}={size}" for name, size in of.dims)
        ctas = _ctas(kernel, of, aim, number)
        # Side by side, a cluster's later pieces come last, and are never what others fix up.
        # Alone, a cluster takes all others over, and their answers' slots go round as often as there are tiles.
        alone = number != 1 if kernel.scheduler.takes_over else bool(kernel.dealt) and number == 2
        where = [f"{aim.name} ({sizes})"] * (of != first) + ["one cluster after another"] * alone
        runs.append(Run(of, inputs, order, ctas, ", ".join(where), alone))
        if inputs == "compared":
            runs[-1:] = [replace(runs[-1], numbers=turn) for turn in turns_of(machine, of, numbers, SMALL)]
        if inputs == "beyond":
            kinds: tuple[Inputs, ...] = ("beyond", "other beyond") if has_lines_and_vectors(machine, of) else (inputs,)
            runs[-1:] = [replace(runs[-1], inputs=kind, numbers=(start,)) for start in starts for kind in kinds]
        if inputs == "blocks" and has_few_blocks(machine, of):
            runs.append(replace(runs[-1], inputs="other blocks"))
        if inputs == "lines" and has_few_lines(machine, of):
            runs.append(replace(runs[-1], inputs="other lines"))
        if inputs == "last" and has_single_lines(machine, of):
            runs.append(replace(runs[-1], inputs="other last"))
        if inputs == "neighbours" and has_few_neighbours(machine, of):
            runs.append(replace(runs[-1], inputs="other neighbours"))
        if inputs == "specials" and has_few_specials(machine, of):
            runs.append(replace(runs[-1], inputs="other specials"))
    return tuple(_distinct(runs))


def _ways(kernel: Kernel) -> list[tuple[Aim, Tiles]]:
    """What the first, the second and all later orders are for; the first alone uses every slot in both phases."""
    if not _goes_round(kernel):
        return [(DEEP, "edges")] * 3
    if kernel.goes_on:
        return [(AGAIN, "edges"), (DEEP, "row"), (WHOLE, "row")]
    return [(DEEP, "edges"), (WHOLE, "row"), (AGAIN, "row")]


def _ends(kernel: Kernel, machine: type[Machine]) -> Tiles:
    """The tiles of runs that are there for their inputs: which numbers a tile has decides little but at its ends.

    The first run has two tiles along every axis, of numbers that tell them apart. Where CTAs share tiles, look back at
    others or cut them where data say, all runs have them; and where rings do not go round, they cost nothing.
    """
    apart = kernel.dealt or kernel.slices > 1 or kernel.scheduler.takes_over or kernel.chained or of_integers(machine)
    return "edges" if apart or not _goes_round(kernel) else "ends"


def _goes_round(kernel: Kernel) -> bool:
    return any(r.stages > 1 or r.phases for r in kernel.rings)


def _short(kernel: Kernel) -> list[int]:
    """Slots that short tiles use: none, one, and one fewer than there are; loops without rings have a round less."""
    depths = {r.stages for r in kernel.rings if r.dims}
    return sorted({0, 1, *(d - 1 for d in depths)}, reverse=True) if kernel.steps else []


def _derived(kernel: Kernel, machine: type[Machine], problem: Problem, aim: Aim, tiles: Tiles) -> Problem:
    """The derived problem; where CTAs deal out the rounds, short pieces are those of tiles with more."""
    if kernel.dealt and aim.exactly is not None and aim is not TURNS:
        return derive(kernel, machine, problem, AGAIN, tiles)
    return derive(kernel, machine, problem, aim, tiles)


def _reached(kernel: Kernel, problem: Problem, aim: Aim) -> bool:
    """Whether some ring uses so many slots, or the loops without rings have a round at most."""
    rings = [r for r in kernel.rings if r.dims]
    if kernel.dealt:
        return bool(aim.exactly)
    if not rings:
        return aim.exactly == 1
    return any(int(r.slots_of(problem.dim)) == aim.exactly for r in rings)


def _ctas(kernel: Kernel, problem: Problem, aim: Aim, number: int) -> int:
    """CTAs of a run, as a rule so few that each takes its share of the tiles; some runs have more of them."""
    size = math.prod(kernel.clusters)
    tiles = kernel.tiles_of(problem) // size
    if kernel.dealt and aim is TURNS:
        return size
    if not kernel.dealt:
        each = tiles_per_cta(kernel, aim) if number % 4 < 3 else 2
        return max(tiles * kernel.slices // each, 1) * size
    if aim.exactly:
        return -(-tiles * kernel.rounds_of(problem) // aim.exactly) * size
    # Tiles that are dealt out evenly are shared by nobody; where shares begin at many places, so do the slots.
    few = max(2, tiles // tiles_per_cta(kernel, aim))
    counts = (range(2, few + 1), range(tiles + 1, 2 * tiles + 2), range(2, max(tiles, 2) + 1))[number % 3]
    rounds = kernel.rounds_of(problem)

    def worth(count: int) -> tuple[int, int]:
        pieces = _first_pieces(kernel, kernel.counts(problem), rounds, count)
        return _told(kernel, pieces), len(pieces)

    return max(counts, key=worth) * size


def ctas_of(kernel: Kernel, problem: Problem, number: int) -> int:
    """CTAs of the `number`-th run of a problem that is run as it is."""
    return _ctas(kernel, problem, DEEP, number)


def _told(kernel: Kernel, pieces: set[int]) -> int:
    """Of the wrong numbers of slots that are nearest to the right ones, how many show where a role passes over these.

    A role begins with the slots behind the first tile of the other, in the phase that they have then.
    """
    ends = [(r.stages, other) for r in kernel.rings if r.dims and r.phases for other in (r.stages - 1, r.stages + 1)]
    if kernel.turns == 1:
        return 0
    return sum(any((x // right - x // wrong) % 2 for x in pieces) for right, wrong in ends if wrong)


def _first_pieces(kernel: Kernel, tiles: tuple[int, ...], rounds: int, clusters: int) -> set[int]:
    """Rounds of the first tile of a cluster that goes on to others, where rounds are dealt out."""
    found = set()
    for cluster in range(clusters):
        run = Numbers(cluster, clusters, tiles, rounds)
        walk = kernel.scheduler.walk(run, (0, 1))
        taken = walk.items()
        if len(taken) > 1 and (dealt := walk.work(run, taken[0]).rounds) is not None:
            found.add(dealt[1])
    return found


def _distinct(runs: Sequence[Run]) -> Iterator[Run]:
    """Each run once, whatever it is for."""
    seen = set()
    for run in runs:
        key = (*run.posing, run.order, run.ctas, run.alone)
        if key not in seen:
            seen.add(key)
            yield run
