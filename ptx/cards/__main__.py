"""Writes the cards: python -m tinygpu.ptx.cards [--check] [FOLDER]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tinygpu.ptx.cards.collect import cards
from tinygpu.ptx.cards.page import index, page

FOLDER = Path("docs/instructions")


def pages() -> dict[str, str]:
    """File name -> text of every page."""
    return {"README.md": index(cards())} | {f"{c.name}.md": page(c) for c in cards()}


def differences(folder: Path) -> list[str]:
    """One sentence for every file of `folder` that is not what it should be."""
    wanted = pages()
    found = {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    out = [f"{folder / name} is missing" for name in wanted if name not in found]
    out += [
        f"{folder / name} is not what the cards say" for name in wanted if found.get(name, wanted[name]) != wanted[name]
    ]
    out += [f"{folder / name} belongs to no instruction" for name in found if name not in wanted]
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the pages; 0 where all is well, 1 where --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.cards", description="Write the instruction cards.")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"where the pages are ({FOLDER})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page differs")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if options.check:
        wrong = differences(folder)
        for sentence in wrong:
            print(f"{sentence}; run python -m tinygpu.ptx.cards {folder}", file=sys.stderr)
        return 1 if wrong else 0
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for stale in folder.glob("*.md"):
        if stale.name not in wanted:
            stale.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(wanted)} pages in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
