"""What atomics do to memory, for many lanes at once, as if one lane came after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import TYPES, Array

# The number of rounds from which on it pays to look for a shorter way.
_MANY_TURNS = 16


@dataclass(frozen=True, slots=True)
class Update:
    """What an atomic makes of an element.

    apply   new bits = f(old bits, operand, second operand)
    ufunc   the same as a NumPy function of two values of `dtype`, None where it is none
    swaps   whether the operand itself is the new value
    """

    apply: Callable[[Array, Array, Array | None], Array]
    ufunc: Any = None
    dtype: Any = None
    swaps: bool = False


def _element(name: str) -> Any:
    special = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
               "f32": np.float32, "f64": np.float64}  # fmt: skip
    if name in special:
        return np.dtype(special[name])
    kind = TYPES[name]
    return np.dtype(f"{'i' if kind.signed else 'u'}{kind.bytes}")


def make_update(operation: str, name: str) -> Update:
    """The update of an operation on elements of a type; "b128" are two halves."""
    if operation == "cas":

        def compare_and_swap(old: Array, compare: Array, value: Array | None) -> Array:
            same = old == compare
            return np.where(same if same.ndim == 1 else same.all(axis=1, keepdims=True), value, old)  # type: ignore[arg-type]

        return Update(compare_and_swap)
    if operation == "exch":
        return Update(lambda old, value, _: value, swaps=True)
    dtype = _element(name)
    unsigned: Any = np.dtype(f"u{TYPES[name].bytes}")
    ufuncs: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }  # fmt: skip
    others: dict[str, Callable[[Array, Array], Any]] = {
        "inc": lambda old, value: np.where(old >= value, dtype.type(0), old + dtype.type(1)),
        "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - dtype.type(1)),
    }
    ufunc = ufuncs.get(operation)
    compute = others[operation] if ufunc is None else ufunc

    def apply(old: Array, value: Array, _: Array | None) -> Array:
        result = compute(np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(value).view(dtype))
        return np.asarray(np.asarray(result, dtype).view(unsigned))

    return Update(apply, ufunc, dtype)


def one_after_another(
    view: Array, index: NDArray[np.int64], update: Update, value: Array, second: Array | None
) -> Array:
    """Apply updates to view[index] as if lanes came one after another; returns what each found there.

    view   (elements,), or (elements, 2) for elements of two halves
    index  (k,) element per lane; lanes with the same element go in order
    """
    old = np.zeros((*index.shape, *view.shape[1:]), view.dtype)
    if index.size == 0:
        return old
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(fresh)
    turn = np.arange(ordered.size) - np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    turns = int(turn.max()) + 1
    if turns == 1:
        old[...] = view[index]
        view[index] = update.apply(old, value, second)
        return old
    if update.swaps:
        # Each lane finds what the one before it left.
        moved = np.empty_like(old)
        moved[1:] = value[order[:-1]]
        moved[starts] = view[ordered[starts]]
        old[order] = moved
        ends = np.append(starts[1:], ordered.size) - 1
        view[ordered[starts]] = value[order[ends]]
        return old
    if update.ufunc is not None and turns > max(_MANY_TURNS, starts.size):
        return _place_by_place(view, ordered, order, starts, update, value, old)
    by_turn = np.argsort(turn, kind="stable")
    bounds = np.searchsorted(turn[by_turn], np.arange(turns + 1))
    for number in range(turns):
        lanes = order[by_turn[bounds[number] : bounds[number + 1]]]
        where = index[lanes]
        found = view[where]
        old[lanes] = found
        view[where] = update.apply(found, value[lanes], None if second is None else second[lanes])
    return old


def _place_by_place(
    view: Array, ordered: NDArray[np.int64], order: NDArray[np.int64], starts: NDArray[np.int64], update: Update,
    value: Array, old: Array,
) -> Array:  # fmt: skip
    """The same where many lanes meet at few elements: all updates of one element as a running result."""
    ends = np.append(starts[1:], ordered.size)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        lanes = order[start:end]
        bits = np.empty(end - start + 1, view.dtype)
        bits[0] = view[ordered[start]]
        bits[1:] = value[lanes]
        # Packed pairs are two columns.
        numbers = bits.view(update.dtype).reshape(bits.size, -1)
        running = np.ascontiguousarray(update.ufunc.accumulate(numbers, axis=0, dtype=update.dtype))
        result = running.view(view.dtype).reshape(-1)
        old[lanes] = result[:-1]
        view[ordered[start]] = result[-1]
    return old
