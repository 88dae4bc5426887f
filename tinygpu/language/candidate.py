"""A candidate: one point of a machine's space, for one problem on one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tinygpu.language.problem import Problem

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """What decides a kernel.

    machine  the machine's name
    problem  dims, operands and options
    device   the device's name
    point    (parameter or choice, value), in the order of the names

    >>> Candidate("Scale", Problem((("n", 8),), ()), "a100", (("warps", 4), ("load", "direct"))).point
    (('load', 'direct'), ('warps', 4))
    """

    machine: str
    problem: Problem
    device: str
    point: tuple[tuple[str, int | str], ...]

    def __post_init__(self) -> None:
        names = [name for name, _ in self.point]
        if len(set(names)) != len(names):
            raise ValueError(f"{self.machine}: a point gives each parameter one value, and this one is {self.point}")
        for name, value in self.point:
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ValueError(f"{self.machine}: {name} of a point is an integer or a label, not {value!r}")
        object.__setattr__(self, "point", tuple(sorted(self.point)))

    @staticmethod
    def of(machine: str, problem: Problem, device: str, point: Mapping[str, int | str]) -> Candidate:
        """The candidate with a point as the spaces give it."""
        return Candidate(machine, problem, device, tuple(point.items()))

    def __str__(self) -> str:
        values = " ".join(f"{k}={v}" for k, v in self.point)
        return f"{self.machine} {self.problem} on {self.device}: {values}"

    @property
    def values(self) -> dict[str, int | str]:
        """The point as a mapping."""
        return dict(self.point)

    def to_json(self) -> dict[str, Any]:
        """The candidate as JSON values."""
        return {
            "schema": SCHEMA,
            "machine": self.machine,
            "problem": self.problem.to_json(),
            "device": self.device,
            "point": dict(self.point),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Candidate:
        """The candidate that `to_json` wrote; raises ValueError for another schema."""
        if data.get("schema") != SCHEMA:
            raise ValueError(f"this version reads candidates of schema {SCHEMA}, not {data.get('schema')!r}")
        return Candidate.of(data["machine"], Problem.from_json(data["problem"]), data["device"], data["point"])
