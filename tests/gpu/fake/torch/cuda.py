"""Streams, events and graphs of the stand-in for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rehearsal_cuda import _gpu

_streams = [0]


class OutOfMemoryError(RuntimeError):
    pass


def current() -> int:
    return _streams[-1]


def synchronize() -> None:
    pass


def empty_cache() -> None:
    pass


def _sleep(cycles: int) -> None:
    _gpu.now += cycles / 2e9


class Stream:
    def __init__(self) -> None:
        self.cuda_stream = int(_gpu.cuStreamCreate(1)[1])

    def synchronize(self) -> None:
        _gpu.cuStreamSynchronize(self.cuda_stream)


@contextmanager
def stream(used: Stream) -> Iterator[None]:
    _streams.append(used.cuda_stream)
    try:
        yield
    finally:
        _streams.pop()


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        if not enable_timing:
            raise ValueError("only events that give times are wanted here")
        self.seconds: float | None = None

    def record(self, where: Stream) -> None:
        self.seconds = _gpu.now

    def elapsed_time(self, end: Event) -> float:
        if self.seconds is None or end.seconds is None:
            raise RuntimeError("an event was never recorded")
        return (end.seconds - self.seconds) * 1e3


class CUDAGraph:
    def __init__(self) -> None:
        self.work: list[Any] = []

    def replay(self) -> None:
        for work in self.work:
            work()

    def reset(self) -> None:
        self.work = []


@contextmanager
def graph(made: CUDAGraph, stream: Stream, capture_error_mode: str) -> Iterator[None]:
    if capture_error_mode != "thread_local":
        raise ValueError("other threads call the driver meanwhile")
    _gpu.cuStreamBeginCapture(stream.cuda_stream, None)
    _streams.append(stream.cuda_stream)
    try:
        yield
    finally:
        _streams.pop()
        made.work = _gpu.capturing.pop(stream.cuda_stream).work
