"""Which of the values that a thread holds of one tile stands for each of those that it holds of another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.partition import Partition
from tinygpu.ptx.lowering.context import LoweringError


def broadcast(source: Partition, result: Partition, name: str) -> NDArray[np.int64]:
    """(values of the result,): which value of the source stands for each; the same thread must hold it."""
    shrunk = [a for a, (s, r) in enumerate(zip(source.shape, result.shape, strict=True)) if s.same(1) and not r.same(1)]
    threads_a, threads_b = source.thread_coordinates(), result.thread_coordinates().copy()
    threads_b[:, shrunk] = 0
    if len(threads_a) != len(threads_b) or not np.array_equal(threads_a, threads_b):
        raise LoweringError(f"%{name} is held by other threads than the values that it is combined with")
    wanted = result.value_coordinates().copy()
    wanted[:, shrunk] = 0
    index = {tuple(c): i for i, c in enumerate(source.value_coordinates().tolist())}
    try:
        return np.array([index[tuple(c)] for c in wanted.tolist()], dtype=np.int64)
    except KeyError:
        raise LoweringError(f"%{name} is held by other threads than the values that it is combined with") from None
