"""Parallel evaluation: an objective in several processes. What a candidate does to its process costs that candidate.

A process that ends, however it ends, is a failure of kind "crash"; one that does not answer in time is killed, a
failure of kind "timeout"; an exception is a failure of kind "error". A new process takes its place, and the search goes
on.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from tinygpu.processes.worker import LOOK_SECONDS, News, Worker, started
from tinygpu.search.evaluation import Evaluation, Failure, Objective
from tinygpu.search.parallel_child import Broken, Said, pack
from tinygpu.search.searchable import Point

# Processes in a row that end before they have begun with any candidate: then it is no candidate that ends them.
_VAIN_STARTS = 3


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
        self._workers: list[_Evaluating] = []
        self._inbox: queue.SimpleQueue[News] = queue.SimpleQueue()
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
        for evaluating in workers:
            evaluating.worker.end()

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
                    self._workers.append(self._started())
                self._hand_out(points, waiting)
                for number, evaluation in self._answers(waiting):
                    left -= 1
                    yield number, evaluation
        finally:
            # whoever is still at work would answer a question that nobody asks any more
            self._drop([worker for worker in self._workers if worker.number is not None])

    def _started(self) -> _Evaluating:
        worker = started("tinygpu.search.parallel_child:serve", inbox=self._inbox)
        worker.send(self._packed)
        return _Evaluating(worker, time.monotonic() + self._start_seconds)

    def _hand_out(self, points: Sequence[Point], waiting: list[int]) -> None:
        for worker in self._workers:
            if worker.ready and worker.number is None and waiting:
                worker.number, worker.begun = waiting.pop(), False
                worker.deadline = time.monotonic() + self._seconds
                worker.worker.send(dict(points[worker.number]))

    def _answers(self, waiting: list[int]) -> Iterator[tuple[int, Evaluation]]:
        """Waits until somebody says something, or a limit has passed; what that decides."""
        now = time.monotonic()
        deadlines = [worker.deadline for worker in self._workers if worker.deadline is not None]
        try:
            news = self._inbox.get(timeout=max(0.0, min([now + LOOK_SECONDS, *deadlines]) - now))
        except queue.Empty:
            yield from self._late()
            # where something else holds its output open, nobody is told of a process's end
            for worker in [each for each in self._workers if each.worker.ended]:
                yield from self._ended(worker, waiting)
            return
        of = [each for each in self._workers if each.worker is news.worker]
        if not of:  # it was dropped in the meantime
            return
        (worker,) = of
        if news.over:
            yield from self._ended(worker, waiting)
            return
        match news.message:
            case Evaluation() as evaluation if worker.number is not None:
                number, worker.number, worker.deadline = worker.number, None, None
                yield number, evaluation
            case Said.READY:
                worker.ready, worker.deadline = True, None
            case Said.BEGUN:
                worker.begun, self._vain = True, 0
            case Broken(sentence):
                raise CannotStart(f"the objective cannot be made in a process of its own: {sentence}")

    def _late(self) -> Iterator[tuple[int, Evaluation]]:
        now = time.monotonic()
        for worker in [w for w in self._workers if w.deadline is not None and w.deadline <= now]:
            self._drop([worker])
            if worker.number is None:
                raise CannotStart(f"the objective was not made within {self._start_seconds:g} s")
            sentence = f"it took more than {self._seconds:g} s, and its process was killed"
            yield worker.number, Evaluation(failure=Failure("timeout", sentence))

    def _ended(self, worker: _Evaluating, waiting: list[int]) -> Iterator[tuple[int, Evaluation]]:
        how = worker.worker.end()
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

    def _drop(self, workers: Sequence[_Evaluating]) -> None:
        for worker in workers:
            self._workers.remove(worker)
            worker.worker.end()


@dataclass(slots=True, eq=False)
class _Evaluating:
    """A process, and what is known of it.

    deadline  when it has to have said something; None while nothing is asked of it
    ready     whether it has made the objective
    number    of the point that it was handed
    begun     whether it has begun with that
    """

    worker: Worker
    deadline: float | None
    ready: bool = False
    number: int | None = None
    begun: bool = False
