"""Writes docs/blackwell.md: python -m tinygpu.ptx.cards.blackwell [--check] [FILE]."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tinygpu.ptx.cards.blackwell.page import page
from tinygpu.ptx.cards.readings import counted

FILE = Path("docs/blackwell.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks the page; 0 where all is well, 1 where --check finds a difference."""
    parser = argparse.ArgumentParser(prog="python -m tinygpu.ptx.cards.blackwell", description="Write the page.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help=f"where the page is ({FILE})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
    options = parser.parse_args(arguments)
    file: Path = options.file
    if not options.check:
        file.write_text(page(), encoding="utf-8")
        print(f"{file}: {counted()}")
        return 0
    if file.is_file() and file.read_text(encoding="utf-8") == page():
        return 0
    wrong = "is not what the instructions say" if file.is_file() else "is missing"
    print(f"{file} {wrong}; run python -m tinygpu.ptx.cards.blackwell {file}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
