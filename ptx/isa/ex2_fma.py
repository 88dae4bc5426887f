"""Powers of two by a polynomial: exponentials that the FMA lanes compute beside the special function unit.

operands   one f32 of each element, in registers
legality   f32 alone; ex2 makes two of 16 bits at once
meaning    2^n p(a - n) of the nearest whole number n, each operation rounded as in the text
cost       degree + 4 slots of the FMA lanes and 2 of the integer lanes per element
lowering   a is added to a number so large that its last place is 1: the sum's last bits are n + 127, which become the
           exponent of 2^n by a shift; what is left of a, at most 1/2, goes into the polynomial
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.expressions import Expr
from tinygpu.language.instruction import Unit
from tinygpu.ptx.isa.alu import fused
from tinygpu.ptx.isa.elementwise import Accuracy, Arithmetic

# By degree: coefficients from the constant on, and the largest relative error of the result. They make the relative
# error of 2^f between -1/2 and 1/2 smallest (Remez exchange), and are rounded to f32.
POLYNOMIALS: dict[int, tuple[tuple[float, ...], float]] = {
    3: ((0.99992805719375610, 0.69326096773147583, 0.24261112511157990, 0.055171668529510498), 2.0**-13.7),
    4: ((0.99999928474426270, 0.69312179088592529, 0.24024744331836700, 0.055917859077453613, 0.0095701012760400772),
        2.0**-18.5),
    5: ((1.0000001192092896, 0.69314694404602051, 0.24022120237350464, 0.055507134646177292, 0.0096755409613251686,
         0.0013276471756398678), 2.0**-22),
}  # fmt: skip
# 1.5 * 2^23, where neighbours are 1 apart, and the exponent's bias.
_LARGE = 12582912.0 + 127.0
_LEAST = -127.0  # what is smaller gives 0


def _hex(value: float) -> str:
    return f"0F{np.float32(value).view(np.uint32):08X}"


@dataclass(frozen=True, eq=False)
class Ex2Fma(Arithmetic):
    """d = 2 ** a by a polynomial of `degree` 3, 4 or 5, for a up to 127; what is below 2 ** -126 may be 0."""

    degree: int = 3
    arity: ClassVar[int] = 1
    unit: ClassVar[Unit] = "alu"
    spelling: ClassVar[dict[str, str]] = {"f32": "f32"}
    source: ClassVar[str] = "PTX ISA, floating point and integer arithmetic instructions: fma, add, shl"

    def __post_init__(self) -> None:
        Arithmetic.__post_init__(self)
        if self.degree not in POLYNOMIALS:
            raise ValueError(f"Ex2Fma has a polynomial of degree 3, 4 or 5, not {self.degree!r}")

    @property
    def label(self) -> str:
        return f"ex2.fma{self.degree}.f32"

    def text(self) -> str:
        coefficients = [_hex(c) for c in POLYNOMIALS[self.degree][0]]
        lines = [
            f"max.NaN.f32 f, {{a}}, {_hex(_LEAST)};",
            f"add.rn.f32 t, f, {_hex(_LARGE)};",
            f"sub.rn.f32 n, t, {_hex(_LARGE)};",
            "sub.rn.f32 f, f, n;",
            f"fma.rn.f32 q, f, {coefficients[-1]}, {coefficients[-2]};",
            *(f"fma.rn.f32 q, q, f, {c};" for c in reversed(coefficients[:-2])),
            "mov.b32 s, t; shl.b32 s, s, 23; mov.b32 t, s;",
            "mul.rn.f32 {d}, q, t;",
        ]
        return "{{ .reg .f32 f, n, q, t; .reg .b32 s; " + " ".join(lines) + " }}"

    def issued(self, values: Expr) -> Expr:
        return values * (self.degree + 6)

    def on_fma_lanes(self, values: Expr) -> Expr:
        return values * (self.degree + 4)

    @property
    def flops(self) -> int:
        return 2 * self.degree + 4

    def error(self) -> Accuracy:
        return Accuracy(POLYNOMIALS[self.degree][1], 2.0**-126, high=127.0)

    def meaning(self, *values: Any) -> Any:
        (a,) = (np.asarray(v, dtype=np.float32) for v in values)
        coefficients = [np.float64(np.float32(c)) for c in POLYNOMIALS[self.degree][0]]
        with np.errstate(all="ignore"):
            f = np.maximum(a, np.float32(_LEAST))
            t = f + np.float32(_LARGE)
            f = f - (t - np.float32(_LARGE))
            q = np.full_like(f, coefficients[-1])
            for c in reversed(coefficients[:-1]):
                q = fused(q.astype(np.float64), f.astype(np.float64), np.full(f.shape, c)).astype(np.float32)
            power = (t.view(np.uint32) << np.uint32(23)).view(np.float32)
            return q * power


__all__ = ["Ex2Fma"]
