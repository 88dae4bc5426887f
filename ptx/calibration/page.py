"""The generated table of docs/calibration.md: python -m tinygpu.ptx.calibration.page [--check] [FILE]."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.suite import microbenchmarks

PAGE = Path("docs/calibration.md")
_BLOCK = re.compile(r"(?<=<!-- microbenchmarks -->\n).*?(?=<!-- /microbenchmarks -->)", re.DOTALL)


def tables() -> str:
    """One table for each group."""
    groups: dict[str, list[Microbenchmark]] = {}
    for b in sorted(microbenchmarks(), key=lambda b: b.group == "synchronisation"):
        groups.setdefault(b.group, []).append(b)
    out = []
    for group, found in groups.items():
        out.append(f"\n### {group.capitalize()}\n")
        out.append("| microbenchmark | what it times | PTX | figure | formula | accepted |")
        out.append("| --- | --- | --- | --- | --- | --- |")
        for b in found:
            for number, r in enumerate(b.readings):
                head = (f"`{b.name}`", b.measures, b.target) if number == 0 else ("", "", "")
                figure = f"{r.name} (`{r.field}`)" if r.field else r.name
                accepted = f"{r.least:,g} to {r.most:,g} {r.unit}"
                out.append(f"| {' | '.join((*head, figure, r.formula, accepted))} |")
    return "\n".join([*out, ""])


def with_tables(page: str) -> str:
    """The page with its tables as they should be."""
    return _BLOCK.sub(lambda _: tables(), page)


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; 0 where all is well, 1 where --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.calibration.page", description="Write the tables.")
    parser.add_argument("page", nargs="?", type=Path, default=PAGE, help=f"the page ({PAGE})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    options = parser.parse_args(arguments)
    text = options.page.read_text(encoding="utf-8")
    wanted = with_tables(text)
    if options.check:
        if wanted != text:
            print(f"{options.page} is not what the microbenchmarks say; run {parser.prog}", file=sys.stderr)
        return int(wanted != text)
    options.page.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
