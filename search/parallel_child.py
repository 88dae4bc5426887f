"""The other side of parallel evaluation: a process that makes an objective and evaluates point after point with it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from tinygpu.processes.serving import Line
from tinygpu.search.evaluation import Evaluation, Failure, Objective

# Characters of an exception that are kept.
_LONGEST_SENTENCE = 2000


class Said(Enum):
    """What a process says beside evaluations."""

    READY = "the objective is made"
    BEGUN = "the point is begun with"


@dataclass(frozen=True, slots=True)
class Broken:
    """Why the objective could not be made."""

    sentence: str


def pack(make: Callable[[], Objective]) -> bytes:
    """The maker of an objective as it is sent; ValueError where another process cannot find it."""
    inner: Any = make
    while isinstance(inner, partial):
        inner = inner.func
    if getattr(inner, "__module__", None) == "__main__":
        raise ValueError(
            f"{getattr(inner, '__qualname__', inner)} is part of the script that is run, where another process does "
            "not find it; put it into a module and import it"
        )
    try:
        return pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the maker of an objective is a function or class at the top of a module, or a functools.partial of one: "
            f"{error}"
        ) from None


def serve(line: Line) -> None:
    """Makes the objective that the first request is, then evaluates the points that the others are."""
    try:
        objective: Objective = pickle.loads(line.receive())()
    except Exception as error:
        line.send(Broken(_said(error)))
        return
    line.send(Said.READY)
    for point in line:
        line.send(Said.BEGUN)
        try:
            (evaluation,) = objective([point])
            evaluation = Evaluation.from_json(evaluation.to_json())  # plain numbers, whatever made them
        except Exception as error:
            evaluation = Evaluation(failure=Failure("error", _said(error)))
        line.send(evaluation)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_SENTENCE]
