"""Floating-point formats of at most eight bits, and tf32: exact values of all codes, and rounding into them.

Every value of every format here is a binary32 number, so decoding is a table look-up and loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array

Specials = Literal["none", "nan", "ieee"]
NarrowRounding = Literal["rn", "rz", "rp"]


@dataclass(frozen=True, slots=True, eq=False)
class NarrowFloat:
    """A format of sign, exponent and mantissa bits, sign highest.

    name           as in PTX
    exponent_bits  width of the exponent
    mantissa_bits  width of the mantissa
    bias           exponent of code e is e - bias
    signed         whether there is a sign bit
    specials       "none": every code is a number; "nan": only the code of all ones is none; "ieee": the greatest
                   exponent holds infinities and NaN
    values         (2 ** bits,) binary32 value of each code
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: bool
    specials: Specials
    values: NDArray[np.float32]

    @property
    def bits(self) -> int:
        """Width of a code."""
        return self.exponent_bits + self.mantissa_bits + self.signed

    @property
    def largest_code(self) -> int:
        """Code of the largest finite value."""
        codes = 1 << (self.exponent_bits + self.mantissa_bits)
        if self.specials == "ieee":
            return codes - (1 << self.mantissa_bits) - 1
        return codes - (2 if self.specials == "nan" else 1)

    @property
    def nan_code(self) -> int | None:
        """The code that PTX gives for NaN; None where the format has none."""
        return None if self.specials == "none" else (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    def decode(self, codes: Array) -> NDArray[np.float32]:
        """Values of codes (any unsigned integers; bits above the format's width are ignored)."""
        known: NDArray[np.uint8] = (codes & codes.dtype.type(self.values.size - 1)).astype(np.uint8, copy=False)
        return np.take(self.values, known)

    def encode(self, values: Array, rounding: NarrowRounding = "rn", saturate: bool = True) -> NDArray[np.uint8]:
        """Codes of binary32 or binary64 values, rounded once (PTX ISA, "cvt").

        rounding  "rn" to nearest even, "rz" towards zero, "rp" away from zero (for the unsigned ue8m0: upwards)
        saturate  whether what is too large, infinities too, becomes the largest finite value; without, it becomes
                  infinity or NaN. NaN gives nan_code, or the largest finite value where there is none
        """
        exact = np.asarray(values).astype(np.float64)
        size = np.abs(exact)
        ladder = self.values[: self.largest_code + 1].astype(np.float64)
        below = np.clip(np.searchsorted(ladder, size, side="right") - 1, 0, ladder.size - 1)
        above = np.minimum(below + 1, ladder.size - 1)
        low, high = ladder[below], ladder[above]
        if rounding == "rn":
            middle = (low + high) / 2
            up = (size > middle) | ((size == middle) & (below & 1 == 1))
        else:
            up = (size > low) & (rounding == "rp")
        # Where 0 has no code (ue8m0), everything below the smallest value is that value.
        code = np.where(up & (size > low), above, below)
        top = ladder[-1]
        over = size > top
        if not saturate:
            # Rounding to nearest, only what lies beyond half a step above the largest value overflows.
            step = top - ladder[-2] if ladder.size > 1 else top
            limit = top + step / 2
            odd = bool(self.largest_code & 1)
            over = ((size > limit) | ((size == limit) & odd)) if rounding == "rn" else over & (rounding == "rp")
            over |= np.isinf(size)
            code = np.where(over, self._overflow_code(), code)
        if self.signed:
            code = np.where(np.signbit(exact), code | (1 << (self.bits - 1)), code)
        nan = np.isnan(exact)
        if nan.any():
            code = np.where(nan, self.largest_code if self.nan_code is None else self.nan_code, code)
        return np.asarray(code.astype(np.uint8))

    def _overflow_code(self) -> int:
        if self.specials == "ieee":
            return self.largest_code + 1
        if self.nan_code is None:
            return self.largest_code
        return self.nan_code


def _format(
    name: str, exponent_bits: int, mantissa_bits: int, bias: int, specials: Specials, signed: bool = True
) -> NarrowFloat:
    """The format with its table of values."""
    magnitude_bits = exponent_bits + mantissa_bits
    codes = np.arange(1 << magnitude_bits)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    # Without mantissa bits (ue8m0) exponent code 0 is an ordinary power of two, not zero.
    normal = (exponent > 0) | (mantissa_bits == 0)
    significand = np.where(normal, 1.0 + mantissa / (1 << mantissa_bits), mantissa / (1 << mantissa_bits))
    values = np.ldexp(significand, np.where(normal, exponent, 1) - bias)
    if specials == "nan":
        values[-1] = np.nan
    elif specials == "ieee":
        values[exponent == (1 << exponent_bits) - 1] = np.nan
        values[((1 << exponent_bits) - 1) << mantissa_bits] = np.inf
    if signed:
        values = np.concatenate([values, -values])
    table = values.astype(np.float32)
    table.setflags(write=False)
    return NarrowFloat(name, exponent_bits, mantissa_bits, bias, signed, specials, table)


# PTX ISA, "Alternate Floating-Point Data Formats"; biases from the OCP 8-bit and Microscaling formats specifications.
E4M3 = _format("e4m3", 4, 3, 7, "nan")
E5M2 = _format("e5m2", 5, 2, 15, "ieee")
E2M3 = _format("e2m3", 2, 3, 1, "none")
E3M2 = _format("e3m2", 3, 2, 3, "none")
E2M1 = _format("e2m1", 2, 1, 1, "none")
UE8M0 = _format("ue8m0", 8, 0, 127, "nan", signed=False)
UE4M3 = _format("ue4m3", 4, 3, 7, "nan", signed=False)
NARROW_FLOATS: dict[str, NarrowFloat] = {f.name: f for f in (E4M3, E5M2, E2M3, E3M2, E2M1, UE8M0, UE4M3)}


def truncate_tf32(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """What a matrix unit reads of tf32 operands: the upper 19 bits of each word (PTX ISA, "wgmma.mma_async")."""
    return (words & np.uint32(0xFFFFE000)).view(np.float32)
