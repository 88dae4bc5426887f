"""Which mutants earlier draws have tried, so that a draw can be of those alone that nobody has looked at."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks.mutants.edits import Edit

# The module and its edited lines, before and after: an edit stays the same while lines around it move.
Key = tuple[str, str, str]


def key_of(edit: Edit, source: str) -> Key:
    return edit.path, edit.before(source), edit.after(source)


def read(file: Path) -> frozenset[Key]:
    """What has been tried; nothing where there is no such file."""
    if not file.exists():
        return frozenset()
    return frozenset((path, before, after) for path, before, after in json.loads(file.read_text(encoding="utf-8")))


def note(file: Path, tried: Iterable[Key]) -> None:
    """Adds what has been tried."""
    file.write_text(json.dumps(sorted(read(file) | set(tried)), indent=0), encoding="utf-8")
