"""Tiers 4 and 6: what constraints reject does not work (legality) or is never the best (dominance)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.ptx.assembler import AssemblerError, AssemblerUnavailable, assemble
from tinygpu.ptx.build import build
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces import Part, Space
from tinygpu.spaces.analysis import is_implied
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.part import SpaceError
from tinygpu.testing.bench import Bench
from tinygpu.testing.case import Case, resize
from tinygpu.testing.cases import pieces
from tinygpu.testing.declaration import Name, key
from tinygpu.testing.judges import judge, launch_limit
from tinygpu.testing.report import Failure, Row

# Points per constraint that its judges see, and Z3's budget per question of implication.
WITNESSES = 2
IMPLICATION_RLIMIT = 5_000_000
# Points of a space that are predicted one by one; larger spaces are sampled.
PREDICTED = 200_000
# Predicted times that differ by less are ties: the model's own error is several times larger.
TIE = 0.01


@dataclass(slots=True)
class Verdicts:
    """What is known of one legality constraint.

    refused  by stage, points that break it alone and do not work
    works    points that break it alone and work all the same
    asked    spaces in which a point that breaks it alone was looked for
    """

    constraint: Constraint
    refused: Counter[str] = field(default_factory=Counter)
    works: list[Case] = field(default_factory=list)
    asked: int = 0
    implied: str = ""


def check_legality(bench: Bench) -> tuple[list[Row], dict[Name, Verdicts]]:
    """The row of tier 4: points that break exactly one legality constraint are refused by its judges."""
    known: dict[Name, Verdicts] = {}
    for case, space in bench.spaces():
        for part in bench.rng.permutation(len(space.space.parts)):
            chosen = space.space.parts[int(part)]
            for c in chosen.constraints:
                if c.kind != "legality":
                    continue
                entry = known.setdefault(key(c), Verdicts(c))
                if sum(entry.refused.values()) + len(entry.works) >= WITNESSES:
                    continue
                entry.asked += 1
                for point in outside(chosen, c, 1, bench.rng):
                    bench.progress(f"just outside {c.name!r}")
                    witness = Case(case.machine, case.problem, case.device, point)
                    stage = judge(witness, bench.cache, orders=("late",)).stage
                    if stage == "right":  # by luck of the size? On whole tiles nothing hides behind an edge.
                        witness = full(witness)
                        stage = judge(witness, bench.cache, orders=("late",)).stage
                    if stage == "right":
                        entry.works.append(witness)
                    else:
                        entry.refused[stage] += 1
    failures = []
    for entry in known.values():
        if entry.works and not entry.refused:
            failures.append(_too_eager(entry))
    stages: Counter[str] = Counter()
    for entry in known.values():
        stages.update(entry.refused)
    tried = sum(stages.values()) + sum(len(e.works) for e in known.values())
    by = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
    partly = [e.constraint.name for e in known.values() if e.works and e.refused]
    notes = [f"refused by: {by}"] if by else []
    if partly:
        notes.append(f"some points that break it work all the same: {', '.join(partly)}")
    return [Row(4, "just outside is refused", tried, "points", tuple(failures), tuple(notes))], known


def full(case: Case) -> Case:
    """The case with two whole tiles along every axis of the grid, and at least two rounds of every loop."""
    program = case.space().fill(case.point or {})
    least: dict[str, int] = {}
    for name, extent in pieces(program):
        least[name] = math.lcm(least.get(name, 1), extent)
    dims = {name: 2 * least[name] if name in least else size for name, size in case.problem.dims}
    return replace(case, problem=resize(case.machine, case.problem, dims))


def _too_eager(entry: Verdicts) -> Failure:
    c = entry.constraint
    sentence = f"the constraint {c.name!r} ({c.sentence}) rejects a candidate that works"
    return Failure(sentence, "refused", entry.works[0])


def outside(part: Part, c: Constraint, count: int, rng: np.random.Generator) -> Iterator[dict[str, int | str]]:
    """Points of a part that break this constraint and no other legality constraint, drawn uniformly."""
    others = tuple(o for o in part.constraints if o.kind == "legality" and key(o) != key(c))
    broken = Constraint(f"not {c.name}", ~c.condition, c.sentence)
    try:
        space = Space(f"outside {c.name}", (Part(part.fixed, part.axes, (*others, broken), part.environment),))
        if space.size:
            yield from space.sample(count, rng)
    except SpaceError:
        return  # without this constraint another one divides by zero: it is needed to say what the others mean


def check_needed(bench: Bench, known: dict[Name, Verdicts]) -> list[Row]:
    """The legality row of tier 6: each constraint rejects something that fails, or follows from the others."""
    bench.progress("which legality constraints follow from the others")
    counted: Counter[str] = Counter()
    idle: list[str] = []
    parts = [part for _, space in bench.spaces() for part in space.space.parts]
    for name, entry in known.items():
        if entry.refused:
            counted["reject what fails"] += 1
        elif not entry.works:
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
    if idle:
        notes.append(f"{len(idle)} reject nothing by themselves in the spaces here: {', '.join(idle)}")
    return [Row(6, "legality constraints are needed", len(known), "constraints", (), tuple(notes))]


def check_dominance(bench: Bench) -> list[Row]:
    """The dominance row of tier 6: what is removed as dominated is never predicted to be faster than the best left."""
    failures: list[Failure] = []
    notes: dict[str, None] = {}
    tried: set[Name] = set()
    for case, space in bench.spaces():
        if not space.space.size:
            continue
        objective = PredictedTime(space)
        best = _best(objective, space.space, bench.rng)[0]
        names = {key(c): c for part in space.space.parts for c in part.constraints if c.kind == "dominance"}
        for name, c in names.items():
            bench.progress(f"without {c.name!r}, is anything predicted to be faster")
            removed = _removed(space, c)
            if removed is None:
                continue
            tried.add(name)
            seconds, points = _best(objective, removed, bench.rng)
            if seconds >= best * (1 - TIE):
                continue
            faster = [Case(case.machine, case.problem, case.device, p) for p in points]
            excuse = [_spills(f, bench) for f in faster]
            if all(excuse):
                notes[f"{c.name}: what is predicted to be faster {excuse[0]}"] = None
                continue
            failures.append(
                Failure(
                    f"without the dominance constraint {c.name!r} ({c.sentence}) the best is predicted to be "
                    f"{100 * (1 - seconds / best):.2g} % faster: {faster[excuse.index('')]}"
                )
            )
    return [Row(6, "dominance constraints cost nothing", len(tried), "constraints", _distinct(failures), tuple(notes))]


def _distinct(failures: list[Failure]) -> tuple[Failure, ...]:
    """One failure per constraint."""
    return tuple({f.sentence.split("(")[0]: f for f in reversed(failures)}.values())


def _removed(space: MachineSpace, c: Constraint) -> Space | None:
    """The points that this constraint alone removes."""
    parts = []
    for part in space.space.parts:
        mine = [o for o in part.constraints if key(o) == key(c)]
        if not mine:
            continue
        others = tuple(o for o in part.constraints if key(o) != key(c))
        broken = Constraint(f"not {c.name}", ~mine[0].condition, c.sentence)
        parts.append(Part(part.fixed, part.axes, (*others, broken), part.environment))
    made = Space(f"without {c.name}", tuple(parts))
    try:
        return made if parts and made.size else None
    except SpaceError:
        return None


def _best(
    objective: PredictedTime, space: Space, rng: np.random.Generator
) -> tuple[float, list[dict[str, int | str]]]:
    """The least predicted time of a space (of a sample, if it is large) and up to three points that have it."""
    if space.size <= PREDICTED:
        points = None
        columns = space.columns()
    else:
        points = space.sample(PREDICTED // 10, rng)
        columns = {name: np.array([p[name] for p in points], dtype=object) for name in points[0]}
        columns = {k: v.astype(np.int64) if not isinstance(v[0], str) else v for k, v in columns.items()}
    seconds = objective.score_columns(columns)
    least = float(np.min(seconds))
    first = np.flatnonzero(seconds <= least)[:3]
    chosen = [{name: _plain(column[i]) for name, column in columns.items()} for i in first]
    return least, chosen


def _plain(v: Any) -> int | str:
    return v if isinstance(v, str) else int(v)


def _spills(case: Case, bench: Bench) -> str:
    """Why a candidate that is predicted to be fast is not ("spills"); "" where it is fit to run."""
    program = case.space().fill(case.point or {})
    kernel = build(program, case.problem, case.point or {}, bench.cache).kernel
    limit = launch_limit(case.device, kernel.threads, kernel.smem_bytes, 1)
    if limit:
        return f"cannot be launched ({limit})"
    try:
        assembly = assemble(kernel.ptx, kernel.assembled_for(case.device.portable_target))
    except AssemblerUnavailable:
        return "cannot be assembled here"
    except AssemblerError as refused:
        return f"is refused by the assembler ({refused})"
    if assembly.spills:
        return f"spills {assembly.spill_store_bytes + assembly.spill_load_bytes} bytes"
    if assembly.registers * kernel.threads > case.device.registers_per_sm:
        return f"needs {assembly.registers} x {kernel.threads} registers"
    return ""
