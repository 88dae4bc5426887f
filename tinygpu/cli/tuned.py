"""What `tinygpu tune` prints: which machines apply, what is left of a space, the best, the winner, and where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.markup import escape

from tinygpu.api.choosing import Chosen, Finalist
from tinygpu.api.tune import Searched, Tuned
from tinygpu.cli.printing import console, layouts_report, plain_name, short_point, table, verification_report
from tinygpu.devices import Device
from tinygpu.ptx.runtime.driver import DriverStatus
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.verify import Verification
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import RESOLUTION, alike
from tinygpu.spaces.built import BuiltSpace

# Rows of the funnel, and of the best candidates.
FUNNEL_ROWS = 10
BEST_ROWS = 6

# What a kernel was tried with.
INPUTS: dict[Inputs, str] = {
    "integers": "whole numbers",
    "signs": "whole numbers",
    "other signs": "whole numbers",
    "last": "whole numbers",
    "other last": "whole numbers",
    "random": "random numbers",
    "specials": "random numbers with NaN, infinities and extremes among them",
    "other specials": "random numbers with NaN, infinities and extremes among them",
    "lines": "random numbers with lines far below zero, next to it, and of zeros",
    "other lines": "random numbers with lines far below zero, next to it, and of zeros",
    "blocks": "random numbers with lines far below zero, next to it, and of zeros",
    "other blocks": "random numbers with lines far below zero, next to it, and of zeros",
    "rising": "random numbers that rise along every axis",
    "compared": "random numbers with those among them that data are compared with",
    "beyond": "random numbers with lines beyond those that the program starts or fills with",
    "other beyond": "random numbers with lines beyond those that the program starts or fills with",
    "neighbours": "random numbers with NaN beside the lines that integers name",
    "other neighbours": "random numbers with NaN beside the lines that integers name",
}


def tuned_report(t: Tuned, files: Sequence[Path], driver: DriverStatus, *, verbose: bool) -> None:
    """The run for people; `verbose` adds reasons, checks and counts."""
    w = t.winner
    console.print(f"\n[bold]{escape(t.family)}[/bold] {escape(str(w.space.problem))} on {t.device.name}")
    for refusal in t.refused:
        console.print(f"{refusal.machine} does not take this problem: {escape(refusal.sentence)}")
    for s in t.searched:
        _machine(s, w, verbose)
    for failure in t.failed:
        console.print(f"left out: {escape(str(failure))}")
    if not verbose:
        funnel(w.space)
    best(t)
    console.print(
        f"\n[bold]winner: {w.space.machine.__name__}[/bold], predicted {_us(w)} us "
        f"({100 * float(w.prediction.share_of_roofline):.0f} % of the roofline) on {t.device.name}"
    )
    if unused := tensor_memory(t.device, w):
        console.print(unused)
    layouts_report(w)
    if verbose or not t.verification.passed:
        verification_report(t.verification)
    else:
        console.print(verified(t.verification))
    console.print(f"not measured: {driver.reason}" if not driver.present else "not measured yet: give --measure 50")
    console.print(f"wrote {', '.join(f.name for f in files)} to {files[0].parent}")


def _machine(s: Searched, winner: Chosen, verbose: bool) -> None:
    """One machine that was searched, in a line."""
    name, space = s.space.machine.__name__, s.space.space
    if s.result is None:
        first = s.sentence.partition("; ")[0]
        console.print(f"{name} does not apply: {escape(s.sentence if verbose else first)}")
        if verbose:
            console.print(str(space.nearest()))
        return
    kept = [f for f in s.finalists if not f.spills]
    spilled = len(s.finalists) - len(kept)
    line = f"{name}: {space.size:,} of {space.raw_size:,} points are left by its constraints"
    if s.result.ended not in ("every point", "proof"):
        line += f", {len(s.result.history):,} were tried"
    if kept:
        line += f"; its best is predicted to take {_us(kept[0])} us"
        if s.space is not winner.space:
            times = float(kept[0].prediction.seconds) / float(winner.prediction.seconds)
            line += f", {times:.2f} times as long as the winner"
    elif not s.finalists and s.result.value is not None:
        us, times = s.result.value * 1e6, s.result.value / float(winner.prediction.seconds)
        line += f"; its best is predicted to take {us:,.1f} us, {times:.2f} times as long as the winner"
        line += ", and was not assembled"
    if spilled:
        parts = [p for f in s.finalists if f.spills for p in f.parts]
        worst = max(p.assembly.spill_store_bytes + p.assembly.spill_load_bytes for p in parts)
        line += f"; {spilled} more were assembled and left out, because they spill up to {worst} B of registers"
    console.print(line)
    if verbose:
        console.print(str(s.result).split("; best")[0])
        parts = [p for f in s.finalists for p in f.parts if p.assembly.registers < 255]
        errors = [p.assembly.registers - p.refined.registers for p in parts]
        if errors:
            console.print(
                f"register estimate: off by {min(errors):+d} to {max(errors):+d} on those that the assembler gives"
            )


def funnel(space: BuiltSpace, most: int = FUNNEL_ROWS) -> None:
    """What removed the most points, in at most so many rows."""
    removed: Counter[tuple[str, str, str]] = Counter()
    for row in space.space.funnel:
        removed[(plain_name(row.name), row.kind, row.source)] += row.removed
    ranked = [(key, count) for key, count in removed.most_common() if count]
    shown = ranked if len(ranked) <= most else ranked[: most - 1]
    rows = table("constraint", "kind", "brought by", "points removed>", title="")
    for (name, kind, source), count in shown:
        rows.add_row(name, kind, source, f"{count:,}")
    if rest := ranked[len(shown) :]:
        rows.add_row(f"{len(rest)} more", "", "", f"{sum(count for _, count in rest):,}")
    if ranked:
        console.print(f"\nwhat {space.machine.__name__}'s constraints remove (`tinygpu space` shows all)")
        console.print(rows)


def best(t: Tuned) -> None:
    """The best of all machines, each for another way to divide the work."""
    ranked = sorted((f for s in t.searched for f in s.finalists if not f.spills), key=lambda f: f.score)[:BEST_ROWS]
    title = "\nthe best that divide the work differently (predicted, not measured)"
    columns = ("#>", "machine", "predicted us>", "roofline>", "CTAs>", "threads>", "registers>", "CTAs/SM>")
    rows = table(*columns, "bottleneck", title=title)
    for number, f in enumerate(ranked, 1):
        rows.add_row(
            str(number),
            f.space.machine.__name__,
            _us(f),
            f"{100 * float(f.prediction.share_of_roofline):.0f} %",
            _each(f, lambda p: f"{p.built.kernel.grid(p.space.problem)[0]:,}"),
            _each(f, lambda p: str(p.built.kernel.threads)),
            _each(f, lambda p: str(p.assembly.registers)),
            _each(f, lambda p: str(int(p.prediction.occupancy.ctas_per_sm))),
            f.prediction.sentence(),
        )
    console.print(rows)
    results = {id(s.space): s.result for s in t.searched}
    some = False
    for number, f in enumerate(ranked, 1):
        line, result = f"{number}: {short_point(f)}", results[id(f.space)]
        if result is not None and isinstance(f, Finalist):
            others, differ = alike(PredictedTime(f.space), result, f.refined.point)
            if others:
                some = True
                said = "1 more that the model does" if others == 1 else f"{others:,} more that the model does"
                line += f"; and {said} not tell apart (other {', '.join(differ)})"
        console.print(escape(line))
    if some:
        alike_when = f"predicted times within {100 * RESOLUTION:g} %, and as many CTAs, threads and rounds"
        console.print(f"not told apart: {alike_when}")


def tensor_memory(device: Device, winner: Chosen) -> str:
    """What a winner leaves unused that multiplies beside the tensor memory of its device; nothing for others."""
    return next(filter(None, (_of_part(device, part) for part in winner.parts)), "")


def _of_part(device: Device, winner: Finalist) -> str:
    counts = winner.space.counts(winner.space.structure_index(winner.refined.point))
    if not device.number("tmem_kb_per_sm") or not counts.operand or counts.path == "tcgen05":
        return ""
    most = f"{100 * device.mma_sync_share():.0f} % of the tensor rate of {device.name}"
    return f"it does not multiply in tensor memory: {counts.path} reaches at most {most}, tcgen05.mma all of it"


def verified(v: Verification) -> str:
    """A verification that passed, in a sentence."""
    kinds = "; ".join(dict.fromkeys(INPUTS[c.inputs] for c in v.checks))
    cut = f"; NOT RUN: {'; '.join(v.left_out)}" if v.left_out else ""
    note = "".join(f"; NOTE: {sentence}" for sentence in v.notes)
    return f"{v.verdict}: {v.kernel} on {v.problem}, in {len(v.checks)} runs ({kinds}){cut}{note}; -v lists them"


def _each(f: Chosen, what: Callable[[Finalist], str]) -> str:
    """A figure of every kernel of a candidate."""
    return " + ".join(map(what, f.parts))


def _us(f: Chosen) -> str:
    return f"{float(f.prediction.seconds) * 1e6:,.1f}"


__all__ = ["tuned_report"]
