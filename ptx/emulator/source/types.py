"""The fundamental types of PTX: width in bits and the NumPy type that holds a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TypeKind = Literal["unsigned", "signed", "bits", "float", "packed", "pred", "opaque"]


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One PTX type.

    name   as in PTX, without the dot
    bits   width of a register or memory element of this type
    kind   how its bits are read
    lane   for packed types the type of one element ("f16" of "f16x2"), else ""
    """

    name: str
    bits: int
    kind: TypeKind
    lane: str = ""

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def signed(self) -> bool:
        return self.kind == "signed"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("unsigned", "signed", "bits")


def _types() -> dict[str, ScalarType]:
    table: dict[str, ScalarType] = {"pred": ScalarType("pred", 1, "pred")}
    for bits in (8, 16, 32, 64):
        table[f"u{bits}"] = ScalarType(f"u{bits}", bits, "unsigned")
        table[f"s{bits}"] = ScalarType(f"s{bits}", bits, "signed")
        table[f"b{bits}"] = ScalarType(f"b{bits}", bits, "bits")
    table["b128"] = ScalarType("b128", 128, "bits")
    for name, bits in (("f16", 16), ("bf16", 16), ("f32", 32), ("f64", 64), ("tf32", 32)):
        table[name] = ScalarType(name, bits, "float")
    for lane, bits in (("f16", 16), ("bf16", 16), ("e4m3", 8), ("e5m2", 8), ("u16", 16), ("s16", 16)):
        table[f"{lane}x2"] = ScalarType(f"{lane}x2", 2 * bits, "packed", lane)
    table["f32x2"] = ScalarType("f32x2", 64, "packed", "f32")
    # PTX ISA, "Packed Data Types": 6-bit elements lie in bytes, 4-bit elements side by side.
    for lane, count, bits in (
        ("e2m1", 2, 8), ("e2m1", 4, 16), ("e2m3", 2, 16), ("e2m3", 4, 32), ("e3m2", 2, 16), ("e3m2", 4, 32),
        ("e4m3", 4, 32), ("e5m2", 4, 32), ("ue8m0", 2, 16),
    ):  # fmt: skip
        table[f"{lane}x{count}"] = ScalarType(f"{lane}x{count}", bits, "packed", lane)
    for name in ("e4m3", "e5m2"):
        table[name] = ScalarType(name, 8, "float")
    for name in ("texref", "samplerref", "surfref"):
        table[name] = ScalarType(name, 64, "opaque")
    return table


TYPES: dict[str, ScalarType] = _types()

# One list of typed register views per NumPy type; `view_index` says which list a PTX type reads.
VIEW_DTYPES: tuple[Any, ...] = (
    np.dtype(np.bool_),
    np.dtype(np.uint16),
    np.dtype(np.int16),
    np.dtype(np.float16),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(np.uint32),
    np.dtype(np.int32),
    np.dtype(np.float32),
    np.dtype(np.uint64),
    np.dtype(np.int64),
    np.dtype(np.float64),
)
_VIEW: dict[str, int] = {
    "pred": 0, "u16": 1, "b16": 1, "u8": 1, "b8": 1, "e4m3x2": 1, "e5m2x2": 1, "s16": 2, "s8": 2, "f16": 3, "bf16": 4,
    "u32": 5, "b32": 5, "tf32": 5, "f16x2": 5, "bf16x2": 5, "u16x2": 5, "s16x2": 5, "s32": 6, "f32": 7,
    "u64": 8, "b64": 8, "f32x2": 8, "s64": 9, "f64": 10, "e2m1x2": 1, "e2m1x4": 1, "e2m3x2": 1, "e3m2x2": 1,
    "ue8m0x2": 1, "e2m3x4": 5, "e3m2x4": 5, "e4m3x4": 5, "e5m2x4": 5,
}  # fmt: skip


def view_index(type_name: str) -> int:
    """Which list of register views holds values of this type."""
    return _VIEW[type_name]


def numpy_type(type_name: str) -> Any:
    """The NumPy type of one register value of this type (packed types are their bits)."""
    return VIEW_DTYPES[_VIEW[type_name]]


MEMORY_DTYPES: dict[str, Any] = {
    "u8": np.dtype(np.uint8), "b8": np.dtype(np.uint8), "s8": np.dtype(np.int8),
    "u16": np.dtype(np.uint16), "b16": np.dtype(np.uint16), "s16": np.dtype(np.int16), "f16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "b32": np.dtype(np.uint32), "s32": np.dtype(np.int32),
    "f32": np.dtype(np.uint32), "f16x2": np.dtype(np.uint32), "bf16x2": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64), "b64": np.dtype(np.uint64), "s64": np.dtype(np.int64), "f64": np.dtype(np.uint64),
    "f32x2": np.dtype(np.uint64), "e4m3x2": np.dtype(np.uint16), "e5m2x2": np.dtype(np.uint16),
}  # fmt: skip
