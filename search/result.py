"""Result: what a search found, with everything that it tried on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.json_text import sealed
from tinygpu.files.reading import TABLE_BYTES, read_file
from tinygpu.files.schema import converted, decoded_as, versions
from tinygpu.files.writing import write_file
from tinygpu.search.evaluation import Failure, Trial
from tinygpu.search.history import History
from tinygpu.search.searchable import Point
from tinygpu.seeds import check_seed

KEY = "tinygpu_search"
_VERSION = 1
Ended = Literal["every point", "evaluations", "seconds", "within", "strategy", "proof", "interrupted"]


@dataclass(frozen=True, slots=True)
class Result:
    """What `minimize` returns.

    subject     what was searched, in the caller's words
    strategy    which strategy ran (for "auto", the one that it chose)
    seed        of every random draw
    space_size  points in the space
    history     every trial, in order; failures as failures
    seconds     wall time, earlier runs of the same journal included
    ended       what ended the search: "every point" was tried, a budget of "evaluations" or "seconds" was spent, the
                best was "within" what was asked for, the "strategy" had no more to propose, a "proof" says that no
                other point is better, or it was "interrupted"
    """

    subject: str
    strategy: str
    seed: int
    space_size: int
    history: History
    seconds: float
    ended: Ended

    @property
    def best(self) -> Point | None:
        """The point with the least value, the first of equal ones; None where every trial failed."""
        top = self.top(1)
        return top[0].point if top else None

    @property
    def value(self) -> float | None:
        """The value of `best`."""
        top = self.top(1)
        return top[0].value if top else None

    @property
    def proof(self) -> str | None:
        """Why no point of the space has a lesser value than `best`; None where that is not known."""
        if self.ended == "every point":
            return f"all {self.space_size:,} points were evaluated"
        if self.ended == "proof":
            return (
                f"{len(self.history):,} of {self.space_size:,} points were evaluated, and the objective's bounds leave "
                "no lesser value to any other"
            )
        return None

    def top(self, count: int) -> list[Trial]:
        """The `count` best trials, best first; of equal ones the earlier first; failures never."""
        return self.history.top(count)

    def failures(self) -> dict[str, int]:
        """How many trials failed, by kind, the most frequent first."""
        counts: dict[str, int] = {}
        for failure in self.history.failures.values():
            counts[failure.kind] = counts.get(failure.kind, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def __str__(self) -> str:
        failed = len(self.history.failures)
        tried = f"{len(self.history):,} of {self.space_size:,} points tried in {self.seconds:.1f} s"
        return (
            f"{self.subject + ': ' if self.subject else ''}{self.strategy}, seed {self.seed}: {tried}"
            f"{f', {failed:,} failed' if failed else ''}; "
            + (f"best {self.value:g} at {dict(self.best)}" if self.best is not None else "none has a value")
            + (", proved: bounds leave no lesser value to any other point" if self.ended == "proof" else "")
        )

    def to_json(self) -> dict[str, Any]:
        return {
            KEY: _VERSION,
            "subject": self.subject,
            "strategy": self.strategy,
            "seed": self.seed,
            "space_size": self.space_size,
            "seconds": self.seconds,
            "ended": self.ended,
            "history": self.history.to_json(),
        }

    def save(self, path: str | Path) -> None:
        """Write the result as JSON; the file is there whole or not at all, and replaces no other kind of file."""
        write_file(path, sealed(self.to_json()), (f'{{"{KEY}"'.encode(),), "a search result")

    @staticmethod
    def load(path: str | Path) -> Result:
        """The result that `save` wrote. Raises FileError for anything else."""
        return Result.from_text(read_file(path, TABLE_BYTES), str(path))

    @staticmethod
    def from_text(data: bytes, where: str) -> Result:
        """The result that `save` wrote into a file called `where`. Raises FileError for anything else."""
        _check_version(versions(data, (KEY,)).get(KEY), where)
        return _result(decoded_as(_Saved, data, where), where)

    @staticmethod
    def from_json(data: Any, where: str = "the search result") -> Result:
        """The result that `to_json` gave. Raises FileError for anything else."""
        _check_version(data.get(KEY) if isinstance(data, Mapping) else None, where)
        return _result(converted(_Saved, data, where), where)


@dataclass(frozen=True, slots=True)
class _Columns:
    """A history, as it is written."""

    columns: dict[str, list[int | str | None]]
    values: list[float | None]
    failures: dict[str, Failure]


@dataclass(frozen=True, slots=True)
class _Saved:
    """A result, as it is written."""

    tinygpu_search: int
    subject: str
    strategy: str
    seed: int
    space_size: int
    seconds: float
    ended: Ended
    history: _Columns

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.space_size < 0:
            raise ValueError(f"a space has 0 points or more, not {excerpt(self.space_size)}")
        if not self.seconds >= 0:
            raise ValueError(f"a search takes 0 seconds or more, not {self.seconds}")


def _check_version(version: Any, where: str) -> None:
    if version is None:
        raise FileError(f"{where} is no search result, or has been cut: one of version {_VERSION} says so")
    if version != _VERSION:
        raise FileError(f"{where} is no search result of version {_VERSION}: its version is {excerpt(version)}")


def _result(saved: _Saved, where: str) -> Result:
    try:
        history = History.of_columns(saved.history.columns, saved.history.values, saved.history.failures)
    except ValueError as broken:
        raise FileError(f"{where} is damaged: {broken}") from None
    return Result(
        saved.subject, saved.strategy, saved.seed, saved.space_size, history, saved.seconds, saved.ended
    )
