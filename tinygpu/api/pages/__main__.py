"""Writes the pages: python -m tinygpu.api.pages [--check] [--folder FOLDER] [NAME ...]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tinygpu.api.machines import SHIPPED
from tinygpu.api.pages.account import Account
from tinygpu.api.pages.index import index
from tinygpu.api.pages.page import page

FOLDER = Path("docs/machines")
COMMAND = "python -m tinygpu.api.pages"


def pages(names: Sequence[str] = ()) -> dict[str, str]:
    """File name -> text of every page and of the index; with names of machines, of these pages alone."""
    accounts = [Account.of(name) for name in names or SHIPPED]
    made = {f"{a.name}.md": page(a) for a in accounts}
    return made if names else {"README.md": index(accounts)} | made


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
    """Pages of machines that do not ship."""
    return [p for p in sorted(folder.glob("*.md")) if p.stem not in SHIPPED and p.name != "README.md"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages; 0: all is well, 1: --check finds a difference, 2: no such machine."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the pages of the machines that ship.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="machines; all of them and the index by default")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the pages are ({FOLDER})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    for name in options.names:
        if name not in SHIPPED:
            parser.error(f"there is no machine {name!r} that ships; there are {', '.join(SHIPPED)}")
    wanted = pages(options.names)
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
    print(f"{len(wanted)} page{'s' * (len(wanted) != 1)} in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
