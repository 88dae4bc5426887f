"""All that the page of a machine says, as a value: its spaces, its best candidates, its smallest kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tinygpu.api.choosing import best_refined
from tinygpu.api.layouts import Layouts, layouts_of_refined
from tinygpu.api.machines import family
from tinygpu.api.pages.source import Source, source_of
from tinygpu.api.pages.typical import small, typical
from tinygpu.devices import device
from tinygpu.language.instruction import Instruction
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.program.statement import Statement
from tinygpu.program.tree import walk
from tinygpu.ptx.cards.collect import cards
from tinygpu.ptx.lowering.build import Built, build
from tinygpu.search.refine import Refined
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

DEVICES = ("a100", "rtx4090", "h100", "h200")
# Order in which memories are named, from the largest on.
MEMORIES = ("GMEM", "L2", "L1", "SMEM", "TMEM", "RMEM")


@dataclass(frozen=True, slots=True, eq=False)
class OnDevice:
    """What a machine can do on one device.

    best  the best predicted candidate; None where there is none
    why   what would have to hold, then
    """

    asked: str
    space: MachineSpace
    best: Refined | None
    why: str

    @property
    def title(self) -> str:
        return self.space.device.name

    @property
    def seconds(self) -> float:
        assert self.best is not None, self.why
        return float(self.best.prediction.seconds)

    @property
    def roofline_s(self) -> float:
        assert self.best is not None, self.why
        return float(self.best.prediction.roofline_s)

    @property
    def share(self) -> float:
        """Of the roofline."""
        return self.roofline_s / self.seconds


@dataclass(frozen=True, slots=True, eq=False)
class Smallest:
    """The kernel with the fewest lines among the first candidates of every structure, for a small problem."""

    asked: str
    problem: Problem
    point: Mapping[str, int | str]
    built: Built

    @property
    def lines(self) -> int:
        return len(self.built.kernel.ptx.splitlines())


@dataclass(frozen=True, eq=False)
class Account:
    """One machine, as its page tells it; what is predicted and lowered is worked out when it is asked for."""

    name: str
    machine: type[Machine]

    @staticmethod
    def of(name: str) -> Account:
        """Of a machine that ships."""
        (found,) = family(name).machines
        if not issubclass(found, Machine):
            raise TypeError(f"{name} is no machine of one kernel")
        return Account(name, found)

    @cached_property
    def problem(self) -> Problem:
        return typical(self.name, self.machine)

    @cached_property
    def devices(self) -> tuple[OnDevice, ...]:
        return tuple(self._on(name) for name in DEVICES)

    def _on(self, name: str) -> OnDevice:
        space = build_space(self.machine, self.problem, device(name))
        if space.size:
            return OnDevice(name, space, best_refined(space, {})[0][0], "")
        return OnDevice(name, space, None, space.space.conflict()[0].constraints[0].sentence)

    @property
    def first(self) -> OnDevice:
        """The first device on which there are candidates."""
        found = next((d for d in self.devices if d.best is not None), None)
        if found is None:
            sizes = ", ".join(f"{name}={size}" for name, size in self.problem.dims)
            raise ValueError(
                f"{self.name} has no candidate for {sizes} on any of {', '.join(DEVICES)}; say in "
                "tinygpu/api/pages/typical.py for which sizes its page is made"
            )
        return found

    @cached_property
    def smallest(self) -> Smallest:
        problem, on = small(self.machine, self.problem), self.first.asked
        space = build_space(self.machine, problem, device(on))
        points = [some.space.at(0) for s in space.structures if (some := space.restrict(dict(s))).size]
        if not points:
            raise ValueError(f"{self.name} has no candidate for its smallest kernel, {problem}, on {on}")
        cache = SolverCache()
        made = [(point, build(space.program(point), problem, point, cache)) for point in points]
        point, built = min(made, key=lambda pair: len(pair[1].kernel.ptx.splitlines()))
        used = {**{c.name: point[c.name] for c in self.machine.choices()}, **point}
        return Smallest(on, problem, used, built)

    @cached_property
    def layouts(self) -> Layouts:
        """Those of the best candidate on the first device that has one."""
        assert self.first.best is not None
        return layouts_of_refined(self.first.space, self.first.best)

    # -- what the class says ---------------------------------------------------------------------------------------
    @cached_property
    def source(self) -> Source:
        return source_of(self.machine)

    @cached_property
    def shared(self) -> tuple[tuple[type[Machine], Source], ...]:
        """Classes of machines from which it has declarations or methods, the nearest first, as they are written."""
        bases = (b for b in self.machine.__mro__[1:] if issubclass(b, Machine) and b is not Machine)
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
        found |= {c.source for trace in self.first.space.traces for c in trace.constraints} & set(MEMORIES)
        return (*(m for m in MEMORIES if m in found), *sorted(found - set(MEMORIES)))

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the cards of the instructions that its programs use, in their order; then those without a card."""
        used: dict[type, Instruction] = {type(i): i for s in self._statements() for i in s.instructions}
        named = {card.name: type(card.instruction) for card in cards()}
        own = sorted(i.label for kind, i in used.items() if kind not in named.values())
        return (*(name for name, kind in named.items() if kind in used), *own)

    def _statements(self) -> Iterator[Statement]:
        for trace in self.first.space.traces:
            yield from walk(trace.program.body)

