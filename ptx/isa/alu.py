"""Arithmetic, bit by bit and choice, value by value: what the FMA and integer units compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Unit
from tinygpu.ptx.isa.elementwise import Arithmetic, narrowed


class Fma(Arithmetic):
    """d = a * b + c, rounded once (integers: wrapped)."""

    sign: ClassVar[str] = "fma"
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
    pairs: ClassVar[dict[str, str]] = {"f16": "fma.rn.f16x2", "bf16": "fma.rn.bf16x2"}

    @property
    def flops(self) -> int:
        return 2

    def meaning(self, *values: Any) -> Any:
        a, b, c = values
        if self.kind not in ("f32", "f16", "bf16"):
            return a * b + c
        return narrowed(fused(*(np.asarray(v, dtype=np.float64) for v in values)), self.kind)


def fused(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """a * b + c such that rounding it to 24 bits or fewer rounds once; a and b have at most 24 bits each.

    The product is exact in 53 bits. The sum is rounded to odd, which loses no information for a second, shorter
    rounding (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(invalid="ignore", over="ignore"):
        product = a * b
        total = product + c
        rest = total - product
        error = (product - (total - rest)) + (c - rest)
        inexact = np.isfinite(total) & (error != 0) & (total.view(np.int64) % 2 == 0)
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.asarray(np.where(inexact, odd, total), dtype=np.float64)


class Add(Arithmetic):
    """d = a + b."""

    sign: ClassVar[str] = "+"
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
    pairs: ClassVar[dict[str, str]] = {
        "f16": "add.rn.f16x2",
        "bf16": "{{ .reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.bf16x2 {d}, {a}, one, {b}; }}",
    }

    def meaning(self, *values: Any) -> Any:
        return values[0] + values[1]


class Sub(Arithmetic):
    """d = a - b."""

    sign: ClassVar[str] = "-"
    unit: ClassVar[Unit] = "fma"
    spelling: ClassVar[dict[str, str]] = {
        "f32": "sub.rn.f32",
        "f64": "sub.rn.f64",
        "f16": "sub.rn.f16",
        "bf16": "{{ .reg .b16 one; mov.b16 one, 0xBF80; fma.rn.bf16 {d}, {b}, one, {a}; }}",
        "s32": "sub.s32",
        "u32": "sub.u32",
    }
    pairs: ClassVar[dict[str, str]] = {
        "f16": "sub.rn.f16x2",
        "bf16": "{{ .reg .b32 one; mov.b32 one, 0xBF80BF80; fma.rn.bf16x2 {d}, {b}, one, {a}; }}",
    }

    def meaning(self, *values: Any) -> Any:
        return values[0] - values[1]


class Mul(Arithmetic):
    """d = a * b."""

    sign: ClassVar[str] = "*"
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
    pairs: ClassVar[dict[str, str]] = {
        "f16": "mul.rn.f16x2",
        "bf16": "{{ .reg .b32 zero; mov.b32 zero, 0x80008000; fma.rn.bf16x2 {d}, {a}, {b}, zero; }}",
    }

    def meaning(self, *values: Any) -> Any:
        return values[0] * values[1]


# PTX ISA, max and min: with .NaN a NaN is passed on; f64 has no such form.
def _passing_nan(stem: str) -> dict[str, str]:
    wide = f"{{{{ .reg .pred none; setp.nan.f64 none, {{a}}, {{b}}; {stem}.f64 {{d}}, {{a}}, {{b}}; "
    wide += "@none mov.b64 {d}, 0x7FF8000000000000; }}"
    floats = {kind: f"{stem}.NaN.{kind}" for kind in ("f32", "f16", "bf16")}
    return {"f32": floats["f32"], "f64": wide, **floats, "s32": f"{stem}.s32", "u32": f"{stem}.u32"}


class Max(Arithmetic):
    """d = the larger one; NaN where one of them is."""

    sign: ClassVar[str] = "maximum"
    spelling: ClassVar[dict[str, str]] = _passing_nan("max")
    pairs: ClassVar[dict[str, str]] = {"f16": "max.NaN.f16x2", "bf16": "max.NaN.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return np.maximum(values[0], values[1])


class Min(Arithmetic):
    """d = the smaller one; NaN where one of them is."""

    sign: ClassVar[str] = "minimum"
    spelling: ClassVar[dict[str, str]] = _passing_nan("min")
    pairs: ClassVar[dict[str, str]] = {"f16": "min.NaN.f16x2", "bf16": "min.NaN.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return np.minimum(values[0], values[1])


class MaxNumber(Arithmetic):
    """d = the larger one; of a number and a NaN the number."""

    spelling: ClassVar[dict[str, str]] = {kind: f"max.{kind}" for kind in ("f32", "f64", "f16", "bf16")}
    pairs: ClassVar[dict[str, str]] = {"f16": "max.f16x2", "bf16": "max.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return np.fmax(values[0], values[1])


class MinNumber(Arithmetic):
    """d = the smaller one; of a number and a NaN the number."""

    spelling: ClassVar[dict[str, str]] = {kind: f"min.{kind}" for kind in ("f32", "f64", "f16", "bf16")}
    pairs: ClassVar[dict[str, str]] = {"f16": "min.f16x2", "bf16": "min.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return np.fmin(values[0], values[1])


class Neg(Arithmetic):
    """d = -a."""

    sign: ClassVar[str] = "-"
    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {
        "f32": "neg.f32",
        "f64": "neg.f64",
        "f16": "neg.f16",
        "bf16": "neg.bf16",
        "s32": "neg.s32",
    }
    pairs: ClassVar[dict[str, str]] = {"f16": "neg.f16x2", "bf16": "neg.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return -values[0]


class Abs(Arithmetic):
    """d = |a|."""

    sign: ClassVar[str] = "abs"
    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {
        "f32": "abs.f32",
        "f64": "abs.f64",
        "f16": "abs.f16",
        "bf16": "abs.bf16",
        "s32": "abs.s32",
    }
    pairs: ClassVar[dict[str, str]] = {"f16": "abs.f16x2", "bf16": "abs.bf16x2"}

    def meaning(self, *values: Any) -> Any:
        return np.abs(values[0])


class Mov(Arithmetic):
    """d = a: a tile gets the values of another, as `p.cast(x, x.dtype, into=tile)` says."""

    sign: ClassVar[str] = "move"
    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {
        "f32": "mov.f32",
        "f64": "mov.f64",
        "f16": "mov.b16",
        "bf16": "mov.b16",
        "s32": "mov.s32",
        "u32": "mov.u32",
        "pred": "mov.pred",
    }
    pairs: ClassVar[dict[str, str]] = {"f16": "mov.b32", "bf16": "mov.b32"}
    source: ClassVar[str] = "PTX ISA, data movement and conversion instructions: mov"

    def meaning(self, *values: Any) -> Any:
        return values[0]


_BITS = "PTX ISA, logic and shift instructions"


class And(Arithmetic):
    """d = a & b, bit by bit; of predicates, where both hold."""

    sign: ClassVar[str] = "&"
    spelling: ClassVar[dict[str, str]] = {"u32": "and.b32", "s32": "and.b32", "pred": "and.pred"}
    source: ClassVar[str] = _BITS

    def meaning(self, *values: Any) -> Any:
        return values[0] & values[1]


class Or(Arithmetic):
    """d = a | b, bit by bit; of predicates, where one holds."""

    sign: ClassVar[str] = "|"
    spelling: ClassVar[dict[str, str]] = {"u32": "or.b32", "s32": "or.b32", "pred": "or.pred"}
    source: ClassVar[str] = _BITS

    def meaning(self, *values: Any) -> Any:
        return values[0] | values[1]


class Xor(Arithmetic):
    """d = a ^ b, bit by bit; of predicates, where one holds and the other does not."""

    sign: ClassVar[str] = "^"
    spelling: ClassVar[dict[str, str]] = {"u32": "xor.b32", "s32": "xor.b32", "pred": "xor.pred"}
    source: ClassVar[str] = _BITS

    def meaning(self, *values: Any) -> Any:
        return values[0] ^ values[1]


class Not(Arithmetic):
    """d = ~a, bit by bit; of predicates, where it does not hold."""

    sign: ClassVar[str] = "~"
    arity: ClassVar[int] = 1
    spelling: ClassVar[dict[str, str]] = {"u32": "not.b32", "s32": "not.b32", "pred": "not.pred"}
    source: ClassVar[str] = _BITS

    def meaning(self, *values: Any) -> Any:
        return ~values[0]


class Shift(Arithmetic):
    """A shift by b places, b a u32; more than 31 places leave nothing but the sign of an s32 shifted right."""

    source: ClassVar[str] = _BITS

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.kind, "u32"), self.kind


class Shl(Shift):
    """d = a << b; more than 31 places give 0."""

    sign: ClassVar[str] = "<<"
    spelling: ClassVar[dict[str, str]] = {"u32": "shl.b32", "s32": "shl.b32"}

    def meaning(self, *values: Any) -> Any:
        a, b = values
        shifted = np.left_shift(a, np.minimum(b, 31).astype(np.asarray(a).dtype))
        return np.where(np.asarray(b) > 31, np.zeros_like(a), shifted)


class Shr(Shift):
    """d = a >> b; an s32 keeps its sign; more than 31 places give 0 or, of a negative number, -1."""

    sign: ClassVar[str] = ">>"
    spelling: ClassVar[dict[str, str]] = {"u32": "shr.u32", "s32": "shr.s32"}

    def meaning(self, *values: Any) -> Any:
        a, b = values
        shifted = np.right_shift(a, np.minimum(b, 31).astype(np.asarray(a).dtype))
        return shifted if self.kind == "s32" else np.where(np.asarray(b) > 31, np.zeros_like(a), shifted)


# PTX ISA, setp: comparisons with a NaN are false; .neu, unlike .ne, is true of a NaN, as NumPy's != is.
COMPARISONS: dict[str, tuple[str, str]] = {
    "==": ("eq", "equal"),
    "!=": ("ne", "not_equal"),
    "<": ("lt", "less"),
    "<=": ("le", "less_equal"),
    ">": ("gt", "greater"),
    ">=": ("ge", "greater_equal"),
}


def setp(comparison: str, kind: str) -> str:
    """The name of the instruction that compares."""
    unordered = comparison == "!=" and dtype(kind).is_float
    return f"setp.{'neu' if unordered else COMPARISONS[comparison][0]}.{kind}"


@dataclass(frozen=True, eq=False)
class Where(Arithmetic):
    """d = c where a COMPARISON b holds, else e: `Where("f32", ">")(a, b, c, e)` is np.where(a > b, c, e).

    comparison  one of == != < <= > >=; with a NaN all are false but !=
    """

    comparison: str = ">"
    arity: ClassVar[int] = 4
    # The kinds, and the suffix of selp; setp.bf16 exists from sm_90 on.
    spelling: ClassVar[dict[str, str]] = {
        "f32": "f32",
        "f64": "f64",
        "f16": "b16",
        "bf16": "b16",
        "s32": "s32",
        "u32": "u32",
    }
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {"bf16": (90, (7, 8))}
    source: ClassVar[str] = "PTX ISA, comparison and selection instructions: setp, selp"

    def __post_init__(self) -> None:
        Arithmetic.__post_init__(self)
        if self.comparison not in COMPARISONS:
            raise ValueError(f"Where compares with one of {' '.join(COMPARISONS)}, not with {self.comparison!r}")

    @classmethod
    def forms(cls, kind: str) -> tuple[Arithmetic, ...]:
        """One for each comparison."""
        return tuple(cls(kind, comparison) for comparison in COMPARISONS)

    @property
    def label(self) -> str:
        return setp(self.comparison, self.kind)

    def text(self) -> str:
        compares, suffix = setp(self.comparison, self.kind), self.spelling[self.kind]
        return f"{{{{ .reg .pred q; {compares} q, {{a}}, {{b}}; selp.{suffix} {{d}}, {{c}}, {{e}}, q; }}}}"

    def meaning(self, *values: Any) -> Any:
        a, b, c, e = values
        return np.where(getattr(np, COMPARISONS[self.comparison][1])(a, b), c, e)


class Div(Arithmetic):
    """d = a / b, correctly rounded."""

    sign: ClassVar[str] = "/"
    unit: ClassVar[Unit] = "sfu"
    spelling: ClassVar[dict[str, str]] = {"f32": "div.rn.f32", "f64": "div.rn.f64"}

    def meaning(self, *values: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            return values[0] / values[1]
