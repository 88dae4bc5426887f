"""Swizzle: the XOR permutation of offsets that hardware offers, Sw<bits, base, shift>."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.linear import LinearLayout


@dataclass(frozen=True, slots=True)
class Swizzle:
    """The map x -> x ^ ((x & mask) >> shift), where mask is `bits` ones at bit base + shift.

    bits    how many bits are XORed; 0 is the identity
    base    how many low bits stay as they are: 2^base neighbours keep together
    shift   distance from the bits that are read to the bits that change; at least `bits`

    A bijection of non-negative integers, its own inverse, and linear over F2. It acts on offsets in the unit of the
    layout before it; `in_elements` and `in_bytes` change between the two.

    >>> [Swizzle(2, 0, 2)(x) for x in range(4, 8)]
    [5, 4, 7, 6]
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name, value in (("bits", self.bits), ("base", self.base), ("shift", self.shift)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise LayoutError(f"{self}: {name} must be an integer of 0 or more, not {value!r}")
        if self.shift < self.bits:
            raise LayoutError(
                f"{self}: shift must be at least bits, not {self.shift} < {self.bits}; else it would read bits that it "
                f"changes"
            )
        if self.base + self.shift + self.bits > 62:
            raise LayoutError(f"{self}: bits up to {self.base + self.shift + self.bits} do not fit into 62-bit offsets")

    @classmethod
    def parse(cls, source: str) -> Swizzle:
        """The swizzle written as "Sw<3,4,3>": bits, base, shift."""
        found = re.fullmatch(r"\s*Sw<\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*>\s*", source)
        if found is None:
            raise LayoutError(f"{source!r} is not a swizzle; expected bits, base and shift as in Sw<3,4,3>")
        return cls(int(found[1]), int(found[2]), int(found[3]))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Swizzle:
        """The swizzle that `to_json` wrote."""
        return cls(value["bits"], value["base"], value["shift"])

    def to_json(self) -> dict[str, Any]:
        """{"bits": ..., "base": ..., "shift": ...}."""
        return {"bits": self.bits, "base": self.base, "shift": self.shift}

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"

    @property
    def mask(self) -> int:
        """The bits that are read."""
        return ((1 << self.bits) - 1) << (self.base + self.shift)

    @property
    def period_bits(self) -> int:
        """Offsets are permuted within aligned blocks of 2^period_bits."""
        return self.base + self.shift + self.bits if self.bits else 0

    def __call__(self, offset: int) -> int:
        if offset < 0:
            raise LayoutError(f"{self}: offset {offset} is negative")
        return offset ^ ((offset & self.mask) >> self.shift)

    def at(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The swizzled offsets: an int64 array of the same shape."""
        offsets = np.asarray(offsets, dtype=np.int64)
        if offsets.size and offsets.min() < 0:
            raise LayoutError(f"{self}: offset {int(offsets.min())} is negative")
        return offsets ^ ((offsets & self.mask) >> self.shift)

    def in_elements(self, element_bits: int) -> Swizzle:
        """This swizzle of byte offsets, as a swizzle of element offsets; an element may not be torn.

        >>> print(Swizzle(3, 4, 3).in_elements(16))
        Sw<3,3,3>
        """
        base = self.base - _log2_bytes(element_bits)
        if base < 0 and self.bits:
            raise LayoutError(
                f"{self} on bytes moves blocks of {1 << self.base} B, smaller than one element of {element_bits} bits"
            )
        return Swizzle(self.bits, max(base, 0), self.shift)

    def in_bytes(self, element_bits: int) -> Swizzle:
        """This swizzle of element offsets, as a swizzle of byte offsets."""
        base = self.base + _log2_bytes(element_bits)
        if base < 0 and self.bits:
            raise LayoutError(f"{self} on elements of {element_bits} bits moves less than one byte")
        return Swizzle(self.bits, max(base, 0), self.shift)

    def to_linear(self, offset_bits: int) -> LinearLayout:
        """The same map on offsets of `offset_bits` bits, as a matrix over F2."""
        if offset_bits < self.period_bits:
            raise LayoutError(f"{self} reads bit {self.period_bits - 1}; {offset_bits} offset bits are too few")
        return LinearLayout(tuple(self(1 << k) for k in range(offset_bits)), offset_bits)


def xor_swizzle(pairs: tuple[tuple[int, int], ...], bits: int) -> Swizzle | LinearLayout:
    """The permutation of offsets of `bits` bits that XORs a mask below its bit where the offset has the bit.

    pairs   (bit, mask), each bit once. What hardware has a word for becomes a Swizzle, all else a matrix

    >>> print(xor_swizzle(((7, 16), (8, 32)), 10), xor_swizzle(((2, 3),), 3))
    Sw<2,4,3> F2[x: 1, 2, 7]
    """
    if not pairs:
        return Swizzle(0, 0, 0)
    first, mask = pairs[0]
    if pairs == tuple((first + k, mask << k) for k in range(len(pairs))) and mask & (mask - 1) == 0:
        base = mask.bit_length() - 1
        if first - base >= len(pairs):
            return Swizzle(len(pairs), base, first - base)
    masks = dict(pairs)
    return LinearLayout(tuple(1 << bit | masks.get(bit, 0) for bit in range(bits)), bits)


def xor_pairs(swizzle: Swizzle | LinearLayout) -> tuple[tuple[int, int], ...]:
    """(bit, mask) of every bit of an offset that has others XORed where it is set: what `xor_swizzle` was made of.

    >>> xor_pairs(Swizzle(2, 4, 3))
    ((7, 16), (8, 32))
    """
    if isinstance(swizzle, Swizzle):
        return tuple((swizzle.base + swizzle.shift + k, 1 << swizzle.base + k) for k in range(swizzle.bits))
    return tuple((bit, column ^ 1 << bit) for bit, column in enumerate(swizzle.columns) if column != 1 << bit)


def _log2_bytes(element_bits: int) -> int:
    """log2 of the bytes per element; -1 for 4 bits."""
    if element_bits < 1 or element_bits & (element_bits - 1):
        raise LayoutError(f"elements of {element_bits} bits: a swizzle needs a width that is a power of two")
    return element_bits.bit_length() - 4
