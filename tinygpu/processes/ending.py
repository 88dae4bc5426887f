"""How a process ended, in words, and what those are told who waited for its answer."""

from __future__ import annotations

import signal
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended.

    status  its exit status; minus the number of the signal that ended it; None: it was there, and was killed here
    """

    status: int | None

    def __str__(self) -> str:
        if self.status is None:
            return "closed its output and was killed"
        if self.status >= 0:
            return f"ended with status {self.status}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            return f"was ended by signal {-self.status}"
        said = signal.strsignal(-self.status)
        return f"was ended by {name}{f' ({said})' if said else ''}"


class Ended(RuntimeError):
    """A process ended before it had answered."""

    def __init__(self, ending: Ending) -> None:
        self.ending = ending
        super().__init__(f"its process {ending}")


class Late(RuntimeError):
    """A process had no answer in time, and was killed."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"it did not end within {seconds:g} s")


class CannotEnd(RuntimeError):
    """A process goes on after it was killed, as one does that hangs in a driver."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"process {pid} was killed and does not end")
