"""Conversions between element types, and rounding to integers within one.

operands   one value per element, in registers
legality   the pairs of `CONVERSIONS`, with the oldest target and lowest .version where they are younger than sm_80
meaning    floats round to nearest even, tf32 to nearest with ties away from zero; integers and 8-bit floats saturate,
           and an integer made of a NaN is 0 (of an f64 NaN: its highest bit alone)
cost       one slot of the integer unit per element, or per pair
lowering   the text of the conversion; neighbouring 16-bit results of f32 values are converted in pairs
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.isa.elementwise import Arithmetic, narrowed


@dataclass(frozen=True, slots=True)
class Conversion:
    """One pair: its PTX (an opcode, or whole statements with {d} and {a}), oldest target and lowest .version."""

    text: str
    target: int = 80
    isa: tuple[int, int] = (7, 0)


def _to_fp8(to: str, origin: str) -> Conversion:
    """PTX ISA, cvt to e4m3x2 and e5m2x2: two values at once, the second in the low byte; .satfinite is required."""
    if origin == "f32":
        convert = f"cvt.rn.satfinite.{to}x2.f32 pair, 0f00000000, {{a}};"
    else:
        convert = f".reg .b32 both; mov.b32 both, {{{{{{a}}, {{a}}}}}}; cvt.rn.satfinite.{to}x2.f16x2 pair, both;"
    return Conversion(
        f"{{{{ .reg .b16 pair; {convert} and.b16 pair, pair, 255; cvt.u32.u16 {{d}}, pair; }}}}", 89, (8, 1)
    )


def _from_fp8(origin: str, to: str) -> Conversion:
    both = f"cvt.u16.u32 pair, {{a}}; cvt.rn.f16x2.{origin}x2 both, pair;"
    if to == "f16":
        last = "mov.b32 {{{d}, pair}}, both;"
    else:
        last = ".reg .b16 low; mov.b32 {{low, pair}}, both; cvt.f32.f16 {d}, low;"
    return Conversion(f"{{{{ .reg .b16 pair; .reg .b32 both; {both} {last} }}}}", 89, (8, 1))


# PTX ISA, cvt: (from, to). Each assembled for its target and refused for the one before it.
CONVERSIONS: dict[tuple[str, str], Conversion] = {
    ("f16", "f32"): Conversion("cvt.f32.f16"),
    ("bf16", "f32"): Conversion("cvt.f32.bf16", isa=(7, 1)),
    ("f32", "f16"): Conversion("cvt.rn.f16.f32"),
    ("f32", "bf16"): Conversion("cvt.rn.bf16.f32"),
    ("f16", "bf16"): Conversion("cvt.rn.bf16.f16", 90, (7, 8)),
    ("bf16", "f16"): Conversion("cvt.rn.f16.bf16", 90, (7, 8)),
    ("f32", "f64"): Conversion("cvt.f64.f32"),
    ("f64", "f32"): Conversion("cvt.rn.f32.f64"),
    ("f16", "f64"): Conversion("cvt.f64.f16"),
    ("f64", "f16"): Conversion("cvt.rn.f16.f64"),
    ("bf16", "f64"): Conversion("cvt.f64.bf16", 90, (7, 8)),
    **{(a, "bf16"): Conversion(f"cvt.rn.bf16.{a}", 90, (7, 8)) for a in ("f64", "s32", "u32")},
    ("f32", "tf32"): Conversion("cvt.rna.tf32.f32"),
    ("tf32", "f32"): Conversion("mov.b32"),
    **{("f32", to): Conversion(f"cvt.rni.{to}.f32") for to in ("s32", "u32")},
    **{("f64", to): Conversion(f"cvt.rni.{to}.f64") for to in ("s32", "u32")},
    **{("f16", to): Conversion(f"cvt.rni.{to}.f16") for to in ("s32", "u32")},
    **{("bf16", to): Conversion(f"cvt.rni.{to}.bf16", 90, (7, 8)) for to in ("s32", "u32")},
    **{(a, to): Conversion(f"cvt.rni.sat.{to}.{a}") for a in ("f32", "f16") for to in ("s8", "u8")},
    **{(a, to): Conversion(f"cvt.rn.{to}.{a}") for a in ("s32", "u32", "s8", "u8") for to in ("f64", "f32", "f16")},
    ("s8", "s32"): Conversion("cvt.s32.s8"),
    ("u8", "u32"): Conversion("cvt.u32.u8"),
    ("u8", "s32"): Conversion("cvt.s32.u8"),
    **{(a, to): Conversion(f"cvt.sat.{to}.{a}") for a in ("s32", "u32") for to in ("s8", "u8")},
    **{
        (a, b): Conversion(f"cvt.sat.{b}.{a}")
        for a, b in (("s32", "u32"), ("u32", "s32"), ("s8", "u32"), ("s8", "u8"), ("u8", "s8"))
    },
    **{(a, to): _to_fp8(to, a) for a in ("f32", "f16") for to in ("e4m3", "e5m2")},
    **{(a, to): _from_fp8(a, to) for a in ("e4m3", "e5m2") for to in ("f16", "f32")},
}


@dataclass(frozen=True, eq=False)
class Cvt(Elementwise):
    """Converts `origin` values to `to` values."""

    origin: str = "f32"
    to: str = "f16"
    sign: ClassVar[str] = "convert"
    source: ClassVar[str] = "PTX ISA, cvt"

    def __post_init__(self) -> None:
        if (self.origin, self.to) not in CONVERSIONS:
            pairs = ", ".join(f"{a} to {b}" for a, b in CONVERSIONS)
            raise ValueError(f"there is no conversion from {self.origin} to {self.to}; there are {pairs}")
        conversion = CONVERSIONS[self.origin, self.to]
        if conversion.target > 80:  # a younger pair has its own target
            object.__setattr__(self, "target", conversion.target)
        object.__setattr__(self, "isa", conversion.isa)

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.origin,), self.to

    def text(self) -> str:
        spelled = CONVERSIONS[self.origin, self.to].text
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {{a}};"

    def packed_text(self) -> str:
        """PTX ISA, cvt to f16x2 and bf16x2: the first source becomes the upper half."""
        if self.origin == "f32" and self.to in ("f16", "bf16"):
            return f"cvt.rn.{self.to}x2.f32 {{d}}, {{a1}}, {{a0}};"
        return ""

    @property
    def label(self) -> str:
        spelled = CONVERSIONS[self.origin, self.to].text
        return f"cvt.{self.to}.{self.origin}" if "{d}" in spelled else spelled

    @property
    def flops(self) -> int:
        return 0

    def meaning(self, *values: Any) -> Any:
        value, to = np.asarray(values[0]), dtype(self.to)
        if not to.is_float:
            return _to_integer(value, self.origin, to.numpy)
        if to.name == "tf32":
            return round_to_tf32(value)
        with np.errstate(over="ignore"):
            if to.name in ("e4m3", "e5m2"):
                wide = value.astype(np.float32)
                largest = _LARGEST[to.name]
                return np.clip(wide, -largest, largest).astype(to.numpy)
            return narrowed(value, self.to) if to.name == "bf16" else value.astype(to.numpy)


# The largest finite values (Open Compute Project, 8-bit floating point specification).
_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0}


def _to_integer(value: NDArray[Any], origin: str, to: np.dtype[Any]) -> NDArray[Any]:
    """PTX ISA, cvt: a NaN becomes 0, except in f64, where it becomes the highest bit alone."""
    limits = np.iinfo(to)
    if value.dtype.kind in "iu":
        return np.clip(value.astype(np.int64), limits.min, limits.max).astype(to)
    wide = np.rint(value.astype(np.float64))
    nan = 0.0 if origin != "f64" else float(limits.min if to.kind == "i" else 1 << (8 * to.itemsize - 1))
    return np.clip(np.where(np.isnan(wide), nan, wide), limits.min, limits.max).astype(to)


def round_to_tf32(value: NDArray[Any]) -> NDArray[np.float32]:
    """f32 with 10 bits of mantissa, to nearest, ties away from zero (cvt.rna); NaN and infinity stay."""
    single = value.astype(np.float32)
    bits = single.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(single), rounded, single).astype(np.float32)


class Rounding(Arithmetic):
    """A float rounded to an integer of the same type."""

    arity: ClassVar[int] = 1
    source: ClassVar[str] = "PTX ISA, cvt"
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {"bf16": (90, (7, 8))}

    @property
    def flops(self) -> int:
        return 0


def _modes(mode: str) -> dict[str, str]:
    return {kind: f"cvt.{mode}.{kind}.{kind}" for kind in ("f32", "f64", "f16", "bf16")}


class Round(Rounding):
    """d = a rounded to the nearest integer, ties to the even one."""

    sign: ClassVar[str] = "rint"
    spelling: ClassVar[dict[str, str]] = _modes("rni")

    def meaning(self, *values: Any) -> Any:
        return np.rint(values[0])


class Floor(Rounding):
    """d = the largest integer that is not above a."""

    sign: ClassVar[str] = "floor"
    spelling: ClassVar[dict[str, str]] = _modes("rmi")

    def meaning(self, *values: Any) -> Any:
        return np.floor(values[0])


class Ceil(Rounding):
    """d = the smallest integer that is not below a."""

    sign: ClassVar[str] = "ceil"
    spelling: ClassVar[dict[str, str]] = _modes("rpi")

    def meaning(self, *values: Any) -> Any:
        return np.ceil(values[0])


class Trunc(Rounding):
    """d = a without its fraction."""

    sign: ClassVar[str] = "trunc"
    spelling: ClassVar[dict[str, str]] = _modes("rzi")

    def meaning(self, *values: Any) -> Any:
        return np.trunc(values[0])
