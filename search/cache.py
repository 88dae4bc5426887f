"""Cache: what was evaluated before, in any run, is not evaluated again. One entry per candidate, never per list.

A file of SQLite, which processes may use at the same time and which a kill does not damage.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.json_text import sealed
from tinygpu.files.schema import decoded_as
from tinygpu.search.evaluation import Evaluation, Objective
from tinygpu.search.searchable import Point
from tinygpu.search.streaming import StreamingObjective

_VERSION = 1
# Seconds that a process waits for another one that writes.
_PATIENCE_SECONDS = 60.0
# Failures that say more of the day than of the candidate: it is tried again by the next run.
PASSING = frozenset({"crash", "timeout", "unmeasured", "error"})
# SQLite takes so many values in a question at least.
_ASKED_AT_ONCE = 500
# Says in the file's own header that it is ours: "tGPU".
_APPLICATION = 0x74475055
_SQLITE = b"SQLite format 3\0"
_HEAD_BYTES = 100
_TABLE = (
    "CREATE TABLE IF NOT EXISTS evaluations "
    "(key TEXT PRIMARY KEY, evaluation TEXT NOT NULL, point TEXT NOT NULL, circumstances TEXT NOT NULL) WITHOUT ROWID"
)
_REMEDY = "remove it, or give another path"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """All that an evaluation depends on, besides the candidate's parameters.

    value     what is evaluated, in words: "predicted seconds", "measured seconds"
    machine   digest of the machine's source
    code      digest of what turns a candidate into a kernel and judges it
    problem   the problem, as JSON
    device    the device with all its figures, as JSON, or their digest
    driver    version of the driver, and the GPU; "" where none takes part
    assembler its version; "" where none takes part
    """

    value: str
    machine: str
    code: str
    problem: str
    device: str
    driver: str = ""
    assembler: str = ""

    def key(self, point: Point) -> str:
        """One candidate's key: equal where everything is equal, whatever the order of its parameters."""
        text = json.dumps({"point": dict(point), **asdict(self)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Cache:
    """An open cache; made if it is not there. Raises FileError for another file, which is left as it is."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        _check_ours(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{self.path} cannot be opened: {error.strerror}; give another path") from None
        with self._answering():
            self._base = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
        try:
            with self._answering():
                self._open()
        except BaseException:
            self._base.close()
            raise

    def _open(self) -> None:
        # What the file says is data: no function, view or trigger of it is ever run.
        self._base.execute("PRAGMA trusted_schema=OFF")
        # First of all, so that a file that a kill left behind is known as ours.
        if self._base.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
            self._base.execute(f"PRAGMA application_id={_APPLICATION}")
        # Readers do not wait for the writer; what a killed process had committed stays.
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=NORMAL")
        self._base.execute(_TABLE)
        (version,) = self._base.execute("PRAGMA user_version").fetchone()
        if version not in (0, _VERSION):
            raise FileError(f"{self.path} is a cache of version {version}, and this is version {_VERSION}")
        if version == 0:
            self._base.execute(f"PRAGMA user_version={_VERSION}")
        there = self._base.execute("SELECT type, sql FROM sqlite_master").fetchall()
        if there != [("table", _TABLE.replace(" IF NOT EXISTS", ""))]:
            raise FileError(f"{self.path} is damaged: it holds other tables than a cache does; {_REMEDY}")

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """SQLite's errors as sentences about this file."""
        try:
            yield
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                why = f"is in use by another process for more than {_PATIENCE_SECONDS:.0f} s; wait for it"
            elif code == sqlite3.SQLITE_FULL:
                why = "cannot be written to: the disk is full"
            elif code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM):
                why = f"cannot be used: {error}; give another path"
            else:
                why = f"is damaged: {error}; {_REMEDY}"
            raise FileError(f"{self.path} {why}") from None

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    def __len__(self) -> int:
        with self._answering():
            (count,) = self._base.execute("SELECT count(*) FROM evaluations").fetchone()
        return int(count)

    def known(self, circumstances: Circumstances, points: Sequence[Point]) -> list[Evaluation | None]:
        """For each point its evaluation, or None."""
        keys = [circumstances.key(point) for point in points]
        found: dict[str, str] = {}
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            asked = keys[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(asked))
            with self._answering():
                found |= self._base.execute(f"SELECT key, evaluation FROM evaluations WHERE key IN ({marks})", asked)
        return [self._evaluation(found[key]) if key in found else None for key in keys]

    def keep(self, circumstances: Circumstances, point: Point, evaluation: Evaluation) -> None:
        """One more; of two processes that evaluated the same candidate the first is kept."""
        with self._answering():
            self._base.execute(
                "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?)",
                (
                    circumstances.key(point),
                    sealed(evaluation.to_json()),
                    json.dumps(dict(point)),
                    json.dumps(asdict(circumstances)),
                ),
            )

    def _evaluation(self, text: object) -> Evaluation:
        """One entry. A whole entry that was changed, or is another's, is not believed."""
        if isinstance(text, str):
            with contextlib.suppress(UnicodeEncodeError):
                return decoded_as(Evaluation, text.encode(), f"{self.path}, an entry")
        raise FileError(f"{self.path} is damaged: an evaluation is {excerpt(text)}; {_REMEDY}")


def is_cache(path: Path) -> bool:
    """Whether a file is there that begins as a cache."""
    try:
        with open(path, "rb") as file:
            return _ours(file.read(_HEAD_BYTES))
    except OSError:
        return False


def _ours(head: bytes) -> bool:
    # Source: sqlite.org/fileformat2.html, 1.3: the application's number is at byte 68, most significant byte first.
    return head.startswith(_SQLITE) and head[68:72] == _APPLICATION.to_bytes(4, "big")


def _check_ours(path: Path) -> None:
    """Raises FileError for a file that SQLite would take, and that is no cache: it would get our table."""
    try:
        if path.exists() and not path.is_file():
            raise FileError(f"{path} is no regular file, and so no cache; give another path")
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise FileError(f"{path} cannot be opened: {error.strerror or error}; give another path") from None
    if head and not _ours(head):
        raise FileError(f"{path} is there and is no cache of evaluations; it is left as it is: give another path")


class CachedObjective:
    """An objective that asks another one only for what the cache does not have.

    passing  kinds of failures that are not kept
    """

    def __init__(
        self,
        objective: Objective,
        cache: Cache,
        circumstances: Circumstances,
        *,
        passing: Collection[str] = PASSING,
    ) -> None:
        self.hits = 0
        self._objective = objective
        self._cache = cache
        self._circumstances = circumstances
        self._passing = frozenset(passing)

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        found = dict(self.stream(points))
        return [found[number] for number in range(len(points))]

    def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
        """First what is known, then the rest as it is evaluated; each is kept before it is handed over."""
        known = self._cache.known(self._circumstances, points)
        missing = [number for number, evaluation in enumerate(known) if evaluation is None]
        self.hits += len(points) - len(missing)
        for number, evaluation in enumerate(known):
            if evaluation is not None:
                yield number, evaluation
        asked = [points[number] for number in missing]
        if not asked:
            return
        if isinstance(self._objective, StreamingObjective):
            answers: Iterator[tuple[int, Evaluation]] = iter(self._objective.stream(asked))
        else:
            answers = iter(list(enumerate(self._objective(asked))))
        for place, evaluation in answers:
            if evaluation.failure is None or evaluation.failure.kind not in self._passing:
                self._cache.keep(self._circumstances, asked[place], evaluation)
            yield missing[place], evaluation


def digest(parts: Mapping[str, Any] | Sequence[Any]) -> str:
    """SHA-256 of anything that JSON can say."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
