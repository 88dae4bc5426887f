"""Cache: what was evaluated before, in any run, is not evaluated again. One entry per candidate, never per list.

A file of SQLite, which processes may use at the same time and which a kill does not damage.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

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


class NotACache(ValueError):
    """A file that is something else."""


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
    """An open cache; made if it is not there. Raises NotACache for another file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
        try:
            # Readers do not wait for the writer; what a killed process had committed stays.
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute("PRAGMA synchronous=NORMAL")
            self._base.execute(
                "CREATE TABLE IF NOT EXISTS evaluations "
                "(key TEXT PRIMARY KEY, evaluation TEXT NOT NULL, point TEXT NOT NULL, circumstances TEXT NOT NULL) "
                "WITHOUT ROWID"
            )
            (version,) = self._base.execute("PRAGMA user_version").fetchone()
            if version not in (0, _VERSION):
                raise NotACache(f"{self.path} is a cache of version {version}, and this is version {_VERSION}")
            if version == 0:
                self._base.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.DatabaseError as error:
            self._base.close()
            if "locked" in str(error):
                raise
            raise NotACache(f"{self.path} is no cache of evaluations: {error}; give another path") from None

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    def __len__(self) -> int:
        (count,) = self._base.execute("SELECT count(*) FROM evaluations").fetchone()
        return int(count)

    def known(self, circumstances: Circumstances, points: Sequence[Point]) -> list[Evaluation | None]:
        """For each point its evaluation, or None."""
        keys = [circumstances.key(point) for point in points]
        found: dict[str, str] = {}
        for start in range(0, len(keys), _ASKED_AT_ONCE):
            asked = keys[start : start + _ASKED_AT_ONCE]
            marks = ",".join("?" * len(asked))
            found |= self._base.execute(f"SELECT key, evaluation FROM evaluations WHERE key IN ({marks})", asked)
        return [Evaluation.from_json(json.loads(found[key])) if key in found else None for key in keys]

    def keep(self, circumstances: Circumstances, point: Point, evaluation: Evaluation) -> None:
        """One more; of two processes that evaluated the same candidate the first is kept."""
        self._base.execute(
            "INSERT OR IGNORE INTO evaluations VALUES (?, ?, ?, ?)",
            (
                circumstances.key(point),
                json.dumps(evaluation.to_json()),
                json.dumps(dict(point)),
                json.dumps(asdict(circumstances)),
            ),
        )


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
