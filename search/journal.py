"""Journal: every evaluation on disk as soon as it is made, so that a search which was killed goes on where it was.

A text file of JSON lines (`tinygpu.files.lines`). The first line says which search it belongs to; every other line is
one evaluation. A kill can cut the last line short; that line is dropped, and nothing else can be damaged unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tinygpu.files import FileError
from tinygpu.files.lines import LineFile
from tinygpu.files.schema import decoded_as
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.searchable import Point, Value

KEY = "tinygpu_journal"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One evaluation of an earlier run; `seconds` is the search's time when it was recorded."""

    point: dict[str, Value]
    evaluation: Evaluation
    seconds: float


@dataclass(frozen=True, slots=True)
class _Head:
    """The first line, as it is written."""

    tinygpu_journal: int
    search: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Line:
    """Every other line, as it is written."""

    point: dict[str, int | str]
    seconds: float
    value: float | None = None
    failure: Failure | None = None


class Journal:
    """An open journal: the entries of earlier runs, and the place for new ones.

    path    the file; made if it is not there
    search  what the search is, compared on every later run: a journal is never continued by another search

    Raises FileError when the file belongs to another search, is in use by one, or is not a journal; it is left as it
    is.
    """

    def __init__(self, path: str | Path, search: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._entries: list[Entry] = []
        self._file = LineFile(self.path, KEY, "a search journal")
        try:
            for number, (where, text) in enumerate(self._file.lines()):
                if number == 0:
                    self._check_head(decoded_as(_Head, text, where), search)
                else:
                    self._entries.append(_entry(decoded_as(_Line, text, where), where))
            if not self._file.resume():
                self._file.write({KEY: _VERSION, "search": dict(search)})
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Entry]:
        """The evaluations of earlier runs, in their order."""
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def record(self, point: Point, evaluation: Evaluation, seconds: float) -> None:
        """One more evaluation; it is the operating system's when this returns, and survives kill -9."""
        self._file.write({"point": dict(point), **evaluation.to_json(), "seconds": round(seconds, 6)})

    def _check_head(self, head: _Head, search: Mapping[str, Any]) -> None:
        version, before = head.tinygpu_journal, head.search
        if version != _VERSION:
            raise FileError(f"{self.path} is a journal of version {version}, and this is version {_VERSION}")
        changed = [name for name in search if before.get(name) != search[name]]
        if changed:
            differences = ", ".join(f"{name} {before.get(name)!r}, now {search[name]!r}" for name in changed)
            raise FileError(f"{self.path} belongs to another search ({differences}); give another path")


def _entry(line: _Line, where: str) -> Entry:
    try:
        return Entry(line.point, Evaluation(line.value, line.failure), line.seconds)
    except ValueError as broken:
        raise FileError(f"{where} is damaged, or of another version: {broken}") from None
