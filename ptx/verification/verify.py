"""Verification: runs a kernel's PTX in the emulator and compares it with the machine's reference.

What ships is what was verified: dims, leading dimensions and the grid are launch arguments, so the same text runs on
small *derived problems* that keep every fact for which the kernel was specialised, have full and partial tiles along
each axis as the real one has, and loops in which every ring goes round (see `tinygpu.ptx.verification.plan`). Inputs
are first whole numbers, for which every sum is exact and the result must agree bit for bit; then random numbers with a
few special values among them, within a bound that is worked out for every element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.reference import sizes_named
from tinygpu.notebook import html as notebook
from tinygpu.ptx.emulator import (
    Counters,
    EmulationFault,
    LineCounters,
    Order,
    PreparedKernel,
    PtxSyntaxError,
    Report,
    UnsupportedInstruction,
    prepare,
)
from tinygpu.ptx.launching.emulated import emulate_launch
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification import beyond, itself, within_memory
from tinygpu.ptx.verification.budget import Budget
from tinygpu.ptx.verification.comparison import Check, compare
from tinygpu.ptx.verification.far_rows import far_check, far_rows
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.memory import buffers_of, workspaces
from tinygpu.ptx.verification.plan import Posing, Run, plan
from tinygpu.ptx.verification.sampled import Chosen, chosen_clusters, sampled_checks, why_not_judged, why_not_run
from tinygpu.ptx.verification.shortened import shortened
from tinygpu.ptx.verification.traced import traced
from tinygpu.ptx.verification.trial import Trial, draw
from tinygpu.ptx.verification.unexecuted import told_unexecuted, unexecuted
from tinygpu.seeds import check_seed
from tinygpu.users_code import UsersCodeError

# CPU time that one kernel's verification takes at most, where its first run does not take longer.
CPU_SECONDS = 60.0
# Draws of random numbers beside the one, while an output is one and the same number in all runs, or a statement is
# executed in none.
MORE_DRAWS = 4


class RefusedText(ValueError):
    """PTX that the emulator cannot read, or has no semantics for; with the statement that printed it."""


@dataclass(frozen=True, slots=True, eq=False)
class Verification:
    """What the emulator found.

    problem   the derived problem of the first run
    checks    every run
    counters  of the first run: exact counts of sectors, wavefronts and instructions
    lines     the same per PTX line
    left_out  runs that would have taken too much CPU time or memory
    notes     what little is known of all the same: outputs whose reference is one and the same number throughout, and
              statements that no run executed
    """

    kernel: str
    problem: Problem
    checks: tuple[Check, ...]
    counters: Counters | None = None
    lines: dict[int, LineCounters] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(c.passed for c in self.checks)

    @property
    def judged(self) -> bool:
        """Whether a run says something of an element."""
        return any(c.judged for c in self.checks)

    @property
    def verdict(self) -> str:
        """In two or three words."""
        if not self.passed:
            return "WRONG"
        return "emulated, right" if self.judged else "emulated, nothing judged"

    def to_dict(self) -> dict[str, Any]:
        """What `tinygpu verify --json` prints."""
        return {
            "kernel": self.kernel,
            "problem": str(self.problem),
            "passed": self.passed,
            "verdict": self.verdict,
            "checks": [c.to_dict() for c in self.checks],
            "left_out": list(self.left_out),
            "notes": list(self.notes),
        }

    def _repr_html_(self) -> str:
        return notebook.verdict(self.passed, str(self)) + notebook.folded(
            f"{len(self.checks)} runs", notebook.sentences(map(str, self.checks))
        )

    def __str__(self) -> str:
        head = f"{self.kernel} on {self.problem}: {self.verdict}"
        cut = [f"  NOT RUN: {'; '.join(self.left_out)}"] if self.left_out else []
        told = [f"  NOTE: {sentence}" for sentence in self.notes]
        return "\n".join([head, *(f"  {c}" for c in self.checks), *cut, *told])


def verify(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    *,
    orders: Sequence[Order] = ("late", "early", "random"),
    random_inputs: bool = True,
    seed: int = 0,
    derived: Problem | None = None,
    thorough: bool = False,
    whole: bool = False,
    cpu_seconds: float = CPU_SECONDS,
    to_first_failure: bool = False,
    only: int | None = None,
    lines: LineInfo | None = None,
) -> Verification:
    """Emulates `kernel` on problems derived from `problem`, under several orders of asynchronous work.

    derived           a problem to run instead of the derived ones
    thorough          also run tiles that use fewer slots than their rings have, and the first, the last and the edge
                      CTAs of the problem itself, over sparsely backed tensors
    whole             also run the problem itself, all of it in place of some CTAs, where it is small
    cpu_seconds       CPU time after which no further run begins; what was left out is said
    to_first_failure  end with the first run that fails
    only              the number of the one run that is tried, counted round and round; None tries them all
    lines             of the kernel: faults are told with the statement of the program that they are about

    Raises RefusedText where the emulator cannot read or run the text.
    """
    check_seed(seed)
    runs = list(plan(kernel, machine, problem, orders, random_inputs, thorough, derived))
    posed = tuple(dict.fromkeys(r.problem for r in runs))
    order: Order = orders[0] if orders else "late"
    if only is not None:
        runs = [runs[only % len(runs)]]
    budget = Budget(cpu_seconds)
    checks: list[Check] = []
    code = _prepared(kernel, lines)
    first: Report | None = None
    trials: dict[Posing, Trial] = {}

    def ended() -> bool:
        return to_first_failure and any(not c.passed for c in checks)

    def drawn_and_run(run: Run, seed_of_inputs: int = seed) -> Trial:
        budget.begins(run.rounds(kernel))
        trial = draw(machine, run.problem, run.inputs, seed_of_inputs, point=dict(kernel.point), numbers=run.numbers)
        checks.append(_run(kernel, code, run, trial, seed, lines)[0])
        return trial

    for run in runs:
        sentence = run.where or f"{run.inputs}, {run.order}"
        if not ended() and budget.allows(sentence, run.rounds(kernel)):
            budget.begins(run.rounds(kernel))
            if run.posing not in trials:
                trials[run.posing] = draw(
                    machine, run.problem, run.inputs, seed, point=dict(kernel.point), numbers=run.numbers
                )
            check, report = _run(kernel, code, run, trials[run.posing], seed, lines)
            checks.append(check)
            first = first or report
            if run.inputs == "specials" and check.passed and 2 * check.special > check.elements:
                runs.append(replace(run, inputs="random"))
    drawn = list(trials.values())
    for more in range(1, MORE_DRAWS + 1) if random_inputs and only is None else ():
        rare = bool(unexecuted(checks, first.lines if first else (), lines))
        again = replace(runs[0], inputs="rising" if rare and more % 2 else "random", where=f"draw {more + 1}")
        done = not rare and not any(_unvaried(drawn))
        if ended() or done or not budget.allows(str(again.where), again.rounds(kernel)):
            break
        drawn.append(drawn_and_run(again, seed + more))
    larger = beyond.NOTHING
    if derived is None and only is None and not ended():
        larger = beyond.beyond(kernel, machine, problem, posed)
    for run in beyond.runs_of(kernel, larger, order):
        if not ended() and budget.allows(run.where, run.rounds(kernel)):
            try:
                drawn_and_run(run)
            except UsersCodeError as error:
                budget.left_out.append(f"{run.where}: {_no_memory(error)}")
    all_of_it = False
    of_itself = itself.runs_of(kernel, problem, order)
    for run in of_itself if whole and derived is None and problem not in (*posed, *larger.problems) else ():
        if ended() or not budget.allows_in(itself.CPU_SECONDS, run.rounds(kernel)):
            break
        drawn_and_run(run)
        all_of_it = True
    budget.left_out += within_memory.told(kernel, machine, problem, posed[0])
    if not ended():
        checks += _far(kernel, code, machine, problem, runs[0], trials, seed, budget, lines)
    if thorough and not all_of_it and runs[0].problem != problem and (named := sizes_named(machine)):
        asked = ", ".join(named)
        why = f"the reference asks for {asked}, and is worked out for whole problems alone"
        budget.left_out.append(f"CTAs of the problem itself: {why}")
    elif thorough and not all_of_it and runs[0].problem != problem and not ended():
        tried = [t.amplitude for (_, inputs, _), t in trials.items() if inputs == "integers"]
        most, small = min(tried, default=None), runs[0].problem
        checks += _sampled(kernel, code, machine, problem, small, seed, budget, lines, most)
    counted = (first.counters, first.lines) if first is not None else (None, {})
    notes = [*_unvaried(drawn), *beyond.told(larger)]
    if only is None and all(c.passed for c in checks) and (never := unexecuted(checks, counted[1], lines)):
        notes.append(told_unexecuted(never))
    return Verification(
        kernel.name, runs[0].problem, tuple(checks), counted[0], counted[1], tuple(budget.left_out), tuple(notes)
    )


def _unvaried(trials: Sequence[Trial]) -> Iterator[str]:
    """A sentence for each output of which the reference is the same number in all elements of several runs."""
    for name in trials[0].answers if trials else ():
        found = [np.unique(np.asarray(t.answers[name].value, dtype=np.float64)) for t in trials]
        numbers = np.unique(np.concatenate(found))
        if len(numbers) == 1 and any(np.size(t.answers[name].value) > 1 for t in trials):
            yield (
                f"{name} is {numbers[0] + 0.0:g} in every element of every run, so that little is judged; "
                "declare values= of the inputs by which it is not"
            )


def _prepared(kernel: Kernel, lines: LineInfo | None) -> PreparedKernel:
    try:
        return prepare(kernel.ptx)
    except PtxSyntaxError as error:
        raise RefusedText(lines.refusal(error) if lines is not None else str(error)) from error


def _far(
    kernel: Kernel,
    code: PreparedKernel,
    machine: type[Machine],
    problem: Problem,
    run: Run,
    trials: Mapping[Posing, Trial],
    seed: int,
    budget: Budget,
    lines: LineInfo | None,
) -> list[Check]:
    """The check of a run on tables as long as the problem's, where data name their rows."""
    far = far_rows(kernel, machine, problem, run.problem)
    if isinstance(far, str):
        budget.left_out.append(far)
        return []
    trial = trials.get(run.posing)
    if far is None or trial is None or not budget.allows(str(far), run.rounds(kernel)):
        return []
    budget.begins(run.rounds(kernel))
    return [far_check(far, kernel, code, trial, run.ctas, seed, lines)]


def _sampled(
    kernel: Kernel,
    code: PreparedKernel,
    machine: type[Machine],
    problem: Problem,
    small: Problem,
    seed: int,
    budget: Budget,
    lines: LineInfo | None,
    at_most: int | None,
) -> list[Check]:
    """Checks of CTAs of the problem itself, as many as the budget allows and the memory holds together.

    small  a derived problem: its loops are run where those of the problem itself are longer
    """
    if _knows_places(kernel, machine, problem):
        unknown = "their results hang on where they lie, which no window shows"
        budget.left_out.append(f"CTAs of the problem itself: {unknown}")
        return []
    posed = shortened(kernel, machine, problem, small) or problem
    fewer = " and ".join(f"{d}={size:,} of {problem.dim[d]:,}" for d, size in posed.dims if size != problem.dim[d])
    together: list[Chosen] = []
    rounds = 0
    found = chosen_clusters(kernel, posed)
    if why := why_not_judged(kernel, machine, posed, found):
        budget.left_out.append(f"CTAs of the problem itself: {why}")
        return []
    for chosen in found:
        large = why_not_run(kernel, machine, posed, [chosen])
        if large:
            budget.left_out.append(f"{chosen}: {large}")
        elif budget.allows(str(chosen), rounds + chosen.rounds(kernel, posed), bool(together)):
            together.append(chosen)
            rounds += chosen.rounds(kernel, posed)
    if not together:
        return []
    groups = [[one] for one in together] if why_not_run(kernel, machine, posed, together) else [together]
    checks = []
    for group in groups:
        try:
            judged = sampled_checks(kernel, code, machine, posed, group, seed, lines, at_most, small)
        except UsersCodeError as error:
            budget.left_out.append(f"{'; '.join(map(str, group))}: {_no_memory(error)}")
            continue
        if not judged:
            budget.left_out.append(f"{'; '.join(map(str, group))}: they touch more of tensors than their windows")
        checks += judged
    return [replace(c, where=f"{c.where}, with {fewer}") for c in checks] if fewer else checks


def _no_memory(error: UsersCodeError) -> str:
    """Why a run is left out whose reference asks for more memory than there is; raises again what has another cause."""
    if not isinstance(error.__cause__, MemoryError):
        raise error
    return f"the reference asks for more memory than there is ({error.__cause__})"


def _knows_places(kernel: Kernel, machine: type[Machine], problem: Problem) -> bool:
    """Whether the reference says of a window of the problem something else than of the whole."""
    several = {axis for axis, count in enumerate(kernel.counts(problem)) if count > 1}
    return traced(kernel, machine, problem).program.knows_places(several)


def _run(
    kernel: Kernel, code: PreparedKernel, run: Run, trial: Trial, seed: int, lines: LineInfo | None
) -> tuple[Check, Report | None]:
    """One emulation of the whole grid of a small problem."""
    problem, operands = run.problem, trial.operands()
    grid = kernel.grid(problem, run.ctas)
    spaces = workspaces(kernel, problem, grid[0])
    try:
        report = emulate_launch(
            kernel, code, problem, grid, {**buffers_of(operands), **spaces}, trial.scalars,
            order=run.order, seed=seed, together=math.prod(kernel.clusters) if run.alone else None,
        )  # fmt: skip
    except EmulationFault as fault:
        said = str(fault) if lines is None else lines.fault(fault)
        return Check(run.inputs, run.order, float("nan"), 0.0, 0, 0, said, run.where), None
    except (PtxSyntaxError, UnsupportedInstruction) as error:
        raise RefusedText(lines.refusal(error) if lines is not None else str(error)) from error
    check = compare(trial, operands, run.order)
    # What hardware runs although the manual forbids it is no fault of other compilers' kernels; of ours it is.
    advised = ""
    if report.advisories:
        first = report.advisories[0]
        advised = f"advisory: {first if lines is None else lines.advisory(first)}"
    if report.unfinished:
        advised = f"a CTA ends in the middle of a phase: {report.unfinished[0]}"
    for w in kernel.workspaces:
        if w.zeroed and spaces[w.name].array.any():
            advised = f"{w.name} is left with other bytes than zeros, which the next launch relies on"
    return replace(check, where=run.where, fault=advised, executed=report.executed), report
