"""A long run of random candidates that multiply by tcgen05.mma, by turns over its kinds and groups.

    python -m tests.benchmarks.product_run JOURNAL [--cpu-seconds N] [--seed S]

It is of every machine, of those that ship and of plans' steps, that multiplies so. What a product is, f16 or mxf4, of
one CTA or of a pair, follows from the machine, the types of its operands and its structure; each kind and group has
as many draws. Draws are numbered, and number k is the same in every run with a seed. TOGETHER of them, one behind the
other, are of one problem, so that its space is built once: machines and types that have the product come by turns, in
an order that is drawn anew each time all have had theirs; sizes, orders, pitches, alignments and options are drawn.
Structures that have the product come by turns too, and of each a point is drawn.

Each candidate is lowered, and one of the runs that verify it is emulated with all checks on and compared with its
reference: which one is drawn, and with it the order of asynchronous work, the inputs, and how often rings go round (see
`tinygpu.ptx.verification.plan`). Every WHOLE-th of a kind and group goes the whole way of `tests.benchmarks.long_run`:
it is assembled where there is an assembler, and all of its runs are emulated.

JOURNAL has a line of JSON for each draw. A run that is started again goes on behind the last one, until the CPU time,
that of all runs together, is spent. At the end a table by kind and group is printed, and every failure with the command
that tries it again:

    python -m tests.benchmarks.product_run --again NUMBER --seed S

Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import count
from pathlib import Path

import numpy as np

from tests.benchmarks.draw_journal import Drawn, gone_on, spent
from tests.benchmarks.long_run import (
    REFUSED,
    deciding,
    names,
    shipped,
    table_of_products,
    tensor_products,
    with_judgement,
)
from tinygpu.devices import Device, device
from tinygpu.dtypes import DType
from tinygpu.language.declared import Structure
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.language.trace import trace
from tinygpu.ptx.isa import Tcgen05Mma
from tinygpu.spaces.build import build_space
from tinygpu.spaces.space import Space
from tinygpu.testing import Case
from tinygpu.testing.draws import DEVICES, SIZES, SeededDraw, draw_problem
from tinygpu.testing.judges import judge
from tinygpu.testing.whole_problems import roomy_problem
from tinygpu.testing.workbench import Workbench

TOGETHER = 10  # candidates of one problem
PROBLEMS_TRIED = 8  # of a machine and a type, until one has candidates
OF_ANY_SIZES = 2  # so many of them; others have roomy rows, and half of their dims are whole rows of packed types
WHOLE_ROWS = (128, 256, 384)  # elements
WHOLE = 20  # of so many candidates of a kind and group one has all its runs


@dataclass(frozen=True, slots=True)
class Way:
    """What has a product: a machine with a type of what decides its other types."""

    machine: str
    kind: DType


def product_of(machine: type[Machine], problem: Problem, structure: Structure) -> str:
    """Kind and group of a structure's tcgen05.mma, as "f16 1"; several with commas between."""
    return ", ".join(sorted(set(tensor_products(trace(machine, problem, structure).program))))


@cache
def ways() -> dict[str, tuple[Way, ...]]:
    """Product -> all that has it on some device, by what easy problems trace to."""
    found: dict[str, dict[Way, None]] = {}
    for name in names():
        machine = shipped(name)
        if not machine.declarations(Tcgen05Mma):
            continue
        decides, kinds = deciding(machine)
        for kind in kinds:
            for structure in machine.structures():
                product = product_of(machine, easy_problem(machine, {decides: kind.name}), structure)
                found.setdefault(product, {})[Way(name, kind)] = None
    return {product: tuple(found[product]) for product in sorted(found)}


def easy_problem(machine: type[Machine], dtypes: dict[str, str]) -> Problem:
    """A problem with a type, and sizes that are tiles of something."""
    follow = {dim.name for dim in machine.following_dims()}
    few = {dim: values[0] for dim, values in machine.dim_values().items() if values}
    return machine.problem(**{dim: 64 for dim in machine.dim_names() if dim not in follow} | few, dtypes=dtypes)


@cache
def place(machine: type[Machine]) -> Device:
    """The newest of the devices on which a machine has candidates of an easy problem."""
    devices = (device(on) for on in reversed(DEVICES))
    return next(on for on in devices if build_space(machine, easy_problem(machine, {}), on).space.size)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a draw is of: the product, and how many of its problems, and of its candidates, were before."""

    product: str
    problems: int
    candidates: int

    @staticmethod
    def of(number: int) -> Turn:
        block, place = divmod(number, TOGETHER)
        problems, which = divmod(block, len(ways()))
        return Turn(tuple(ways())[which], problems, problems * TOGETHER + place)

    @property
    def stream(self) -> tuple[int, int]:
        """What its problem is drawn by, beside the seed."""
        return tuple(ways()).index(self.product), self.problems

    def ways(self, seed: int) -> tuple[Way, ...]:
        """The machine and type whose turn it is, and those after it."""
        among = ways()[self.product]
        again, place = divmod(self.problems, len(among))
        order = np.random.default_rng([seed, self.stream[0], again]).permutation(len(among))
        return tuple(among[which] for which in (*order[place:], *order[:place]))


@dataclass(frozen=True, slots=True)
class Posed:
    """A problem on a device, and its structures with candidates that have the product, with the space of each."""

    case: Case
    structures: tuple[tuple[Structure, Space], ...]


@lru_cache(maxsize=1)
def posed(product: str, stream: tuple[int, int], among: tuple[Way, ...], seed: int, bench: Workbench) -> Posed | None:
    """A problem with candidates that have a product, of the first way where one is found; None where there is none."""
    rng = np.random.default_rng([seed, *stream])
    for way in among:
        machine = shipped(way.machine)
        for case in problems(way, product, rng):
            whole = case.space(bench).space
            having = [s for s in machine.structures() if product_of(machine, case.problem, s) == product]
            spaces = [(s, whole.restrict(dict(s)) if s else whole) for s in having]
            found = tuple((s, space) for s, space in spaces if space.size)
            if found:
                return Posed(case, found)
    return None


def problems(way: Way, product: str, rng: np.random.Generator) -> Iterator[Case]:
    """Problems of a machine and a type with structures that have a product: as drawn, and with roomy rows."""
    machine, drawn = shipped(way.machine), 0
    decides, _ = deciding(machine)
    for _ in range(REFUSED):
        sizes = SIZES if drawn < OF_ANY_SIZES else (*SIZES, *WHOLE_ROWS * (len(SIZES) // len(WHOLE_ROWS)))
        try:
            problem = draw_problem(machine, SeededDraw(rng), sizes)
        except ProblemError:
            continue
        if problem.operand(decides).dtype != way.kind:
            continue
        if not any(product_of(machine, problem, s) == product for s in machine.structures()):
            continue
        if drawn < OF_ANY_SIZES:
            yield Case(machine, problem, place(machine))
        yield Case(machine, roomy_problem(problem), place(machine))
        drawn += 1
        if drawn == PROBLEMS_TRIED:
            return


def tried(number: int, seed: int, bench: Workbench) -> Drawn:
    """One draw: its candidate before the judges."""
    begun, turn, rng = spent(), Turn.of(number), np.random.default_rng([seed, number])
    among = turn.ways(seed)
    drawn = Drawn(number, among[0].machine, place(shipped(among[0].machine)).name, "", "", "", "none", "", 0.0)
    try:
        found = posed(turn.product, turn.stream, among, seed, bench)
        if found is None:
            return replace(drawn, cpu=spent() - begun)
        structure, space = found.structures[turn.candidates % len(found.structures)]
        (point,) = space.sample(1, rng)
        case = replace(found.case, point=point)
        drawn = replace(
            drawn, machine=next(name for name in names() if shipped(name) is case.machine), products=turn.product,
            types=" ".join(f"{o.name}:{o.dtype}" for o in case.problem.operands),
            structure=" ".join(f"{k}={v}" for k, v in structure), case=str(case),
        )  # fmt: skip
        judging, only = (int(n) for n in rng.integers(1 << 30, size=2))
        judged = judge(case, bench, seed=judging, only=None if turn.candidates % WHOLE == WHOLE - 1 else only)
        drawn = with_judgement(replace(drawn, stage=str(judged.stage), sentence=judged.sentence), judged)
    except Exception:
        drawn = replace(drawn, stage="crash", sentence=traceback.format_exc(limit=-3))
    return replace(drawn, cpu=spent() - begun)


def made(first: int, seed: int, bench: Workbench) -> Iterator[Drawn]:
    """The draws from a number on."""
    ways()  # once for all draws: no part of the first one's time
    yield from (tried(number, seed, bench) for number in count(first))


def table(draws: Sequence[Drawn], seed: int) -> Iterator[str]:
    """By kind and group what became of the candidates; by machine how many there were; then every failure."""
    yield from table_of_products(draws)
    stages = Counter(d.stage for d in draws)
    whole = ", ".join(f"{count} {stage}" for stage, count in stages.most_common())
    problems = len({d.number // TOGETHER for d in draws if d.case})
    emulations = sum(len(d.orders.split()) for d in draws)
    yield (
        f"\n{len(draws)} draws of {problems} problems in {sum(d.cpu for d in draws):.0f} s of CPU, "
        f"{emulations} emulations: {whole or 'none'}"
    )
    machines = Counter(d.machine for d in draws if d.stage != "none")
    yield ", ".join(f"{count} of {name}" for name, count in machines.most_common())
    for d in draws:
        if d.failed:
            yield f"\n{d.number}: {d.case or d.machine + ' on ' + d.on}\n{d.stage}: {d.sentence}"
            yield f"    python -m tests.benchmarks.product_run --again {d.number} --seed {seed}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A long run of random candidates of every kind of tcgen05.mma.")
    parser.add_argument("journal", type=Path, nargs="?", help="a line for each draw; a run goes on behind the last")
    parser.add_argument("--cpu-seconds", type=float, default=600.0, help="of all runs of the journal together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=int, metavar="NUMBER", help="try one draw alone, and print all of it")
    chosen = parser.parse_args(arguments)
    bench = Workbench()
    if chosen.again is not None:
        one = tried(chosen.again, chosen.seed, bench)
        print(f"{one.case or one.machine + ' on ' + one.on}\n{one.stage} {one.sentence}")
        return int(one.failed)
    if chosen.journal is None:
        parser.error("a run needs a journal, or --again with the number of a draw")
    draws = gone_on(chosen.journal, chosen.cpu_seconds, lambda first: made(first, chosen.seed, bench))
    for line in table(draws, chosen.seed):
        print(line)
    return int(any(d.failed for d in draws))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
