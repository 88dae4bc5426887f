"""What an output may be: for every element the least and the greatest value that rounding explains, as bits.

Both ends have the type and the memory layout of the output, poison in the gaps, so that one comparison of bits judges
all of a result: values, gaps between rows, and what lies behind the end.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.runtime.elements import Element
from tinygpu.ptx.runtime.launch import Tensor

# Elements behind the end of every output that must stay as they are.
GUARD_ELEMS = 1024
_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far a result may be off.

    exact          bit for bit (the sign of a zero apart)
    terms          terms of the longest sum
    approximation  relative error of approximate functions
    """

    exact: bool
    terms: int
    approximation: float

    def bound(self, kind: Element, expected: NDArray[Any], magnitude: NDArray[Any]) -> NDArray[np.float64]:
        """Largest error, per element: sums of T terms in f32 are off by at most T x 2^-24 of the sum of absolute values
        (Higham, Accuracy and Stability, 4.2; taken twice, for products and sums), and the result is rounded once.

        magnitude  the reference on absolute values, itself in single precision at least
        """
        wide = np.asarray(expected, dtype=np.float64)
        scale = np.maximum(np.abs(np.nan_to_num(magnitude)) * (1 + 2.0**-10), np.abs(np.nan_to_num(wide)))
        unit = 2.0**-53 if kind.name == "f64" else 2.0**-24
        most = 2 * (self.terms + 8) * unit * scale + kind.half_ulp * np.abs(wide) + self.approximation * scale
        return np.asarray(most + kind.half_smallest, dtype=np.float64)


def intervals(
    tensor: Tensor, expected: NDArray[Any], magnitude: NDArray[Any], rounding: Rounding
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(extent + guard) least and greatest bits, in the output's memory layout.

    expected   (shape) the reference, exact where `rounding` says so
    magnitude  (shape) the reference on absolute values
    """
    kind = tensor.element
    low, high = (np.full(tensor.extent_elems + GUARD_ELEMS, ~kind.storage.type(0)) for _ in range(2))
    strides = tuple(s * kind.bytes for s in tensor.strides)
    views = [np.ndarray(tensor.shape, kind.storage, a.data, 0, strides) for a in (low, high)]
    want, size = (np.broadcast_to(a, tensor.shape) for a in (expected, magnitude))
    rows = max(1, _CHUNK * tensor.shape[0] // max(want.size, 1))

    def work(start: int) -> None:
        part = slice(start, start + rows)
        with np.errstate(all="ignore"):  # what is infinite or no number is judged apart
            views[0][part], views[1][part] = interval(kind, want[part], size[part], rounding)

    # NumPy lets go of Python's lock, and parts that fit a cache take a third of the time
    with ThreadPoolExecutor() as pool:
        list(pool.map(work, range(0, tensor.shape[0], rows)))
    return low, high


def interval(
    kind: Element, expected: NDArray[Any], magnitude: NDArray[Any], rounding: Rounding
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The least and the greatest bits that are right, per element."""
    nearest = kind.encode(np.ascontiguousarray(expected))
    low, high = nearest, nearest
    if not rounding.exact:
        bound = rounding.bound(kind, expected, magnitude)
        wide = np.asarray(expected, dtype=np.float64)
        finite = np.isfinite(wide)
        low = np.where(finite, _least(kind, wide - bound, nearest), nearest)
        high = np.where(finite, _greatest(kind, wide + bound, nearest), nearest)
    if kind.is_float:
        zero, top = kind.storage.type(0), kind.storage.type(1 << (kind.bits - 1))
        low, high = np.where(low == zero, top, low), np.where(high == top, zero, high)
        missing = np.isnan(np.asarray(expected, dtype=np.float64))
        if missing.any():  # any NaN with a positive sign
            last = kind.storage.type((1 << (kind.bits - 1)) - 1)
            first = last if not kind.infinities else kind.encode(np.array([np.inf]))[0] + kind.storage.type(1)
            low, high = np.where(missing, first, low), np.where(missing, last, high)
    return low, high


def _least(kind: Element, value: NDArray[np.float64], nearest: NDArray[Any]) -> NDArray[Any]:
    """The least element that is not below a value, and none above the one nearest to the middle."""
    bits = _near(kind, value) if kind.is_float else kind.encode(_held(kind, np.ceil(value)))
    keys = kind.keys(bits)
    if kind.is_float:
        keys = keys + (kind.decode(bits) < value)
    return kind.bits_of(np.minimum(keys, kind.keys(nearest)))


def _greatest(kind: Element, value: NDArray[np.float64], nearest: NDArray[Any]) -> NDArray[Any]:
    """The greatest element that is not above a value, and none below the one nearest to the middle."""
    bits = _near(kind, value) if kind.is_float else kind.encode(_held(kind, np.floor(value)))
    keys = kind.keys(bits)
    if kind.is_float:
        keys = keys - (kind.decode(bits) > value)
    return kind.bits_of(np.maximum(keys, kind.keys(nearest)))


def _near(kind: Element, value: NDArray[np.float64]) -> NDArray[Any]:
    """One of the two elements beside a value; by way of single precision where that is quicker."""
    return kind.encode(value.astype(np.float32) if kind.name == "bf16" else value)


def _held(kind: Element, whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers, brought into the range of an integer type."""
    signed = kind.kind == "signed"
    least = -(2.0 ** (kind.bits - 1)) if signed else 0.0
    return np.clip(whole, least, 2.0 ** (kind.bits - signed) - 1)
