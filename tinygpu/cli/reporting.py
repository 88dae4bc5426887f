"""`tinygpu report`, and what an interrupted `tinygpu tune` says and leaves."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tinygpu.api.tune import Interrupted

# What a shell calls the end by Ctrl-C: 128 and the number of SIGINT.
INTERRUPTED = 130
MEASURING_INTERRUPTED = (
    "interrupted; times that were measured stay in their folder below runs/, and --results takes them in"
)


def report_command(
    run: Annotated[Path, typer.Argument(help="run.json or its folder, from `tinygpu tune`; or a saved search result")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the page to write")] = Path("report.html"),
    results: Annotated[Path | None, typer.Option(help="measured times, from `python -m tinygpu.ptx.worker`")] = None,
) -> None:
    """Write one page about a tuning run: what was pruned and why, how the search went, the best candidates and more.

    The page is one file that needs no network: open it in a browser, send it, keep it.

    Examples: `tinygpu report runs/FOLDER -o report.html`, `tinygpu report run.json --results mm.results.jsonl`
    """
    from tinygpu.api.report import load_run, report, with_results
    from tinygpu.search.measured import load_results

    found = load_run(run)
    if results is not None:
        found = with_results(found, load_results(results))
    page = report(found)
    out.write_text(page, encoding="utf-8")
    print(f"wrote {out}: {found.title}, {len(page.encode()) / 1024:,.0f} KiB")


def interrupted_report(stopped: Interrupted, out: Path | None, journal: Path | None) -> None:
    """One sentence on what was found, and the run's file."""
    from tinygpu.api.report import RUN_FILE, run_of

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
    run_of(stopped).save(file)
    on = "; the same command goes on from there" if journal is not None else ""
    print(
        f"tinygpu: {said}: the best is {part.space.machine.__name__}'s, predicted {seconds * 1e6:,.1f} us, neither "
        f"assembled nor verified; wrote {file}{on}",
        file=sys.stderr,
    )
