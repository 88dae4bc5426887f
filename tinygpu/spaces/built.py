"""A space of candidates with what it was built for: the part that spaces of machines and of plans have in common."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.devices import Device
from tinygpu.language.declared import Declared
from tinygpu.language.problem import Problem
from tinygpu.notebook import html as notebook
from tinygpu.seeds import check_seed
from tinygpu.spaces import Space
from tinygpu.spaces.part import Choice


@dataclass(frozen=True, eq=False)
class BuiltSpace:
    """The candidates of a machine or of a plan, for one problem on one device.

    What is asked most of its `space` can be asked of itself: how many candidates there are, which, and at random.

    environment  dims, tensor facts and device figures, by the names that expressions use
    """

    machine: type[Declared]
    problem: Problem
    device: Device
    space: Space
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

    def restrict(self, choices: Mapping[str, Choice | Iterable[Choice]]) -> Self:
        """The space of the candidates with these values, one or several per name; SpaceError for a wrong name."""
        some = self.space.restrict(choices)
        said = ", ".join(f"{n}={v if isinstance(v, int | str) else sorted(v)}" for n, v in choices.items())
        other = replace(self, space=replace(some, name=f"{some.name} with {said}") if said else some)
        self._share(other)
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

    def on(self, device: Device) -> Self:
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
        self._share(other)
        return other

    def written(self, constraints: Iterable[Constraint | None]) -> tuple[str, ...]:
        """Sentences of where the user wrote those of the constraints that are theirs; their machine, where none is."""
        places = {c.name: c.place for c in constraints if c is not None and c.place}
        if not places and (own := self.machine._own_place()):
            places[self.machine.__name__] = own
        return tuple(f"{name} is written at {place}" for name, place in places.items())

    def _share(self, other: BuiltSpace) -> None:
        """Gives a space of the same points what was worked out for this one."""
