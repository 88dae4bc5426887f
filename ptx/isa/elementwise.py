"""What element-wise instructions share: an operation that exists for several types, its accuracy.

operands   one value of each operand per element, in registers
legality   the types of `spelling`, with the oldest target and lowest .version where they are younger than sm_80
meaning    NumPy, of the operands as they are stored
cost       one slot of the unit per element, or per pair where `pairs` has a text
lowering   the text of `spelling`, element by element, or that of `pairs`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Elementwise


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How far a result may be from the exact value v: relative * |v| + absolute. Both zero: correctly rounded.

    low, high  the inputs for which it is promised
    """

    relative: float = 0.0
    absolute: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    def __str__(self) -> str:
        if not self.relative and not self.absolute:
            return "exact, rounded once where it must be"
        parts = [
            f"2^{np.log2(x):g} {word}" for x, word in ((self.relative, "relative"), (self.absolute, "absolute")) if x
        ]
        where = "" if np.isinf(self.low) else f" for inputs from {self.low:g} to {self.high:g}"
        return "within " + " plus ".join(parts) + where


EXACT = Accuracy()


def narrowed(value: Any, kind: str) -> NDArray[Any]:
    """f64 values rounded once to a float type.

    NumPy rounds f64 to bf16 by way of f32. Rounded to odd there, nothing is lost for the second rounding (Boldo and
    Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    wide = np.asarray(value, dtype=np.float64)
    with np.errstate(all="ignore"):
        if kind != "bf16":
            return np.asarray(wide.astype(dtype(kind).numpy))
        single = wide.astype(np.float32)
        towards_zero = np.where(np.abs(single) > np.abs(wide), np.nextafter(single, np.float32(0)), single)
        inexact = ~np.isnan(wide) & (towards_zero != wide)
        odd = (towards_zero.astype(np.float32).view(np.uint32) | inexact).view(np.float32)
        return np.asarray(odd.astype(dtype(kind).numpy))


@dataclass(frozen=True, eq=False)
class Arithmetic(Elementwise):
    """An operation that exists for several types; `kind` is the type of its operands and its result.

    Class facts:
    spelling     kind -> opcode, or whole statements with {d}, {a}, {b}, {c}, {e}
    pairs        kind of 16 bits -> the same of the two values of a register
    needs        kind -> (oldest target, lowest .version), for kinds that are younger than sm_80 and .version 7.0
    accuracy     kind -> how far the result may be off; EXACT where it is not listed
    """

    kind: str = "f32"
    arity: ClassVar[int] = 2
    spelling: ClassVar[dict[str, str]] = {}
    pairs: ClassVar[dict[str, str]] = {}
    needs: ClassVar[dict[str, tuple[int, tuple[int, int]]]] = {}
    accuracy: ClassVar[dict[str, Accuracy]] = {}
    source: ClassVar[str] = "PTX ISA, floating point and integer arithmetic instructions"

    def __post_init__(self) -> None:
        if self.kind not in self.spelling:
            raise ValueError(f"{type(self).__name__} exists for {', '.join(self.spelling)}, not for {self.kind!r}")
        if self.kind in self.needs:  # an instance of a younger kind has its own target and .version
            target, isa = self.needs[self.kind]
            object.__setattr__(self, "target", target)
            object.__setattr__(self, "isa", isa)

    def types(self) -> tuple[tuple[str, ...], str]:
        return (self.kind,) * self.arity, self.kind

    def text(self) -> str:
        return self._written(self.spelling[self.kind])

    def packed_text(self) -> str:
        spelled = self.pairs.get(self.kind, "")
        return self._written(spelled) if spelled else ""

    def _written(self, spelled: str) -> str:
        operands = ", ".join(("{a}", "{b}", "{c}", "{e}")[: self.arity])
        return spelled if "{d}" in spelled else f"{spelled} {{d}}, {operands};"

    @property
    def label(self) -> str:
        spelled = self.spelling[self.kind]
        return f"{type(self).__name__.lower()}.{self.kind}" if "{d}" in spelled else spelled

    @classmethod
    def forms(cls, kind: str) -> tuple[Arithmetic, ...]:
        """The instructions of this class for one kind."""
        return (cls(kind),)

    def error(self) -> Accuracy:
        """How far a result may be from the exact value."""
        return self.accuracy.get(self.kind, EXACT)
