"""Builds the space of a machine: the arrow from Machine + problem + device to Space."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.cost.counting import Counts, count
from tinygpu.devices import Device
from tinygpu.language.declared import Structure
from tinygpu.language.heuristic import Heuristic
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.trace import Trace, preferences, trace
from tinygpu.notebook import html as notebook
from tinygpu.program.fill import Filler, filler
from tinygpu.program.program import Program
from tinygpu.seeds import check_seed
from tinygpu.spaces import Axis, Part, Space
from tinygpu.spaces.part import Choice, SpaceError
from tinygpu.users_code import at, written_at


@dataclass(frozen=True, eq=False)
class MachineSpace:
    """The candidates of a machine for one problem on one device, and what each part of their space was made from.

    What is asked most of its `space` can be asked of itself: how many candidates there are, which, and at random.

    structures   per part of the space: the structural choices
    traces       per part: the program and its constraints
    environment  dims, tensor facts and device figures, by the names that expressions use
    """

    machine: type[Machine]
    problem: Problem
    device: Device
    space: Space
    structures: tuple[Structure, ...]
    traces: tuple[Trace, ...]
    environment: dict[str, int]

    def __post_init__(self) -> None:
        # The space knows whose it is: a strategy is handed the space alone, and may look at the machine behind it.
        object.__setattr__(self, "space", replace(self.space, origin=self))

    # -- what there is to choose from ------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of candidates, exact, without listing them. Raises `TooLarge`."""
        return self.space.size

    @property
    def parameters(self) -> dict[str, tuple[Choice, ...]]:
        """Name -> the values with which there are candidates; none where there is no candidate."""
        return {name: self.space.legal_values({}, name) for name in self.space.names}

    def sample(self, count: int, seed: int = 0) -> tuple[dict[str, Choice], ...]:
        """So many candidates, each drawn uniformly from all. Raises SpaceError where there is none."""
        check_seed(seed)
        return self.space.sample(count, np.random.default_rng(seed))

    def restrict(self, choices: Mapping[str, Choice | Iterable[Choice]]) -> MachineSpace:
        """The space of the candidates with these values, one or several per name; SpaceError for a wrong name."""
        some = self.space.restrict(choices)
        said = ", ".join(f"{n}={v if isinstance(v, int | str) else sorted(v)}" for n, v in choices.items())
        other = replace(self, space=replace(some, name=f"{some.name} with {said}") if said else some)
        other._counts.update(self._counts)
        return other

    def __contains__(self, point: object) -> bool:
        return point in self.space

    def __iter__(self) -> Iterator[dict[str, Choice]]:
        return self.space.points()

    def removed(self) -> dict[tuple[str, str, str], int]:
        """(constraint, kind, what brings it) -> points that it removes of those that the ones before it left."""
        out: Counter[tuple[str, str, str]] = Counter()
        for row in self.space.funnel:
            out[row.name.partition(" (")[0], row.kind, row.source] += row.removed
        return {key: count for key, count in out.items() if count}

    def __str__(self) -> str:
        lines = [f"{self.space.name}: {self.size:,} of {self.space.raw_size:,} points are left"]
        width = max((len(name) for name, *_ in self.removed()), default=0)
        lines += [f"  {name:<{width}}  {kind:<9}  -{gone:,}" for (name, kind, _), gone in self.removed().items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """What is left behind each constraint, on a logarithmic scale, and how many points each removes."""
        left, before = {}, self.space.raw_size
        removed = self.removed()
        for (name, *_), gone in removed.items():
            before -= gone
            left[name] = before
        whole = math.log1p(self.space.raw_size)
        title = f"{self.space.name}: {self.size:,} of {self.space.raw_size:,} points are left"
        shares = {name: math.log1p(count) / whole if whole else 0.0 for name, count in left.items()}
        picture = notebook.bars("points left behind each constraint", shares, {n: f"{c:,}" for n, c in left.items()})
        rows = [(*key, f"{gone:,}") for key, gone in removed.items()]
        listed = notebook.table(("constraint", "kind", "brought by", "points removed>"), rows)
        return notebook.paragraph(title) + picture + notebook.folded("constraints", listed)

    # -- what lies behind it ---------------------------------------------------------------------------------------

    def on(self, device: Device) -> MachineSpace:
        """The same points on a device with other rates; what was counted for them is kept.

        Raises ValueError where a limit differs, since other points would be admitted.
        """
        limits = self.device.constants()
        differing = [name for name, number in device.constants().items() if limits.get(name) != number]
        if differing:
            raise ValueError(
                f"[{self.space.name}] {device.name} has another {differing[0]} than {self.device.name}; build its space"
            )
        other = replace(self, device=device)
        other._counts.update(self._counts)
        return other

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
        return tuple(filler(t.program, frozenset(t.axes)) for t in self.traces)

    def counts(self, index: int) -> Counts:
        """The compiled counts of one part."""
        if index not in self._counts:
            counted = count(self.traces[index].program, self.machine.heuristics)
            self._check_symbols(counted, index)
            self._counts[index] = counted
        return self._counts[index]

    def written(self, constraints: Iterable[Constraint | None]) -> tuple[str, ...]:
        """Sentences of where the user wrote those of the constraints that are theirs; their machine, where none is."""
        places = {c.name: c.place for c in constraints if c is not None and c.place}
        if not places and (own := self.machine._own_place()):
            places[self.machine.__name__] = own
        return tuple(f"{name} is written at {place}" for name, place in places.items())

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
    return MachineSpace(machine, problem, device, space, structures, traces, environment)
