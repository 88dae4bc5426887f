"""Live progress of a long command, on a terminal; on a pipe one line per step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from tinygpu.api.tune import Watcher
from tinygpu.cli.printing import space_report
from tinygpu.search.progress import Progress
from tinygpu.spaces.build import MachineSpace


@contextmanager
def watching(console: Console, *, quiet: bool) -> Iterator[Watcher]:
    """A watcher that shows each step, the search's rate and its best value while it runs."""
    if quiet:
        yield Watcher()
        return
    with console.status("") as status:
        current = ""

        def stage(text: str) -> None:
            nonlocal current
            current = text
            status.update(text)
            if not console.is_terminal:
                console.print(f"... {text}")

        def progress(p: Progress) -> None:
            value = p.best.value if p.best is not None else None
            best = f"best {value * 1e6:,.1f} us" if value is not None else "none yet"
            done = f"{p.evaluations:,}" + (f" of {p.total:,}" if p.total else "")
            status.update(f"{current}: {done} tried, {p.rate:,.0f}/s, {best}")

        def space(s: MachineSpace) -> None:
            if s.space.size or s.space.raw_size:
                space_report(s)

        yield Watcher(stage, progress, space)
