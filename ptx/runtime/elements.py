"""Element types as bits: their values, rounding to them, and their order. Needs nothing but NumPy.

`tinygpu.dtypes` has NumPy types for them; here they are decoded by hand, because the machine that times kernels may
have nothing but NumPy. The two are tested against each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution

Bits = NDArray[Any]  # unsigned integers of the element's width

_UNSIGNED: dict[int, Any] = {4: np.uint8, 6: np.uint8, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_NATIVE: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "tf32": np.float32, "f16": np.float16}


@dataclass(frozen=True, slots=True)
class Element:
    """One element type.

    bits        width in memory
    exponent    exponent bits of a float
    mantissa    explicit mantissa bits of a float, as it is stored
    infinities  whether a float has them; without, its largest code is its only NaN
    """

    name: str
    bits: int
    kind: Literal["float", "signed", "unsigned"]
    exponent: int = 0
    mantissa: int = 0
    infinities: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of one element; raises ValueError for what shares a byte with its neighbours."""
        if self.bits < 8:
            raise ValueError(f"{self.name} is {self.bits} bits wide: it has no whole number of bytes")
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def storage(self) -> np.dtype[Any]:
        """The unsigned NumPy type of one element's bits; those of 4 and 6 bits have a byte each here."""
        found: np.dtype[Any] = np.dtype(_UNSIGNED[self.bits])
        return found

    def decode(self, bits: Bits) -> NDArray[Any]:
        """The values: float32 where that holds them, else float64."""
        if self.kind != "float":
            if self.bits == 4:
                return np.asarray(bits, dtype=np.float64) - 16.0 * ((bits > 7) & (self.kind == "signed"))
            whole = bits if self.kind == "unsigned" else bits.view(_SIGNED[self.bits])
            return np.asarray(whole, dtype=np.float64)
        if self.name in _NATIVE:
            return np.asarray(bits.view(_NATIVE[self.name]), dtype=np.float64 if self.bits == 64 else np.float32)
        if self.name == "bf16":
            return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))
        return self._table()[bits]

    def encode(self, values: NDArray[Any]) -> Bits:
        """The nearest elements of real numbers, ties to even; integers must be whole and in range."""
        if self.kind != "float":
            if self.bits == 4:
                return np.asarray(np.asarray(values, dtype=np.int64) & 15, dtype=np.uint8)
            kind = _UNSIGNED if self.kind == "unsigned" else _SIGNED
            return np.asarray(values, dtype=kind[self.bits]).view(self.storage)
        if self.name in _NATIVE:
            with np.errstate(over="ignore"):
                return np.asarray(values, dtype=_NATIVE[self.name]).view(self.storage)
        if self.name == "bf16" and values.dtype == np.float32:
            return _bf16(values)
        return self._rounded(np.asarray(values, dtype=np.float64))

    def encode_drawn(self, values: NDArray[Any], declared: Distribution) -> Bits:
        """The nearest elements that a distribution has, for numbers drawn from it; of those that it lists, the nearest.

        Rounding may leave the range; then the next element on its other side lies in it.
        """
        bits, low, high = self.encode(values), declared.low, declared.high
        if declared.listed:
            return bits
        found = np.asarray(self.decode(bits), dtype=np.float64)
        outside = (found > high).astype(np.int8) - (found < low)
        if not outside.any():
            return bits
        keys = self.keys(bits)
        return self.bits_of(np.where(outside > 0, keys - 1, np.where(outside < 0, keys + 1, keys)).astype(keys.dtype))

    def keys(self, bits: Bits) -> Bits:
        """Bits as unsigned numbers in the order of their values: negative NaNs first, positive ones last."""
        top = self.storage.type(1 << (self.bits - 1))
        if self.kind == "unsigned":
            return bits
        if self.kind == "signed":
            return np.asarray(bits ^ top)
        return np.asarray(np.where(bits & top, ~bits & self._ones, bits | top))

    def bits_of(self, keys: Bits) -> Bits:
        """The inverse of `keys`."""
        top = self.storage.type(1 << (self.bits - 1))
        if self.kind == "unsigned":
            return keys
        if self.kind == "signed":
            return np.asarray(keys ^ top)
        return np.asarray(np.where(keys & top, keys ^ top, ~keys & self._ones))

    @property
    def _ones(self) -> Any:
        return self.storage.type((1 << self.bits) - 1)

    def _table(self) -> NDArray[np.float32]:
        """The value of every code of a narrow float."""
        codes = np.arange(1 << self.bits)
        exponent = (codes >> self.mantissa) & ((1 << self.exponent) - 1)
        fraction = codes & ((1 << self.mantissa) - 1)
        bias = (1 << (self.exponent - 1)) - 1
        whole = np.where(exponent > 0, fraction + (1 << self.mantissa), fraction)
        values = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - self.mantissa)
        last = exponent == (1 << self.exponent) - 1
        if self.bits < 8:
            pass  # neither infinities nor NaN (Open Compute Project, microscaling formats)
        elif self.infinities:
            values[last] = np.where(fraction[last] == 0, np.inf, np.nan)
        else:
            values[codes & 0x7F == 0x7F] = np.nan
        return np.asarray(np.where(codes >> (self.bits - 1), -values, values), dtype=np.float32)

    def _rounded(self, values: NDArray[np.float64]) -> Bits:
        bias = (1 << (self.exponent - 1)) - 1
        # one code after the largest finite one: infinity, or the only NaN
        over = ((1 << self.exponent) - 1) << self.mantissa if self.infinities else (1 << (self.bits - 1)) - 1
        size = np.abs(values)
        finite = np.isfinite(size)
        _, power = np.frexp(np.where(finite, size, 0.0))
        power = np.where(size > 0, np.maximum(power - 1, 1 - bias), 1 - bias)
        steps = np.rint(np.ldexp(np.where(finite, size, 0.0), self.mantissa - power))
        code = np.minimum(steps + (power + bias - 1) * float(1 << self.mantissa), over)
        code = np.where(finite, code, over).astype(np.int64)
        code = np.where(np.isnan(values), (1 << (self.bits - 1)) - 1, code)
        return np.asarray(code | np.where(np.signbit(values), 1 << (self.bits - 1), 0), dtype=self.storage)


def _bf16(values: NDArray[np.float32]) -> Bits:
    bits = values.view(np.uint32)
    up = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = ((bits + (np.uint32(0x7FFF) + up)) >> np.uint32(16)).astype(np.uint16)
    sign = (bits >> np.uint32(16)).astype(np.uint16) & np.uint16(0x8000)
    return np.where(np.isnan(values), sign | np.uint16(0x7FFF), rounded)


ELEMENTS: tuple[Element, ...] = (
    Element("f64", 64, "float", 11, 52),
    Element("f32", 32, "float", 8, 23),
    Element("tf32", 32, "float", 8, 23),
    Element("f16", 16, "float", 5, 10),
    Element("bf16", 16, "float", 8, 7),
    Element("e4m3", 8, "float", 4, 3, infinities=False),
    Element("e5m2", 8, "float", 5, 2),
    Element("s32", 32, "signed"),
    Element("u32", 32, "unsigned"),
    Element("s8", 8, "signed"),
    Element("u8", 8, "unsigned"),
    Element("s4", 4, "signed"),
    Element("u4", 4, "unsigned"),
    Element("e2m3", 6, "float", 2, 3, infinities=False),
    Element("e3m2", 6, "float", 3, 2, infinities=False),
    Element("e2m1", 4, "float", 2, 1, infinities=False),
)


def element(name: str) -> Element:
    """The element type called `name`, as in PTX without the dot."""
    for candidate in ELEMENTS:
        if candidate.name == name:
            return candidate
    raise ValueError(f"there is no element type {name!r} at run time; there are {', '.join(e.name for e in ELEMENTS)}")
