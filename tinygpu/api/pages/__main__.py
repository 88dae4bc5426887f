"""Writes the pages: python -m tinygpu.api.pages [--check] [--folder FOLDER] [NAME ...]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tinygpu.api.machines import PLANS, SHIPPED
from tinygpu.api.pages.account import Account
from tinygpu.api.pages.index import index
from tinygpu.api.pages.page import page
from tinygpu.api.pages.roofs import drawing

FOLDER = Path("docs/machines")
# Machines and plans, in the order of the index.
WRITTEN = (*SHIPPED, *PLANS)
COMMAND = "python -m tinygpu.api.pages"


def pages(names: Sequence[str] = (), folder: Path = FOLDER) -> dict[str, str]:
    """File name -> text of the index, of every page and of its drawing; with names of machines of theirs alone, and of
    an index in which other machines have the rows that `folder` has.
    """
    accounts = [Account.of(name) for name in names or WRITTEN]
    made = {f"{a.name}.{kind}": make(a) for a in accounts for kind, make in (("md", page), ("svg", drawing))}
    before = folder / "README.md"
    written = before.read_text(encoding="utf-8") if names and before.is_file() else ""
    return {"README.md": index(WRITTEN, accounts, written)} | made


def differences(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """One sentence for every page that is wanted and that `folder` does not have as it should be."""
    out = []
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file():
            out.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            out.append(f"{path} is not what the machine says")
    return out


def strangers(folder: Path) -> list[Path]:
    """Pages and drawings of machines that do not ship."""
    found = sorted((*folder.glob("*.md"), *folder.glob("*.svg")))
    return [p for p in found if p.stem not in WRITTEN and p.name != "README.md"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages; 0: all is well, 1: --check finds a difference, 2: no such machine."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the pages of the machines that ship.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="machines; all of them and the index by default")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the pages are ({FOLDER})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    for name in options.names:
        if name not in WRITTEN:
            parser.error(f"there is no machine {name!r} that ships; there are {', '.join(WRITTEN)}")
    wanted = pages(options.names, folder)
    stale = [] if options.names else strangers(folder)
    if options.check:
        wrong = [*differences(folder, wanted), *(f"{path} belongs to no machine" for path in stale)]
        for sentence in wrong:
            print(f"{sentence}; run {COMMAND}", file=sys.stderr)
        return 1 if wrong else 0
    folder.mkdir(parents=True, exist_ok=True)
    for path in stale:
        path.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{sum(name.endswith('.md') for name in wanted)} pages in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
