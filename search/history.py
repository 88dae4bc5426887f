"""History: everything that a search tried, in order, kept as columns because it may be millions of points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.evaluation import Evaluation, Failure, Trial
from tinygpu.search.searchable import Columns, Point, Value


class History(Sequence[Trial]):
    """Trials in the order in which they were evaluated; a trial is put together when it is looked at.

    columns   per parameter an array with one value per trial; None where the point has no such parameter
    values    (trials,) float64; NaN where the candidate failed
    failures  trial number -> its failure
    """

    __slots__ = ("columns", "failures", "values")

    def __init__(self, columns: Columns, values: NDArray[np.float64], failures: Mapping[int, Failure]) -> None:
        self.columns = columns
        self.values = values
        self.failures = failures

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = range(len(self))[index]
        row = ((name, column[number]) for name, column in self.columns.items())
        point: dict[str, Value] = {name: _python(value) for name, value in row if value is not None}
        failure = self.failures.get(number)
        return Trial(point, Evaluation(failure=failure) if failure else Evaluation(float(self.values[number])))

    def __iter__(self) -> Iterator[Trial]:
        return (self[number] for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((len(self), tuple(self.columns)))

    def __repr__(self) -> str:
        return f"<History of {len(self):,} trials, {len(self.failures):,} of them failures>"

    def top(self, count: int) -> list[Trial]:
        """The `count` best trials, best first; of equal ones the earlier first; failures never."""
        order = np.argsort(self.values, kind="stable")[:count]
        return [self[int(number)] for number in order if int(number) not in self.failures]

    def best_so_far(self) -> NDArray[np.float64]:
        """(trials,) the least value up to and including each trial; infinity before the first success."""
        least: NDArray[np.float64] = np.minimum.accumulate(np.where(np.isnan(self.values), np.inf, self.values))
        return least

    def to_json(self) -> dict[str, Any]:
        """Ready for json.dump: columns as lists, failed values as null."""
        return {
            "columns": {name: np.asarray(column).tolist() for name, column in self.columns.items()},
            "values": [None if number in self.failures else value for number, value in enumerate(self.values.tolist())],
            "failures": {
                str(number): {"kind": failure.kind, "sentence": failure.sentence}
                for number, failure in self.failures.items()
            },
        }

    @staticmethod
    def of_columns(
        columns: Mapping[str, Sequence[Value | None]],
        values: Sequence[float | None],
        failures: Mapping[str, Failure],
    ) -> History:
        """What `to_json` gave. Raises ValueError where the columns are not of one length, or not those of a search."""
        trials = len(values)
        for name, column in columns.items():
            if len(column) != trials:
                raise ValueError(f"there are {trials:,} values, and {len(column):,} of the parameter {name!r}")
        numbered = {int(n): failure for n, failure in failures.items() if n.isdecimal() and str(int(n)) == n}
        if {n for n, value in enumerate(values) if value is None} != {*numbered} or len(numbered) != len(failures):
            raise ValueError("its failures are not those of the trials that have no value")
        try:
            made = {name: _column(column) for name, column in columns.items()}
        except OverflowError:
            raise ValueError("a parameter has a value of more than 64 bits") from None
        numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        return History(made, numbers, numbered)


class HistoryBuilder:
    """Collects trials, point by point or as columns, into a `History`."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}  # in the order of first sight
        self._parts: list[tuple[dict[str, NDArray[Any]], NDArray[np.float64]]] = []
        self._points: list[Point] = []
        self._values: list[float] = []
        self._failures: dict[int, Failure] = {}
        self._kinds: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def failures(self) -> int:
        return len(self._failures)

    @property
    def kinds(self) -> dict[str, int]:
        """Failures so far, by kind, the most frequent first."""
        return dict(self._kinds.most_common())

    def add(self, point: Point, evaluation: Evaluation) -> None:
        self._names.update(dict.fromkeys(point))
        self._points.append(point)
        self._values.append(np.nan if evaluation.value is None else evaluation.value)
        if evaluation.failure is not None:
            self._failures[self._count] = evaluation.failure
            self._kinds[evaluation.failure.kind] += 1
        self._count += 1

    def add_columns(self, columns: Columns, values: NDArray[np.float64], failures: Mapping[int, Failure]) -> None:
        """Many trials; `failures` is by row of `columns`."""
        self._names.update(dict.fromkeys(columns))
        self._close_points()
        self._parts.append(({name: np.asarray(column) for name, column in columns.items()}, values))
        self._failures.update({self._count + row: failure for row, failure in failures.items()})
        self._kinds.update(failure.kind for failure in failures.values())
        self._count += len(values)

    def history(self) -> History:
        self._close_points()
        columns = {name: self._joined(name) for name in self._names}
        values = np.concatenate([values for _, values in self._parts]) if self._parts else np.zeros(0)
        return History(columns, values, dict(self._failures))

    def _joined(self, name: str) -> NDArray[Any]:
        absent = np.full(1, None, dtype=object)
        return np.concatenate(
            [part[name] if name in part else np.repeat(absent, len(values)) for part, values in self._parts]
        )

    def _close_points(self) -> None:
        if self._points:
            names = dict.fromkeys(name for point in self._points for name in point)
            columns = {name: _column([point.get(name) for point in self._points]) for name in names}
            self._parts.append((columns, np.array(self._values, dtype=np.float64)))
            self._points, self._values = [], []


def _column(values: Sequence[Value | None]) -> NDArray[Any]:
    """Integers as int64, anything else as Python objects."""
    if all(isinstance(value, int) for value in values):
        return np.array(values, dtype=np.int64)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _python(value: Any) -> Value:
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
