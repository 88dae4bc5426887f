"""Arithmetic and conversions, value by value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Elementwise, Unit

_ISA = "PTX ISA, floating point and integer arithmetic instructions"


@dataclass(frozen=True, eq=False)
class Arithmetic(Elementwise):
    """An operation that exists for several types; `kind` is the type of its operands and its result."""

    kind: str = "f32"
    arity: ClassVar[int] = 2
    spelling: ClassVar[dict[str, str]] = {}
    source: ClassVar[str] = _ISA

    def __post_init__(self) -> None:
        if self.kind not in self.spelling:
            raise ValueError(f"{type(self).__name__} exists for {', '.join(self.spelling)}, not for {self.kind!r}")

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.kind,) * self.arity, self.kind

    def text(self) -> str:
        operands = ", ".join(("{a}", "{b}", "{c}")[: self.arity])
        spelled = self.spelling[self.kind]
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {operands};"


class Fma(Arithmetic):
    """d = a * b + c, rounded once (integers: wrapped)."""

    arity: ClassVar[int] = 3
    unit: ClassVar[Unit] = "fma"
    spelling: ClassVar[dict[str, str]] = {
        "f32": "fma.rn.f32",
        "f64": "fma.rn.f64",
        "f16": "fma.rn.f16",
        "bf16": "fma.rn.bf16",
        "s32": "mad.lo.s32",
        "u32": "mad.lo.u32",
    }

    @property
    def flops(self) -> int:
        return 2

    def semantics(self, *values: Any) -> Any:
        a, b, c = values
        return a * b + c


class Add(Arithmetic):
    """d = a + b."""

    unit: ClassVar[Unit] = "fma"
    # add.bf16 exists from sm_90 on; before that fma with 1.0 (0x3F80) is the same sum.
    spelling: ClassVar[dict[str, str]] = {
        "f32": "add.rn.f32",
        "f64": "add.rn.f64",
        "f16": "add.rn.f16",
        "bf16": "{{ .reg .b16 one; mov.b16 one, 0x3F80; fma.rn.bf16 {d}, {a}, one, {b}; }}",
        "s32": "add.s32",
        "u32": "add.u32",
    }

    def semantics(self, *values: Any) -> Any:
        return values[0] + values[1]


class Sub(Arithmetic):
    """d = a - b."""

    unit: ClassVar[Unit] = "fma"
    spelling: ClassVar[dict[str, str]] = {
        "f32": "sub.rn.f32",
        "f64": "sub.rn.f64",
        "f16": "sub.rn.f16",
        "bf16": "{{ .reg .b16 one; mov.b16 one, 0xBF80; fma.rn.bf16 {d}, {b}, one, {a}; }}",
        "s32": "sub.s32",
        "u32": "sub.u32",
    }

    def semantics(self, *values: Any) -> Any:
        return values[0] - values[1]


class Mul(Arithmetic):
    """d = a * b."""

    unit: ClassVar[Unit] = "fma"
    # mul.bf16 exists from sm_90 on; before that fma with -0.0 (0x8000) is the same product.
    spelling: ClassVar[dict[str, str]] = {
        "f32": "mul.rn.f32",
        "f64": "mul.rn.f64",
        "f16": "mul.rn.f16",
        "bf16": "{{ .reg .b16 zero; mov.b16 zero, 0x8000; fma.rn.bf16 {d}, {a}, {b}, zero; }}",
        "s32": "mul.lo.s32",
        "u32": "mul.lo.u32",
    }

    def semantics(self, *values: Any) -> Any:
        return values[0] * values[1]


class Div(Arithmetic):
    """d = a / b, correctly rounded."""

    unit: ClassVar[Unit] = "sfu"
    spelling: ClassVar[dict[str, str]] = {"f32": "div.rn.f32", "f64": "div.rn.f64"}

    def semantics(self, *values: Any) -> Any:
        return values[0] / values[1]


class Max(Arithmetic):
    """d = the larger one; of a number and a NaN the number."""

    spelling: ClassVar[dict[str, str]] = {
        "f32": "max.f32",
        "f64": "max.f64",
        "f16": "max.f16",
        "bf16": "max.bf16",
        "s32": "max.s32",
        "u32": "max.u32",
    }

    def semantics(self, *values: Any) -> Any:
        return np.fmax(values[0], values[1])


class Min(Arithmetic):
    """d = the smaller one; of a number and a NaN the number."""

    spelling: ClassVar[dict[str, str]] = {
        "f32": "min.f32",
        "f64": "min.f64",
        "f16": "min.f16",
        "bf16": "min.bf16",
        "s32": "min.s32",
        "u32": "min.u32",
    }

    def semantics(self, *values: Any) -> Any:
        return np.fmin(values[0], values[1])


class Neg(Arithmetic):
    """d = -a."""

    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {
        "f32": "neg.f32",
        "f64": "neg.f64",
        "f16": "neg.f16",
        "bf16": "neg.bf16",
        "s32": "neg.s32",
    }

    def semantics(self, *values: Any) -> Any:
        return -values[0]


class Abs(Arithmetic):
    """d = |a|."""

    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {
        "f32": "abs.f32",
        "f64": "abs.f64",
        "f16": "abs.f16",
        "bf16": "abs.bf16",
        "s32": "abs.s32",
    }

    def semantics(self, *values: Any) -> Any:
        return np.abs(values[0])


class Special(Arithmetic):
    """A function that the special function unit approximates, in f32."""

    arity: ClassVar[int] = 1
    unit: ClassVar[Unit] = "sfu"
    function: ClassVar[Callable[..., Any]]

    def semantics(self, *values: Any) -> Any:
        return type(self).function(values[0])


class Ex2(Special):
    """d = 2 ** a, within 2 ulp (PTX ISA, ex2.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "ex2.approx.ftz.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.exp2)


class Lg2(Special):
    """d = log2(a), within 2**-22 absolute (PTX ISA, lg2.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "lg2.approx.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.log2)


class Rcp(Special):
    """d = 1 / a, correctly rounded."""

    spelling: ClassVar[dict[str, str]] = {"f32": "rcp.rn.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.reciprocal)


class Sqrt(Special):
    """d = the square root of a, correctly rounded."""

    spelling: ClassVar[dict[str, str]] = {"f32": "sqrt.rn.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sqrt)


class Rsqrt(Special):
    """d = 1 / sqrt(a), within 2**-22.4 relative (PTX ISA, rsqrt.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "rsqrt.approx.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(lambda x: 1 / np.sqrt(x))


class Tanh(Special):
    """d = tanh(a), within 2**-11 relative (PTX ISA, tanh.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "tanh.approx.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.tanh)


class Sin(Special):
    """d = sin(a), within 2**-20.5 absolute on [-pi, pi] (PTX ISA, sin.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "sin.approx.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.sin)


class Cos(Special):
    """d = cos(a), within 2**-20.5 absolute on [-pi, pi] (PTX ISA, cos.approx)."""

    spelling: ClassVar[dict[str, str]] = {"f32": "cos.approx.f32"}
    function: ClassVar[Callable[..., Any]] = staticmethod(np.cos)


# PTX ISA, cvt: (from, to) -> opcode. Floats round to nearest even; integers saturate.
_CONVERSIONS: dict[tuple[str, str], str] = {
    ("f16", "f32"): "cvt.f32.f16",
    ("bf16", "f32"): "cvt.f32.bf16",
    ("f32", "f16"): "cvt.rn.f16.f32",
    ("f32", "bf16"): "cvt.rn.bf16.f32",
    ("f32", "f64"): "cvt.f64.f32",
    ("f64", "f32"): "cvt.rn.f32.f64",
    ("f32", "s32"): "cvt.rni.s32.f32",
    ("s32", "f32"): "cvt.rn.f32.s32",
    ("u32", "f32"): "cvt.rn.f32.u32",
    ("f32", "tf32"): "cvt.rna.tf32.f32",
    ("tf32", "f32"): "mov.b32",
    ("s8", "s32"): "cvt.s32.s8",
    ("u8", "u32"): "cvt.u32.u8",
    ("s32", "s8"): "cvt.sat.s8.s32",
}


@dataclass(frozen=True, eq=False)
class Cvt(Elementwise):
    """Converts `origin` values to `to` values."""

    origin: str = "f32"
    to: str = "f16"
    source: ClassVar[str] = "PTX ISA, cvt"

    def __post_init__(self) -> None:
        if (self.origin, self.to) not in _CONVERSIONS:
            pairs = ", ".join(f"{a} to {b}" for a, b in _CONVERSIONS)
            raise ValueError(f"there is no conversion from {self.origin} to {self.to}; there are {pairs}")

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.origin,), self.to

    def text(self) -> str:
        return f"{_CONVERSIONS[self.origin, self.to]} {{d}}, {{a}};"

    @property
    def flops(self) -> int:
        return 0

    def semantics(self, *values: Any) -> Any:
        if self.to == "s8":
            return np.clip(values[0], -128, 127).astype(np.int8)
        if self.to == "s32" and self.origin == "f32":
            return np.rint(values[0]).astype(np.int32)
        return np.asarray(values[0]).astype(dtype(self.to).numpy)
