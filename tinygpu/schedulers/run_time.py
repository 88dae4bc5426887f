"""What a tile scheduler computes with: where a cluster of CTAs finds itself, and whole numbers.

A scheduler is written once, against these operations. Lowering carries them out by writing PTX, in which numbers are
registers; the interpreter and whoever asks which CTA does what carry them out on Python's numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

# A whole number from 0 on, below 2^32, or what stands for one while a kernel is written; or a condition.
Value = Any


class RunTime(Protocol):
    """What one cluster of CTAs knows, and what it can compute."""

    def own(self) -> Value:
        """Its number."""

    def launched(self) -> Value:
        """Clusters that were launched."""

    def tiles(self) -> Value:
        """Tiles of the grid, or clusters of them."""

    def along(self, axis: int) -> Value:
        """The same along one axis of the grid."""

    def rounds(self) -> Value:
        """Rounds that the divided loops of a whole tile have."""

    def add(self, a: Value, b: Value) -> Value: ...

    def sub(self, a: Value, b: Value) -> Value: ...

    def mul(self, a: Value, b: Value) -> Value: ...

    def div(self, a: Value, b: Value) -> Value: ...

    def rem(self, a: Value, b: Value) -> Value: ...

    def minimum(self, a: Value, b: Value) -> Value: ...

    def maximum(self, a: Value, b: Value) -> Value: ...

    def less(self, a: Value, b: Value) -> Value: ...

    def equal(self, a: Value, b: Value) -> Value: ...

    def both(self, a: Value, b: Value) -> Value: ...

    def select(self, yes: Value, no: Value, condition: Value) -> Value: ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """The same on Python's numbers, for one cluster of a launch.

    counts  tiles, or clusters of them, along each axis
    """

    cluster: int
    clusters: int
    counts: tuple[int, ...]
    round_count: int = 1

    def own(self) -> int:
        return self.cluster

    def launched(self) -> int:
        return self.clusters

    def tiles(self) -> int:
        return math.prod(self.counts)

    def along(self, axis: int) -> int:
        return self.counts[axis]

    def rounds(self) -> int:
        return self.round_count

    def add(self, a: int, b: int) -> int:
        return a + b

    def sub(self, a: int, b: int) -> int:
        return a - b

    def mul(self, a: int, b: int) -> int:
        return a * b

    def div(self, a: int, b: int) -> int:
        """By zero: some number, which nobody uses."""
        return a // b if b else 0

    def rem(self, a: int, b: int) -> int:
        return a % b if b else 0

    def minimum(self, a: int, b: int) -> int:
        return min(a, b)

    def maximum(self, a: int, b: int) -> int:
        return max(a, b)

    def less(self, a: int, b: int) -> bool:
        return a < b

    def equal(self, a: int, b: int) -> bool:
        return a == b

    def both(self, a: bool, b: bool) -> bool:
        return a and b

    def select(self, yes: int, no: int, condition: bool) -> int:
        return yes if condition else no
