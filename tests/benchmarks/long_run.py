"""A long run of random candidates.

    python -m tests.benchmarks.long_run JOURNAL [--cpu-seconds N] [--seed S] [--only MACHINE ...]

Every machine that ships, and every machine of a plan's steps, on a device of every generation that has its
instructions: problems with any sizes, types, orders, pitches, alignments and options that the machine takes, and of
each a candidate of one structure of its space. Each is lowered, assembled for its target where there is an assembler,
emulated with all checks on in three orders, and compared with its reference (`tinygpu.testing.judges`). Draws are
numbered, and number k is the same in every run with a seed: machines come in turn, and of each its devices, its
structures and the types of what decides the others; sizes and the rest are drawn. With --only the draws of other
machines are passed over, and those that are left keep their numbers.

JOURNAL has a line of JSON for each draw. A run that is started again goes on behind the last one, until the CPU time,
that of all runs together, is spent. At the end a table of the whole journal is printed (structures and types met, of
those that the machine has), another one of the kinds and groups of tcgen05.mma, and every failure with the command that
tries it again:

    python -m tests.benchmarks.long_run --again NUMBER MACHINE DEVICE --seed S

Exit code 1 where something failed.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np

from tests.benchmarks.draw_journal import Drawn, gone_on, spent
from tinygpu.api.machines import PLANS, SHIPPED, family, machines_of
from tinygpu.devices import device
from tinygpu.dtypes import DType
from tinygpu.language.machine import Machine
from tinygpu.language.problem import ProblemError
from tinygpu.program.nodes import Multiply
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing import Case
from tinygpu.testing.bench import draw_problems
from tinygpu.testing.draws import DEVICES, SeededDraw, draw_problem, dtypes_on_offer
from tinygpu.testing.judges import Judgement, judge
from tinygpu.testing.whole_problems import roomy_problem
from tinygpu.testing.workbench import Workbench

PROBLEMS_TRIED = 12  # until one has candidates
SPACES_TRIED = 4  # for the structure whose turn it is
TENSOR_PRODUCT = re.compile(r"tcgen05\.mma\.cta_group::(?P<group>\d)\.kind::(?P<kind>\w+)")
REFUSED = 1000  # problems that are drawn again: the machine refuses their sizes, or they are not of the type in turn


@dataclass(frozen=True, slots=True)
class Turn:
    """What a machine's draw is of: the structure of that number, and the type of that number for what decides others.

    Counted on over the draws of a machine, they meet all their pairs, and all pairs with devices, in time.
    """

    structure: int
    kind: int

    @staticmethod
    def of(count: int, machine: type[Machine]) -> Turn:
        """The machine's draw of that number."""
        structures, kinds = len(list(machine.structures())), len(deciding(machine)[1])
        every = kinds_shift(structures, kinds)
        return Turn(shifted(count, structures), (count + count // every) % kinds)


def shifted(count: int, structures: int) -> int:
    """The structure of a draw: one behind the other, and by one more each time that the devices would begin anew."""
    return (count + count // math.lcm(structures, len(DEVICES))) % structures


@cache
def kinds_shift(structures: int, kinds: int) -> int:
    """After how many draws types go on by one more, so that each of them meets every structure: the fewest."""
    draws, pairs = range(structures * kinds * len(DEVICES)), structures * kinds
    for every in range(max(structures, kinds, len(DEVICES)), len(draws) + 1):
        if len({(shifted(n, structures), (n + n // every) % kinds) for n in draws}) == pairs:
            return every
    raise ValueError(f"{structures} structures and {kinds} types do not meet in {len(draws)} draws")


def deciding(machine: type[Machine]) -> tuple[str, tuple[DType, ...]]:
    """The first tensor that has a choice of types, and these; where none has, the first one."""
    free = [t for t in machine.tensor_declarations() if t.follows is None]
    found = next((t for t in free if len(t.dtypes) > 1), free[0])
    return found.name, dtypes_on_offer(found, {})


def drawn_space(
    machine: type[Machine], on: str, turn: Turn, rng: np.random.Generator, bench: Workbench
) -> tuple[Case, MachineSpace, dict[str, str]] | None:
    """A problem with candidates on a device, and the structure that is tried; None where none was found.

    The structure is the one whose turn it is, or, where the problems that were tried have none of it, the next one.
    The type is the one whose turn it is unless no problem of it has candidates there.
    """
    tensor, kinds = deciding(machine)
    structures = [dict(s) for s in machine.structures()]
    asked, kind = structures[turn.structure], kinds[turn.kind]
    kept: list[tuple[Case, MachineSpace]] = []
    built = refused = 0
    while built < PROBLEMS_TRIED and len(kept) < SPACES_TRIED and refused < REFUSED:
        kinds_too = built < PROBLEMS_TRIED // 2  # the device may have no instruction for the type in turn
        try:
            problem = draw_problem(machine, SeededDraw(rng))
        except ProblemError:
            refused += 1
            continue
        if kinds_too and any(o.name == tensor and o.dtype != kind for o in problem.operands):
            refused += 1
            continue
        built += 1
        case = Case(machine, problem, device(on))
        try:
            space = case.space(bench)
            if not space.space.size:  # one odd operand forbids what the machine is made of
                case = replace(case, problem=roomy_problem(problem))
                space = case.space(bench)
        except ProblemError:
            continue
        if has(space, asked):
            return case, space, asked
        if space.space.size:
            kept.append((case, space))
    for case, space in kept:
        after = structures[turn.structure :] + structures[: turn.structure]
        return case, space, next(s for s in after if has(space, s))
    return None


def has(space: MachineSpace, structure: dict[str, str]) -> bool:
    """Whether a space has candidates of a structure."""
    return bool((space.space.restrict(structure) if structure else space.space).size)


@cache
def names() -> tuple[str, ...]:
    """Machines that ship, and those of plans as PLAN:CLASS, each once."""
    steps = {m: f"{plan}:{m.__name__}" for plan in reversed(PLANS) for m in machines_of(family(plan).machines[0])}
    own = {family(name).machines[0] for name in SHIPPED}
    return (*SHIPPED, *sorted(name for m, name in steps.items() if m not in own))


def shipped(name: str) -> type[Machine]:
    plan, _, step = name.partition(":")
    (found,) = family(plan).machines
    return next(m for m in machines_of(found) if step in ("", m.__name__))


@cache
def places(name: str) -> tuple[str, ...]:
    """The devices on which a machine has candidates of an easy problem."""
    machine = shipped(name)
    few = {dim: values[0] for dim, values in machine.dim_values().items() if values}
    follow = {dim.name for dim in machine.following_dims()}
    easy = {dim: 64 for dim in machine.dim_names() if dim not in follow} | few
    try:
        problems = [machine.problem(**easy)]
    except ProblemError:  # of sizes that hang together
        problems = list(draw_problems(machine, 8, np.random.default_rng(0)))
    return tuple(on for on in DEVICES if any(build_space(machine, p, device(on)).space.size for p in problems))


def tried(number: int, name: str, on: str, seed: int, bench: Workbench) -> Drawn:
    """One draw: its candidate before the judges."""
    begun = spent()
    rng = np.random.default_rng([seed, number])
    case, types, structure, products = "", "", "", ""
    judged: Judgement | None = None
    try:
        machine = shipped(name)
        found = drawn_space(machine, on, Turn.of(number // len(names()), machine), rng, bench)
        if found is None:
            return Drawn(number, name, on, "", "", "", "none", "", spent() - begun)
        posed, space, chosen = found
        types = " ".join(f"{o.name}:{o.dtype}" for o in posed.problem.operands)
        structure = " ".join(f"{k}={v}" for k, v in chosen.items())
        (point,) = (space.space.restrict(chosen) if chosen else space.space).sample(1, rng)
        posed = Case(posed.machine, posed.problem, posed.device, point)
        case = str(posed)
        products = ", ".join(sorted(set(tensor_products(space.program(point)))))
        judged = judge(posed, bench, seed=int(rng.integers(1 << 30)))
        stage, sentence = str(judged.stage), judged.sentence
    except Exception:
        stage, sentence = "crash", traceback.format_exc(limit=-3)
    drawn = Drawn(number, name, on, types, structure, case, stage, sentence, spent() - begun, products=products)
    return drawn if judged is None else with_judgement(drawn, judged)


def made(first: int, only: Sequence[str], seed: int, bench: Workbench) -> Iterator[Drawn]:
    """The draws from a number on, those of other machines left out."""
    for number in count(first):
        turn, which = divmod(number, len(names()))
        name = names()[which]
        if name in only:
            yield tried(number, name, places(name)[turn % len(places(name))], seed, bench)


def with_judgement(drawn: Drawn, judged: Judgement) -> Drawn:
    """The draw with what its judges counted."""
    orders = " ".join(check.order for check in judged.verification.checks) if judged.verification else ""
    return replace(drawn, registers=judged.registers, estimate=judged.estimate, spills=judged.spills, orders=orders)


def tensor_products(program: Program) -> Iterator[str]:
    """Kind and group of every tcgen05.mma, as "f16 1"."""
    for s in walk(program.body):
        if isinstance(s, Multiply):
            found = TENSOR_PRODUCT.match(s.instruction.text(s.a.dtype, s.b.dtype))
            if found:
                yield f"{found['kind']} {found['group']}"


def table(draws: Sequence[Drawn], seed: int) -> Iterator[str]:
    """The whole journal: by machine and device how many were right, what was met; then every failure."""
    yield "| machine | " + " | ".join(DEVICES) + " | structures | types | spill | s of CPU |"
    yield "| --- |" + " ---: |" * (len(DEVICES) + 4)
    for name in names():
        mine = [d for d in draws if d.machine == name]
        cells = []
        for on in DEVICES:
            there = Counter(d.stage for d in mine if d.on == on)
            failed = sum(d.failed for d in mine if d.on == on)
            right = f"{there['right']} right" if there["right"] else ("none" if there["none"] else "")
            cells.append(f"{right}, **{failed} failed**" if failed else right)
        judged = [d for d in mine if d.stage != "none"]
        machine = shipped(name)
        offered = {f"{t.name}:{kind}" for t in machine.tensor_declarations() for kind in t.dtypes}
        met = {word for d in judged for word in d.types.split()} & offered
        cells.append(f"{len({d.structure for d in judged})} of {len(list(machine.structures()))}")
        cells.append(f"{len(met)} of {len(offered)}")
        yield f"| `{name}` | {' | '.join(cells)} | {sum(d.spills for d in mine)} | {sum(d.cpu for d in mine):.0f} |"
    yield from table_of_products(draws)
    stages = Counter(d.stage for d in draws if d.stage != "none")
    whole = ", ".join(f"{count} {stage}" for stage, count in stages.most_common())
    yield f"\n{sum(stages.values())} candidates in {sum(d.cpu for d in draws):.0f} s of CPU: {whole or 'none'}"
    for d in draws:
        if d.failed:
            yield f"\n{d.number}: {d.case or d.machine + ' on ' + d.on}\n{d.stage}: {d.sentence}"
            yield f"    python -m tests.benchmarks.long_run --again {d.number} {d.machine} {d.on} --seed {seed}"


def table_of_products(draws: Sequence[Drawn]) -> Iterator[str]:
    """By kind and group of tcgen05.mma how many candidates were right, how many failed, and how many emulations they
    had in each order of asynchronous work; nothing without any.
    """
    cells = sorted({product for d in draws for product in d.products.split(", ") if product})
    if not cells:
        return
    orders = ("late", "early", "random", "spurious")
    yield f"\n| kind | group | right | failed | {' | '.join(orders)} | s of CPU |"
    yield "| --- |" + " ---: |" * (len(orders) + 4)
    for cell in cells:
        mine = [d for d in draws if cell in d.products.split(", ")]
        right, failed = sum(d.stage == "right" for d in mine), sum(d.failed for d in mine)
        emulated = Counter(order for d in mine for order in d.orders.split())
        counts = " | ".join(str(emulated[order]) for order in orders)
        yield f"| {cell.replace(' ', ' | ')} | {right} | {failed} | {counts} | {sum(d.cpu for d in mine):.0f} |"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A long run of random candidates of every machine that ships.")
    parser.add_argument("journal", type=Path, nargs="?", help="a line for each draw; a run goes on behind the last")
    parser.add_argument("--cpu-seconds", type=float, default=600.0, help="of all runs of the journal together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=names(), default=names(), metavar="MACHINE", help="of these alone")
    parser.add_argument(
        "--again", nargs=3, metavar=("NUMBER", "MACHINE", "DEVICE"), help="try one draw alone, and print all of it"
    )
    chosen = parser.parse_args(arguments)
    bench = Workbench()
    if chosen.again is not None:
        again, name, on = chosen.again
        one = tried(int(again), name, on, chosen.seed, bench)
        print(f"{one.case or one.machine + ' on ' + one.on}\n{one.stage} {one.sentence}")
        return int(one.failed)
    if chosen.journal is None:
        parser.error("a run needs a journal, or --again with the number of a draw")
    draws = gone_on(chosen.journal, chosen.cpu_seconds, lambda first: made(first, chosen.only, chosen.seed, bench))
    for line in table(draws, chosen.seed):
        print(line)
    return int(any(d.failed for d in draws))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
