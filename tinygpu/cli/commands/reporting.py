"""`tinygpu report`: one page about a tuning run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report_command(
    run: Annotated[Path, typer.Argument(help="run.json or its folder, from `tinygpu tune`; or a saved search result")],
    out: Annotated[Path, typer.Option("--out", "-o", help="the page to write")] = Path("report.html"),
    results: Annotated[Path | None, typer.Option(help="measured times, from `python -m tinygpu.ptx.measuring`")] = None,
) -> None:
    """Write one page about a tuning run: what was pruned and why, how the search went, the best candidates and more.

    The page is one file that needs no network: open it in a browser, send it, keep it.

    Examples: `tinygpu report runs/FOLDER -o report.html`, `tinygpu report run.json --results mm.results.jsonl`
    """
    from tinygpu.api.report import load_run, report, with_results
    from tinygpu.files.writing import write_file
    from tinygpu.search.measured import load_results

    found = load_run(run)
    if results is not None:
        found = with_results(found, load_results(results))
    page = report(found)
    write_file(out, page, (b"<!DOCTYPE html>",), "a page")
    print(f"wrote {out}: {found.title}, {len(page.encode()) / 1024:,.0f} KiB")
