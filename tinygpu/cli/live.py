"""Live progress of a long command, on a terminal; on a pipe one line per step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from tinygpu.api.tune import Watcher
from tinygpu.cli.printing import space_report
from tinygpu.search.progress import Progress
from tinygpu.spaces.built import BuiltSpace


@contextmanager
def watching(console: Console, *, quiet: bool, verbose: bool = True) -> Iterator[Watcher]:
    """A watcher that shows each step, the search's rate and its best value while it runs.

    verbose  also what each constraint removed and, where the steps cannot be shown in place, a line for each
    """
    if quiet:
        yield Watcher()
        return
    with console.status("") as status:
        current = ""

        def stage(text: str) -> None:
            nonlocal current
            current = text
            status.update(text)
            if verbose and not console.is_terminal:
                console.print(f"... {text}")

        def progress(p: Progress) -> None:
            status.update(f"{current}: {progress_text(p)}")

        def space(s: BuiltSpace) -> None:
            if verbose and (s.space.size or s.space.raw_size):
                space_report(s)

        yield Watcher(stage, progress, space)


def progress_text(p: Progress) -> str:
    """Where a search stands: "3,000 of 94,616 tried, 210/s, best 13.4 us (52 % of the roofline), 12 failed (launch),
    7 min left"."""
    done = f"{p.evaluations:,}" + (f" of {p.total:,}" if p.total else "") + " tried"
    parts = [done, f"{p.rate:,.0f}/s" if p.rate >= 10 else f"{p.rate:.1f}/s"]
    if p.best is None or p.best.value is None:
        parts.append("none has a value yet")
    else:
        share = p.share_of_floor
        roofline = f" ({100 * share:.0f} % of the roofline)" if share is not None else ""
        parts.append(f"best {p.best.value * 1e6:,.1f} us{roofline}")
    if p.kinds:
        parts.append("failed: " + ", ".join(f"{count:,} {kind}" for kind, count in p.kinds.items()))
    if p.seconds_left is not None:
        parts.append(f"{duration_text(p.seconds_left)} left")
    return ", ".join(parts)


def duration_text(seconds: float) -> str:
    """45 s, 7 min, 3 h 20 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
