"""Builds the space of a machine: the arrow from Machine + problem + device to Space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tinygpu.cost.counting import count
from tinygpu.cost.counts import Counts
from tinygpu.devices import Device
from tinygpu.language.declared import Structure
from tinygpu.language.heuristic import Heuristic
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.trace import Trace, preferences, trace
from tinygpu.program.fill import Filler, filler
from tinygpu.program.program import Program
from tinygpu.spaces import Axis, Part, Space
from tinygpu.spaces.built import BuiltSpace
from tinygpu.spaces.part import SpaceError
from tinygpu.users_code import at, written_at


@dataclass(frozen=True, eq=False)
class MachineSpace(BuiltSpace):
    """The candidates of a machine, and what each part of their space was made from.

    structures   per part of the space: the structural choices
    traces       per part: the program and its constraints
    """

    machine: type[Machine]
    structures: tuple[Structure, ...]
    traces: tuple[Trace, ...]

    def _share(self, other: BuiltSpace) -> None:
        if isinstance(other, MachineSpace):
            other._counts.update(self._counts)

    def structure_index(self, point: Mapping[str, object]) -> int:
        """Which part a point belongs to."""
        names = tuple(c.name for c in self.machine.choices())
        return self.structures.index(tuple((k, point[k]) for k in names))

    def program(self, point: Mapping[str, int | str]) -> Program:
        """The program of one candidate."""
        index = self.structure_index(point)
        return self.fillers[index].fill({a: int(point[a]) for a in self.traces[index].axes})

    @cached_property
    def fillers(self) -> tuple[Filler, ...]:
        return tuple(_filler(t.program, frozenset(t.axes)) for t in self.traces)

    def counts(self, index: int) -> Counts:
        """The compiled counts of one part."""
        if index not in self._counts:
            counted = _count(self.traces[index].program, tuple(self.machine.heuristics))
            self._check_symbols(counted, index)
            self._counts[index] = counted
        return self._counts[index]

    def _check_symbols(self, counted: Counts, index: int) -> None:
        """Refuses counts that read what nothing here has a value for: costs of the machine's own may name anything."""
        known = self.environment.keys() | set(self.traces[index].axes)
        for name in sorted({name for e in counted.expressions for name in e.symbols} - known):
            own = [h for h in self.machine.heuristics if isinstance(h, Heuristic)]
            place = written_at(own[0].costs) if len(own) == 1 else self.machine._place_of("heuristics")
            named = " or ".join(map(str, own))
            sentence = (
                f"[{self.space.name}] a cost of {named} reads {name!r}, which is not a parameter, a dim, a tensor fact "
                "or a device figure here"
            )
            raise at(SpaceError(sentence), place)

    @cached_property
    def _counts(self) -> dict[int, Counts]:
        return {}


# Problems that differ in sizes alone have the same programs (`trace`): what is made of these is made once.
_count = lru_cache(maxsize=512)(count)
_filler = lru_cache(maxsize=512)(filler)


def build_space(machine: type[Machine], problem: Problem, device: Device) -> MachineSpace:
    """All candidates of `machine` for one problem on one device, one part per structure.

    A parameter that a structure does not use is no axis of it: the point shows the parameter's first value there.
    """
    environment = problem.environment() | {f"device.{k}": v for k, v in device.constants().items()}
    structures = tuple(machine.structures())
    traces = tuple(trace(machine, problem, s) for s in structures)
    parts = []
    for structure, traced in zip(structures, traces, strict=True):
        axes = tuple(Axis(p.name, p.values) for p in machine.params() if p.name in traced.axes)
        idle = {p.name: p.values[0] for p in machine.params() if p.name not in traced.axes}
        constraints = (*preferences(machine, problem, structure), *traced.constraints)
        parts.append(Part(dict(structure) | idle, axes, constraints, environment))
    space = Space(f"{machine.__name__} {problem} on {device.name}", tuple(parts), place=machine._place_of("program"))
    return MachineSpace(machine, problem, device, space, environment, structures, traces)
