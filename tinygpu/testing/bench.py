"""The bench on which a machine is checked: its problems, devices, spaces and candidates, drawn by one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tinygpu.devices import Device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.case import Case, shrink
from tinygpu.testing.cases import examine
from tinygpu.testing.draws import SIZES, SeededDraw, draw_problem
from tinygpu.testing.report import Failure

Progress = Callable[[str], None]

# A machine that refuses this many drawn problems in a row has no family of problems to speak of.
REFUSALS = 200


@dataclass(slots=True, eq=False)
class Bench:
    """What the tiers share.

    problems    drawn or given
    devices     the first is the one on which problems are taken in turn
    candidates  how many are drawn per check
    """

    machine: type[Machine]
    problems: tuple[Problem, ...]
    devices: tuple[Device, ...]
    candidates: int
    rng: np.random.Generator
    progress: Progress
    cache: SolverCache = field(default_factory=SolverCache)
    built: dict[tuple[int, str], MachineSpace] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)

    def space(self, index: int, device: Device) -> MachineSpace | None:
        """The space of one problem on one device; None where it cannot be built (tier 1 says why)."""
        if index in self.broken:
            return None
        key = (index, device.name)
        if key not in self.built:
            case = Case(self.machine, self.problems[index], device)
            fault = examine("traces", case, self.cache)
            if fault:
                self.broken[index] = fault
                return None
            self.built[key] = build_space(self.machine, self.problems[index], device)
        return self.built[key]

    def spaces(self) -> Iterator[tuple[Case, MachineSpace]]:
        """Every problem, each on the next device in turn."""
        for index, problem in enumerate(self.problems):
            device = self.devices[index % len(self.devices)]
            space = self.space(index, device)
            if space is not None:
                yield Case(self.machine, problem, device), space

    def draw(self, count: int | None = None) -> list[Case]:
        """Admitted candidates, drawn uniformly from the spaces in turn."""
        pairs = [(case, space) for case, space in self.spaces() if space.space.size]
        out: list[Case] = []
        for number in range((count or self.candidates) if pairs else 0):
            case, space = pairs[number % len(pairs)]
            (point,) = space.space.sample(1, self.rng)
            out.append(Case(case.machine, case.problem, case.device, point))
        return out

    def failure(self, check: str, case: Case, sentence: str, fails: Callable[[Case], bool] | None = None) -> Failure:
        """A failure with the smallest case found that fails the same check."""
        self.progress(f"{check}: found something wrong, looking for a smaller case")
        question = fails or (lambda smaller: bool(examine(check, smaller, self.cache)))
        smallest = shrink(case, question)
        return Failure(examine(check, smallest, self.cache) or sentence, check, smallest)


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


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """The first `count` cases, spread evenly over all."""
    if len(cases) <= count:
        return list(cases)
    return [cases[i * len(cases) // count] for i in range(count)]
