"""Tier 6: what a dominance constraint removes is never predicted to be faster than the best that is left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.problem import ProblemError
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces import Part, Space
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.part import SpaceError
from tinygpu.testing.bench import Bench
from tinygpu.testing.case import Case, resize
from tinygpu.testing.declaration import Name, key
from tinygpu.testing.judges import launch_limit
from tinygpu.testing.report import Failure, Row
from tinygpu.testing.whole_problems import roomy_problem
from tinygpu.testing.workbench import Allowance

# Candidates of one structure that are predicted one by one; of more the best is not known, and nothing is said of it.
PREDICTED = 200_000
# Points that a constraint removes, of which so many are looked at.
REMOVED = 10_000
# Predicted times that differ by less are ties: the model's own error is several times larger, and no measurement tells
# launches apart that differ by less than this many seconds.
TIE, TIE_SECONDS = 0.01, 0.5e-6
# By how much the dims of drawn problems grow at most: what is never the best shows where a device is full.
GROWTH = (64, 16, 4)
# Problems that are looked at when no allowance is left.
LEAST_SPACES = 1


def check_dominance(bench: Bench, allowance: Allowance) -> tuple[Row, tuple[Failure, ...]]:
    """The dominance row of tier 6, and what seems wrong with rules that the library derives."""
    failures: dict[Name, Failure] = {}
    library: dict[Name, Failure] = {}
    notes: dict[str, None] = {}
    known: set[Name] = set()
    tried: set[Name] = set()
    own = {r.name.replace("_", " ") for r in bench.machine.requirements()}
    rng = bench.rng("dominance")
    for number, (case, space) in enumerate(_large(bench)):
        names = {key(c): c for part in space.space.parts for c in part.constraints if c.kind == "dominance"}
        known |= names.keys()
        if not names or (allowance.spent and number >= LEAST_SPACES):
            break
        left = _Left(space, rng)
        for name, c in sorted(names.items(), key=lambda item: item[1].name not in own):
            mine = c.source == bench.machine.__name__ and c.name in own
            if name in failures or name in library or (allowance.spent and not mine and tried):
                continue
            bench.progress(f"without {c.name!r}, is anything predicted to be faster")
            tried.add(name)
            found = _faster(left, c, rng)
            if found is None:
                continue
            share, points = found
            faster = [Case(case.machine, case.problem, case.device, p) for p in points]
            excuse = [_unfit(f, bench) for f in faster]
            if all(excuse):
                notes[f"{c.name}: what is predicted to be faster {excuse[0]}"] = None
                continue
            failure = Failure(
                f"without the dominance constraint {c.name!r} ({c.sentence}) the best is predicted to be "
                f"{100 * share:.2g} % faster: {faster[excuse.index('')]}"
            )
            (failures if mine else library)[name] = failure
    row = Row(
        6,
        "dominance constraints cost nothing",
        len(tried),
        "constraints",
        tuple(failures.values()),
        tuple(notes),
        "" if known else "dominance constraints",
        len(known - tried),
    )
    return row, tuple(library.values())


@dataclass(slots=True, eq=False)
class _Left:
    """The candidates of a space, part by part: the least predicted time of each, found when it is asked for."""

    space: MachineSpace
    rng: np.random.Generator
    objective: PredictedTime = field(init=False)
    order: list[int] = field(init=False)
    least: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.objective = PredictedTime(self.space)
        self.order = [int(i) for i in self.rng.permutation(len(self.space.space.parts))]

    def best(self, index: int) -> float:
        """Seconds; of a part with too many candidates what a sample has, since more could only be faster."""
        if index not in self.least:
            alone = Space("left", (self.space.space.parts[index],))
            self.least[index] = math.inf
            if alone.size:
                few = alone if alone.size <= PREDICTED else _slice(alone, self.rng)
                self.least[index] = _best(self.objective, few)[0]
        return self.least[index]

    def exact(self) -> bool:
        """Whether the best of every part is known."""
        return all(s.size <= PREDICTED for s in self.space.space.solutions)


def _faster(left: _Left, c: Constraint, rng: np.random.Generator) -> tuple[float, list[dict[str, int | str]]] | None:
    """By what share the best that the constraint removes is faster than all that is left, and where; None if it is not.

    The part of the removed points is asked first: most often it has as fast a candidate left, which spares the others.
    """
    for index in left.order:
        removed = _removed(left.space.space.parts[index], c)
        if removed is None:
            continue
        seconds, points = _best(left.objective, _slice(removed, rng))
        enough = seconds + max(TIE * seconds, TIE_SECONDS)
        if any(left.best(i) <= enough for i in (index, *(o for o in left.order if o != index))) or not left.exact():
            return None
        return 1 - seconds / min(left.least.values()), points
    return None


def _large(bench: Bench) -> Iterator[tuple[Case, MachineSpace]]:
    """The bench's problems, each with the largest dims for which there are candidates still."""
    for p in bench.posings:
        problem, space = p.problem, p.space
        for name, size in p.problem.dims:
            for factor in GROWTH:
                try:
                    longer = roomy_problem(resize(bench.machine, problem, {name: size * factor}))
                except ProblemError:  # of several long dims together, strides exceed what a kernel counts
                    continue
                larger = Case(bench.machine, longer, p.device)
                if bench.examined("traces", larger).fault:
                    continue
                grown = larger.space(bench.workbench)
                if _has_candidates(grown.space):
                    problem, space = larger.problem, grown
                    break
        yield Case(bench.machine, problem, p.device), space


def _has_candidates(space: Space) -> bool:
    """Asked part by part, since one of them is enough, and all of a large machine's take long to solve."""
    return any(Space(space.name, (part,)).size for part in space.parts)


def _removed(part: Part, c: Constraint) -> Space | None:
    """The points of a part that this constraint alone removes; None where there are none."""
    mine = [o for o in part.constraints if key(o) == key(c)]
    if not mine:
        return None
    others = tuple(o for o in part.constraints if key(o) != key(c))
    broken = replace(mine[0], name=f"not {c.name}", condition=~mine[0].condition)
    try:
        made = Space(f"without {c.name}", (Part(part.fixed, part.axes, (*others, broken), part.environment),))
        return made if made.size else None
    except SpaceError:
        return None


def _slice(space: Space, rng: np.random.Generator) -> Space:
    """Of a large space, the points that agree with a random one in some parameters."""
    (point,) = space.sample(1, rng)
    for name in rng.permutation(sorted(point)):
        if space.size <= REMOVED:
            break
        space = space.restrict({str(name): (point[str(name)],)})
    return space


def _best(objective: PredictedTime, space: Space) -> tuple[float, list[dict[str, int | str]]]:
    """The least predicted time of a space, and up to three points that have it."""
    columns = space.columns()
    seconds = objective.score_columns(columns)
    least = float(np.min(seconds))
    first = np.flatnonzero(seconds <= least)[:3]
    return least, [{name: _plain(column[i]) for name, column in columns.items()} for i in first]


def _plain(v: Any) -> int | str:
    return v if isinstance(v, str) else int(v)


def _unfit(case: Case, bench: Bench) -> str:
    """Why a candidate that is predicted to be fast is not ("spills"); "" where it is fit to run."""
    program = case.space(bench.workbench).program(case.point or {})
    kernel = build(program, case.problem, case.point or {}, bench.workbench.solver).kernel
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
