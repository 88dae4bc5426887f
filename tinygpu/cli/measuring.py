"""Bundles and measured results, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tinygpu.api.bundle import Bundled
from tinygpu.api.measured import MeasuredTuning
from tinygpu.cli.printing import console, layouts_report, table, verification_report
from tinygpu.search.measured import Measurement

# Rows of the table of measured times.
SHOWN = 10


def bundled_report(b: Bundled) -> None:
    for refusal in b.refused:
        console.print(f"[bold]{refusal.machine}[/bold] does not take this problem: {refusal.sentence}")
    if b.skipped:
        console.print(f"{len(b.skipped)} candidates have no kernel; the first: {b.skipped[0].sentence}")
    size = b.bundle.path.stat().st_size / 2**10
    told = f"{size:,.1f} KiB" if size < 2**10 else f"{size / 2**10:,.1f} MiB"
    console.print(f"wrote {b.bundle.path}: {len(b.bundle.entries)} kernels, {told}")
    console.print(f"on a machine with the GPU: python -m tinygpu.ptx.measuring {b.bundle.path.name}")


def bundled_json(b: Bundled) -> dict[str, Any]:
    return {
        "bundle": str(b.bundle.path),
        "title": b.bundle.title,
        "device": b.bundle.device,
        "kernels": len(b.bundle.entries),
        "digest": b.bundle.digest,
        "skipped": [{"machine": s.machine, "point": dict(s.point), "sentence": s.sentence} for s in b.skipped],
    }


def measured_report(t: MeasuredTuning, files: Sequence[Path]) -> None:
    """The best measured candidates beside what was predicted, the winner, and what failed."""
    for refusal in t.refused:
        console.print(f"[bold]{refusal.machine}[/bold] does not take this problem: {refusal.sentence}")
    timed = [m for m in t.measured if m.seconds is not None]
    tied = {m.kernel for m in t.ties}
    title = f"\n{t.results.said}: {t.results.title}"
    rows = table("#>", "cold us>", "quartiles us>", "warm us>", "predicted us>", "", title=title)
    for number, m in enumerate(timed[:SHOWN], 1):
        rows.add_row(
            str(number),
            _us(m.seconds),
            f"{_us(m.low)} to {_us(m.high)}",
            _us(m.warm_seconds),
            _us(m.predicted_s),
            "best" if number == 1 else "tie with the best" if m.kernel in tied else "",
        )
    console.print(rows)
    for number, m in enumerate(timed[:SHOWN], 1):
        console.print(f"{number}: {m.machine} " + " ".join(f"{k}={v}" for k, v in m.point.items()))
    _failures(t.measured)
    console.print(f"less than {100 * t.results.noise:.2f} % is noise: one kernel under two names differs by so much")
    w = t.winner
    console.print(
        f"\n[bold]winner: {w.space.machine.__name__}[/bold], {_us(t.time.seconds)} us cold, {t.results.said}; "
        f"predicted {_us(t.time.predicted_s)} us for {t.device.name}"
    )
    if t.changed:
        console.print("its kernel has changed since: this version of tinygpu writes other PTX for it; measure again")
    layouts_report(w)
    verification_report(t.verification)
    for f in files:
        console.print(f"wrote {f}")


def measured_json(t: MeasuredTuning) -> dict[str, Any]:
    """What `launch.json` keeps of a measurement."""
    return {
        "seconds": t.time.seconds,
        "quartiles": [t.time.low, t.time.high],
        "warm_seconds": t.time.warm_seconds,
        "l2": "cold",
        "gpu": t.results.gpu,
        "driver": t.results.driver,
        "date": t.results.date,
        "noise": t.results.noise,
        "ties": len(t.ties),
        "changed_since": t.changed,
    }


def _failures(measured: Sequence[Measurement]) -> None:
    kinds: dict[str, list[Measurement]] = {}
    for m in measured:
        if m.failure is not None:
            kinds.setdefault(m.failure.kind, []).append(m)
    for kind, failed in kinds.items():
        sentence = failed[0].failure.sentence if failed[0].failure is not None else ""
        console.print(f"{len(failed)} failed ({kind}); the first, {failed[0].kernel}: {sentence}")


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.2f}"
