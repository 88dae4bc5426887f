"""What a constraint contributes: does it ever reject what the others admit, and do the others imply it?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from tinygpu.constraints.condition import conjuncts
from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.query import DEFAULT_RLIMIT, Answer, Notebook, Query, ask
from tinygpu.constraints.z3_terms import Z3Terms
from tinygpu.spaces.elimination import TooLarge
from tinygpu.spaces.part import Part, SpaceError
from tinygpu.spaces.space import Space


@dataclass(frozen=True, slots=True)
class Implication:
    """Whether constraints imply another one.

    verdict         "yes" (proved for all values), "no" (see the counterexample) or "unknown"
    counterexample  a value for each symbol: the premises hold, the conclusion does not
    answer          the solver's answer, with the question as SMT-LIB
    """

    verdict: Literal["yes", "no", "unknown"]
    counterexample: Mapping[str, int] = field(default_factory=dict)
    answer: Answer | None = None


def without(space: Space, constraint: Constraint) -> Space:
    """The space with the constraint left out of every part; a constraint is known by name, kind and source."""
    parts = [
        Part(p.fixed, p.axes, tuple(c for c in p.constraints if not _same(c, constraint)), p.environment)
        for p in space.parts
    ]
    return replace(space, parts=tuple(parts))


def is_vacuous(space: Space, constraint: Constraint) -> bool:
    """Whether the constraint never rejects a point that all others admit: exact, by counting with and without it.

    A constraint that keeps a divisor of another from being zero is not vacuous. Raises `TooLarge`.
    """
    size = space.size
    try:
        return without(space, constraint).size == size
    except TooLarge:
        raise
    except SpaceError:  # without it, another constraint divides by zero
        return False


def is_implied(
    constraint: Constraint,
    premises: Iterable[Constraint],
    domains: Mapping[str, Iterable[int]] | None = None,
    notebook: Notebook | None = None,
    rlimit: int = DEFAULT_RLIMIT,
) -> Implication:
    """Whether every assignment that satisfies the premises satisfies the constraint: by Z3, for all values.

    domains  values that a symbol can have; a symbol without is any non-negative integer. Divisors are positive.
    """
    known = list(premises)
    limits = {name: sorted({int(v) for v in values}) for name, values in (domains or {}).items()}

    def build(context: object) -> list[object]:
        terms = Z3Terms(context)
        wanted = [terms.term(c.condition) for c in known] + [terms.term(~constraint.condition)]
        narrowed = [terms.one_of(n, values) for n, values in limits.items() if n in terms.symbols]
        return [*narrowed, *terms.assumptions(), *wanted]

    def refutes(model: Mapping[str, int]) -> bool:
        return all(_holds(c, model) for c in known) and not _holds(constraint, model)

    answer = ask(Query(f"{constraint.name} follows from the others", build, check=refutes, rlimit=rlimit), notebook)
    if answer.verdict == "unsat":
        return Implication("yes", answer=answer)
    if answer.verdict == "sat":
        return Implication("no", dict(answer.model), answer)
    return Implication("unknown", answer=answer)


def _same(a: Constraint, b: Constraint) -> bool:
    return (a.name, a.kind, a.source) == (b.name, b.kind, b.source)


def _holds(constraint: Constraint, values: Mapping[str, int]) -> bool:
    return all(c.holds(values) for c in conjuncts(constraint.condition))
