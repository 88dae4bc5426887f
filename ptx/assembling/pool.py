"""Many kernels assembled at once, in worker processes.

Two threads assemble no faster than one, two processes do. A process also keeps the damage small: when the assembler
brings its process down, or does not come back, that one kernel is recorded as failed and a new worker goes on.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from tinygpu.ptx.assembling.assembler import AssemblerError, Assembly, Fault, assemble

_LENGTH = struct.Struct("<Q")


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
        worker = _Worker()
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


class _Worker:
    """A process that assembles what it is handed; it is started with the first kernel, and again after each end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def assemble(self, job: AssemblyJob, target: str, timeout_seconds: float) -> Any:
        process = self._process or self._start()
        timer = threading.Timer(timeout_seconds, process.kill)
        timer.start()
        try:
            _write(_pipe(process.stdin), (job, target))
            return _read(_pipe(process.stdout))
        except (EOFError, OSError):
            timed_out = not timer.is_alive()
            code = process.wait()
            self.close()
            ended = f"needed more than {timeout_seconds:g} s" if timed_out else _end(code)
            return AssemblerError(target, (Fault(f"the assembler {ended} on this kernel"),))
        finally:
            timer.cancel()

    def _start(self) -> subprocess.Popen[bytes]:
        # Not multiprocessing: its children run the caller's main module again, or fork a process that has threads.
        program = f"import sys; sys.path[:] = {sys.path!r}; from tinygpu.ptx.assembling.pool import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self._process

    def close(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                try:
                    if pipe is not None:
                        pipe.close()
                except OSError:  # what was not yet flushed has no reader any more
                    pass
            self._process.wait()
            self._process = None


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("a worker was started without a pipe")
    return stream


def _end(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended its process with code {code}"


def serve() -> None:
    """The worker's side: read jobs from stdin, answer on stdout, until stdin closes."""
    # What the assembler prints must not fall between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job, target = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = assemble(job.ptx, target, max_registers=job.max_registers)
        except Exception as refused:  # raised again by the caller's `assemble_many`
            answer = refused
        _write(answers, answer)


def _write(stream: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: IO[bytes]) -> Any:
    return pickle.loads(_exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return bytes(data)
