"""What a kernel finds in L2 of the bytes that a kernel before it left in memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Cells: TypeAlias = int | float | NDArray[np.int64] | NDArray[np.float64]


def left_in_l2(size_bytes: Cells, traffic_bytes: Cells, l2_bytes: Cells) -> NDArray[np.float64]:
    """Bytes of a workspace that are still in L2 when they are read.

    size_bytes     of the workspace
    traffic_bytes  what the kernels from the writer on moved through L2 until then, the workspace included

    L2 is taken to keep what was used last: of all that went through it the last `l2_bytes`, in which the workspace has
    the share that it has of the traffic.

    >>> float(left_in_l2(1000, 4000, 2000)), float(left_in_l2(1000, 1500, 2000))
    (500.0, 1000.0)
    """
    share = np.minimum(1.0, np.divide(l2_bytes, np.maximum(traffic_bytes, 1)))
    return np.asarray(np.multiply(size_bytes, share), dtype=np.float64)
