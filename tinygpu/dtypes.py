"""Element types: names, widths in bits, and the NumPy types that hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Kind = Literal["float", "signed", "unsigned", "scale", "predicate"]


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """One element type, which is equal to its name: `self.x.dtype == "f16"`.

    name       as in PTX, without the dot: "f16", "bf16", "e4m3"
    bits       width of one stored element; 4- and 6-bit types exist
    kind       float, signed, unsigned, scale (ue8m0: a power of two), or predicate (pred: in registers alone)
    mantissa   explicit mantissa bits of a float (0 for the others)
    exponent   exponent bits of a float
    """

    name: str
    bits: int
    kind: Kind
    mantissa: int = 0
    exponent: int = 0

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"dtype({self.name!r})"

    def __eq__(self, other: object) -> bool:
        """Raises ValueError beside a word that is no type's name: it would never be equal."""
        if isinstance(other, str):
            return self.name == dtype(other).name
        return self.name == other.name if isinstance(other, DType) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def bytes(self) -> int:
        """Bytes of one element; refuses types narrower than a byte."""
        if self.bits % 8:
            raise ValueError(f"{self.name} is {self.bits} bits wide: it has no whole number of bytes")
        return self.bits // 8

    def bytes_of(self, elements: int) -> int:
        """Bytes of so many elements, one after another; what is narrower than a byte shares it with its neighbours."""
        return -(-elements * self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that stores one element (tf32 is stored as float32; 4- and 6-bit types one to a byte)."""
        found: np.dtype[Any] = np.dtype(_NUMPY[self.name])
        return found


_NUMPY: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "tf32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "s32": np.int32,
    "u32": np.uint32,
    "s8": np.int8,
    "u8": np.uint8,
    "s4": ml_dtypes.int4,
    "u4": ml_dtypes.uint4,
    "pred": np.bool_,
}

DTYPES: tuple[DType, ...] = (
    DType("f64", 64, "float", 52, 11),
    DType("f32", 32, "float", 23, 8),
    DType("tf32", 32, "float", 10, 8),
    DType("f16", 16, "float", 10, 5),
    DType("bf16", 16, "float", 7, 8),
    DType("e4m3", 8, "float", 3, 4),
    DType("e5m2", 8, "float", 2, 5),
    DType("e2m3", 6, "float", 3, 2),
    DType("e3m2", 6, "float", 2, 3),
    DType("e2m1", 4, "float", 1, 2),
    DType("ue8m0", 8, "scale", 0, 8),
    DType("s32", 32, "signed"),
    DType("u32", 32, "unsigned"),
    DType("s8", 8, "signed"),
    DType("u8", 8, "unsigned"),
    DType("s4", 4, "signed"),
    DType("u4", 4, "unsigned"),
)

# What comparisons make and selections take: whether something holds. No memory has elements of it.
PREDICATE = DType("pred", 1, "predicate")
# The types of values in registers.
VALUES: tuple[DType, ...] = (*DTYPES, PREDICATE)


@dataclass(frozen=True, slots=True)
class PackedType:
    """A 32-bit register of neighbouring elements, as PTX types the operands of packed arithmetic.

    count  elements in one register
    """

    name: str
    element: DType
    count: int

    def __str__(self) -> str:
        return self.name


PACKED: tuple[PackedType, ...] = tuple(
    PackedType(f"{t.name}x{32 // t.bits}", t, 32 // t.bits)
    for t in DTYPES
    if t.bits in (16, 8, 4) and t.kind != "scale"
)


def packed_type(name: str) -> PackedType | None:
    """The packed type called `name`; None where it is that of an element."""
    return next((packed for packed in PACKED if packed.name == name), None)


def dtype(name: str | DType) -> DType:
    """The element type called `name`."""
    if isinstance(name, DType):
        return name
    if packed := packed_type(name):
        raise ValueError(
            f"{packed} is a register of {packed.count} neighbours, which operands of an Elementwise instruction are; "
            f"the elements are {packed.element}"
        )
    for candidate in VALUES:
        if candidate.name == name:
            return candidate
    raise ValueError(f"unknown dtype {name!r}; known: {', '.join(t.name for t in DTYPES)}")


def not_in_memory(kind: DType) -> str:
    """Why no tensor and no buffer has elements of a type, as what follows the type's name; "" where they may."""
    return "is what comparisons make in registers; keep a u8 in memory" if kind == PREDICATE else ""


def cannot_hold(kind: DType, value: float) -> str:
    """Why no element of a type stands for a number, as what follows the type's name; "" where one does, rounded."""
    if not kind.is_float:
        if kind.kind == "scale":
            power = math.isfinite(value) and value >= 0 and math.frexp(value)[0] in (0.0, 0.5)
            return "" if power else "holds powers of two"
        low, high = 0, 2**kind.bits - 1
        if kind.kind == "signed":
            low, high = -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1
        whole = math.isfinite(value) and value == int(value)
        return "" if whole and low <= value <= high else f"holds whole numbers from {low:,} to {high:,}"
    limits = ml_dtypes.finfo(kind.numpy)
    if math.isinf(value):
        with np.errstate(all="ignore"):
            infinite = bool(np.isinf(np.asarray(value).astype(kind.numpy).astype(np.float64)))
        return "" if infinite else "has no infinities"
    largest = float(limits.max)
    return f"holds numbers up to {largest:,.10g}" if abs(value) > largest else ""


def tf32_read(values: NDArray[Any]) -> NDArray[np.float32]:
    """What a matrix unit reads of tf32 elements: the upper 19 bits of each word (PTX ISA, "wgmma.mma_async")."""
    words = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return (words & np.uint32(0xFFFFE000)).view(np.float32).reshape(np.shape(values))
