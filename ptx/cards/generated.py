"""A page that is generated as a whole: a command writes it, or checks that it is what it should be."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GeneratedPage:
    """A page, and the module whose command writes it.

    file   where it is kept, from the checkout's root
    text   what it should be
    said   what there is in it, in a few words
    """

    module: str
    file: Path
    text: Callable[[], str]
    said: Callable[[], str]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Writes or checks the page; 0 where all is well, 1 where it cannot be, or --check finds a difference."""
        command = f"python -m {self.module}"
        parser = argparse.ArgumentParser(prog=command, description=f"Write {self.file}.")
        parser.add_argument("file", nargs="?", type=Path, default=self.file, help=f"where the page is ({self.file})")
        parser.add_argument("--check", action="store_true", help="write nothing; fail if the page differs")
        options = parser.parse_args(arguments)
        file: Path = options.file
        if not options.check:
            try:
                file.write_text(self.text(), encoding="utf-8")
            except OSError as error:
                print(f"{file} cannot be written: {error.strerror}; give another path", file=sys.stderr)
                return 1
            print(f"{file}: {self.said()}")
            return 0
        if file.is_file() and file.read_text(encoding="utf-8") == self.text():
            return 0
        wrong = "is not what the instructions say" if file.is_file() else "is missing"
        print(f"{file} {wrong}; run {command} {file}", file=sys.stderr)
        return 1
