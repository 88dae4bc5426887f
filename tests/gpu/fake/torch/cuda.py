"""Streams, events and graphs of the stand-in for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rehearsal_cuda import _gpu

_streams = [0]


class OutOfMemoryError(RuntimeError):
    pass


class AcceleratorError(RuntimeError):
    """What PyTorch raises for whatever befell a kernel, anybody's, when it next speaks to the GPU; and ever after."""


_MEANINGS = {"CUDA_ERROR_ILLEGAL_ADDRESS": "an illegal memory access was encountered"}


def check() -> None:
    if _gpu.lost:
        raise AcceleratorError(
            f"CUDA error: {_MEANINGS.get(_gpu.lost, 'unspecified launch failure')}\nCUDA kernel errors might be "
            "asynchronously reported at some other API call, so the stacktrace below might be incorrect."
        )


def current() -> int:
    return _streams[-1]


def synchronize() -> None:
    _gpu.cuCtxSynchronize()
    check()


def empty_cache() -> None:
    check()


def _sleep(cycles: int) -> None:
    _gpu.now += cycles / 2e9


class Stream:
    def __init__(self) -> None:
        self.cuda_stream = int(_gpu.cuStreamCreate(1)[1])

    def synchronize(self) -> None:
        _gpu.cuStreamSynchronize(self.cuda_stream)
        check()


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
        check()
        self.seconds = _gpu.now

    def elapsed_time(self, end: Event) -> float:
        if self.seconds is None or end.seconds is None:
            raise RuntimeError("an event was never recorded")
        return (end.seconds - self.seconds) * 1e3


class CUDAGraph:
    def __init__(self) -> None:
        self.work: list[Any] = []

    def replay(self) -> None:
        check()
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
