"""What a user says of a problem, before it is known which machine will take it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tinygpu.api.machines import Family
from tinygpu.language.declared import Declared
from tinygpu.language.posing import problem
from tinygpu.language.problem import Operand, Problem, ProblemError


@dataclass(frozen=True, slots=True)
class Asked:
    """Dims, and whatever else was said.

    dtypes   per tensor, or under "*" for every tensor that can have it
    majors   per tensor: "row" or "col"
    lds      leading dimensions, elements
    aligns   pointer alignments, bytes
    options  the machine's options
    strides  of axes beyond rows, elements: per tensor by axis
    """

    dims: Mapping[str, int]
    dtypes: Mapping[str, str] = field(default_factory=dict)
    majors: Mapping[str, str] = field(default_factory=dict)
    lds: Mapping[str, int] = field(default_factory=dict)
    aligns: Mapping[str, int] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    strides: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @staticmethod
    def like(posed: Problem) -> Asked:
        """All that a problem says."""
        return Asked(
            posed.dim,
            {o.name: o.dtype.name for o in posed.operands},
            {o.name: o.major for o in posed.operands},
            {o.name: o.ld for o in posed.operands},
            {o.name: o.align_bytes for o in posed.operands},
            dict(posed.options),
            strides_of(posed.operands),
        )

    def of(self, machine: type[Declared]) -> Problem:
        """The problem for one machine; raises ProblemError where the machine cannot take it."""
        dtypes = {k: v for k, v in self.dtypes.items() if k != "*"}
        if "*" in self.dtypes:
            every = self.dtypes["*"]
            leads = [t for t in machine.tensor_declarations() if t.follows is None]
            able = [t for t in leads if every in {d.name for d in t.dtypes}]
            if not able:
                names = ", ".join(dict.fromkeys(d.name for t in leads for d in t.dtypes))
                raise ProblemError(f"{machine.__name__} works on {names}, not on {every}")
            dtypes = {t.name: every for t in able} | dtypes
        return problem(
            machine,
            self.dims,
            dtypes=dtypes,
            majors=self.majors,
            lds=self.lds,
            strides=self.strides,
            aligns=self.aligns,
            options=self.options,
        )


def strides_of(operands: Iterable[Operand]) -> dict[str, dict[int, int]]:
    """What problems say of strides beyond rows that leave gaps."""
    return {o.name: dict(zip(o.memory_order[2:], o.outer, strict=True)) for o in operands if o.outer}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A machine that cannot take the problem, and why."""

    machine: str
    sentence: str


def problems(given: Family, asked: Asked) -> tuple[list[tuple[type[Declared], Problem]], list[Refusal]]:
    """The problem for each machine of a family, and refusals.

    Types that were left open are those of the first machine.
    """
    accepted: list[tuple[type[Declared], Problem]] = []
    refused: list[Refusal] = []
    wanted = asked
    for machine in given.machines:
        try:
            mine = wanted.of(machine)
        except ProblemError as error:
            refused.append(Refusal(machine.__name__, str(error)))
            continue
        if not accepted:
            known = {o.name: o.dtype.name for o in mine.operands}
            wanted = Asked(asked.dims, known, asked.majors, asked.lds, asked.aligns, asked.options, asked.strides)
        accepted.append((machine, mine))
    if not accepted:
        alike = {r.sentence.replace(r.machine, given.name) for r in refused}
        raise ProblemError(alike.pop() if len(alike) == 1 < len(refused) else "; ".join(r.sentence for r in refused))
    return accepted, refused
