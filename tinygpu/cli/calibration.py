"""`tinygpu calibrate`: its tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.markup import escape

from tinygpu.api.calibrate import Calibrated
from tinygpu.cli.printing import console, table
from tinygpu.ptx.calibration import Microbenchmark, Outcome
from tinygpu.ptx.calibration.emulated import Proof


def listed_report(benchmarks: Sequence[Microbenchmark]) -> None:
    """Every microbenchmark with the figures that follow from it."""
    rows = table("microbenchmark", "group", "PTX", "figure", "replaces", "unit")
    for b in benchmarks:
        for number, r in enumerate(b.readings):
            head = (b.name, b.group, b.target) if number == 0 else ("", "", "")
            rows.add_row(*head, r.name, r.field or "-", r.unit)
    console.print(rows)


def listed_json(benchmarks: Sequence[Microbenchmark]) -> list[dict[str, Any]]:
    return [
        {
            "name": b.name, "group": b.group, "target": b.target, "measures": b.measures,
            "figures": [{"name": r.name, "field": r.field, "unit": r.unit, "formula": r.formula} for r in b.readings],
        }
        for b in benchmarks
    ]  # fmt: skip


def proof_line(benchmark: Microbenchmark, proof: Proof) -> None:
    """One line for a microbenchmark that was emulated, and one for each thing that is wrong."""
    counts = ", ".join(f"{name} {count:,}" for name, count in proof.per_trip.items())
    verdict = "right" if proof.holds else "[bold red]wrong[/bold red]"
    console.print(f"{verdict}  {benchmark.name:24} a trip is {escape(counts)}")
    for complaint in proof.complaints:
        console.print(f"       {escape(complaint)}")


def outcome_line(benchmark: Microbenchmark, outcome: Outcome) -> None:
    """The figures of a microbenchmark, as they come."""
    if outcome.failure is not None:
        kind = "not for this GPU" if outcome.failure.skipped else "[bold red]failed[/bold red]"
        console.print(f"{benchmark.name:24} {kind}: {escape(outcome.failure.sentence)}")
    for f in outcome.figures:
        note = f" [bold]not used[/bold]: {escape(f.doubt)}" if f.doubt else ""
        place = f" -> {f.field}" if f.used else ""
        console.print(f"{f.benchmark:24} {f.name}: {f.value:,.4g} {f.unit} (+- {50 * f.spread:.1f} %){place}{note}")


def calibrated_report(done: Calibrated) -> None:
    """Each figure that was replaced, beside the library's."""
    c = done.calibration
    if done.device is not None and done.base is not None:
        rows = table("figure", "measured>", "library>", "unit", "kind of the library's")
        for f in c.used:
            old = done.base.figure(f.field)
            rows.add_row(f.field, f"{f.value:.4g}", "-" if old.value is None else f"{old.value}", f.unit, old.kind)
        console.print()
        console.print(rows)
    doubts = sum(bool(f.doubt) for f in c.figures)
    skipped = len(c.failures) - len(c.failed)
    console.print(
        f"{c.gpu.name}, driver {c.gpu.driver}, {c.date}: {len(c.used)} figures replaced, {doubts} not used, "
        f"{len(c.failed)} microbenchmarks failed, {skipped} not for this GPU"
    )
    if done.stand_in:
        console.print(escape(done.stand_in))
    if done.path is not None:
        console.print(f"wrote {done.path}")


def proofs_json(proofs: Sequence[Proof]) -> list[dict[str, Any]]:
    return [asdict(p) | {"holds": p.holds} for p in proofs]
