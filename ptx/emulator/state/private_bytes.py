"""A byte memory in which each CTA or thread has a piece of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array

_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class PrivateBytes:
    """A byte memory that each owner (a CTA or a thread) has a piece of, all pieces in one array.

    stride_bytes  distance of two owners' pieces
    """

    __slots__ = ("_views", "data", "stride_bytes")

    def __init__(self, owners: int, stride_bytes: int) -> None:
        self.stride_bytes = stride_bytes
        self.data: NDArray[np.uint8] = np.zeros(max(owners * stride_bytes, 128), np.uint8)
        self._views: dict[tuple[int, int], Array] = {}

    def view(self, width: int, count: int) -> Array:
        """All pieces as aligned elements of `width` bytes: (elements,) or, for vectors, (vectors, count)."""
        found = self._views.get((width, count))
        if found is None:
            whole = self.data.size // (width * count) * (width * count)
            found = self.data[:whole].view(_UNSIGNED[width])
            if count > 1:
                found = found.reshape(-1, count)
            self._views[width, count] = found
        return found
