"""The side of a process that answers requests: what it is asked comes in by its input, answers go out by its output.

It lives as long as its input. When whoever started it is gone, the input ends, and the process with it, in the middle
of a request too, together with all that it started.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any, BinaryIO

from tinygpu.processes.messages import packed, read, write


class Line:
    """The line to whoever asks: `for request in line: line.send(answer)`."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._answers = answers
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(requests,), daemon=True).start()

    def receive(self) -> Any:
        """The next request; waits for it."""
        request = self._requests.get()
        if isinstance(request, _Unreadable):
            raise request.error
        return request

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self.receive()

    def send(self, value: Any) -> None:
        """Sends an answer."""
        write(self._answers, packed(value))

    def _listen(self, requests: BinaryIO) -> None:
        while True:
            try:
                self._requests.put(read(requests))
            except (EOFError, OSError):
                leave()
            except Exception as error:
                self._requests.put(_Unreadable(error))
                return


class _Unreadable:
    """A request that cannot be read here: a class of another version, for one."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def leave() -> None:
    """Ends this process, and all that it started and that stayed in its session."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def main(where: str) -> None:
    """The life of a process that was started to serve: `where` is "module:function", which is called with the line."""
    # what libraries print must not fall between the answers
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    status = 1
    try:
        module, _, name = where.partition(":")
        getattr(importlib.import_module(module), name)(Line(requests, answers))
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        # not by returning: that would wait for the thread that reads
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
