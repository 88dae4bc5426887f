"""Widest legal vector: how many neighbouring elements of one thread may move in one instruction."""

from __future__ import annotations

from collections.abc import Sequence

# 128 bits is the widest vector of ld, st and cp.async; sm_100 has 256-bit global accesses (PTX ISA, "ld").
LIMIT_BYTES = 16


def linear_vector(
    register_columns: Sequence[int],
    other_columns: Sequence[int],
    element_bits: int,
    *,
    base_alignment_bytes: int = LIMIT_BYTES,
    limit_bytes: int = LIMIT_BYTES,
) -> int:
    """Widest legal vector, in elements, of a thread whose element offsets are F2-linear (closed form).

    register_columns      element-offset image of each bit of the index into the thread's own values
    other_columns         images of all other bits: lanes, warps, loop counters; a constant counts as a column too
    element_bits          width of one element
    base_alignment_bytes  alignment of the address of offset 0
    limit_bytes           widest access of the instruction

    Returns 0 where no vector is a whole number of bytes: a single 4-bit element cannot be moved.

    >>> linear_vector([1, 2, 64], [4, 8, 16, 32, 128], 32)
    4
    >>> linear_vector([1, 2], [2, 4, 8, 16, 32], 32)
    2
    """
    # 2^k elements follow one another from a multiple of 2^k on exactly if, after some permutation of the register
    # bits, the first k register columns are 1, 2, .. 2^(k-1) and every other column has k zero low bits.
    widest = 0
    for bits in range(_largest_power(element_bits, base_alignment_bytes, limit_bytes) + 1):
        rest = list(register_columns)
        wanted = [1 << place for place in range(bits)]
        if any(column not in rest for column in wanted):
            break
        for column in wanted:
            rest.remove(column)
        if any(column & (1 << bits) - 1 for column in (*rest, *other_columns)):
            continue
        if (element_bits << bits) % 8 == 0:
            widest = 1 << bits
    return widest


def strided_vector(
    extent: int,
    other_strides: Sequence[int],
    element_bits: int,
    *,
    stride: int = 1,
    offset: int = 0,
    base_alignment_bytes: int = LIMIT_BYTES,
    limit_bytes: int = LIMIT_BYTES,
) -> int:
    """Widest legal vector, in elements, of a thread that owns `extent` elements `stride` apart (closed form).

    extent                elements of the mode that the vector runs along
    other_strides         strides, in elements, of every other mode with more than one element: values, lanes, warps,
                          the leading dimension
    element_bits          width of one element
    stride, offset        stride of the mode and offset of the tile, in elements
    base_alignment_bytes  alignment of the address of offset 0
    limit_bytes           widest access of the instruction

    Returns 0 where no vector is a whole number of bytes.

    >>> strided_vector(8, [1024], 16), strided_vector(8, [1026], 16), strided_vector(6, [96], 32, offset=2)
    (8, 2, 2)
    """
    # One mode of stride 1 whose extent is a multiple of V; all other strides and the offset are multiples of V.
    if extent < 1:
        raise ValueError(f"[vector width] a thread owns at least one element along a mode, not {extent}")
    widest = 0
    for bits in range(_largest_power(element_bits, base_alignment_bytes, limit_bytes) + 1):
        vector = 1 << bits
        if vector > 1 and (stride != 1 or extent % vector or offset % vector):
            break
        if any(other % vector for other in other_strides):
            break
        if element_bits * vector % 8 == 0:
            widest = vector
    return widest


def _largest_power(element_bits: int, base_alignment_bytes: int, limit_bytes: int) -> int:
    """Largest k such that 2^k elements fit into the limit and the base is aligned to them; -1 where none does."""
    for name, value in (("limit", limit_bytes), ("alignment of the base", base_alignment_bytes)):
        if value < 1 or value & (value - 1):
            raise ValueError(f"[vector width] the {name} must be a power of two of bytes, not {value}")
    if element_bits < 1:
        raise ValueError(f"[vector width] an element has at least one bit, not {element_bits}")
    widest_bits = 8 * min(limit_bytes, base_alignment_bytes)
    return (widest_bits // element_bits).bit_length() - 1
