"""Rounding of exact fractions to floating formats, digit by digit: the oracle of the float tests."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary floating format: significand bits (with the hidden one), and the exponent range of normal numbers."""

    name: str
    precision: int
    least_exponent: int
    greatest_exponent: int
    bits: int


F16 = Format("f16", 11, -14, 15, 16)
BF16 = Format("bf16", 8, -126, 127, 16)
F32 = Format("f32", 24, -126, 127, 32)
F64 = Format("f64", 53, -1022, 1023, 64)


def decode(pattern: int, f: Format) -> Fraction | None:
    """The value of a finite bit pattern, None for infinities and NaN."""
    fraction_bits = f.precision - 1
    sign = -1 if pattern >> (f.bits - 1) else 1
    exponent = pattern >> fraction_bits & ((1 << (f.bits - 1 - fraction_bits)) - 1)
    fraction = pattern & ((1 << fraction_bits) - 1)
    if exponent == (1 << (f.bits - 1 - fraction_bits)) - 1:
        return None
    if exponent == 0:
        return sign * Fraction(fraction) * Fraction(2) ** (f.least_exponent - fraction_bits)
    return sign * Fraction(fraction + (1 << fraction_bits)) * Fraction(2) ** (
        exponent - 1 + f.least_exponent - fraction_bits
    )


def encode(value: Fraction, f: Format, mode: str, zero_sign: int = 0) -> int:
    """The bit pattern of `value` rounded in mode rn, rz, rm or rp; `zero_sign` is the sign of an exact zero."""
    fraction_bits = f.precision - 1
    if value == 0:
        return zero_sign << (f.bits - 1)
    sign = 1 if value < 0 else 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, f.least_exponent)
    unit = Fraction(2) ** (exponent - fraction_bits)
    scaled = magnitude / unit
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    up = False
    if mode == "rn":
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1)
    elif mode == "rm":
        up = bool(rest) and sign == 1
    elif mode == "rp":
        up = bool(rest) and sign == 0
    whole += up
    # A carry out of the significand moves into the exponent field by itself.
    pattern = whole if exponent == f.least_exponent and whole < 1 << fraction_bits else (
        (exponent - f.least_exponent) * (1 << fraction_bits) + whole
    )
    infinity = ((1 << (f.bits - 1 - fraction_bits)) - 1) << fraction_bits
    if pattern >= infinity:
        away = mode == "rn" or (mode == "rp" and not sign) or (mode == "rm" and sign)
        pattern = infinity if away else infinity - 1
    return sign << (f.bits - 1) | pattern
