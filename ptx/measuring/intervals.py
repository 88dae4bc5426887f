"""What an output may be: for every element the least and the greatest value that rounding explains, as bits.

Both ends have the type and the memory layout of the output, poison in the gaps, so that one comparison of bits judges
all of a result: values, gaps between rows, and what lies behind the end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.bounds.answers import Answer
from tinygpu.ptx.bounds.stored import ends
from tinygpu.ptx.runtime.launch import Tensor

# Elements behind the end of every output that must stay as they are.
GUARD_ELEMS = 1024
_CHUNK = 1 << 17


def intervals(tensor: Tensor, answer: Answer) -> tuple[NDArray[Any], NDArray[Any]]:
    """(extent + guard) least and greatest bits, in the output's memory layout."""
    kind = tensor.element
    low, high = (np.full(tensor.extent_elems + GUARD_ELEMS, ~kind.storage.type(0)) for _ in range(2))
    strides = tuple(s * kind.bytes for s in tensor.strides)
    views = [np.ndarray(tensor.shape, kind.storage, a.data, 0, strides) for a in (low, high)]
    value, least, most = (np.broadcast_to(a, tensor.shape) for a in (answer.value, answer.low, answer.high))
    exact = answer.low is answer.value and answer.high is answer.value
    rows = max(1, _CHUNK * tensor.shape[0] // max(value.size, 1))

    def work(start: int) -> None:
        part = slice(start, start + rows)
        middle = value[part]
        piece = Answer(middle, middle, middle) if exact else Answer(middle, least[part], most[part])
        views[0][part], views[1][part] = ends(kind, piece, middle.shape)

    # NumPy lets go of Python's lock, and parts that fit a cache take a third of the time
    with ThreadPoolExecutor() as pool:
        list(pool.map(work, range(0, tensor.shape[0], rows)))
    return low, high
