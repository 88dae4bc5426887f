"""Parallel evaluation: an objective in several processes. What a candidate does to its process costs that candidate.

A process that ends, however it ends, is a failure of kind "crash"; one that does not answer in time is killed, a
failure of kind "timeout"; an exception is a failure of kind "error". A new process takes its place, and the search goes
on.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tinygpu.search.evaluation import Evaluation, Failure, Objective
from tinygpu.search.parallel_child import pack
from tinygpu.search.searchable import Point

# Processes in a row that end before they have begun with any candidate: then it is no candidate that ends them.
_VAIN_STARTS = 3
# How often, while nobody says anything, it is looked whether all are still there.
_LOOK_SECONDS = 0.5


class CannotStart(RuntimeError):
    """The objective cannot be made in a process of its own; the sentence says what happened there."""


class ParallelObjective:
    """`make()`, called once in each of `processes` processes, evaluates one point at a time in each of them.

    make           a function or class at the top of a module, or a functools.partial of one, without arguments: it is
                   looked up by its name in each process
    seconds        for one candidate; a process that needs longer is killed
    start_seconds  for `make` and its imports

    Use it in a `with` block; processes that are left end with this one, even when it is killed.
    """

    def __init__(
        self, make: Callable[[], Objective], *, processes: int = 2, seconds: float = 60.0, start_seconds: float = 120.0
    ) -> None:
        if processes < 1:
            raise ValueError(f"parallel evaluation needs at least 1 process, not {processes}")
        if not seconds > 0 or not start_seconds > 0:
            raise ValueError(f"a limit is more than 0 seconds, not {min(seconds, start_seconds):g}")
        self._packed = pack(make)
        self._processes = processes
        self._seconds = seconds
        self._start_seconds = start_seconds
        self._workers: list[_Worker] = []
        self._told: queue.SimpleQueue[_Told] = queue.SimpleQueue()
        self._vain = 0

    def __enter__(self) -> ParallelObjective:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.end()

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        found = dict(self.stream(points))
        return [found[number] for number in range(len(points))]

    def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
        """Each point's number with its evaluation, in the order in which they are done.

        Raises CannotStart where `make` fails, or the processes end before they are ready.
        """
        waiting = list(reversed(range(len(points))))
        left = len(points)
        try:
            while left:
                while len(self._workers) < min(self._processes, left):
                    self._workers.append(_Worker(self._packed, self._told, time.monotonic() + self._start_seconds))
                self._hand_out(points, waiting)
                for number, evaluation in self._answers(waiting):
                    left -= 1
                    yield number, evaluation
        finally:
            # whoever is still at work would answer a question that nobody asks any more
            self._drop([worker for worker in self._workers if worker.number is not None])

    def _hand_out(self, points: Sequence[Point], waiting: list[int]) -> None:
        for worker in self._workers:
            if worker.ready and worker.number is None and waiting:
                worker.number, worker.begun = waiting.pop(), False
                worker.deadline = time.monotonic() + self._seconds
                worker.send({"point": dict(points[worker.number])})

    def _answers(self, waiting: list[int]) -> Iterator[tuple[int, Evaluation]]:
        """Waits until somebody says something, or a limit has passed; what that decides."""
        now = time.monotonic()
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        try:
            news = self._told.get(timeout=max(0.0, min([now + _LOOK_SECONDS, *deadlines]) - now))
        except queue.Empty:
            yield from self._late()
            # where something else holds its output open, nobody is told of a process's end
            for worker in [worker for worker in self._workers if worker.ended]:
                yield from self._ended(worker, waiting)
            return
        worker, line = news.worker, news.line
        if worker not in self._workers:  # it was dropped in the meantime
            return
        if line is None:
            yield from self._ended(worker, waiting)
        elif "ready" in line:
            worker.ready, worker.deadline = True, None
        elif "broken" in line:
            raise CannotStart(f"the objective cannot be made in a process of its own: {line['broken']}")
        elif "begun" in line:
            worker.begun, self._vain = True, 0
        elif worker.number is not None:
            number, worker.number, worker.deadline = worker.number, None, None
            yield number, Evaluation.from_json(line)

    def _late(self) -> Iterator[tuple[int, Evaluation]]:
        now = time.monotonic()
        for worker in [w for w in self._workers if w.deadline is not None and w.deadline <= now]:
            self._drop([worker])
            if worker.number is None:
                raise CannotStart(f"the objective was not made within {self._start_seconds:g} s")
            sentence = f"it took more than {self._seconds:g} s, and its process was killed"
            yield worker.number, Evaluation(failure=Failure("timeout", sentence))

    def _ended(self, worker: _Worker, waiting: list[int]) -> Iterator[tuple[int, Evaluation]]:
        how = worker.end()
        self._workers.remove(worker)
        if worker.number is not None and worker.begun:
            yield worker.number, Evaluation(failure=Failure("crash", f"the process that evaluated it {how}"))
            return
        if worker.number is not None:  # it fell victim to an earlier candidate
            waiting.append(worker.number)
        if worker.number is not None or not worker.ready:
            self._vain += 1
        if self._vain == _VAIN_STARTS:
            raise CannotStart(f"{_VAIN_STARTS} processes in a row ended before they began; the last one {how}")

    def _drop(self, workers: Sequence[_Worker]) -> None:
        for worker in workers:
            self._workers.remove(worker)
            worker.end()


@dataclass(frozen=True, slots=True)
class _Told:
    """A line of a worker; None when there will be no more."""

    worker: _Worker
    line: dict[str, Any] | None


class _Worker:
    """One process and the thread that listens to it.

    ready     whether it has made the objective
    number    of the point that it was handed
    begun     whether it has begun with that
    deadline  when it has to have said something; None while nothing is asked of it
    """

    def __init__(self, packed: str, told: queue.SimpleQueue[_Told], deadline: float) -> None:
        # Not multiprocessing: its children run the caller's main module again, or fork a process that has threads.
        program = f"import sys; sys.path[:] = {sys.path!r}; from tinygpu.search.parallel_child import serve; serve()"
        # A session of its own: Ctrl-C is for the search, and what the process starts can be ended with it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.ready = False
        self.begun = False
        self.number: int | None = None
        self.deadline: float | None = deadline
        self._listener = threading.Thread(target=self._listen, args=(packed, told), daemon=True)
        self._listener.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def send(self, line: dict[str, Any]) -> None:
        """One line, which fits into the pipe: a process that does not read it stops nobody."""
        stream = self._process.stdin
        with contextlib.suppress(OSError):  # it has ended; the listener says so
            if stream is not None:
                stream.write(json.dumps(line).encode() + b"\n")
                stream.flush()

    def end(self) -> str:
        """Kills the process, and what it started; how it had ended, if it had."""
        code = self._process.poll()
        if code is None and not self._listener.is_alive():  # its output is closed: it is about to end
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=1.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        self._process.wait()
        self._listener.join(timeout=1.0)
        if not self._listener.is_alive():  # else something that left the session still holds the output
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    if stream is not None:
                        stream.close()
        if code is None:
            return "closed its output and was killed"
        return f"was ended by {_signal(-code)}" if code < 0 else f"ended with status {code}"

    def _listen(self, packed: str, told: queue.SimpleQueue[_Told]) -> None:
        # the maker may be longer than a pipe holds, so it is not the search that waits until it is read
        self.send({"make": packed})
        for text in self._process.stdout or ():
            try:
                line = json.loads(text)
            except ValueError:  # cut short
                break
            told.put(_Told(self, line))
        told.put(_Told(self, None))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
