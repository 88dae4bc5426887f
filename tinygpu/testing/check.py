"""check_machine: what can be checked of a machine without a GPU, tier by tier, with a table of what was tried."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from tinygpu.devices import Device, device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.seeds import check_seed
from tinygpu.testing.bench import Bench, Progress, draw_problems, sample
from tinygpu.testing.case import Case
from tinygpu.testing.cases import examine
from tinygpu.testing.declaration import check_declaration
from tinygpu.testing.draws import DEVICES
from tinygpu.testing.judges import judge
from tinygpu.testing.report import TIERS, CheckReport, Failure, Row
from tinygpu.testing.worth import check_dominance, check_legality, check_needed

# Failures of one row beyond which no more cases are tried.
ENOUGH = 3


class CheckError(ValueError):
    """A check that cannot be run as asked: an unknown tier, no problems, no devices."""


def run_check(
    machine: type[Machine],
    *,
    problems: int | Sequence[Problem] = 8,
    devices: Sequence[str | Device] = DEVICES,
    candidates: int = 16,
    seed: int = 0,
    tiers: Iterable[int] = tuple(TIERS),
    progress: Progress = lambda text: None,
) -> CheckReport:
    """Checks a machine and returns what was tried and found; nothing is printed.

    problems    how many to draw (any sizes, types, orders, pitches, alignments and options that the machine takes), or
                the problems themselves
    devices     devices by name or value; problems take them in turn
    candidates  admitted candidates to draw for each check that looks at candidates
    seed        the same seed draws the same
    tiers       1 declaration, 2 partitions and layouts, 3 heuristics against counting, 4 legality against its judges,
                5 kernels, 6 what constraints are worth
    progress    told what goes on, in a few words

    Raises CheckError for what cannot be asked, ProblemError where the machine refuses every problem that is drawn.
    """
    begun = time.perf_counter()
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
    rng = np.random.default_rng(seed)
    if isinstance(problems, int):
        if problems < 1:
            raise CheckError(f"at least one problem is drawn, not {problems}")
        chosen = draw_problems(machine, problems, rng)
    else:
        chosen = tuple(problems)
        if not chosen:
            raise CheckError("no problem is given")
    bench = Bench(machine, chosen, tuple(device(d) for d in devices), candidates, rng, progress)
    rows = check_declaration(bench)
    if 1 not in wanted and all(not r.failures for r in rows):
        rows = []
    if 2 in wanted:
        rows.append(_each(bench, 2, "partitions cover exactly once", "partitions"))
        rows.append(_each(bench, 2, "layouts are injective and in bounds", "layouts"))
    if 3 in wanted:
        rows.append(_each(bench, 3, "closed forms equal listing", "counts"))
        rows.append(_each(bench, 3, "listing equals the emulator", "meter", max(1, candidates // 2)))
    if {4, 6} & set(wanted):
        legality, known = check_legality(bench)
        rows += legality if 4 in wanted else []
    if 5 in wanted:
        rows.append(_kernels(bench))
    if 6 in wanted:
        rows += check_needed(bench, known)
        rows += check_dominance(bench)
    rows.sort(key=lambda r: r.tier)
    return CheckReport(
        machine.__name__,
        tuple(str(p) for p in chosen),
        tuple(d.name for d in bench.devices),
        seed,
        tuple(rows),
        time.perf_counter() - begun,
    )


def check_machine(
    machine: type[Machine],
    *,
    problems: int | Sequence[Problem] = 8,
    devices: Sequence[str | Device] = DEVICES,
    candidates: int = 16,
    seed: int = 0,
    tiers: Iterable[int] = tuple(TIERS),
    save: str | Path | None = None,
    tell: Callable[[str], None] = print,
) -> CheckReport:
    """Checks a machine as `run_check` does, prints the table, and saves it as JSON where `save` names a file.

    Raises AssertionError, with the failures and what reproduces them, where anything is wrong: so that one line in a
    test is enough.
    """
    report = run_check(
        machine, problems=problems, devices=devices, candidates=candidates, seed=seed, tiers=tiers
    )
    tell(str(report))
    if save is not None:
        report.save(save)
    if not report.ok:
        raise AssertionError(str(report))
    return report


def _each(bench: Bench, tier: int, name: str, check: str, count: int | None = None) -> Row:
    """One check on drawn candidates."""
    failures: list[Failure] = []
    cases = bench.draw(count)
    tried = 0
    for number, case in enumerate(cases, 1):
        bench.progress(f"{name}: {number} of {len(cases)}")
        tried += 1
        fault = _examined(check, case, bench)
        if fault:
            failures.append(bench.failure(check, case, fault))
            if len(failures) == ENOUGH:
                break
    return Row(tier, name, tried, "candidates", tuple(failures))


def _examined(check: str, case: Case, bench: Bench) -> str:
    try:
        return examine(check, case, bench.cache)
    except Exception as error:  # a machine's own code may raise anything; it is a finding
        return f"{type(error).__name__}: {error}"


def _kernels(bench: Bench) -> Row:
    failures: list[Failure] = []
    spilled: list[str] = []
    errors: list[int] = []
    cases = bench.draw()
    tried = 0
    for number, case in enumerate(cases, 1):
        bench.progress(f"kernels: {number} of {len(cases)}")
        tried += 1
        judged = judge(case, bench.cache)
        if judged.stage != "right":
            failures.append(bench.failure("kernel", case, f"{judged.stage}: {judged.sentence}"))
            if len(failures) == ENOUGH:
                break
        if judged.spills:
            spilled.append(str(case))
        if judged.registers:
            errors.append(judged.registers - judged.estimate)
    notes = []
    if errors:
        notes.append(
            f"registers: the assembler takes {min(errors):+d} to {max(errors):+d} of the estimate, "
            f"{np.median(errors):+.0f} in the middle"
        )
    if spilled:
        notes.append(f"{len(spilled)} of {tried} spill, for example {spilled[0]}")
    return Row(5, "kernels are right", tried, "candidates", tuple(failures), tuple(notes))


__all__ = ["CheckError", "check_machine", "run_check", "sample"]
