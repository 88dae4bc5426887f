"""What tcgen05.mma computes: stored bytes to numbers, and D = A * B + D * 2^-s on them.

Products and sums are formed in binary64 and rounded once into the accumulator (the manual leaves the order of additions
and the width of intermediate sums open). On integers small enough for the accumulator every order gives these bits.
kind::i8 is exact: it wraps at 32 bits, or saturates where the descriptor says so.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS, truncate_tf32
from tinygpu.ptx.emulator.units.tcgen05_descriptors import ELEMENT_BITS, KINDS

Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
# Products of at most so many multiply-adds stay in one thread of the BLAS; waking others costs more than these take.
_ONE_THREAD = 1 << 18
# 4- and 6-bit elements sit in the middle of their byte in tensor memory: 00xxxx00 and 0xxxxxx0. The manual shows this
# in figures only; these are the bits that a published example of the vendor states and verifies on hardware.
_CONTAINER_SHIFT = {4: 2, 6: 1}
_COPY_BITS = {"b6x16_p32": 6, "b4x16_p64": 4}


def stored_bits(kind: str, element: str) -> int:
    """Width of the container of one element: 4- and 6-bit elements of kinds that mix widths take a byte each."""
    if KINDS[kind].packs_pairs:
        return 4
    return max(8, ELEMENT_BITS[element])


def slice_bytes(kind: str, element: str, k: int) -> int:
    """Bytes along K that one instruction reads of one row; `k` counts what is stored (half of K for sparse A)."""
    return k * stored_bits(kind, element) // 8


def chunk_data_bytes(kind: str, element: str) -> int:
    """Bytes of each 16 in shared memory that hold elements; the rest is padding."""
    bits = ELEMENT_BITS[element]
    return 16 if bits >= 8 or KINDS[kind].packs_pairs else 2 * bits


def copy_data_bytes(source: str | None) -> int:
    """The same for what tcgen05.cp reads, which decompresses "b6x16_p32" or "b4x16_p64"."""
    return 16 if source is None else 2 * _COPY_BITS[source]


def decode_rows(data: Bytes, kind: str, element: str, in_tmem: bool = False) -> Floats:
    """Numbers from the bytes of K-major rows: (..., bytes) to (..., elements).

    in_tmem  4- and 6-bit elements of kinds that mix widths lie one to a byte. In shared memory sixteen of them are
             packed at the start of each 16 bytes instead.
    """
    raw = np.ascontiguousarray(data)
    bits = ELEMENT_BITS[element]
    if bits < 8:
        return _narrow(element, _codes(raw, kind, bits, in_tmem))
    if bits == 8:
        return decode_elements(raw, element)
    return decode_elements(raw.view(np.uint16 if bits == 16 else np.uint32), element)


def decode_elements(words: Array, element: str) -> Floats:
    """Numbers from the bits of 8-, 16- and 32-bit elements, one per item."""
    if element == "f16":
        return words.view(np.float16).astype(np.float64)
    if element == "bf16":
        with np.errstate(invalid="ignore"):
            return np.asarray(words.view(ml_dtypes.bfloat16).astype(np.float64))
    if element == "tf32":
        return truncate_tf32(words).astype(np.float64)
    if element == "u8":
        return words.astype(np.float64)
    if element == "s8":
        return words.view(np.int8).astype(np.float64)
    return _narrow(element, words)


def _narrow(element: str, codes: Array) -> Floats:
    return NARROW_FLOATS[element].decode(codes).astype(np.float64)


def _codes(raw: Bytes, kind: str, bits: int, in_tmem: bool) -> Bytes:
    """The codes of 4- and 6-bit elements, one per item (PTX ISA, "Packing format for matrix A and B")."""
    if KINDS[kind].packs_pairs:
        return _unpack(raw, 4)
    if in_tmem:
        return np.asarray(raw >> _CONTAINER_SHIFT[bits] & ((1 << bits) - 1)).astype(np.uint8)
    groups = raw.reshape(*raw.shape[:-1], -1, 16)[..., : 2 * bits]
    return _unpack(groups, bits).reshape(*raw.shape)


def _unpack(packed: Bytes, bits: int) -> Bytes:
    """Fields of `bits` bits, lowest first, from a last axis of bytes."""
    if bits == 4:
        codes = np.empty((*packed.shape, 2), np.uint8)
        np.bitwise_and(packed, 15, out=codes[..., 0])
        np.right_shift(packed, 4, out=codes[..., 1])
        return codes.reshape(*packed.shape[:-1], -1)
    flags = np.unpackbits(packed, axis=-1, bitorder="little")
    fields = flags.reshape(*packed.shape[:-1], -1, bits)
    return np.packbits(fields, axis=-1, bitorder="little")[..., 0]


def expand_copy(data: Bytes, source: str) -> Bytes:
    """What tcgen05.cp with decompression writes: bytes in groups of 16 to one container per element.

    source  "b6x16_p32" or "b4x16_p64": sixteen 6- or 4-bit elements at the start of each 16 bytes
    """
    bits = _COPY_BITS[source]
    groups = np.ascontiguousarray(data).reshape(*data.shape[:-1], -1, 16)[..., : 2 * bits]
    codes = _unpack(groups, bits).reshape(data.shape)
    return np.asarray(codes << _CONTAINER_SHIFT[bits]).astype(np.uint8)


def expand_sparse(stored: Floats, pattern: NDArray[np.int64], k: int) -> Floats:
    """Dense rows from the stored half of a sparse A.

    stored   (rows, k / 2)
    pattern  (rows, k / 2) position in the dense row of each stored element
    """
    dense = np.zeros((stored.shape[0], k), np.float64)
    np.put_along_axis(dense, pattern, stored, axis=1)
    return dense


def accumulate(
    product: Floats, old: Array | None, d_type: str, scale_exponent: int = 0, saturate: bool = False
) -> NDArray[np.uint32]:
    """The new accumulator: product + old * 2^-scale_exponent, in the accumulator's type.

    product  (...,) exact or binary64 sums of products
    old      the accumulator as 32-bit words as read from tensor memory, or None for D = A * B

    Returns 32-bit words as they lie in tensor memory: an f16 in the lower half of its cell, the upper half zero.
    """
    if d_type == "s32":
        total = product.astype(np.int64)
        if old is not None:
            total = total + old.view(np.int32)
        if saturate:
            total = np.clip(total, -(2**31), 2**31 - 1)
        return (total & 0xFFFFFFFF).astype(np.uint32)
    if d_type not in ("f32", "f16"):
        raise ValueError(f"accumulators are f32, f16 or s32, not {d_type}")
    total_float = product
    if old is not None:
        held = accumulator_values(old, d_type)
        total_float = product + (np.ldexp(held, -scale_exponent) if scale_exponent else held)
    with np.errstate(over="ignore", invalid="ignore"):
        if d_type == "f32":
            return np.ascontiguousarray(total_float.astype(np.float32)).view(np.uint32)
        return np.ascontiguousarray(total_float.astype(np.float16)).view(np.uint16).astype(np.uint32)


def accumulator_values(words: NDArray[np.uint32], d_type: str) -> Floats:
    """Numbers in the cells of an accumulator."""
    if d_type == "s32":
        return words.view(np.int32).astype(np.float64)
    if d_type == "f32":
        return words.view(np.float32).astype(np.float64)
    return (words & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float64)


def multiply(a: Floats, b: Floats) -> Floats:
    """A (rows, k) times B (columns, k), transposed: (rows, columns). NaN and infinities follow IEEE 754."""
    result = np.empty((a.shape[0], b.shape[0]), np.float64)
    rows = max(1, _ONE_THREAD // max(1, b.size))
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, a.shape[0], rows):
            np.matmul(a[first : first + rows], b.T, out=result[first : first + rows])
    return result
