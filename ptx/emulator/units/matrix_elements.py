"""Element types of mma and wgmma operands: how they are packed, and the numbers that their bits are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.units.narrow_floats import E2M1, E2M3, E3M2, E4M3, E5M2, NarrowFloat, truncate_tf32

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ElementType:
    """One type of operand elements.

    name     as in PTX
    bits     that one element takes in registers and shared memory
    family   types that may meet as A and B: "f16", "bf16", "tf32", "f64", "int8", "int4", "bit", "fp8", "narrow"
    decode   binary64 numbers, exact, from contiguous words of any unsigned type: the last axis grows by elements per
             word, lowest bits first
    """

    name: str
    bits: int
    family: str
    decode: Callable[[Array], Floats]

    @property
    def per_register(self) -> int:
        """Elements in a 32-bit register (for f64: in a 64-bit one)."""
        return max(1, 32 // self.bits)

    @property
    def is_integer(self) -> bool:
        return self.family in ("int8", "int4", "bit")


def _as(dtype: type) -> Callable[[Array], Floats]:
    return lambda words: words.view(dtype).astype(np.float64)


def _bf16(words: Array) -> Floats:
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def _tf32(words: Array) -> Floats:
    return truncate_tf32(words.view(np.uint32)).astype(np.float64)


def _bytes(table: Floats) -> Callable[[Array], Floats]:
    return lambda words: np.take(table, words.view(np.uint8))


def _nibbles(table: Floats) -> Callable[[Array], Floats]:
    """Two elements per byte: one look-up gives both."""
    codes = np.arange(256)
    pairs = np.stack([table[codes & 15], table[codes >> 4]], axis=-1)
    return lambda words: np.take(pairs, words.view(np.uint8), axis=0).reshape(*words.shape[:-1], -1)


def _single_bits(words: Array) -> Floats:
    return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float64)


def _narrow(form: NarrowFloat, shift: int = 0) -> Floats:
    """The values of all bytes that hold such a number from bit `shift` on, whatever the bits around it."""
    return form.decode(np.arange(256) >> shift).astype(np.float64)


_CODES = np.arange(16, dtype=np.float64)
ELEMENTS: dict[str, ElementType] = {
    e.name: e
    for e in (
        ElementType("f16", 16, "f16", _as(np.float16)), ElementType("bf16", 16, "bf16", _bf16),
        ElementType("tf32", 32, "tf32", _tf32), ElementType("f64", 64, "f64", _as(np.float64)),
        ElementType("s8", 8, "int8", _as(np.int8)), ElementType("u8", 8, "int8", _as(np.uint8)),
        ElementType("s4", 4, "int4", _nibbles(np.where(_CODES < 8, _CODES, _CODES - 16))),
        ElementType("u4", 4, "int4", _nibbles(_CODES)), ElementType("b1", 1, "bit", _single_bits),
        ElementType("e4m3", 8, "fp8", _bytes(_narrow(E4M3))), ElementType("e5m2", 8, "fp8", _bytes(_narrow(E5M2))),
    )
}  # fmt: skip
# PTX ISA, "mma": with .kind::f8f6f4 and .kind::mxf8f6f4 every element takes a byte; e2m1 lies in its bits 2 to 5, the
# 6-bit types in its low bits.
BYTE_ELEMENTS: dict[str, ElementType] = {
    form.name: ElementType(form.name, 8, "narrow", _bytes(_narrow(form, shift)))
    for form, shift in ((E4M3, 0), (E5M2, 0), (E3M2, 0), (E2M3, 0), (E2M1, 2))
}
# With .kind::mxf4 and .kind::mxf4nvf4 two e2m1 share a byte.
PACKED_E2M1 = ElementType("e2m1", 4, "narrow", _nibbles(E2M1.values.astype(np.float64)))
