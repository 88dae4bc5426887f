"""Predicates, value by value: comparisons make them, And, Or, Xor and Not combine them, a selection takes them.

operands   values of one type, and predicates, in registers
legality   the types of `spelling`
meaning    NumPy's comparisons, and numpy.where
cost       one slot of the integer unit per element
lowering   setp and selp
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.ptx.isa.alu import COMPARISONS, setp
from tinygpu.ptx.isa.elementwise import Arithmetic

_ISA = "PTX ISA, comparison and selection instructions: setp, selp"


@dataclass(frozen=True, eq=False)
class Compare(Arithmetic):
    """d = whether a COMPARISON b holds: `Compare("s32", ">=")(a, b)` is a >= b, a predicate.

    comparison  one of == != < <= > >=; with a NaN all are false but !=
    """

    comparison: str = ">"
    spelling: ClassVar[dict[str, str]] = dict.fromkeys(("f32", "f64", "f16", "bf16", "s32", "u32"), "setp")
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {"bf16": (90, (7, 8))}
    source: ClassVar[str] = _ISA

    def __post_init__(self) -> None:
        Arithmetic.__post_init__(self)
        if self.comparison not in COMPARISONS:
            raise ValueError(f"Compare compares with one of {' '.join(COMPARISONS)}, not with {self.comparison!r}")
        object.__setattr__(self, "sign", self.comparison)

    @classmethod
    def forms(cls, kind: str) -> tuple[Arithmetic, ...]:
        """One for each comparison."""
        return tuple(cls(kind, comparison) for comparison in COMPARISONS)

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.kind, self.kind), "pred"

    @property
    def label(self) -> str:
        return setp(self.comparison, self.kind)

    def text(self) -> str:
        return f"{setp(self.comparison, self.kind)} {{d}}, {{a}}, {{b}};"

    @property
    def flops(self) -> int:
        return 0

    def meaning(self, *values: Any) -> Any:
        return getattr(np, COMPARISONS[self.comparison][1])(*values)


@dataclass(frozen=True, eq=False)
class Select(Arithmetic):
    """d = b where the predicate a holds, else c: `Select("f32")(a, b, c)` is np.where(a, b, c)."""

    sign: ClassVar[str] = "where"
    arity: ClassVar[int] = 3
    spelling: ClassVar[dict[str, str]] = {
        "f32": "selp.f32",
        "f64": "selp.f64",
        "f16": "selp.b16",
        "bf16": "selp.b16",
        "s32": "selp.s32",
        "u32": "selp.u32",
    }
    source: ClassVar[str] = _ISA

    def types(self) -> tuple[tuple[str, ...], str]:
        return ("pred", self.kind, self.kind), self.kind

    def text(self) -> str:
        return f"{self.spelling[self.kind]} {{d}}, {{b}}, {{c}}, {{a}};"

    @property
    def flops(self) -> int:
        return 0

    def meaning(self, *values: Any) -> Any:
        return np.where(*values)
