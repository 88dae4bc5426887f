"""A part of a space: one choice of structure, with its axes, its constraints and the numbers of its problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.condition import DivisorNotPositive, conjuncts
from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import Violation, find_violation
from tinygpu.spaces.exact import exact_type
from tinygpu.users_code import at

Choice: TypeAlias = "int | str"
Point: TypeAlias = "Mapping[str, Choice]"


class SpaceError(ValueError):
    """A space that makes no sense as declared, or a question about it that has no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A finite choice: a name and its values, non-negative integers or words, each once."""

    name: str
    values: tuple[Choice, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise SpaceError(f"[{self.name}] a parameter needs at least one value")
        for value in self.values:
            if isinstance(value, bool) or not isinstance(value, (int, str)) or (isinstance(value, int) and value < 0):
                raise SpaceError(
                    f"[{self.name}] {value!r} is not a value of a parameter; values are non-negative integers or words"
                )
        if len(set(self.values)) != len(self.values):
            twice = next(v for v in self.values if self.values.count(v) > 1)
            raise SpaceError(f"[{self.name}] the value {twice!r} is listed twice; list each value once")

    @property
    def numeric(self) -> bool:
        """Whether constraints can read it."""
        return all(isinstance(v, int) for v in self.values)

    def array(self) -> NDArray[Any]:
        """(values,) the values of a numeric axis: 64-bit, or Python integers where 64 bits are too narrow."""
        numbers = [int(v) for v in self.values]
        return np.array(numbers, dtype=exact_type(max(numbers)))

    def __str__(self) -> str:
        return f"{self.name} in {{{', '.join(str(v) for v in self.values)}}}"


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The points that share one structure: `fixed` values, and all combinations of `axes` that satisfy `constraints`.

    fixed        structural choices; integers may be read by constraints, words may not
    axes         what is left open
    constraints  conditions over the axes, integers in `fixed`, and the environment
    environment  dims ("m"), tensor facts ("a.ld"), device figures ("device.max_smem_per_block_optin")
    """

    fixed: Mapping[str, Choice] = field(default_factory=dict)
    axes: tuple[Axis, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    environment: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(self.axes))
        object.__setattr__(self, "constraints", tuple(self.constraints))
        names = [*self.fixed, *(a.name for a in self.axes), *self.environment]
        if len(set(names)) != len(names):
            twice = next(n for n in names if names.count(n) > 1)
            raise SpaceError(f"[{self.label}] the name {twice!r} stands for two things; names are unique within a part")
        for name, number in self.environment.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise SpaceError(f"[{self.label}] {name} is {number!r}; it must be a non-negative integer")
        readable = self.constants().keys() | {a.name for a in self.axes if a.numeric}
        for constraint in self.constraints:
            for condition in conjuncts(constraint.condition):
                if not condition.symbols <= readable:
                    self._refuse(constraint, min(condition.symbols - readable))

    def _refuse(self, constraint: Constraint, symbol: str) -> None:
        where = f"[{self.label}] the constraint {constraint.name!r} reads {symbol!r}"
        if symbol in self.fixed or symbol in self.domains():
            raise at(SpaceError(f"{where}, whose values are words; constraints are over integers"), constraint.place)
        sentence = f"{where}, which is not a parameter, a dim, a tensor fact or a device figure here"
        raise at(SpaceError(sentence), constraint.place)

    @property
    def label(self) -> str:
        """The structural choices, as a reader names this part."""
        return ", ".join(f"{name}={value}" for name, value in self.fixed.items()) or "space"

    @property
    def names(self) -> tuple[str, ...]:
        """What a point of this part has a value for, in order: fixed choices, then axes."""
        return (*self.fixed, *(a.name for a in self.axes))

    @property
    def raw_size(self) -> int:
        """Number of combinations before any constraint."""
        size = 1
        for axis in self.axes:
            size *= len(axis.values)
        return size

    def constants(self) -> dict[str, int]:
        """Every number that constraints can read besides the axes."""
        fixed = {n: int(v) for n, v in self.fixed.items() if isinstance(v, int)}
        return {**self.environment, **fixed}

    def domains(self) -> dict[str, tuple[Choice, ...]]:
        """The values of every name, one for a fixed choice."""
        return {**{n: (v,) for n, v in self.fixed.items()}, **{a.name: a.values for a in self.axes}}

    def reading_order(self) -> tuple[str, ...]:
        """Symbols in the order in which explanations list them."""
        return (*(a.name for a in self.axes), *self.fixed, *self.environment)

    def offers(self, point: Point) -> bool:
        """Whether the point names exactly the parameters of this part, each with a value on offer."""
        domains = self.domains()
        return point.keys() == domains.keys() and all(point[n] in values for n, values in domains.items())

    def admits(self, point: Point) -> bool:
        """Whether a point with an integer for every numeric name satisfies every constraint."""
        values = self.constants()
        values.update({n: v for n, v in point.items() if isinstance(v, int)})
        try:
            return all(c.holds(values) for constraint in self.constraints for c in conjuncts(constraint.condition))
        except DivisorNotPositive:
            return False

    def restrict(self, choices: Mapping[str, Iterable[Choice]]) -> Part | None:
        """The part with fewer values per name (those on offer that `choices` allows); None when no value is left."""
        for name, value in self.fixed.items():
            if name in choices and value not in set(choices[name]):
                return None
        axes = []
        for axis in self.axes:
            allowed = set(choices[axis.name]) if axis.name in choices else set(axis.values)
            values = tuple(v for v in axis.values if v in allowed)
            if not values:
                return None
            axes.append(Axis(axis.name, values))
        return Part(self.fixed, tuple(axes), self.constraints, self.environment)

    def violations(
        self, point: Point, only: Sequence[Constraint] | None = None,
        offered: Mapping[str, tuple[Choice, ...]] | None = None,
    ) -> tuple[Violation, ...]:
        """Every reason why the point is out, in the order of the constraints; the point may leave axes open.

        A constraint that reads an open axis says nothing. Values need not be on offer: a value that is not is a
        reason of its own, and constraints are judged with it all the same.

        offered  what the whole space has of each name, where this is a part of it
        """
        domains = self.domains()
        listed = {name: (offered or domains)[name] for name, values in domains.items() if point.get(name) not in values}
        found = [
            Violation(None, f"{name}: {point[name]!r} is not on offer; choose from {', '.join(map(str, values))}")
            for name, values in listed.items()
            if name in point
        ]
        values = self.constants()
        values.update({n: int(point[n]) for n in domains if isinstance(point.get(n), int)})
        order = self.reading_order()
        for constraint in self.constraints if only is None else only:
            if all(c.symbols <= values.keys() for c in conjuncts(constraint.condition)):
                violation = find_violation(constraint, values, order)
                if violation is not None:
                    found.append(violation)
        return tuple(found)
