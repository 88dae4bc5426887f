"""Elementwise: values, one by one or as many as a register holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.dtypes import dtype, packed_type
from tinygpu.expressions import Expr, expr, where
from tinygpu.language.instruction.base import Instruction
from tinygpu.users_code import answer

# The operands of an element-wise instruction in its text; {d} is the result.
OPERANDS = "abcefghij"


@dataclass(frozen=True, eq=False)
class Elementwise(Instruction):
    """Computes one value from one value of each operand, or as many as a register holds at once.

    Class facts: `operands` dtypes, `result` dtype, `template` (PTX with {d}, {a}, {b}, {c}), `meaning` (NumPy), and
    `sign`, the operator or function of tiles that it is. Where
    the types are packed, as in `operands = ("f16x2", "f16x2")`, the text is of whole registers, and tiles have the
    elements' type; an operand that is narrower or wider than an element of the result has its own.
    """

    operands: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[str] = ""
    template: ClassVar[str] = ""
    # What stands for it between tiles: an operator of Python, as ">=", or a function, as "exp2"; "": nothing.
    sign: ClassVar[str] = ""

    def types(self) -> tuple[tuple[str, ...], str]:
        """(operand dtypes, result dtype) of this instance."""
        return self.operands, self.result

    def _types(self) -> tuple[tuple[str, ...], str]:
        wanted = f"{_EXAMPLE}: the types of the operands, and of the result"
        return answer(self.types, wanted=wanted, fits=_are_types)

    def elements(self) -> tuple[tuple[str, ...], str]:
        """(operand dtypes, result dtype) of the tiles: of packed types, their elements'."""
        takes, gives = self._types()
        return tuple(map(_element, takes)), _element(gives)

    def text(self) -> str:
        """PTX with the operands as {d}, {a}, {b}, {c}; several statements may be separated by newlines."""
        return self.template

    def packed_text(self) -> str:
        """PTX on as many neighbouring elements as a 32-bit register holds of the result; "": there is none.

        {d} is the register of the results. Of an operand as wide as the result, {a} is the register with as many; of
        another, {a0}, {a1} and so on are the elements. Where there is no `text`, threads hold whole registers.
        """
        return ""

    def unpacked_text(self) -> str:
        """PTX that makes all results of one register of a narrower operand at once; "": there is none.

        {a} is the register of the operand; {d0}, {d1} and so on are those of the results, in the order of the values.
        """
        return ""

    @property
    def packed(self) -> bool:
        """Whether its types are packed, and its text is of whole registers."""
        return packed_type(self._types()[1]) is not None

    def form(self, whole: bool) -> str:
        """The text for one value, or for those of a whole register of the result; "" where there is none."""
        if self.packed:
            return self.text() if whole else ""
        return self.packed_text() if whole else self.text()

    def issued(self, values: Expr) -> Expr:
        """Instructions that a thread issues for so many values, as costs count them.

        One for each register of the result where all are filled and a text makes a whole one, else one for each value.
        """
        if not self.form(True):
            return values
        per = 32 // dtype(self.elements()[1]).bits
        return where(values % per == 0, values // per, values) if self.form(False) else values // per

    def on_fma_lanes(self, values: Expr) -> Expr:
        """Of these instructions those that the FMA lanes carry out, where its unit is another."""
        return expr(0)

    @property
    def at_once(self) -> int:
        """Elements that one instruction makes at least."""
        return 1 if self.form(False) else 32 // dtype(self.elements()[1]).bits

    def meaning(self, *values: Any) -> Any:
        """The same in NumPy, of arrays of the operands' types that broadcast against each other."""
        raise NotImplementedError

    def defined(self, *values: Any) -> Any:
        """Of which values PTX says what comes out, in NumPy as `meaning`: of others any result is right. Of all."""
        return True

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
        if mixed := self._mixed():
            return mixed
        kind = dtype(self.elements()[1])
        if not self.form(False) and kind.bits >= 32:
            return f"states no text(), and a register holds a single {kind}"
        count = len(self._types()[0])
        if count > len(OPERANDS):
            return f"takes {count} operands, and a text names {len(OPERANDS)} at most"
        names = {"d": "%r0"} | {f"{letter}{i}": "%r1" for letter in OPERANDS[:count] for i in ("", *range(8))}
        for text in (self.text(), self.packed_text()):
            try:
                text.format(**names)
            except (KeyError, IndexError, ValueError):
                letters = ", ".join(f"{{{letter}}}" for letter in OPERANDS[:count])
                return f"cannot be written: in {text!r} {{d}}, {letters} are filled in, and other braces are doubled"
        return ""

    def _mixed(self) -> str:
        """What packed types do not go with; "" where they do."""
        takes, gives = self._types()
        packed = [packed_type(name) for name in takes]
        result = packed_type(gives)
        first = next((p for p in packed if p is not None), None)
        if result is None:
            return f"takes {first} and gives {gives}; a result of packed operands is packed" if first else ""
        if self.packed_text() or not self.text():
            return f"gives {result}, and its text() is of whole registers; it states text() and no packed_text()"
        for name, of in zip(takes, packed, strict=True):
            if of is None and dtype(name).bits == result.element.bits:
                return f"takes {name} and gives {result}; an operand as wide as an element of the result is packed too"
        return ""


def _element(name: str) -> str:
    packed = packed_type(name)
    return packed.element.name if packed is not None else name


_EXAMPLE = '("f32", "f32"), "f32"'


def _are_types(found: Any) -> bool:
    """Whether something is (types of the operands, type of the result), by their names."""
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], tuple):
        return False
    return all(isinstance(kind, str) for kind in (*found[0], found[1]))
