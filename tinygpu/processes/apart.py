"""A call in a process of its own: what crashes or hangs there costs its answer, and not the run.

The process is a copy of this one (fork), so that nothing has to be sent to it, machines of notebooks included. It never
touches a GPU. Where an operating system cannot copy a process (Windows), the call is made here, and a crash of it takes
the run down.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from tinygpu.processes.ending import Ended, Late
from tinygpu.processes.messages import Outcome
from tinygpu.processes.serving import Line
from tinygpu.processes.worker import copied

T = TypeVar("T")


class EndedApart(RuntimeError):
    """The process of a call ended without an answer; the sentence says how."""


def run_apart(call: Callable[[], T], *, seconds: float) -> T:
    """What `call` returns, or raises, in a process of its own.

    seconds  wall time after which the process is ended

    Raises EndedApart where the process crashed, or had no answer in time.

    >>> run_apart(lambda: 6 * 7, seconds=60)
    42
    """
    if not hasattr(os, "fork"):
        return call()

    def serve(line: Line) -> None:
        line.send(Outcome.of(call))

    worker = copied(serve)
    try:
        outcome: Outcome = worker.answer(seconds)
    except (Ended, Late) as error:
        raise EndedApart(str(error)) from None
    finally:
        if not worker.ended:
            worker.end()
    return outcome.result()  # type: ignore[no-any-return]
