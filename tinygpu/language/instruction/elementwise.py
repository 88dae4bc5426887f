"""Elementwise: values, one by one or as many as a register holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.dtypes import dtype
from tinygpu.language.instruction.base import Instruction

# The operands of an element-wise instruction in its text; {d} is the result.
OPERANDS = "abcefghij"


@dataclass(frozen=True, eq=False)
class Elementwise(Instruction):
    """Computes one value from one value of each operand.

    Class facts: `operands` dtypes, `result` dtype, `template` (PTX with {d}, {a}, {b}, {c}), `meaning` (NumPy).
    """

    operands: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[str] = ""
    template: ClassVar[str] = ""

    def types(self) -> tuple[tuple[str, ...], str]:
        """(operand dtypes, result dtype) of this instance."""
        return self.operands, self.result

    def text(self) -> str:
        """PTX with the operands as {d}, {a}, {b}, {c}; several statements may be separated by newlines."""
        return self.template

    def packed_text(self) -> str:
        """PTX on as many neighbouring elements as a 32-bit register holds of the result; "": there is none.

        {d} is the register of the results. Of an operand as wide as the result, {a} is the register with as many; of
        another, {a0}, {a1} and so on are the elements. Where there is no `text`, threads hold whole registers.
        """
        return ""

    @property
    def at_once(self) -> int:
        """Elements that one instruction makes at least."""
        return 1 if self.text() else 32 // dtype(self.types()[1]).bits

    def meaning(self, *values: Any) -> Any:
        """The same in NumPy, of arrays of the operands' types that broadcast against each other."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        first = (self.text() or self.packed_text()).split()[:1]
        return first[0] if first and first[0][0].isalpha() else type(self).__name__.lower()

    @property
    def flops(self) -> int:
        """Floating-point operations per value (0 for conversions and moves)."""
        return 1

    def unwritten(self) -> str:
        if not (self.text() or self.packed_text()):
            return "states neither text() nor packed_text()"
        kind = dtype(self.types()[1])
        if not self.text() and kind.bits >= 32:
            return f"states no text(), and a register holds a single {kind}"
        count = len(self.types()[0])
        if count > len(OPERANDS):
            return f"takes {count} operands, and a text names {len(OPERANDS)} at most"
        names = {"d": "%r0"} | {f"{letter}{i}": "%r1" for letter in OPERANDS[:count] for i in ("", *range(4))}
        for text in (self.text(), self.packed_text()):
            try:
                text.format(**names)
            except (KeyError, IndexError, ValueError):
                letters = ", ".join(f"{{{letter}}}" for letter in OPERANDS[:count])
                return f"cannot be written: in {text!r} {{d}}, {letters} are filled in, and other braces are doubled"
        return ""
