"""What an output may be once it is stored: the least and the greatest bits of its type that are right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.bounds.answers import Answer
from tinygpu.ptx.bounds.enclosure import Values
from tinygpu.ptx.runtime.elements import Bits, Element

# The largest finite values (Open Compute Project, 8-bit floating point specification).
_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}
# What cvt.rna.tf32 cuts off.
_TF32_HALF = 2.0**-11


def stored(kind: Element, values: Values) -> Bits:
    """Numbers as a kernel stores them: rounded once to the nearest (PTX ISA, cvt).

    Integers and 8-bit floats saturate, and an integer made of a NaN is 0; f16 and bf16 overflow to infinity.
    """
    with np.errstate(all="ignore"):
        if kind.is_float:
            largest = _LARGEST.get(kind.name)
            held = values if largest is None else np.clip(values, -largest, largest)
            return kind.encode(np.ascontiguousarray(held, dtype=held.dtype if held.dtype.kind == "f" else np.float64))
        if values.dtype.kind in "iub":
            return kind.encode(np.clip(values.astype(np.int64), *_range(kind)))
        whole = np.rint(np.where(np.isnan(values), 0.0, values))
        return kind.encode(np.clip(whole, *_range(kind)))


def ends(kind: Element, answer: Answer, shape: tuple[int, ...]) -> tuple[Bits, Bits]:
    """(least, greatest) bits of every element, in the order of `Element.keys`.

    Rounding is monotone, so that what is between the ends before it is between them after it. Where anything is right,
    the greatest are those of a NaN.
    """
    low, high = answer.low, answer.high
    if kind.name == "tf32":  # stored in 32 bits: rounded to 19 of them, or not yet
        with np.errstate(all="ignore"):
            off = [np.where(np.isfinite(e), _TF32_HALF * np.abs(e), 0.0) for e in (low, high)]
            low, high = low - off[0], high + off[1]
    least = stored(kind, low)
    greatest = least if high is low else stored(kind, high)
    if kind.infinities and kind.name in _LARGEST and low.dtype.kind == "f":
        # converted, they saturate; moved as they are, they stay
        least = np.where(low == -np.inf, kind.encode(np.array([-np.inf]))[0], least)
        greatest = np.where(high == np.inf, kind.encode(np.array([np.inf]))[0], greatest)
    if kind.is_float:
        zero, top = kind.storage.type(0), kind.storage.type(1 << (kind.bits - 1))
        # the sign of a zero is not compared
        least, greatest = np.where(least == zero, top, least), np.where(greatest == top, zero, greatest)
        last = kind.storage.type((1 << (kind.bits - 1)) - 1)
        if answer.value.dtype.kind == "f":
            missing, anything = np.isnan(answer.low), (answer.low == -np.inf) & (answer.high == np.inf)
            if missing.any() or anything.any():  # any NaN with a positive sign
                first = last if not kind.infinities else kind.encode(np.array([np.inf]))[0] + kind.storage.type(1)
                least = np.where(missing, first, least)
                greatest = np.where(missing | anything, last, greatest)
    return np.broadcast_to(least, shape), np.broadcast_to(greatest, shape)


def unjudged(answer: Answer) -> NDArray[np.bool_]:
    """Elements of which anything is right."""
    if answer.value.dtype.kind != "f":
        return np.zeros(answer.value.shape, dtype=np.bool_)
    return np.asarray((answer.low == -np.inf) & (answer.high == np.inf))


def _range(kind: Element) -> tuple[int, int]:
    signed = kind.kind == "signed"
    return -(1 << (kind.bits - 1)) if signed else 0, (1 << (kind.bits - signed)) - 1
