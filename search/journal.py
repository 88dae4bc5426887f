"""Journal: every evaluation on disk as soon as it is made, so that a search which was killed goes on where it was.

A text file of JSON lines. The first line says which search it belongs to; every other line is one evaluation. A kill
can cut the last line short; that line is dropped, and nothing else can be damaged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tinygpu.search.evaluation import Evaluation
from tinygpu.search.searchable import Point, Value

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One evaluation of an earlier run; `seconds` is the search's time when it was recorded."""

    point: dict[str, Value]
    evaluation: Evaluation
    seconds: float


class Journal:
    """An open journal: the entries of earlier runs, and the place for new ones.

    path    the file; made if it is not there
    search  what the search is, compared on every later run: a journal is never continued by another search

    Raises ValueError when the file belongs to another search, is in use by one, or is not a journal.
    """

    def __init__(self, path: str | Path, search: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._entries: list[Entry] = []
        self._file = open(self.path, "ab")  # noqa: SIM115  closed by __exit__
        try:
            _lock(self._file, self.path)
            kept_bytes = self._read(search)
        except BaseException:
            self._file.close()
            raise
        self._file.truncate(kept_bytes)
        if kept_bytes == 0:
            self._write({"tinygpu_journal": _VERSION, "search": dict(search)})

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
        self._write({"point": dict(point), **evaluation.to_json(), "seconds": round(seconds, 6)})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def _read(self, search: Mapping[str, Any]) -> int:
        """Fill the entries from the file; the number of bytes that are whole lines."""
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                fields = json.loads(line)
                if number == 1:
                    version, before = fields["tinygpu_journal"], dict(fields["search"])
                else:
                    entry = Entry(dict(fields["point"]), Evaluation.from_json(fields), float(fields["seconds"]))
                    self._entries.append(entry)
            except (ValueError, KeyError, TypeError) as broken:
                raise ValueError(
                    f"{self.path}, line {number}: this is not a line of a search journal; give another path"
                ) from broken
            if number == 1:
                self._check_header(version, before, search)
        return len(whole)

    def _check_header(self, version: Any, before: Mapping[str, Any], search: Mapping[str, Any]) -> None:
        if version != _VERSION:
            raise ValueError(f"{self.path} is a journal of version {version}, and this is version {_VERSION}")
        changed = [name for name in search if before.get(name) != search[name]]
        if changed:
            differences = ", ".join(f"{name} {before.get(name)!r}, now {search[name]!r}" for name in changed)
            raise ValueError(f"{self.path} belongs to another search ({differences}); give another path")


def _lock(file: IO[bytes], path: Path) -> None:
    """Refuses a journal that another process writes; the lock goes with the process, however it ends."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ValueError(f"{path} is being written by another search; give another path, or wait for it") from None
    except OSError:  # a file system without locks
        return
