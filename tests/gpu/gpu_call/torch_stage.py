"""The stage on PyTorch: CUDA graphs between events, operands as tensors, answers in double precision on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# A kernel that does nothing for so long stands in front of each sample, so that the host is ahead of the GPU when the
# first event comes: cycles of the SM.
_HEAD_START_CYCLES = 300_000
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "s8": "int8", "s32": "int32"}


class TorchStage:
    """A stream of PyTorch's on one GPU."""

    def __init__(self, sets: int = 2) -> None:
        self.sets = sets
        self.stream = torch.cuda.Stream()

    @property
    def handle(self) -> int:
        return int(self.stream.cuda_stream)

    def single(self, launch: Callable[[int], None]) -> float:
        start, stop = _event(), _event()
        torch.cuda.synchronize()  # this stream does not wait for what fills operands on the default one
        with torch.cuda.stream(self.stream):
            for _ in range(2):
                start.record(self.stream)
                launch(0)
                stop.record(self.stream)
                self.stream.synchronize()
        return max(float(start.elapsed_time(stop)) * 1e-3, 1e-7)

    def record(self, launch: Callable[[int], None], launches: int, sets: int) -> TorchRun:
        graph = torch.cuda.CUDAGraph()
        # also every allocation of PyTorch's goes into the graph's own pool
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            for number in range(launches):
                launch(number % sets)
        return TorchRun(self.stream, graph, launches)

    def run(self, launch: Callable[[int], None]) -> None:
        """Launches once for the first set, and waits."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            launch(0)
        self.stream.synchronize()


class TorchRun:
    """One graph."""

    def __init__(self, stream: Any, graph: Any, launches: int) -> None:
        self._stream, self._graph, self._launches = stream, graph, launches
        self._start, self._stop = _event(), _event()

    def sample(self) -> float:
        with torch.cuda.stream(self._stream):
            torch.cuda._sleep(_HEAD_START_CYCLES)
            self._start.record(self._stream)
            self._graph.replay()
            self._stop.record(self._stream)
        self._stream.synchronize()
        return float(self._start.elapsed_time(self._stop)) * 1e-3 / self._launches

    def close(self) -> None:
        self._graph.reset()


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)


def normal(shape: tuple[int, ...], kind: str, generator: Any) -> Any:
    """A tensor of normally distributed numbers."""
    made = torch.randn(shape, device="cuda", dtype=torch.float32, generator=generator)
    return made.to(getattr(torch, TYPES[kind]))


def poisoned(shape: tuple[int, ...], kind: str) -> Any:
    return torch.full(shape, float("nan"), device="cuda", dtype=getattr(torch, TYPES[kind]))


def outside(got: Any, right: Any, size: Any, relative: float, absolute: float) -> tuple[int, float]:
    """(elements further from the right value than relative x |right| + absolute x size, the largest error over that
    bound). NaN is outside.

    size  per element the sum of the absolute values of what was added up
    """
    bound = right.abs() * relative + size * absolute
    error = (got.double() - right).abs()
    wrong = int((~(error <= bound)).sum().item())
    return wrong, float((error / bound.clamp_min(1e-300)).max().item())
