"""Many kernels assembled at once, in worker processes.

Two threads assemble no faster than one, two processes do. A process also keeps the damage small: when the assembler
brings its process down, or does not come back, that one kernel is recorded as failed and a new worker goes on.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tinygpu.processes.ending import Ended, Late
from tinygpu.processes.messages import Outcome
from tinygpu.processes.serving import Line
from tinygpu.processes.worker import Worker, started
from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly, Fault, assemble


@dataclass(frozen=True, slots=True)
class AssemblyJob:
    """One kernel to assemble: its PTX, and the register limit if it has one (see `assemble`)."""

    ptx: str
    max_registers: int | None = None


def assemble_many(
    items: Sequence[str | AssemblyJob],
    target: str,
    *,
    processes: int | None = None,
    timeout_seconds: float = 120.0,
) -> list[Assembly | AssemblerError]:
    """What `assemble` gives for each item, in order; a refusal takes the place of the assembly and stops nothing.

    processes        worker processes; as many as there are cores if None, and never more than items
    timeout_seconds  for one kernel; a worker that needs longer is ended, and the kernel is recorded as refused

    Raises AssemblerUnavailable without the CUDA wheels, and ValueError for a register limit that cannot hold.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"assembling needs at least one process, not {processes}")
    jobs = [AssemblyJob(item) if isinstance(item, str) else item for item in items]
    results: list[Any] = [None] * len(jobs)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(jobs)):
        waiting.put(index)
    stop = threading.Event()

    def serve_one_worker() -> None:
        worker = _Assembler()
        try:
            while not stop.is_set():
                try:
                    index = waiting.get_nowait()
                except queue.Empty:
                    return
                results[index] = worker.assemble(jobs[index], target, timeout_seconds)
                if not isinstance(results[index], (Assembly, AssemblerError)):
                    stop.set()
        except BaseException as error:  # handed to the caller below
            stop.set()
            failures.append(error)
        finally:
            worker.close()

    failures: list[BaseException] = []
    count = min(processes or os.cpu_count() or 1, len(jobs))
    # One thread waits for each worker; the work itself is in the processes.
    threads = [threading.Thread(target=serve_one_worker, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:
        stop.set()
    for error in [*failures, *results]:
        if isinstance(error, BaseException) and not isinstance(error, AssemblerError):
            raise error
    return results


class _Assembler:
    """A process that assembles what it is handed; it is started with the first kernel, and again after each end."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def assemble(self, job: AssemblyJob, target: str, timeout_seconds: float) -> Any:
        self._worker = self._worker or started("tinygpu.ptx.assembling.pool:serve")
        try:
            outcome: Outcome = self._worker.ask((job, target), timeout_seconds)
        except Ended as ended:
            return self._refused(target, str(ended.ending))
        except Late:
            return self._refused(target, f"needed more than {timeout_seconds:g} s")
        return outcome.value if outcome.error is None else outcome.error

    def _refused(self, target: str, how: str) -> AssemblerError:
        self._worker = None
        return AssemblerError(target, (Fault(f"the assembler {how} on this kernel"),))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.end()


def serve(line: Line) -> None:
    """The process's side: assembles kernel after kernel."""
    for job, target in line:
        line.send(Outcome.of(partial(assemble, job.ptx, target, max_registers=job.max_registers)))
