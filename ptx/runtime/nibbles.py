"""Elements of 4 bits as they lie in memory: two to a byte, the first in its low half. Needs nothing but NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def packed(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bytes of the bits of elements, one after another.

    >>> [hex(byte) for byte in packed(np.array([1, 2, 15, 4], np.uint8)).tolist()]
    ['0x21', '0x4f']
    """
    even = np.zeros(-(-codes.size // 2) * 2, dtype=np.uint8)
    even[: codes.size] = codes.reshape(-1) & 15
    return even[::2] | even[1::2] << np.uint8(4)


def unpacked(stored: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The bits of the elements of some bytes, two for each."""
    return np.stack([stored & 15, stored >> np.uint8(4)], axis=-1).reshape(-1)
