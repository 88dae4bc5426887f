"""Streams, events and graphs: in which order things happen on a GPU, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygpu.ptx.runtime.context import Context


class Event:
    """A moment on a stream; two of them give the time between."""

    __slots__ = ("context", "handle")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.handle = context.driver.call("cuEventCreate", 0)

    def record(self, stream: Stream) -> None:
        """The moment when all that was put on the stream before has ended."""
        self.context.driver.call("cuEventRecord", self.handle, stream.handle)

    def record_in_graph(self, stream: Stream) -> None:
        """Within `Stream.capture`: the graph records the event each time it runs."""
        flag = self.context.driver.enum("CUevent_record_flags", "CU_EVENT_RECORD_EXTERNAL")
        self.context.driver.call("cuEventRecordWithFlags", self.handle, stream.handle, int(flag))

    def seconds_since(self, earlier: Event) -> float:
        """Time from another event to this one; both must have happened."""
        return float(self.context.driver.call("cuEventElapsedTime", earlier.handle, self.handle)) * 1e-3

    def close(self) -> None:
        self.context.driver.release("cuEventDestroy", self.handle)


class Graph:
    """Work that was captured once and runs as often as asked, at little cost to the host."""

    __slots__ = ("context", "handle")

    def __init__(self, context: Context, captured: Any) -> None:
        self.context = context
        self.handle = context.driver.call("cuGraphInstantiate", captured, 0)
        context.driver.call("cuGraphDestroy", captured)

    def run(self, stream: Stream) -> None:
        self.context.driver.call("cuGraphLaunch", self.handle, stream.handle)

    def close(self) -> None:
        self.context.driver.release("cuGraphExecDestroy", self.handle)


class Stream:
    """A queue of work of our own.

    number  its handle as a number, as other libraries give theirs
    """

    __slots__ = ("context", "graph", "handle", "number")

    def __init__(self, context: Context) -> None:
        flag = context.driver.enum("CUstream_flags", "CU_STREAM_NON_BLOCKING")
        self.context = context
        self.handle = context.driver.call("cuStreamCreate", int(flag))
        self.number = int(self.handle)
        self.graph: Graph | None = None

    def synchronize(self) -> None:
        """Waits for all work on this stream; raises CudaError for a kernel that faulted."""
        self.context.driver.call("cuStreamSynchronize", self.handle)

    def fill(self, address: int, byte: int, size_bytes: int) -> None:
        """Fills memory, in order with the other work here."""
        self.context.driver.call("cuMemsetD8Async", address, byte, size_bytes, self.handle)

    @contextmanager
    def capture(self) -> Iterator[None]:
        """What is put on the stream within becomes `graph`, and does not run."""
        driver = self.context.driver
        mode = driver.enum("CUstreamCaptureMode", "CU_STREAM_CAPTURE_MODE_THREAD_LOCAL")
        driver.call("cuStreamBeginCapture", self.handle, mode)
        try:
            yield
        except BaseException:
            # the capture is ended, so that the stream can be used again
            driver.call("cuGraphDestroy", driver.call("cuStreamEndCapture", self.handle))
            raise
        self.graph = Graph(self.context, driver.call("cuStreamEndCapture", self.handle))

    def close(self) -> None:
        self.context.driver.release("cuStreamDestroy", self.handle)
