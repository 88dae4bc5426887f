"""check_machine: what can be checked of a machine without a GPU, tier by tier, with a table of what was tried."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tinygpu.devices import Device, device
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.plan import Plan
from tinygpu.language.problem import Problem
from tinygpu.seeds import check_seed
from tinygpu.testing.bench import Bench, Progress, open_bench
from tinygpu.testing.blame import pointers
from tinygpu.testing.case import Case
from tinygpu.testing.declaration import check_declaration
from tinygpu.testing.dominance import check_dominance
from tinygpu.testing.draws import DEVICES
from tinygpu.testing.finding import Finding
from tinygpu.testing.judges import ORDERS, judge
from tinygpu.testing.legality import check_legality, check_needed
from tinygpu.testing.plans import check_plan
from tinygpu.testing.report import TIERS, CheckReport, Failure, Row
from tinygpu.testing.workbench import Allowance

# Failures of one row beyond which no more cases are tried.
ENOUGH = 2
# Cases that every row tries, however long they take.
LEAST = 1
LEAST_KERNELS = 3
# CPU seconds for what a failure points to.
POINTING_SECONDS = 2.0
# CPU seconds that a check may take by default, and what share of them each row has.
SECONDS = 15.0
SHARES = {"partitions": 0.06, "layouts": 0.06, "counts": 0.08, "meter": 0.08, "legality": 0.25, "needed": 0.04}
SHARES |= {"dominance": 0.04, "handovers": 0.05, "kernel": 0.34}


class CheckError(ValueError):
    """A check that cannot be run as asked: an unknown tier, no problems, no devices."""


def run_check(
    machine: type[Declared],
    *,
    problems: int | Sequence[Problem] = 8,
    devices: Sequence[str | Device] = DEVICES,
    candidates: int = 16,
    seed: int = 0,
    tiers: Iterable[int] = tuple(TIERS),
    seconds: float = SECONDS,
    progress: Progress = lambda text: None,
) -> CheckReport:
    """Checks a machine, or a plan, and returns what was tried and found; nothing is printed.

    problems    how many to draw (any sizes, types, orders, pitches, alignments and options for which the machine has
                candidates), or the problems themselves
    devices     devices by name or value; problems take those on which the machine exists in turn
    candidates  admitted candidates to draw for each check that looks at candidates
    seed        the same seed draws the same
    tiers       1 declaration, 2 partitions and layouts, 3 heuristics against counting, 4 legality against its judges,
                5 kernels, 6 what constraints are worth
    seconds     CPU time after which no more cases are begun, beyond a few for every check; infinite for no limit. What
                was not tried is counted in the report
    progress    told what goes on, in a few words

    Raises CheckError for what cannot be asked, ProblemError where the machine refuses every problem that is drawn.
    """
    begun = time.process_time()
    wanted = tuple(sorted(set(tiers)))
    for tier in wanted:
        if tier not in TIERS:
            raise CheckError(f"there is no tier {tier!r}; there are {', '.join(map(str, TIERS))}")
    if not wanted:
        raise CheckError("no tier is asked for; there are " + ", ".join(map(str, TIERS)))
    if not devices:
        raise CheckError("no device is given; name one, for example a100")
    if candidates < 1:
        raise CheckError(f"at least one candidate is drawn, not {candidates}")
    check_seed(seed)
    if isinstance(problems, int) and problems < 1:
        raise CheckError(f"at least one problem is drawn, not {problems}")
    if not isinstance(problems, int) and not problems:
        raise CheckError("no problem is given")
    if issubclass(machine, Plan):
        found = tuple(device(d) for d in devices)
        return check_plan(
            machine, problems=problems, devices=found, candidates=candidates, seed=seed, tiers=wanted, seconds=seconds,
            progress=progress,
        )  # fmt: skip
    if not issubclass(machine, Machine):
        raise CheckError(f"a machine or a plan is checked, not {machine.__name__}")
    bench = open_bench(machine, problems, tuple(device(d) for d in devices), candidates, seed, progress)
    rows = check_declaration(bench)
    if 1 not in wanted and all(r.passed for r in rows):
        rows = []
    library: tuple[Failure, ...] = ()
    # what cannot be traced, or has no candidate, has nothing that later tiers could look at
    if bench.posings:
        more, library = _later_tiers(bench, wanted, max(seconds - (time.process_time() - begun), seconds / 2))
        rows += more
    rows.sort(key=lambda r: r.tier)
    return CheckReport(
        machine.__name__,
        tuple(str(p) for p in bench.problems),
        tuple(d.name for d in bench.devices),
        seed,
        tuple(rows),
        library,
        time.process_time() - begun,
    )


def _later_tiers(bench: Bench, wanted: tuple[int, ...], seconds: float) -> tuple[list[Row], tuple[Failure, ...]]:
    """The rows of the tiers after the first, and what seems wrong with the library.

    What a row leaves of its time, the rows after it share; kernels, which tell most, come last.
    """
    ends = time.process_time() + seconds
    left = dict(SHARES)

    def share(row: str) -> Allowance:
        part = left.pop(row) / (sum(left.values()) + SHARES[row])
        return Allowance.of((ends - time.process_time()) * part)

    rows: list[Row] = []
    library: list[Failure] = []
    if 2 in wanted:
        rows.append(_each(bench, 2, "partitions cover exactly once", "partitions", share("partitions")))
        rows.append(_each(bench, 2, "layouts are injective and in bounds", "layouts", share("layouts")))
    if 3 in wanted:
        rows.append(_each(bench, 3, "counts equal listing", "counts", share("counts")))
        rows.append(
            _each(bench, 3, "listing equals the emulator", "meter", share("meter"), max(1, bench.candidates // 2))
        )
    if {4, 6} & set(wanted):
        legality, known, eager = check_legality(bench, share("legality"))
        if 4 in wanted:
            rows.append(legality)
            library += eager
        if 6 in wanted:
            rows.append(check_needed(bench, known, share("needed")))
            dominance, slower = check_dominance(bench, share("dominance"))
            rows.append(dominance)
            library += slower
    if 5 in wanted:
        left = {name: SHARES[name] for name in ("handovers", "kernel")}
        rows.append(_each(bench, 5, "hand-overs are proved", "handovers", share("handovers")))
        rows.append(_kernels(bench, share("kernel"), thorough=math.isinf(seconds)))
    return rows, tuple(library)


def check_machine(
    machine: type[Declared],
    *,
    problems: int | Sequence[Problem] = 8,
    devices: Sequence[str | Device] = DEVICES,
    candidates: int = 16,
    seed: int = 0,
    tiers: Iterable[int] = tuple(TIERS),
    seconds: float = SECONDS,
    save: str | Path | None = None,
    tell: Callable[[str], None] = print,
) -> CheckReport:
    """Checks a machine as `run_check` does, prints the table, and saves it as JSON where `save` names a file.

    Raises AssertionError, with the failures and what reproduces them, where anything is wrong or was not tried: so that
    one line in a test is enough.
    """
    report = run_check(
        machine,
        problems=problems,
        devices=devices,
        candidates=candidates,
        seed=seed,
        tiers=tiers,
        seconds=seconds,
    )
    tell(str(report))
    if save is not None:
        report.save(save)
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _each(bench: Bench, tier: int, name: str, check: str, allowance: Allowance, count: int | None = None) -> Row:
    """One check on drawn candidates."""
    failures: list[Failure] = []
    absent: dict[str, int] = {}
    blind: dict[str, int] = {}
    said: dict[str, None] = {}
    cases = bench.draw(check, count)
    tried = asked = 0
    for number, case in enumerate(cases, 1):
        if allowance.spent and tried >= LEAST:
            break
        bench.progress(f"{name}: {number} of {len(cases)}")
        asked += 1
        found = bench.examined(check, case)
        tried += found.looked
        said |= dict.fromkeys(found.note.splitlines())
        if found.absent:
            absent[found.absent] = absent.get(found.absent, 0) + 1
        elif found.blind:
            blind[found.blind] = blind.get(found.blind, 0) + 1
        elif found.fault:
            failures.append(bench.failure(check, case, found))
            if len(failures) == ENOUGH:
                break
    notes = [f"{count} not looked at: {reason}" for reason, count in blind.items()]
    notes += said
    untried = 0 if failures else len(cases) - asked + sum(blind.values())
    none = next(iter(absent)) if absent and not tried and not blind else ""
    return Row(tier, name, tried, "candidates", tuple(failures), tuple(notes), none, untried)


def _kernels(bench: Bench, allowance: Allowance, *, thorough: bool) -> Row:
    """Candidates that lower, assemble and run, each under one order of asynchronous work (or all of them)."""
    failures: list[Failure] = []
    spilled: list[str] = []
    errors: list[int] = []
    said: dict[str, None] = {}
    cases = bench.draw("kernel")
    tried = 0
    for number, case in enumerate(cases, 1):
        if allowance.spent and tried >= LEAST_KERNELS:
            break
        bench.progress(f"kernels: {number} of {len(cases)}")
        tried += 1
        judged = judge(case, bench.workbench, orders=ORDERS if thorough else (ORDERS[number % len(ORDERS)],))
        if judged.stage != "right":
            failures.append(_kernel_failure(bench, case, f"{judged.stage}: {judged.sentence}"))
            break  # what one wrong kernel points to is looked for at length; the next may be wrong for the same reason
        if judged.spills:
            spilled.append(str(case))
        if judged.verification is not None:
            said |= dict.fromkeys(judged.verification.notes)
        if judged.registers:
            errors.append(judged.registers - judged.estimate)
    notes = [*said]
    if errors:
        notes.append(
            f"registers: the assembler takes {min(errors):+d} to {max(errors):+d} of the estimate, "
            f"{np.median(errors):+.0f} in the middle"
        )
    if spilled:
        notes.append(f"{len(spilled)} of {tried} spill, for example {spilled[0]}")
    untried = 0 if failures else len(cases) - tried
    return Row(5, "kernels are right", tried, "candidates", tuple(failures), tuple(notes), "", untried)


def _kernel_failure(bench: Bench, case: Case, sentence: str) -> Failure:
    """A wrong kernel, as small as it was found, with what it points to."""
    failure = bench.failure("kernel", case, Finding(sentence))
    if failure.case is None:
        return failure
    bench.progress("kernels: what decides that it is wrong")
    judged = judge(failure.case, bench.workbench)
    found = pointers(failure.case, case, judged, bench.workbench, Allowance.of(POINTING_SECONDS))
    return replace(failure, pointers=found)


__all__ = ["CheckError", "check_machine", "run_check"]
