"""Correct rounding: fused multiply-add, directed modes, and narrowing, on NumPy arrays.

A sum that does not fit is first rounded to binary64 *to odd* (inexact results get an odd last bit). Rounding that again
to a format of at most 51 significant bits is then the same as rounding the exact value once (Boldo and Melquiond,
"Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57(4)).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator.source.types import Array

_DROPPED_BITS = np.uint64(64 - 29)
_HALFWAY = np.int64(-(1 << 63))
_TWICE_SMALLEST = np.uint32(0x00FFFFFF)


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """(rounded sum, exact error) of two binary64 arrays (Knuth)."""
    total = x + y
    virtual = total - x
    return total, (x - (total - virtual)) + (y - virtual)


def to_odd(total: Array, error: Array) -> Array:
    """The sum total + error rounded to odd, where `total` is that sum rounded to nearest."""
    bits = np.asarray(total).view(np.uint64)
    even = (bits & np.uint64(1)) == 0
    # An infinite or NaN total has no meaningful error.
    move = even & (error != 0) & np.isfinite(total) & np.isfinite(error)
    return np.where(move, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)


def fma_f32(x: Any, y: Any, z: Any, out: Array | None = None) -> Array:
    """x * y + z of binary32 values, rounded once to nearest even; into `out`, which may be one of them, if it is given.

    The product is exact in binary64. The rounded sum can only be wrong where it lies halfway between two binary32
    values, or where the result is subnormal; those elements are done again with rounding to odd.
    """
    # Explicit conversions are faster than a ufunc's own; most calls bring three arrays of one shape.
    product = np.asarray(x).astype(np.float64)
    total, third = np.asarray(y).astype(np.float64), np.asarray(z).astype(np.float64)
    if product.shape == total.shape == third.shape and product.ndim:
        product *= total
        np.add(product, third, out=total)
    else:
        shape = np.broadcast_shapes(product.shape, total.shape, third.shape, () if out is None else out.shape)
        product, third = np.broadcast_to(product * total, shape), np.broadcast_to(third, shape)
        total = np.asarray(product + third)
    if out is None:
        result = np.asarray(total.astype(np.float32))
    else:
        result = out
        np.copyto(result, total, casting="same_kind")
    # The 29 bits that binary32 does not have, at the top: halfway is the least of all signed numbers.
    lost = (total.view(np.uint64) << _DROPPED_BITS).view(np.int64)
    # Twice the bits, less one, is small for subnormal numbers only (zero wraps around).
    twice = result.view(np.uint32) << np.uint32(1)
    twice -= np.uint32(1)
    if np.minimum.reduce(lost, axis=None) != _HALFWAY and np.minimum.reduce(twice, axis=None) >= _TWICE_SMALLEST:
        return result
    redo = np.asarray((lost == _HALFWAY) | (twice < _TWICE_SMALLEST))
    sums, errors = two_sum(product[redo], third[redo])
    result[redo] = to_odd(sums, errors).astype(np.float32)
    return result


def fma_odd(x: Any, y: Any, z: Any) -> Array:
    """x * y + z as binary64 rounded to odd, for values whose product is exact in binary64 (f32, f16, bf16)."""
    product = np.multiply(x, y, dtype=np.float64)
    total, error = two_sum(product, np.asarray(z).astype(np.float64))
    return to_odd(total, error)


def fma_f64(x: Any, y: Any, z: Any) -> Array:
    """x * y + z of binary64 values, rounded once to nearest even."""
    x, y, z = np.broadcast_arrays(np.asarray(x, np.float64), np.asarray(y, np.float64), np.asarray(z, np.float64))
    plain = x * y + z
    high, low = _two_product(x, y)
    carry, rest = two_sum(z, low)
    top, middle = two_sum(high, carry)
    result = top + to_odd(*two_sum(middle, rest))
    # Splitting overflows or loses bits at the ends of the exponent range: those few go through exact fractions.
    size = [np.abs(v) for v in (x, y, plain)]
    product_size = np.abs(x * y)
    extreme = (
        (size[0] > 1e150) | (size[1] > 1e150) | (product_size > 1e300) | (size[2] > 1e300)
        | ((product_size < 1e-250) & (x != 0) & (y != 0)) | ((np.abs(z) < 1e-250) & (z != 0)) | (size[2] < 1e-250)
    )  # fmt: skip
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    exact = extreme & finite & (x != 0) & (y != 0)
    result = np.where(finite & (x != 0) & (y != 0), result, plain)
    if exact.any():
        result = np.array(result)
        for at in np.argwhere(exact):
            key = tuple(at)
            result[key] = _fraction_fma(float(x[key]), float(y[key]), float(z[key]), float(plain[key]))
    return result


def _fraction_fma(x: float, y: float, z: float, plain: float) -> float:
    value = Fraction(x) * Fraction(y) + Fraction(z)
    if value == 0:
        return plain if plain == 0 else 0.0
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def directed_f64(x: Any, y: Any, z: Any | None, mode: str) -> Array:
    """x * y + z (z None: x * y) of binary64 values rounded once in mode rz, rm or rp, one by one as fractions."""
    values = [np.asarray(v, np.float64) for v in ((x, y) if z is None else (x, y, z))]
    arrays = np.broadcast_arrays(*values)
    plain = arrays[0] * arrays[1] if z is None else arrays[0] * arrays[1] + arrays[2]
    result = np.array(plain)
    for at in np.ndindex(result.shape):
        row = [float(a[at]) for a in arrays]
        if not all(np.isfinite(v) for v in row):
            continue
        exact = Fraction(row[0]) * Fraction(row[1]) + (Fraction(row[2]) if z is not None else 0)
        if exact != 0:
            result[at] = _round_fraction(exact, mode)
        elif z is not None and mode == "rm":
            positive = np.signbit(row[0]) == np.signbit(row[1]) and not np.signbit(row[2])
            result[at] = 0.0 if positive else -0.0
    return result


def _round_fraction(exact: Fraction, mode: str) -> float:
    try:
        nearest = float(exact)
    except OverflowError:
        nearest = float("inf") if exact > 0 else float("-inf")
    if np.isinf(nearest):
        above, below = nearest > 0, nearest < 0
    else:
        above, below = Fraction(nearest) > exact, Fraction(nearest) < exact
    if above and (mode == "rm" or (mode == "rz" and exact > 0)):
        return float(np.nextafter(nearest, -np.inf))
    if below and (mode == "rp" or (mode == "rz" and exact < 0)):
        return float(np.nextafter(nearest, np.inf))
    return nearest


def direct_f64(total: Array, error: Array, mode: str) -> Array:
    """The binary64 neighbour that a sum total + error (|error| below half a unit) rounds to in mode rz, rm or rp."""
    down = np.nextafter(total, -np.inf)
    up = np.nextafter(total, np.inf)
    if mode == "rz":
        return np.where((error < 0) & (total > 0), down, np.where((error > 0) & (total < 0), up, total))
    if mode == "rm":
        return np.where(error < 0, down, total)
    return np.where(error > 0, up, total)


def odd_quotient(x: Array, y: Array) -> Array:
    """x / y as binary64 rounded to odd."""
    quotient = np.true_divide(x, y)
    rest = fma_f64(-quotient, y, x)
    error = np.where(y < 0, -rest, rest)
    return to_odd(quotient, np.where(np.isfinite(quotient), error, 0.0))


def signed_zero(result: Array, first: Array, second: Array, mode: str) -> Array:
    """A sum of two terms that is exactly zero is -0 in mode rm unless both terms are +0 (IEEE 754, 6.3)."""
    if mode != "rm":
        return result
    zero = (result == 0) & (first == -second) & (np.signbit(first) | np.signbit(second))
    return np.where(zero, -np.zeros_like(result), result)


def _two_product(x: Array, y: Array) -> tuple[Array, Array]:
    """(rounded product, exact error) by splitting each factor in halves (Dekker, Veltkamp)."""
    product = x * y
    factor = 134217729.0
    cx, cy = factor * x, factor * y
    xh = cx - (cx - x)
    yh = cy - (cy - y)
    xl, yl = x - xh, y - yh
    return product, xl * yl - (((product - xh * yh) - xl * yh) - xh * yl)


def narrow(value: Array, target: Any, mode: str) -> Array:
    """binary64 values (to odd, or exact) rounded to a narrower NumPy float type in mode rn, rz, rm, rp, or rna."""
    dtype = np.dtype(target)
    if dtype == np.float64:
        return np.asarray(value)
    nearest = _nearest(np.asarray(value, np.float64), dtype)
    if mode == "rn":
        return nearest
    back = nearest.astype(np.float64)
    if mode == "rz":
        wrong, toward = np.abs(back) > np.abs(value), np.zeros_like(back)
    elif mode == "rm":
        wrong, toward = back > value, np.full_like(back, -np.inf)
    elif mode == "rp":
        wrong, toward = back < value, np.full_like(back, np.inf)
    else:
        raise ValueError(f"unknown rounding mode {mode!r}")
    if not wrong.any():
        return nearest
    stepped = step_toward(nearest, toward)
    return np.where(wrong, stepped, nearest)


def _nearest(value: Array, dtype: np.dtype[Any]) -> Array:
    if dtype == np.float32:
        return value.astype(np.float32)
    if dtype == np.float16:
        return value.astype(np.float16)
    if dtype == np.dtype(ml_dtypes.bfloat16):
        # Through binary32 rounded to odd: one correct rounding in the end.
        single = value.astype(np.float32)
        error = value - single.astype(np.float64)
        even = (single.view(np.uint32) & np.uint32(1)) == 0
        move = even & (error != 0) & np.isfinite(single)
        odd = np.where(move, np.nextafter(single, np.where(error > 0, np.float32(np.inf), np.float32(-np.inf))), single)
        # A finite value beyond binary32 rounds to infinity there; that is right for bfloat16 too.
        return odd.astype(np.float32).astype(ml_dtypes.bfloat16)
    raise ValueError(f"no rounding to {dtype}")


def step_toward(value: Array, toward: Array) -> Array:
    """The neighbour of each value in the direction of `toward`, in the value's own type."""
    bits_type: Any = np.dtype(f"i{value.dtype.itemsize}")
    bits = np.asarray(value).view(bits_type)
    wide = value.astype(np.float64)
    up = toward > wide
    # Away from zero the bit pattern grows; a zero steps to the least subnormal.
    grow = np.where(wide > 0, up, ~up)
    one = bits_type.type(1)
    moved = np.where(grow, bits + one, bits - one)
    least = np.where(up, one, one | bits_type.type(np.iinfo(bits_type).min)).astype(bits_type)
    moved = np.where(wide == 0, least, moved).astype(bits_type)
    return np.asarray(moved.view(value.dtype))


# Where the exponent lies in each format, by NumPy type name, and the sign.
_EXPONENT_AND_SIGN: dict[str, tuple[Any, int, int]] = {
    "float16": (np.uint16, 0x7C00, 0x8000),
    "bfloat16": (np.uint16, 0x7F80, 0x8000),
    "float32": (np.uint32, 0x7F800000, 0x80000000),
}


def flush_subnormals(value: Array) -> Array:
    """Subnormal numbers replaced by zero of the same sign (.ftz), in f16, bf16 or f32."""
    value = np.asarray(value)
    unsigned, exponent, sign = _EXPONENT_AND_SIGN[value.dtype.name]
    bits = value.view(unsigned)
    small = (bits & unsigned(exponent)) == 0
    return np.asarray(np.where(small, bits & unsigned(sign), bits).view(value.dtype))


def saturate(value: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes +0 (.sat)."""
    value = np.asarray(value)
    zero, one = value.dtype.type(0), value.dtype.type(1)
    clamped = np.where(value > one, one, np.where(value > zero, value, zero))
    return np.asarray(clamped.astype(value.dtype))
