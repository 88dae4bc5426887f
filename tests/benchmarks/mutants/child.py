"""A forked process that leads a group of processes, and says lines of text to the one that forked it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import time
from dataclasses import dataclass


@dataclass
class Child:
    """status   as waitpid gives it; None while the process runs
    seconds  of processor time, when it has ended
    doing    what it said last
    """

    pid: int = 0
    status: int | None = None
    seconds: float = 0.0
    doing: str = ""
    _reading: int = -1
    _writing: int = -1
    _text: str = ""
    _heard: float = 0.0

    def forked(self) -> bool:
        """Forks; true in the child."""
        self._reading, self._writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._reading)
            os.setsid()
            silence = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silence, stream)
            return True
        os.close(self._writing)
        fcntl.fcntl(self._reading, fcntl.F_SETFL, os.O_NONBLOCK)
        self._heard = time.monotonic()
        return False

    def say(self, line: str) -> None:
        os.write(self._writing, f"{line}\n".encode())

    def heard(self) -> list[str]:
        """The lines that have come since the last call."""
        try:
            while data := os.read(self._reading, 1 << 16):
                self._text += data.decode()
                self._heard = time.monotonic()
        except BlockingIOError:
            pass
        *lines, self._text = self._text.split("\n")
        return lines

    def silent_s(self) -> float:
        return time.monotonic() - self._heard

    def ended(self) -> bool:
        if self.status is None:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._finish(status, usage)
        return self.status is not None

    def end(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        self._finish(status, usage)

    def close(self) -> None:
        os.close(self._reading)

    def _finish(self, status: int, usage: resource.struct_rusage) -> None:
        self.status, self.seconds = status, usage.ru_utime + usage.ru_stime
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)  # what it has started and left
