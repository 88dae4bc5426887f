"""A process that answers requests, from the side of whoever asks."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from tinygpu.processes.ending import CannotEnd, Ended, Ending, Late
from tinygpu.processes.messages import packed, read, write
from tinygpu.processes.serving import Line

# Seconds within which a process that was killed is gone.
_END_SECONDS = 60.0
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has no other, and it kills there
# How often it is looked whether a process is there that says nothing: what it started may hold its output open.
LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class News:
    """What a worker says: a message, or that there will be no more of them."""

    worker: Worker
    message: Any = None
    over: bool = False


class Process(Protocol):
    """A process that was started, or copied from this one, with the pipes to and from it."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def stdin(self) -> Any:
        """Requests go in here."""

    @property
    def stdout(self) -> Any:
        """Answers come out here."""

    def poll(self) -> int | None:
        """How it ended, as subprocess says it; None while it is there."""

    def wait(self, timeout: float) -> int:
        """The same once it has ended. Raises subprocess.TimeoutExpired."""


class Worker:
    """A process that answers requests, one after another; it ends with this one, however that ends."""

    def __init__(self, process: Process, inbox: queue.SimpleQueue[News] | None = None) -> None:
        """
        inbox  where what it says goes, beside what other workers say; by default one of its own, for `ask`
        """
        self.process = process
        self._inbox: queue.SimpleQueue[News] = inbox if inbox is not None else queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # a process that does not read stops nobody, however long a request is
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._speak)]
        for thread in self._threads:
            thread.start()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.process.poll() is not None

    def send(self, request: Any) -> None:
        """Sends a request, without waiting. Raises what pickle raises where it cannot be sent."""
        self._outbox.put(packed(request))

    def answer(self, seconds: float) -> Any:
        """The next thing that it says. Raises Late and Ended; the process is gone then."""
        until = time.monotonic() + seconds
        gone = False
        while True:
            left = until - time.monotonic()
            try:
                news = self._inbox.get(timeout=max(min(left, LOOK_SECONDS), 0.0))
            except queue.Empty:
                if gone:  # and nothing has come since
                    raise Ended(self.end()) from None
                gone = self.ended
                if left <= 0:
                    self.end()
                    raise Late(seconds) from None
                continue
            if news.over:
                raise Ended(self.end())
            return news.message

    def says(self, seconds: float) -> bool:
        """Waits so long for it to say something, or to end; whether it has."""
        with contextlib.suppress(queue.Empty):
            self._inbox.get(timeout=seconds)
            return True
        return False

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to a request, within so many seconds. Raises Late and Ended; the process is gone then."""
        self.send(request)
        return self.answer(seconds)

    def end(self) -> Ending:
        """Ends the process and what it started; how it had ended, if it had. Raises CannotEnd."""
        status = self.process.poll()
        if status is None and not self._threads[0].is_alive():  # its output is closed: it is about to end
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self.process.wait(timeout=1.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if status is None:  # by its own number too: a copy may not have its session yet
                os.kill(self.process.pid, _KILL)
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, _KILL)
        try:
            self.process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise CannotEnd(self.process.pid) from None
        self._outbox.put(None)
        for thread, stream in zip(self._threads, (self.process.stdout, self.process.stdin), strict=True):
            thread.join(timeout=1.0)
            if not thread.is_alive():  # else something that left the session still holds the pipe
                with contextlib.suppress(OSError):  # what was not yet flushed has no reader any more
                    stream.close()
        return Ending(status)

    def _listen(self) -> None:
        stream: BinaryIO = self.process.stdout
        while True:
            try:
                message = read(stream)
            except Exception:  # it has ended, or what it says cannot be read: then nothing behind that can
                break
            self._inbox.put(News(self, message))
        self._inbox.put(News(self, over=True))

    def _speak(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                write(self.process.stdin, message)
            except (OSError, ValueError):  # it has ended, and whoever listens says so
                return


def started(serve: str, *, inbox: queue.SimpleQueue[News] | None = None, quiet: bool = True) -> Worker:
    """A fresh process that serves.

    serve  "module:function", called there with a `Line`
    quiet  whether what it prints is thrown away; else it goes where our errors go
    """
    # Not multiprocessing: its children run the caller's main module again, or fork a process that has threads.
    program = f"import sys; sys.path[:] = {sys.path!r}; from tinygpu.processes.serving import main; main({serve!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if quiet else None,
        start_new_session=True,
    )
    return Worker(process, inbox)


def copied(serve: Callable[[Line], None]) -> Worker:
    """A copy of this process (fork) that serves; not on Windows. Nothing has to be found or sent, closures included."""
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy uses none of them
        pid = os.fork()
    if pid:
        os.close(theirs_in)
        os.close(theirs_out)
        return Worker(_Copy(pid, os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")))
    status = 1
    try:  # nothing else of the process goes on in here
        os.setsid()
        os.close(ours_in)
        os.close(ours_out)
        serve(Line(os.fdopen(theirs_in, "rb"), os.fdopen(theirs_out, "wb")))
        status = 0
    finally:
        os._exit(status)


@dataclass(slots=True)
class _Copy:
    """A forked process, as subprocess shows one that was started."""

    pid: int
    stdin: BinaryIO
    stdout: BinaryIO
    status: int | None = None

    def poll(self) -> int | None:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def wait(self, timeout: float) -> int:
        until = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.001)
        return status
