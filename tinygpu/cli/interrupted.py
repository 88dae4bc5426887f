"""What an interrupted `tinygpu tune` says and leaves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tinygpu.api.tune import Interrupted

# What a shell calls the end by Ctrl-C: 128 and the number of SIGINT.
INTERRUPTED = 130
MEASURING_INTERRUPTED = (
    "interrupted; times that were measured stay in their folder below runs/, and --results takes them in"
)


def interrupted_report(stopped: Interrupted, out: Path | None, journal: Path | None) -> None:
    """One sentence on what was found, and the run's file."""
    from tinygpu.api.output import of_a_run
    from tinygpu.api.report import RUN_FILE, run_of
    from tinygpu.files.folder import write_folder

    tried = sum(len(s.result.history) for s in stopped.searched if s.result is not None)
    best = stopped.best
    said = f"interrupted after {tried:,} candidates"
    if best is None:
        print(f"tinygpu: {said}; nothing was found", file=sys.stderr)
        return
    part, seconds = best
    dims = "-".join(f"{k}{v}" for k, v in part.space.problem.dims)
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{stopped.family}-{dims}-{stopped.device.name}-interrupted")
    file = (out or Path("runs") / name) / RUN_FILE
    write_folder(file.parent, {RUN_FILE: run_of(stopped).to_text()}, beside=of_a_run, keep=True)
    on = "; the same command goes on from there" if journal is not None else ""
    print(
        f"tinygpu: {said}: the best is {part.space.machine.__name__}'s, predicted {seconds * 1e6:,.1f} us, neither "
        f"assembled nor verified; wrote {file}{on}",
        file=sys.stderr,
    )
