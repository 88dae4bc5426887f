"""The bench on which a machine is checked: problems and devices on which it exists, candidates, all by one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.devices import Device, devices
from tinygpu.language.machine import Machine
from tinygpu.language.posing import problem as posed
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.spaces.build import MachineSpace
from tinygpu.testing.case import Case, shrink
from tinygpu.testing.cases import examine
from tinygpu.testing.draws import SIZES, SeededDraw, draw_problem
from tinygpu.testing.finding import Finding
from tinygpu.testing.report import Failure
from tinygpu.testing.variety import varied
from tinygpu.testing.whole_problems import roomy_problem
from tinygpu.testing.workbench import Allowance, Workbench
from tinygpu.users_code import with_place

Progress = Callable[[str], None]

# A machine that refuses this many drawn problems in a row has no family of problems to speak of.
REFUSALS = 200
# Problems that are drawn for each one that has a candidate, at most.
ATTEMPTS = 12
# Structures that are traced for types, orders and options beyond the default ones, over all problems.
TRACED = 24
# Points of each space among which candidates are chosen.
POOL = 48
# CPU seconds for the search of a smaller case, per failure.
SHRINKING_SECONDS = 2.0
# The oldest generation that kernels are emitted for.
OLDEST_CC = 80


@dataclass(frozen=True, slots=True, eq=False)
class Posing:
    """A problem on a device, and the space of it, which is not empty."""

    problem: Problem
    device: Device
    space: MachineSpace


@dataclass(slots=True, eq=False)
class Bench:
    """What the tiers share.

    posings     where the machine exists: problems on devices in turn, with their spaces
    elsewhere   devices on which it does not exist, with the reason
    empty       problems that it has no candidate for, with the reason (drawn ones were drawn again)
    broken      problems for which no space can be built, with the fault
    candidates  how many are drawn per check
    """

    machine: type[Machine]
    devices: tuple[Device, ...]
    candidates: int
    seed: int
    progress: Progress
    posings: tuple[Posing, ...] = ()
    elsewhere: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    broken: list[Failure] = field(default_factory=list)
    workbench: Workbench = field(default_factory=Workbench)

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(p.problem for p in self.posings)

    def rng(self, row: str) -> np.random.Generator:
        """Random numbers for one row of the report, whatever the others drew."""
        return np.random.default_rng([self.seed, *row.encode()])

    def spaces(self) -> Iterator[tuple[Case, MachineSpace]]:
        for p in self.posings:
            yield Case(self.machine, p.problem, p.device), p.space

    def draw(self, row: str, count: int | None = None) -> list[Case]:
        """Admitted candidates from the spaces in turn, chosen from random ones so that they differ in much."""
        rng = self.rng(row)
        pools = [(Case(self.machine, p.problem, p.device), p.space.space.sample(POOL, rng)) for p in self.posings]
        limits = [r.constraint("") for r in self.machine.requirements() if r.kind == "legality"]
        environments = [p.space.environment for p in self.posings]
        chosen = varied([points for _, points in pools], environments, limits, count or self.candidates)
        return [Case(c.machine, c.problem, c.device, point) for which, point in chosen for c in [pools[which][0]]]

    def failure(
        self, check: str, case: Case, finding: Finding, fails: Callable[[Case], bool] | None = None
    ) -> Failure:
        """A failure with the smallest case found that fails the same check."""
        self.progress(f"{check}: found something wrong, looking for a smaller case")
        question = fails or (lambda smaller: bool(self.examined(check, smaller).fault))
        smallest = shrink(case, question, self.workbench, Allowance.of(SHRINKING_SECONDS))
        return Failure(self.examined(check, smallest).fault or finding.fault, check, smallest)

    def examined(self, check: str, case: Case) -> Finding:
        try:
            return examine(check, case, self.workbench)
        except Exception as error:  # a machine's own code may raise anything; it is a finding
            return Finding(f"{type(error).__name__}: {with_place(error)}")


def open_bench(
    machine: type[Machine],
    asked: int | Sequence[Problem],
    on: Sequence[Device],
    candidates: int,
    seed: int,
    progress: Progress,
) -> Bench:
    """A bench with problems (so many, drawn; or given) on devices where the machine has candidates for them.

    Raises ProblemError where the machine refuses every problem that is drawn.
    """
    bench = Bench(machine, tuple(on), candidates, seed, progress)
    progress("looking for devices and problems on which the machine exists")
    bench.devices, bench.elsewhere = _where(machine, tuple(on), bench.workbench)
    if not bench.devices:
        return bench
    if isinstance(asked, int):
        _draw(bench, asked)
    else:
        for number, problem in enumerate(asked):
            for turn in range(len(bench.devices)):
                if _pose(bench, problem, bench.devices[(number + turn) % len(bench.devices)]):
                    break
    return bench


def _where(
    machine: type[Machine], on: tuple[Device, ...], workbench: Workbench
) -> tuple[tuple[Device, ...], dict[str, str]]:
    """The devices on which a structure of the machine exists, and why on the others none does.

    Where it exists on none that was named, the library's other devices are asked.
    """
    plain = posed(machine, machine.smallest_dims(), following=False)
    reasons: dict[str, str] = {}
    there = []
    for d in on:
        reason = _missing(machine, plain, d, workbench)
        if reason:
            reasons[d.name] = reason
        else:
            there.append(d)
    if not there and len(on) > 1:
        there = [d for d in devices() if d.cc >= OLDEST_CC and not _missing(machine, plain, d, workbench)][-1:]
    return tuple(there), reasons


def _missing(machine: type[Machine], plain: Problem, device: Device, workbench: Workbench) -> str:
    """What the device lacks for every structure; "" where one of them exists on it."""
    try:
        space = workbench.space(machine, plain, device)
    except Exception:  # tier 1 says what is wrong with the program
        return ""
    reasons = []
    for part in space.space.parts:
        broken = part.violations({}, [c for c in part.constraints if _about_device(c)])
        if not broken:
            return ""
        reasons.append(str(broken[0]))
    return reasons[0]


def _about_device(c: Constraint) -> bool:
    return bool(c.condition.symbols) and all(name.startswith("device.") for name in c.condition.symbols)


def _draw(bench: Bench, count: int) -> None:
    """Draws problems until so many have candidates; those that have none are noted."""
    draw = SeededDraw(bench.rng("problems"))
    kinds = max(2, min(count, TRACED // max(1, len(list(bench.machine.structures())))))
    traced: list[Problem] = []
    refused = attempts = 0
    while len(bench.posings) < count and attempts < ATTEMPTS * count and len(bench.broken) < count:
        like = draw(traced) if len(traced) >= kinds else None
        try:
            problem = draw_problem(bench.machine, draw, SIZES, plain=not traced, like=like)
        except ProblemError:
            refused += 1
            if refused > REFUSALS * (1 + len(bench.posings)):
                raise
            continue
        attempts += 1
        on = bench.devices[len(bench.posings) % len(bench.devices)]
        # One odd operand forbids what the machine is made of: the same sizes, with rows and pointers as it wants them.
        found = _pose(bench, problem, on) or _pose(bench, roomy_problem(problem), on, again=True)
        if like is None and (found or len(traced) < kinds - 1):
            traced.append(problem)


def _pose(bench: Bench, problem: Problem, on: Device, *, again: bool = False) -> bool:
    """Whether the problem has candidates on the device, and then is one of the bench's."""
    case = Case(bench.machine, problem, on)
    finding = bench.examined("traces", case)
    if finding.fault:
        if not again:
            bench.broken.append(Failure(f"{case}: {finding.fault}", "traces", case))
        return False
    space = case.space(bench.workbench)
    if not space.space.size:
        if not again:
            conflict = space.space.conflict()[0]
            reasons = [f"{case} has no candidate: {conflict}", *space.written(conflict.constraints)]
            bench.empty.append("; ".join(reasons))
        return False
    bench.posings = (*bench.posings, Posing(problem, on, space))
    return True


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """The first `count` cases, spread evenly over all."""
    if len(cases) <= count:
        return list(cases)
    return [cases[i * len(cases) // count] for i in range(count)]


def draw_problems(machine: type[Machine], count: int, rng: np.random.Generator) -> tuple[Problem, ...]:
    """Problems that the machine takes. Raises ProblemError where it refuses all that are drawn."""
    draw = SeededDraw(rng)
    out: list[Problem] = []
    refused = 0
    while len(out) < count:
        try:
            out.append(draw_problem(machine, draw, SIZES))
        except ProblemError:
            refused += 1
            if refused > REFUSALS * (1 + len(out)):
                raise
    return tuple(out)
