"""Why a space is empty: constraints that cannot hold together, none of which can be dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tinygpu.constraints.condition import conjuncts
from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import LONGEST, describe, find_violation, state
from tinygpu.constraints.query import DEFAULT_RLIMIT, ContradictoryAnswer, Notebook, Query, ask
from tinygpu.constraints.z3_terms import Z3Terms
from tinygpu.spaces.elimination import TooLarge
from tinygpu.spaces.part import Axis, Choice, Part
from tinygpu.spaces.points import first_point
from tinygpu.spaces.solution import PartSolution, solve


@dataclass(frozen=True, slots=True, eq=False)
class Conflict:
    """Constraints of one or more parts that no point satisfies together.

    parts        the parts that it empties
    constraints  the conflicting set: without any one of them, the others admit a point
    witnesses    per constraint, in the same order: a point that breaks it and satisfies all others of the set
    axes         the parameters that the set reads, with the values on offer
    sentences    per constraint: what it demands, with the numbers of the problem and the device put in
    """

    parts: tuple[Part, ...]
    constraints: tuple[Constraint, ...]
    witnesses: tuple[Mapping[str, Choice], ...]
    axes: tuple[Axis, ...]
    sentences: tuple[str, ...]

    def __str__(self) -> str:
        domain = f" for {' and '.join(str(a) for a in self.axes)}" if self.axes else ""
        if len(self.sentences) == 1:
            return f"this cannot hold{domain}: {self.sentences[0]}"
        members = "; ".join(f"({i}) {s}" for i, s in enumerate(self.sentences, start=1))
        return f"these cannot hold together{domain}: {members}"


def told(conflicts: Sequence[Conflict]) -> str:
    """Conflicts in one text; where several instructions have the same rule broken, it is told of the first alone."""
    alike: dict[tuple[str, ...], list[Conflict]] = {}
    for conflict in conflicts:
        alike.setdefault(tuple(c.sentence for c in conflict.constraints), []).append(conflict)
    return "; ".join(_of_all(members) for members in alike.values())


def _of_all(members: Sequence[Conflict]) -> str:
    first, *others = (tuple(c.source for c in conflict.constraints) for conflict in members)
    more = dict.fromkeys(source for sources in others for source in sources if source and source not in first)
    return str(members[0]) + (f" (and so for {', '.join(more)})" if more else "")


def find_conflicts(
    solutions: Sequence[PartSolution], row_budget: int, notebook: Notebook | None = None
) -> tuple[Conflict, ...]:
    """The conflicts of parts without survivors, one per distinct set of constraints."""
    found: dict[tuple[str, ...], Conflict] = {}
    for solution in solutions:
        # What never was the first to reject is not needed: the others, in the same order, reject everything.
        rejecting = {id(c) for _, c, _, removed in solution.rows if removed}
        core = [c for c in solution.part.constraints if id(c) in rejecting]
        conflict = _minimise(solution.part, core, row_budget, notebook)
        same = found.get(conflict.sentences)
        if same is not None:
            conflict = replace(same, parts=(*same.parts, solution.part))
        found[conflict.sentences] = conflict
    return tuple(found.values())


def _minimise(part: Part, core: list[Constraint], row_budget: int, notebook: Notebook | None) -> Conflict:
    """Drops one constraint after the other; dominance first, so that what is left is about what cannot work."""
    witnesses: dict[int, Mapping[str, Choice]] = {}
    for candidate in sorted(core, key=lambda c: c.kind != "dominance"):
        others = [c for c in core if c is not candidate]
        witness = find_point(part, others, row_budget, notebook)
        if witness is None:
            core = others
        else:
            witnesses[id(candidate)] = witness
    for member in core:
        broken = part.violations(witnesses[id(member)], core)
        if [v.constraint for v in broken] != [member]:
            raise ContradictoryAnswer(
                f"[{part.label}] dropping {member.name!r} was found to admit {dict(witnesses[id(member)])}, "
                "which breaks another constraint; please report this"
            )
    read = {s for c in core for condition in conjuncts(c.condition) for s in condition.symbols}
    constants, order = part.constants(), part.reading_order()
    return Conflict(
        (part,),
        tuple(core),
        tuple(witnesses[id(c)] for c in core),
        tuple(a for a in part.axes if a.name in read),
        tuple(_demand(c, witnesses[id(c)], constants, order) for c in core),
    )


def _demand(c: Constraint, witness: Mapping[str, Choice], constants: Mapping[str, int], order: Sequence[str]) -> str:
    """What a constraint demands; where that is a long formula, what it comes to at the point that breaks it alone."""
    formula = describe(c.condition, order=order)
    if len(formula) <= LONGEST:
        return state(c, constants, order)
    point = {name: int(value) for name, value in witness.items() if isinstance(value, int)}
    broken = find_violation(c, {**constants, **point}, order)
    at = ", ".join(f"{name} = {value}" for name, value in witness.items() if name in c.condition.symbols)
    return f"{broken} with {at}"


def find_point(
    part: Part,
    constraints: Sequence[Constraint],
    row_budget: int,
    notebook: Notebook | None = None,
    rlimit: int = DEFAULT_RLIMIT,
) -> Mapping[str, Choice] | None:
    """A point of the part that satisfies these constraints, or None when there is none.

    By elimination; where that needs more rows than the budget, by Z3. Raises `TooLarge` when Z3 does not know either.
    """
    relaxed = Part(part.fixed, part.axes, tuple(constraints), part.environment)
    try:
        (solution,) = solve((relaxed,), row_budget, strict=False)
        return first_point(solution) if solution.size else None
    except TooLarge:
        return _ask_for_point(relaxed, notebook, rlimit)


def _ask_for_point(part: Part, notebook: Notebook | None, rlimit: int) -> Mapping[str, Choice] | None:
    def build(context: object) -> list[object]:
        terms = Z3Terms(context, part.constants())
        wanted = [terms.term(c.condition) for c in part.constraints]
        domains = [terms.one_of(a.name, [int(v) for v in a.values]) for a in part.axes if a.name in terms.symbols]
        return [*domains, *terms.assumptions(), *wanted]

    def complete(model: Mapping[str, int]) -> dict[str, Choice]:
        return {**part.fixed, **{a.name: model.get(a.name, a.values[0]) for a in part.axes}}

    name = f"a point of {part.label} under {len(part.constraints)} constraints"
    query = Query(name, build, check=lambda model: part.admits(complete(model)), rlimit=rlimit)
    answer = ask(query, notebook)
    if answer.verdict == "unknown":
        raise TooLarge(
            f"[{part.label}] whether a point satisfies all {len(part.constraints)} constraints at once is unknown: "
            f"elimination needs more rows than the budget allows, and Z3 gave up after {rlimit:,} units "
            f"({answer.reason})"
        )
    return complete(answer.model) if answer.verdict == "sat" else None
