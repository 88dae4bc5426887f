"""A call in a process of its own: what crashes or hangs there costs its answer, and not the run.

The process is a copy of this one (fork), so that nothing has to be sent to it, machines of notebooks included; the
answer comes back over a pipe. It never touches a GPU. Where an operating system cannot copy a process (Windows), the
call is made here, and a crash of it takes the run down.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_CHUNK_BYTES = 1 << 20


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
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads: the copy uses none of them
        child = os.fork()
    if not child:
        _answer(call, reading, writing, seconds)
    os.close(writing)
    try:
        answer = _read(reading, time.monotonic() + seconds)
    except BaseException:  # Ctrl-C among them
        _end(child)
        raise
    finally:
        os.close(reading)
    if answer is None:
        _end(child)
        raise EndedApart(f"it had not ended after {seconds:g} s")
    _, status = os.waitpid(child, 0)
    if not answer:
        raise EndedApart(_how(status))
    raised, value = pickle.loads(answer)
    if raised:
        raise value
    return value  # type: ignore[no-any-return]


def _answer(call: Callable[[], object], reading: int, writing: int, seconds: float) -> None:
    """The life of the copy: the call, and its answer into the pipe; nothing else of the process goes on in it."""
    status = 1
    try:
        os.close(reading)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever waits for it ends it
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + 10)  # should whoever waits be gone
        try:
            answer: tuple[bool, object] = (False, call())
        except Exception as error:
            answer = (True, _sent(error))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(answer))
        status = 0
    finally:
        os._exit(status)


def _sent(error: Exception) -> Exception:
    """An exception as it can be sent."""
    try:
        if type(pickle.loads(pickle.dumps(error))) is type(error):
            return error
    except Exception:  # whatever a class of somebody else's does when it is copied
        pass
    return RuntimeError(f"{type(error).__name__}: {error}")


def _read(reading: int, until: float) -> bytes | None:
    """Everything from the pipe; None where it does not end in time."""
    parts: list[bytes] = []
    while (left := until - time.monotonic()) > 0:
        if select.select([reading], [], [], left)[0]:
            part = os.read(reading, _CHUNK_BYTES)
            if not part:
                return b"".join(parts)
            parts.append(part)
    return None


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        said = signal.strsignal(number)
        return f"its process was ended by {signal.Signals(number).name}{f' ({said})' if said else ''}"
    return f"its process ended with status {os.WEXITSTATUS(status)} and no answer"
