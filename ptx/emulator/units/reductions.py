"""What asynchronous reductions do to one element: the bits in memory and a new value give the bits after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
Reduction = Callable[[Bits, Bits], Bits]

_DTYPES: dict[str, Any] = {
    "u32": np.dtype(np.uint32), "s32": np.dtype(np.int32), "b32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "s64": np.dtype(np.int64), "b64": np.dtype(np.uint64), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}  # fmt: skip
# PTX ISA, cp.reduce.async.bulk, table of valid combinations for global destinations.
_TYPES_OF: dict[str, tuple[str, ...]] = {
    "add": ("u32", "s32", "u64", "f32", "f64", "f16", "bf16"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"), "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",), "dec": ("u32",),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"),
}  # fmt: skip
OPERATIONS = tuple(_TYPES_OF)


def reduction(operation: str, type_name: str) -> Reduction | None:
    """f(old bits, value bits) -> new bits on unsigned arrays of the type's width; None where there is no such one."""
    kinds = _TYPES_OF.get(operation, ())
    if type_name not in kinds and not (operation in ("and", "or", "xor") and type_name in ("u32", "s32", "u64", "s64")):
        return None
    dtype = _DTYPES[type_name]
    compute = _compute(operation, dtype)

    def reduce(old: Bits, value: Bits) -> Bits:
        with np.errstate(all="ignore"):
            result = compute(np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(value).view(dtype))
        return np.asarray(result, dtype).view(old.dtype)

    return reduce


def element_bytes(type_name: str) -> int:
    """Bytes of one element of a type that can be reduced."""
    return int(_DTYPES[type_name].itemsize)


def _flushed(values: Bits) -> Bits:
    """Subnormal numbers become zeros of the same sign."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def _compute(operation: str, dtype: Any) -> Reduction:
    if dtype == np.float32:
        # PTX ISA, cp.reduce.async.bulk: "the current implementation of add.f32 flushes subnormal inputs and results".
        return lambda old, value: _flushed(_flushed(old) + _flushed(value))
    if dtype.itemsize == 2:
        # The sum in binary32, rounded again, is the correctly rounded sum: 24 bits are at least 2 * 11 + 2.
        functions: dict[str, Any] = {"add": np.add, "min": np.fmin, "max": np.fmax}
        function = functions[operation]
        return lambda old, value: function(old.astype(np.float32), value.astype(np.float32)).astype(dtype)
    one = dtype.type(1)
    table: dict[str, Reduction] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "inc": lambda old, value: np.where(old >= value, dtype.type(0), old + one),
        "dec": lambda old, value: np.where((old == 0) | (old > value), value, old - one),
    }  # fmt: skip
    return table[operation]
