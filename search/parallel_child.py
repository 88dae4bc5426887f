"""The other side of parallel evaluation: a process that makes an objective and evaluates point after point with it.

It is told one JSON line per point on its standard input, and answers with one. It ends with its input: when the search
is gone, so is it, even in the middle of a candidate.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tinygpu.search.evaluation import Evaluation, Failure, Objective

# Characters of an exception that are kept.
_LONGEST_SENTENCE = 2000


def pack(make: Callable[[], Objective]) -> str:
    """The maker of an objective as text; ValueError where another process cannot find it."""
    inner: Any = make
    while isinstance(inner, partial):
        inner = inner.func
    if getattr(inner, "__module__", None) == "__main__":
        raise ValueError(
            f"{getattr(inner, '__qualname__', inner)} is part of the script that is run, where another process does "
            "not find it; put it into a module and import it"
        )
    try:
        return base64.b64encode(pickle.dumps(make)).decode()
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"the maker of an objective is a function or class at the top of a module, or a functools.partial of one: "
            f"{error}"
        ) from None


def serve() -> None:
    """Answers until the input ends."""
    # What the objective prints must not fall between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(jobs,), daemon=True).start()

    def say(line: Mapping[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    try:
        objective: Objective = pickle.loads(base64.b64decode(jobs.get()["make"]))()
    except Exception as error:
        say({"broken": _said(error)})
        return
    say({"ready": True})
    while True:
        point = jobs.get()["point"]
        say({"begun": True})
        try:
            (evaluation,) = objective([point])
        except Exception as error:
            evaluation = Evaluation(failure=Failure("error", _said(error)))
        say(evaluation.to_json())


def _read(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        if not line.endswith("\n"):
            break
        jobs.put(json.loads(line))
    os._exit(0)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:_LONGEST_SENTENCE]
