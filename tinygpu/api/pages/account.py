"""All that the page of a machine says, as a value: its spaces, its best candidates, its smallest kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tinygpu.api.choosing import AnySpace, best_refined
from tinygpu.api.finalist import having
from tinygpu.api.layouts import Layouts, layouts_of_refined
from tinygpu.api.machines import family
from tinygpu.api.pages.source import Source, source_of
from tinygpu.api.pages.typical import small, typical
from tinygpu.cost.demand import Demand
from tinygpu.devices import device
from tinygpu.language.declared import Declared
from tinygpu.language.instruction import Instruction
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Problem
from tinygpu.language.trace import Trace
from tinygpu.program.statement import Statement
from tinygpu.program.tree import walk
from tinygpu.ptx.cards.collect import cards
from tinygpu.ptx.lowering.build import Built, build
from tinygpu.search.minimize import minimize
from tinygpu.search.plan_time import PlanTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import PlanSpace, space_of

DEVICES = ("a100", "rtx4090", "h100", "b200")
# Of machines for consumer Blackwell, which none of these run.
BESIDE = "rtx5090"
# Order in which memories are named, from the largest on.
MEMORIES = ("GMEM", "L2", "L1", "SMEM", "TMEM", "RMEM")


@dataclass(frozen=True, slots=True, eq=False)
class OnDevice:
    """What a machine or a plan can do on one device.

    point     the best predicted candidate; None where there is none
    sentence  where its time goes; where there is no candidate, what would have to hold
    demands   what its kernels ask for, one after another
    """

    asked: str
    space: AnySpace
    point: Mapping[str, int | str] | None
    seconds: float
    roofline_s: float
    sentence: str
    demands: tuple[Demand, ...] = ()

    @property
    def title(self) -> str:
        return self.space.device.name

    @property
    def share(self) -> float:
        """Of the roofline."""
        return self.roofline_s / self.seconds


@dataclass(frozen=True, slots=True, eq=False)
class Smallest:
    """The kernel with the fewest lines among the first candidates of every structure, for a small problem.

    steps  of a plan the problem and the kernel of each of its steps, by name; of a machine, one without a name
    """

    asked: str
    problem: Problem
    point: Mapping[str, int | str]
    steps: Mapping[str, tuple[Problem, Built]]

    @property
    def lines(self) -> int:
        return sum(len(built.kernel.ptx.splitlines()) for _, built in self.steps.values())


@dataclass(frozen=True, eq=False)
class Account:
    """One machine or plan, as its page tells it; what is predicted and lowered is worked out when it is asked for."""

    name: str
    machine: type[Declared]

    @staticmethod
    def of(name: str) -> Account:
        """Of a machine or a plan that ships."""
        (found,) = family(name).machines
        return Account(name, found)

    @cached_property
    def problem(self) -> Problem:
        return typical(self.name, self.machine)

    @cached_property
    def devices(self) -> tuple[OnDevice, ...]:
        """On every device of the index; and on one beside them, where no other runs the machine."""
        found = tuple(self._on(name) for name in DEVICES)
        return found if any(d.point is not None for d in found) else (*found, self._on(BESIDE))

    def _on(self, name: str) -> OnDevice:
        space = space_of(self.machine, self.problem, device(name))
        if not space.size:
            return OnDevice(name, space, None, 0, 0, space.space.conflict()[0].constraints[0].sentence)
        if isinstance(space, PlanSpace):
            objective = PlanTime(space)
            point = minimize(having(space, {}), objective).best
            if point is None:
                raise ValueError(f"{self.name} has no candidate on {name} that can be launched")
            whole = objective.prediction(point)
            asked = tuple(objective.demands(point).values())
            return OnDevice(name, space, point, whole.seconds, whole.roofline_s, whole.sentence(), asked)
        best = best_refined(space, {})[0][0]
        p, times = best.prediction, (float(best.prediction.seconds), float(best.prediction.roofline_s))
        return OnDevice(name, space, best.point, *times, p.sentence(), (best.demand(space),))

    @cached_property
    def first(self) -> OnDevice:
        """The first device on which there are candidates."""
        found = next((d for d in self.devices if d.point is not None), None)
        if found is None:
            sizes = ", ".join(f"{name}={size}" for name, size in self.problem.dims)
            raise ValueError(
                f"{self.name} has no candidate for {sizes} on any of {', '.join((*DEVICES, BESIDE))}; say in "
                "tinygpu/api/pages/typical.py for which sizes its page is made"
            )
        return found

    @cached_property
    def smallest(self) -> Smallest:
        problem, on = small(self.machine, self.problem), self.first.asked
        space = space_of(self.machine, problem, device(on))
        parts = (space.restrict(part.fixed) for part in space.space.parts)
        points = [some.space.at(0) for some in parts if some.size]
        if not points:
            raise ValueError(f"{self.name} has no candidate for its smallest kernel, {problem}, on {on}")
        cache = SolverCache()
        made = [Smallest(on, problem, point, _kernels(space, point, cache)) for point in points]
        return min(made, key=lambda kernel: kernel.lines)

    @cached_property
    def layouts(self) -> Mapping[str, Layouts]:
        """Those of the best candidate on the first device that has one, by step."""
        space, point = self.first.space, self.first.point or {}
        found = {}
        for step, (mine, its) in _steps(space, point).items():
            found[step] = layouts_of_refined(mine, best_refined(mine, its)[0][0])
        return found

    # -- what the class says ---------------------------------------------------------------------------------------
    @cached_property
    def source(self) -> Source:
        return source_of(self.machine)

    @cached_property
    def shared(self) -> tuple[tuple[type[Declared], Source], ...]:
        """Classes of machines from which it has declarations or methods, the nearest first, as they are written."""
        ours = (Machine, Plan, Declared, object)
        bases = (b for b in self.machine.__mro__[1:] if b not in ours and issubclass(b, Declared))
        return tuple((b, source_of(b)) for b in bases)

    @property
    def lines(self) -> int:
        """Lines in which it is written that are not blank: the class, and those in its file from which it derives; of a
        machine that a function makes, the call and the program.
        """
        here = (self.source, *(s for _, s in self.shared if s.file == self.source.file))
        return sum(1 for s in here for part in (s.declaration, s.program) for line in part.split("\n") if line.strip())

    @property
    def memories(self) -> tuple[str, ...]:
        """Memories in which its programs have tiles."""
        tiles = (t for s in self._statements() for t in (*s.reads, *s.writes))
        found = {str(t.memory) for t in tiles}
        # what warps exchange passes through shared memory, too
        found |= {c.source for trace in self._traces for c in trace.constraints} & set(MEMORIES)
        return (*(m for m in MEMORIES if m in found), *sorted(found - set(MEMORIES)))

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the cards of the instructions that its programs use, in their order; then those without a card."""
        used: dict[type, Instruction] = {type(i): i for s in self._statements() for i in s.instructions}
        named = {card.name: type(card.instruction) for card in cards()}
        own = sorted(i.label for kind, i in used.items() if kind not in named.values())
        return (*(name for name, kind in named.items() if kind in used), *own)

    @property
    def _traces(self) -> tuple[Trace, ...]:
        space = self.first.space
        spaces = space.signatures if isinstance(space, PlanSpace) else (space,)
        return tuple(trace for s in spaces for trace in s.traces)

    def _statements(self) -> Iterator[Statement]:
        for trace in self._traces:
            yield from walk(trace.program.body)


def _steps(space: AnySpace, point: Mapping[str, int | str]) -> dict[str, tuple[MachineSpace, Mapping[str, int | str]]]:
    """The space and the candidate of every step of a plan; of a machine its own, without a name."""
    if isinstance(space, PlanSpace):
        return {c.step.name: (c.space, c.point) for c in space.candidates(point)}
    return {"": (space, point)}


def _kernels(
    space: AnySpace, point: Mapping[str, int | str], cache: SolverCache
) -> dict[str, tuple[Problem, Built]]:
    return {
        name: (mine.problem, build(mine.program(its), mine.problem, its, cache))
        for name, (mine, its) in _steps(space, point).items()
    }
