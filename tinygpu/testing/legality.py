"""Tiers 4 and 6: what a legality constraint rejects does not work, and each rejects something."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.ptx.emulator import Order
from tinygpu.spaces import Part, Space
from tinygpu.spaces.analysis import is_implied
from tinygpu.spaces.part import SpaceError
from tinygpu.testing.bench import Bench
from tinygpu.testing.case import Case, of_their_own, resize
from tinygpu.testing.declaration import Name, key
from tinygpu.testing.judges import ORDERS, judge
from tinygpu.testing.report import Failure, Row
from tinygpu.testing.variety import shortfall
from tinygpu.testing.whole_problems import pieces
from tinygpu.testing.workbench import Allowance

# Points per constraint that its judges see: of the author's constraints, and of those that the library brings.
OWN_WITNESSES, WITNESSES = 6, 2
# Points outside among which the nearest are chosen; parts of spaces in which they are looked for, per constraint.
OUTSIDE, PARTS = 24, 4
# Z3's budget per question of implication.
IMPLICATION_RLIMIT = 2_000_000


@dataclass(slots=True)
class Verdicts:
    """What is known of one legality constraint.

    own      whether the machine's author wrote it
    refused  by stage, points that break it alone and do not work
    works    points that break it alone and work all the same
    asked    parts of spaces in which a point that breaks it alone was looked for
    """

    constraint: Constraint
    own: bool
    refused: Counter[str] = field(default_factory=Counter)
    works: list[Case] = field(default_factory=list)
    asked: int = 0

    @property
    def seen(self) -> int:
        return sum(self.refused.values()) + len(self.works)

    @property
    def enough(self) -> bool:
        return self.seen >= (OWN_WITNESSES if self.own else WITNESSES) or (not self.own and self.asked >= PARTS)


def check_legality(bench: Bench, allowance: Allowance) -> tuple[Row, dict[Name, Verdicts], tuple[Failure, ...]]:
    """The row of tier 4, what is known of each constraint, and what seems wrong with rules of the library.

    Points that break exactly one legality constraint are refused by its judges. A constraint of the author that rejects
    a point that works is too tight, whatever else it rejects; rules of the library hold for all machines, and may
    reject what happens to work in one.
    """
    rng = bench.rng("legality")
    known = {key(c): Verdicts(c, _is_own(bench, c)) for c in _legality(bench)}
    failures: list[Failure] = []
    for entry in sorted(known.values(), key=lambda e: not e.own):
        for case, part in _parts_with(bench, entry.constraint, rng):
            late = allowance.spent and (entry.asked or (not entry.own and any(e.seen for e in known.values())))
            if entry.enough or late:
                break
            entry.asked += 1
            for point in outside(part, entry.constraint, rng, 2 if entry.own else 1):
                _try(bench, entry, replace(case, point=point))
                if entry.own and entry.works:
                    break
            if entry.own and entry.works:
                failures.append(_too_tight(entry))
                break
    eager = tuple(_too_eager(e) for e in known.values() if not e.own and e.works and not e.refused)
    stages: Counter[str] = Counter()
    for entry in known.values():
        stages.update(entry.refused)
    by = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
    notes = (f"refused by: {by}",) if by else ()
    tried = sum(e.seen for e in known.values())
    unasked = sum(e.asked == 0 for e in known.values())
    if unasked:
        notes = (*notes, f"{unasked} of {len(known)} constraints, of the library, were not asked for points outside")
    # a machine all of whose combinations are legal has nothing outside
    absent = "" if unasked else "points just outside"
    return Row(4, "just outside is refused", tried, "points", tuple(failures), notes, absent, unasked), known, eager


def _legality(bench: Bench) -> list[Constraint]:
    found: dict[Name, Constraint] = {}
    for _, space in bench.spaces():
        for part in space.space.parts:
            for c in part.constraints:
                if c.kind == "legality":
                    found.setdefault(key(c), c)
    return list(found.values())


def _is_own(bench: Bench, c: Constraint) -> bool:
    own = {r.name.replace("_", " ") for r in bench.machine.requirements()}
    return c.source == bench.machine.__name__ and c.name in own


def _parts_with(bench: Bench, c: Constraint, rng: np.random.Generator) -> Iterator[tuple[Case, Part]]:
    """Parts that have the constraint, from the spaces in turn."""
    queues = []
    for case, space in bench.spaces():
        mine = [p for p in space.space.parts if any(key(o) == key(c) for o in p.constraints)]
        if mine:
            queues.append((case, [mine[int(i)] for i in rng.permutation(len(mine))]))
    while queues:
        for case, queue in queues:
            yield case, queue.pop()
        queues = [(case, queue) for case, queue in queues if queue]


def outside(part: Part, c: Constraint, rng: np.random.Generator, count: int) -> list[dict[str, int | str]]:
    """Points of a part that break this constraint and no other legality constraint: those that miss it by least."""
    mine = next(o for o in part.constraints if key(o) == key(c))
    others = tuple(o for o in part.constraints if o.kind == "legality" and o is not mine)
    broken = replace(mine, name=f"not {c.name}", condition=~mine.condition)
    try:
        space = Space(f"outside {c.name}", (Part(part.fixed, part.axes, (*others, broken), part.environment),))
        if not space.size:
            return []
        found = list({tuple(p.items()): p for p in space.sample(OUTSIDE, rng)}.values())
    except SpaceError:
        return []  # without this constraint another one divides by zero: it is needed to say what the others mean
    return sorted(found, key=lambda p: shortfall(mine, {**part.environment, **p}))[:count]


def _try(bench: Bench, entry: Verdicts, witness: Case) -> None:
    """Puts a point that breaks one constraint before its judges.

    That is on its problem, and on larger ones, where nothing hides behind an edge; these count where the point breaks
    the same constraint there, and no other.
    """
    bench.progress(f"just outside {entry.constraint.name!r}")
    stage = judge(witness, bench.workbench, orders=("late",)).stage
    if stage != "right":
        entry.refused[stage] += 1
        return
    orders: Sequence[Order] = ORDERS if entry.own else ("late",)
    cases = [witness] if entry.own else []
    kept = frozenset(entry.constraint.condition.symbols)  # other values of these may break it for a better reason
    larger = (grown(witness, bench, kept), full(witness, bench, kept))
    cases += [case for case in larger if _only(case, entry.constraint, bench)]
    for case in cases:
        stage = judge(case, bench.workbench, orders=orders, seed=1).stage
        if stage != "right":
            entry.refused[stage] += 1
            return
    entry.works.append(cases[-1] if cases else witness)


def _only(case: Case, c: Constraint, bench: Bench) -> bool:
    """Whether the case breaks this legality constraint and no other."""
    reasons = case.space(bench.workbench).space.explain(case.point or {})
    broken = [r.constraint for r in reasons if r.constraint is None or r.constraint.kind == "legality"]
    return len(broken) == 1 and broken[0] is not None and key(broken[0]) == key(c)


def full(case: Case, bench: Bench, kept: frozenset[str]) -> Case:
    """The case with two whole tiles along every axis of the grid, and at least two rounds of every loop.

    kept  dims that stay what they are
    """
    return _resized(case, bench, kept, lambda size, least: 2 * least)


def grown(case: Case, bench: Bench, kept: frozenset[str]) -> Case:
    """The case with one whole tile more along every axis, so that its remainders stay what they are."""
    return _resized(case, bench, kept, lambda size, least: size + least)


def _resized(case: Case, bench: Bench, kept: frozenset[str], change: Callable[[int, int], int]) -> Case:
    program = case.space(bench.workbench).program(case.point or {})
    least: dict[str, int] = {}
    for name, extent in pieces(program):
        if name not in kept:
            least[name] = math.lcm(least.get(name, 1), extent)
    names = of_their_own(case.machine, program, case.problem.dim)
    dims = {n: change(case.problem.dim[n], least[n]) if n in least else case.problem.dim[n] for n in names}
    return replace(case, problem=resize(case.machine, case.problem, dims))


def _too_tight(entry: Verdicts) -> Failure:
    c = entry.constraint
    sentence = f"the constraint {c.name!r} ({c.sentence}) is too tight: it rejects a candidate that works"
    pointers = (
        f"it is the only constraint of legality that the case below breaks: {c.condition}",
        "if what it removes works and is only slow, it is dominance: Require(..., kind='dominance', why=...)",
    )
    return Failure(sentence, "refused", entry.works[0], pointers)


def _too_eager(entry: Verdicts) -> Failure:
    c = entry.constraint
    sentence = f"the constraint {c.name!r} ({c.sentence}) rejects {entry.works[0]}, which works"
    return Failure(sentence, "refused", entry.works[0])


def check_needed(bench: Bench, known: dict[Name, Verdicts], allowance: Allowance) -> Row:
    """The legality row of tier 6: each constraint rejects something that fails, or follows from the others."""
    bench.progress("which legality constraints follow from the others")
    counted: Counter[str] = Counter()
    idle: list[str] = []
    untried = 0
    parts = [part for _, space in bench.spaces() for part in space.space.parts]
    for name, entry in known.items():
        if entry.refused:
            counted["reject what fails"] += 1
        elif entry.works:
            counted["reject what works, see tier 4"] += 1
        elif not entry.own and allowance.spent:
            untried += 1
        else:
            part = next(p for p in parts if any(key(c) == name for c in p.constraints))
            c = next(c for c in part.constraints if key(c) == name)
            others = [o for o in part.constraints if o.kind == "legality" and key(o) != name]
            domains = {a.name: [int(v) for v in a.values] for a in part.axes if a.numeric}
            verdict = is_implied(c, others, domains, rlimit=IMPLICATION_RLIMIT).verdict
            if verdict == "yes":
                counted["proved to follow from the others"] += 1
            else:
                idle.append(c.name)
    notes = [f"{count} {what}" for what, count in counted.items()]
    own = [e.constraint.name for e in known.values() if e.own and e.constraint.name in idle]
    if idle:
        listed = f", of yours: {', '.join(own)}" if own else ""
        notes.append(f"{len(idle)} reject nothing by themselves in the spaces here{listed}")
    tried = len(known) - untried
    return Row(6, "legality constraints are needed", tried, "constraints", (), tuple(notes), "constraints", untried)
