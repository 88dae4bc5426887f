"""Rows in shared memory as layouts: whole ones at a pitch, with bits of their number XORed into their bytes, or rows
that are cut to the width of the hardware's swizzle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from tinygpu.layouts.algebra import concatenate
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.swizzle import Swizzle, xor_swizzle

Xor: TypeAlias = tuple[tuple[int, int], ...]
"""(row bit, mask over the byte within the row): where the row has the bit, the mask is XORed into the byte."""
Axis: TypeAlias = tuple[int, int, int]
"""(extent, rows from one coordinate to the next, bytes from one to the next)."""

# PTX ISA, "Swizzling Modes": chunk c of 16 bytes in 128-byte line l lies at c ^ (l mod 8, 4 or 2), by width in bytes;
# rows of 16 bytes, where there is none to exchange with, lie as they are.
HARDWARE_SWIZZLES = {128: Swizzle(3, 4, 3), 64: Swizzle(2, 4, 3), 32: Swizzle(1, 4, 3), 16: Swizzle(0, 4, 3)}
# The same, "Swizzle atomicity": of 128 bytes, pairs of chunks may stay together: pair c lies at c ^ (l mod 4).
PAIRED_SWIZZLES = {128: Swizzle(2, 5, 2)}
CHUNK_BYTES = 16


@lru_cache(maxsize=1024)  # the solver counts every access under a layout, and a kernel asks for every buffer's again
def whole_rows(
    axes: tuple[Axis, ...], rows: int, pitch: int, xor: Xor = (), stages: int = 1, stage_bytes: int = 0,
    to_a_byte: int = 1,
) -> ComposedLayout:
    """(coordinate along each axis, stage) -> bytes: `rows` rows, `pitch` bytes from one to the next.

    to_a_byte  elements that share each byte of a row: they have its address

    The pitch is rounded up to a power of two before the swizzle and put back behind it.

    >>> print(whole_rows(((8, 1, 0), (40, 0, 1)), 8, 48, ((0, 16),)))
    (64,8,1):(1,48,0) o Sw<1,4,2> o (8,40,1):(64,1,512)
    >>> print(whole_rows(((8, 1, 0), (64, 0, 1)), 8, 32, to_a_byte=2))
    (32,8,1):(1,32,0) o (8,(2,32),1):(32,(0,1),256)
    """
    wide, tall = 1 << (pitch - 1).bit_length(), 1 << (rows - 1).bit_length()
    modes = [
        Layout((to_a_byte, extent // to_a_byte), (0, across))
        if across and to_a_byte > 1
        else Layout(extent, down * wide + across)
        for extent, down, across in axes
    ]
    inner = concatenate(*modes, Layout(stages, wide * tall))
    low = wide.bit_length() - 1
    swizzle = xor_swizzle(tuple((low + bit, mask) for bit, mask in xor), (wide * tall * stages - 1).bit_length())
    return ComposedLayout(swizzle, inner, Layout((wide, tall, stages), (1, pitch, stage_bytes)))


@lru_cache(maxsize=1024)
def cut_rows(
    axes: tuple[Axis, ...], rows: int, width: int, stages: int = 1, stage_bytes: int = 0, to_a_byte: int = 1,
    atom_bytes: int = CHUNK_BYTES, padded: bool = False,
) -> ComposedLayout:  # fmt: skip
    """(coordinate along each axis, stage) -> bytes: first `width` bytes of every row, then the next of every row; the
    swizzle of the hardware on all of it.

    to_a_byte   elements that share each byte of a row: they have its address
    atom_bytes  that the swizzle leaves together: a chunk of 16, or two of them
    padded      each 16 elements share a chunk: they have its address

    >>> print(cut_rows(((8, 1, 0), (64, 0, 2)), 8, 64))
    Sw<2,4,3> o (8,(32,2),1):(64,(2,512),0)
    >>> print(cut_rows(((8, 1, 0), (256, 0, 1)), 8, 64, to_a_byte=2))
    Sw<2,4,3> o (8,(2,64,2),1):(64,(0,1,512),0)
    >>> print(cut_rows(((8, 1, 0), (256, 0, 1)), 8, 128, atom_bytes=32, padded=True))
    Sw<2,5,2> o (8,(16,8,2),1):(128,(0,16,1024),0)
    """
    def cut(extent: int, across: int) -> Layout:
        shared, bytes_of = (CHUNK_BYTES, CHUNK_BYTES) if padded else (to_a_byte, across)
        if shared == 1:
            return Layout((width // across, extent * across // width), (across, rows * width))
        units = width // bytes_of
        return Layout((shared, units, extent // (units * shared)), (0, bytes_of, rows * width))

    modes = [cut(extent, across) if across else Layout(extent, width * down) for extent, down, across in axes]
    swizzles = HARDWARE_SWIZZLES if atom_bytes == CHUNK_BYTES else PAIRED_SWIZZLES
    return ComposedLayout(swizzles[width], concatenate(*modes, Layout(stages, stage_bytes)))
