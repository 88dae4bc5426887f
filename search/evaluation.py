"""What trying one candidate gives, and what tries it: evaluations, failures and objectives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.searchable import Columns, Point


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate has no value.

    kind      one word to count by: "assembler", "emulator", "timeout"
    sentence  what happened, in words
    """

    kind: str
    sentence: str

    def __post_init__(self) -> None:
        if not self.kind or not self.sentence:
            raise ValueError(f"a failure needs a kind and a sentence, not {self.kind!r} and {self.sentence!r}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of one candidate (smaller is better), or its failure; exactly one of the two."""

    value: float | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if (self.value is None) == (self.failure is None):
            raise ValueError("an evaluation is either a value or a failure")
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(
                f"an evaluation's value is a finite number, not {self.value}; "
                "what has none is a failure with its reason"
            )

    @property
    def cost(self) -> float:
        """The value; infinity for a failure."""
        return math.inf if self.value is None else self.value

    def to_json(self) -> dict[str, Any]:
        if self.failure is not None:
            return {"failure": {"kind": self.failure.kind, "sentence": self.failure.sentence}}
        return {"value": self.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Evaluation:
        if "failure" in data:
            return Evaluation(failure=Failure(data["failure"]["kind"], data["failure"]["sentence"]))
        return Evaluation(value=float(data["value"]))


@dataclass(frozen=True, slots=True)
class Trial:
    """A point that was tried, with what came of it."""

    point: Point
    evaluation: Evaluation

    @property
    def value(self) -> float | None:
        return self.evaluation.value

    @property
    def failure(self) -> Failure | None:
        return self.evaluation.failure


class Objective(Protocol):
    """Evaluates points: one evaluation for each, in order."""

    def __call__(self, points: Sequence[Point], /) -> Sequence[Evaluation]: ...


@runtime_checkable
class ColumnObjective(Protocol):
    """An objective that also evaluates thousands of points at once, as arrays.

    `score_columns` gives one value per row; NaN or infinity marks a row that has none, and that point is then asked
    for by itself, so that its failure comes with a sentence.
    """

    def __call__(self, points: Sequence[Point], /) -> Sequence[Evaluation]: ...

    def score_columns(self, columns: Columns, /) -> NDArray[np.float64]: ...
