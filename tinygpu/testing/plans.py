"""Checks of a plan: that its space is made of its steps' spaces, that its programs and its kernels are right.

The machines of its steps are checked by themselves (`tinygpu check FILE.py:MACHINE`); here is what joins them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tinygpu.devices import Device
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.program.program import Program
from tinygpu.ptx.assembling.assembler import AssemblerError, AssemblerUnavailable, assemble
from tinygpu.ptx.emulator import EmulationFault
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare_arrays
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.run_programs import run_programs
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.plan_space import PlanSpace, build_plan_space
from tinygpu.testing.draws import SeededDraw, draw_problem
from tinygpu.testing.judges import ORDERS
from tinygpu.testing.report import CheckReport, Failure, Row
from tinygpu.users_code import with_place

# Sizes of dims: as for machines, and some with which a plan has several parts.
SIZES = (1, 2, 3, 5, 7, 16, 31, 33, 64, 65, 100, 129, 300, 513, 1000, 1025)
# Problems that are drawn, at most, for each that has candidates; and how often one is drawn again that is too large.
ATTEMPTS = 12
AGAIN = 200
# Elements of all operands: programs are carried out on the whole problem.
MOST_ELEMENTS = 1 << 18
# Points of each space that are put before the machines of the steps.
POINTS = 40

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class _Case:
    """One candidate of a plan with its kernels."""

    space: PlanSpace
    point: Mapping[str, int | str]
    kernels: Kernels
    programs: tuple[Program, ...]
    lines: tuple[LineInfo, ...]

    def __str__(self) -> str:
        return _words(self.space, self.point)


def check_plan(
    plan: type[Plan],
    *,
    problems: int | Sequence[Problem],
    devices: Sequence[Device],
    candidates: int,
    seed: int,
    tiers: Iterable[int],
    seconds: float,
    progress: Progress = lambda text: None,
) -> CheckReport:
    """Checks a plan and returns what was tried and found; the arguments are those of `run_check`.

    Tiers 1 (problems have candidates), 4 (the space is that of the steps) and 5 (programs and kernels are right); the
    others are about a machine.
    """
    begun = time.process_time()
    rng = np.random.default_rng([seed, *b"plan"])
    progress("looking for problems that the plan has candidates for")
    spaces, empty = _spaces(plan, problems, devices, rng)
    wanted = set(tiers)
    rows = [_existence(spaces, empty)]
    if 4 in wanted:
        progress("the space: is it that of the steps")
        rows.append(_joined(spaces, rng))
    if 5 in wanted:
        cases = list(_cases(spaces, candidates, rng, progress))
        now = time.process_time()
        half = now + (begun + seconds - now) / 2  # kernels, which tell most, come last and have the rest
        rows += [_programs(cases, seed, half), _kernels(cases, seed, begun + seconds, progress)]
    if not wanted & {1}:
        rows = rows[1:] or rows
    return CheckReport(
        plan.__name__,
        tuple(str(s.problem) for s in spaces),
        tuple(dict.fromkeys(s.device.name for s in spaces)),
        seed,
        tuple(rows),
        (),
        time.process_time() - begun,
    )


def _spaces(
    plan: type[Plan], problems: int | Sequence[Problem], devices: Sequence[Device], rng: np.random.Generator
) -> tuple[list[PlanSpace], list[str]]:
    """Spaces that are not empty, and what was drawn in vain."""
    found: list[PlanSpace] = []
    empty: list[str] = []
    if not isinstance(problems, int):
        pairs = [(p, devices[number % len(devices)]) for number, p in enumerate(problems)]
    else:
        pairs = []
        draw_one = SeededDraw(rng)
        while len(pairs) < ATTEMPTS * problems:
            posed = _drawn(plan, draw_one, rng, plain=not pairs)
            for _ in range(AGAIN):
                if sum(math.prod(o.shape) for o in posed.operands) <= MOST_ELEMENTS:
                    break
                posed = _drawn(plan, draw_one, rng, plain=not pairs)
            pairs.append((posed, devices[len(pairs) % len(devices)]))
    most = len(pairs) if not isinstance(problems, int) else problems
    for posed, on in pairs:
        if len(found) == most:
            break
        try:
            space = build_plan_space(plan, posed, on)
        except ProblemError as error:
            empty.append(f"{plan.__name__} {posed}: {error}")
            continue
        if space.space.size:
            found.append(space)
        else:
            empty.append(f"{space.space.name} has no candidate: {space.space.conflict()[0]}")
    return found, empty


def _drawn(plan: type[Plan], draw_one: SeededDraw, rng: np.random.Generator, plain: bool) -> Problem:
    try:
        return draw_problem(plan, draw_one, SIZES, plain=plain)
    except ProblemError:
        return plan.problem(**{name: int(rng.choice(SIZES)) for name in plan.dim_names()})


def _existence(spaces: Sequence[PlanSpace], empty: Sequence[str]) -> Row:
    failures = () if spaces else (Failure(f"no problem of {len(empty)} has a candidate, for example: {empty[0]}"),)
    notes = (f"{len(empty)} problems more have no candidate, for example: {empty[0]}",) if spaces and empty else ()
    return Row(1, "problems have candidates", len(spaces), "problems", failures, notes)


def _joined(spaces: Sequence[PlanSpace], rng: np.random.Generator) -> Row:
    """What the machine of a step refuses, and nothing else, its step is refused for."""
    failures: list[Failure] = []
    tried = 0
    for space in spaces:
        points = [*space.space.sample(POINTS // 4, rng), *_raw(space, rng, POINTS)]
        for point in points:
            tried += 1
            if (wrong := _apart(space, point)) and len(failures) < 2:
                failures.append(Failure(f"{_words(space, point)}: {wrong}"))
    return Row(4, "what steps refuse is refused", tried, "points", tuple(failures))


def _raw(space: PlanSpace, rng: np.random.Generator, count: int) -> Iterator[dict[str, int | str]]:
    """Points of the product, admitted or not."""
    for _ in range(count):
        part = space.space.parts[int(rng.integers(len(space.space.parts)))]
        yield {name: values[int(rng.integers(len(values)))] for name, values in part.domains().items()}


def _apart(space: PlanSpace, point: Mapping[str, int | str]) -> str:
    """Where plan and machines differ about the legality of a point; "" where they agree."""
    reasons = [v.constraint for v in space.space.explain(point) if v.constraint is not None]
    blamed = {c.name.partition(": ")[0] for c in reasons if c.kind == "legality"}
    for index, step in enumerate(space.steps):
        try:
            own = space.candidate(index, point)
            broken = [v for v in own.space.space.explain(own.point) if v.constraint is None or _legal(v.constraint)]
        except ProblemError as error:
            if step.name not in blamed:
                return f"step {step.name} does not take it, and the plan does: {error}"
            continue
        if broken and step.name not in blamed:
            return f"step {step.name} is refused by {step.machine.__name__}, and not by the plan: {broken[0].sentence}"
        if not broken and step.name in blamed:
            said = next(c for c in reasons if c.name.startswith(f"{step.name}: "))
            return f"{step.machine.__name__} takes what the plan refuses its step {step.name}: {said.sentence}"
    return ""


def _legal(constraint: object) -> bool:
    return getattr(constraint, "kind", "") == "legality"


def _cases(
    spaces: Sequence[PlanSpace], count: int, rng: np.random.Generator, progress: Progress
) -> Iterator[_Case]:
    """Candidates of the spaces in turn, lowered."""
    cache = SolverCache()
    for number in range(count if spaces else 0):
        space = spaces[number % len(spaces)]
        progress(f"kernels: lowering {number + 1} of {count}")
        (point,) = space.space.sample(1, rng)
        parts = [(c, build(c.space.program(c.point), c.space.problem, c.point, cache)) for c in space.candidates(point)]
        yield _Case(
            space,
            point,
            Kernels.of_plan(space.machine, space.problem, point, tuple(b.kernel for _, b in parts)),
            tuple(b.program for _, b in parts),
            tuple(LineInfo.of(b, c.space.problem) for c, b in parts),
        )


def _programs(cases: Sequence[_Case], seed: int, ends: float) -> Row:
    failures: list[Failure] = []
    tried = 0
    for case in cases:
        if tried and time.process_time() > ends:
            break
        tried += 1
        trial = draw(case.kernels.machine, case.kernels.problem, "integers", seed)
        try:
            made = run_programs(case.kernels, case.programs, trial.arrays, trial.scalars)
        except ProgramFault as fault:
            failures.append(Failure(f"{case}: its programs cannot be run as they are written: {with_place(fault)}"))
            continue
        check = compare_arrays(trial, made, "late")
        if check.wrong and len(failures) < 2:
            failures.append(Failure(f"{case}: its programs, run as they are written, do not make that: {check.worst}"))
    return Row(5, "programs are right", tried, "candidates", tuple(failures), (), "", len(cases) - tried)


def _kernels(cases: Sequence[_Case], seed: int, ends: float, progress: Progress) -> Row:
    failures: list[Failure] = []
    tried = 0
    for number, case in enumerate(cases):
        if tried and time.process_time() > ends:
            break
        progress(f"kernels: {number + 1} of {len(cases)}")
        tried += 1
        wrong = _judged(case, number, seed)
        if wrong:
            failures.append(Failure(f"{case}: {wrong}"))
            break
    untried = 0 if failures else len(cases) - tried
    return Row(5, "kernels are right", tried, "candidates", tuple(failures), (), "", untried)


def _judged(case: _Case, number: int, seed: int) -> str:
    """What is wrong with the kernels of one candidate; "" where nothing is."""
    portable = case.space.device.portable_target
    for stage in case.kernels.stages:
        try:
            assemble(stage.kernel.ptx, stage.kernel.assembled_for(portable))
        except AssemblerUnavailable:
            pass
        except AssemblerError as refused:
            return f"step {stage.name}: the assembler refuses it: {with_place(refused)}"
    try:
        orders = (ORDERS[number % len(ORDERS)],)
        found = verify_kernels(case.kernels, orders=orders, seed=seed, lines=case.lines)
    except EmulationFault as fault:
        return str(fault)
    bad = next((c for c in found.checks if not c.passed), None)
    return "" if bad is None else f"{bad} on {found.problem}"


def _words(space: PlanSpace, point: Mapping[str, int | str]) -> str:
    return f"{space.space.name}: " + " ".join(f"{k}={v}" for k, v in point.items())


__all__ = ["check_plan"]
