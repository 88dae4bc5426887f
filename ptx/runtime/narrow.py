"""Elements of 4 and of 6 bits as they lie in memory: one behind the other, the first in the low bits of a byte.

Two of 4 bits share a byte, four of 6 bits three bytes. Needs nothing but NumPy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Bits of an element -> (elements, bytes) after which elements begin at bytes again.
TOGETHER = {4: (2, 1), 6: (4, 3)}


def packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Bytes of the bits of elements, one after another.

    >>> [hex(byte) for byte in packed(np.array([1, 2, 15, 4], np.uint8), 4).tolist()]
    ['0x21', '0x4f']
    >>> [hex(byte) for byte in packed(np.array([1, 2, 63, 4], np.uint8), 6).tolist()]
    ['0x81', '0xf0', '0x13']
    """
    elements, size = TOGETHER[bits]
    groups = -(-codes.size // elements)
    whole = np.zeros(groups * elements, dtype=np.uint32)
    whole[: codes.size] = codes.reshape(-1) & np.uint8((1 << bits) - 1)
    words = np.zeros(groups, dtype=np.uint32)
    for number in range(elements):
        words |= whole[number::elements] << np.uint32(bits * number)
    out = np.stack([words >> np.uint32(8 * number) for number in range(size)], axis=-1).astype(np.uint8)
    return out.reshape(-1)[: -(-codes.size * bits // 8)]


def unpacked(stored: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The bits of the elements of some bytes, as many as are whole.

    >>> unpacked(np.array([0x81, 0xF0, 0x13, 0x05], np.uint8), 6).tolist()
    [1, 2, 63, 4, 5]
    """
    elements, size = TOGETHER[bits]
    groups = -(-stored.size // size)
    whole = np.zeros(groups * size, dtype=np.uint32)
    whole[: stored.size] = stored.reshape(-1)
    words = np.zeros(groups, dtype=np.uint32)
    for number in range(size):
        words |= whole[number::size] << np.uint32(8 * number)
    out = np.stack([words >> np.uint32(bits * number) for number in range(elements)], axis=-1)
    return (out & np.uint32((1 << bits) - 1)).astype(np.uint8).reshape(-1)[: stored.size * 8 // bits]
