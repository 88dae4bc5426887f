"""The launcher of a real GPU, by the CUDA runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from tinygpu.ptx.calibration.benchmark import TRIPS, Array, Buffer, Launch, Microbenchmark
from tinygpu.ptx.calibration.described import described_launch
from tinygpu.ptx.calibration.launcher import Gpu, LaunchFailed
from tinygpu.ptx.measuring.clocks import Clocks
from tinygpu.ptx.runtime.arguments import ArgumentBuffer
from tinygpu.ptx.runtime.context import Context, Memory
from tinygpu.ptx.runtime.errors import CudaError
from tinygpu.ptx.runtime.loaded import load_kernel
from tinygpu.ptx.runtime.streams import Event, Stream


class GpuLauncher:
    """Runs microbenchmarks on the GPU of a context, on a stream of its own."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.stream = Stream(context)
        self._clocks = Clocks(context.limits.bus)

    @property
    def gpu(self) -> Gpu:
        limits = self.context.limits
        return Gpu(limits.name, limits.driver, limits.cc, limits.sms, limits.l2_bytes)

    def clocks(self) -> Mapping[str, Any] | None:
        return self._clocks.read()

    def load(self, benchmark: Microbenchmark, launch: Launch) -> LoadedBenchmark:
        with _sentences():
            return LoadedBenchmark(self, benchmark, launch)


class LoadedBenchmark:
    """One kernel with its buffers in device memory."""

    def __init__(self, launcher: GpuLauncher, benchmark: Microbenchmark, launch: Launch) -> None:
        context = launcher.context
        self._stream = launcher.stream
        self._context = context
        self._buffers = {b.name: b for b in launch.all_buffers()}
        described = described_launch(launch, benchmark.entry, benchmark.target)
        self._kernel = load_kernel(context, described, benchmark.ptx.encode())
        self._memory: dict[str, Memory] = {}
        try:
            for buffer in self._buffers.values():
                self._memory[buffer.name] = _filled(context, buffer, f"the buffer {buffer.name} of {benchmark.name}")
            addresses = {name: memory.address for name, memory in self._memory.items()}
            self._arguments = ArgumentBuffer(context.driver, described, addresses)
        except BaseException:
            self.close()
            raise
        self._config = self._kernel.config(self._stream.handle)

    def run(self, trips: int) -> None:
        with _sentences():
            self._arguments.set_scalar(TRIPS, trips)
            self._kernel.run(self._arguments, self._config)
            self._stream.synchronize()

    def seconds(self, trips: int, launches: int, queue: Literal["stream", "graph"], held: int = 0) -> float:
        with _sentences():
            start, stop = Event(self._context), Event(self._context)
            try:
                if queue == "graph":
                    return self._graphed(start, stop, trips, launches)
                return self._streamed(start, stop, trips, launches, held)
            finally:
                start.close()
                stop.close()

    def _streamed(self, start: Event, stop: Event, trips: int, launches: int, held: int) -> float:
        if held:
            self._arguments.set_scalar(TRIPS, held)
            self._kernel.run(self._arguments, self._config)
        self._arguments.set_scalar(TRIPS, trips)
        start.record(self._stream)
        for _ in range(launches):
            self._kernel.run(self._arguments, self._config)
        stop.record(self._stream)
        self._stream.synchronize()
        return stop.seconds_since(start)

    def _graphed(self, start: Event, stop: Event, trips: int, launches: int) -> float:
        self._arguments.set_scalar(TRIPS, trips)
        with self._stream.capture():
            start.record_in_graph(self._stream)
            for _ in range(launches):
                self._kernel.run(self._arguments, self._config)
            stop.record_in_graph(self._stream)
        graph = self._stream.graph
        if graph is None:
            raise RuntimeError("a captured stream gave no graph")
        try:
            # the first run brings the graph to the GPU, and is not timed
            for _ in range(2):
                graph.run(self._stream)
                self._stream.synchronize()
            return stop.seconds_since(start)
        finally:
            graph.close()

    def read(self, name: str) -> Array:
        with _sentences():
            buffer, memory = self._buffers[name], self._memory[name]
            words = memory.read().view(buffer.contents.dtype)
            return words - np.uint64(memory.address) if buffer.relative else words

    def close(self) -> None:
        for memory in self._memory.values():
            memory.free()
        self._kernel.unload()


def _filled(context: Context, buffer: Buffer, what: str) -> Memory:
    """Device memory with the buffer's contents, over and over again: what is there is doubled until it is full."""
    memory = context.allocate(buffer.size_bytes, what)
    contents = buffer.contents + np.uint64(memory.address) if buffer.relative else buffer.contents
    memory.write(contents)
    there = contents.nbytes
    while there < buffer.size_bytes:
        more = min(there, buffer.size_bytes - there)
        context.driver.call("cuMemcpyDtoD", memory.address + there, memory.address, more)
        there += more
    context.synchronize()
    return memory


@contextmanager
def _sentences() -> Iterator[None]:
    """What the driver refuses, or a launch ends in, as LaunchFailed."""
    try:
        yield
    except CudaError as failed:
        raise LaunchFailed(str(failed), lost=failed.context_lost) from failed
    except ValueError as refused:
        raise LaunchFailed(str(refused)) from refused
