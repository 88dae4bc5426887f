"""Evidence for the rules of arithmetic, bits and choice: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tinygpu.ptx.cards.evidence.elementwise import Tried, card
from tinygpu.ptx.cards.specimen import Card
from tinygpu.ptx.isa.alu import (
    Abs,
    Add,
    And,
    Div,
    Fma,
    Max,
    MaxNumber,
    Min,
    MinNumber,
    Mov,
    Mul,
    Neg,
    Not,
    Or,
    Shl,
    Shr,
    Sub,
    Where,
    Xor,
)
from tinygpu.ptx.isa.elementwise import Arithmetic
from tinygpu.ptx.isa.predicates import Compare, Select

_TRUNCATES = "PTX rounds integer quotients towards zero, NumPy down; no machine divides integers yet"
# What would have to exist for the kinds that are not listed.
TRIED: Mapping[type[Arithmetic], Tried] = {
    Fma: Tried(
        (
            "fma.rn.{t}",
            "mad.lo.{t}",
        )
    ),
    Add: Tried(
        (
            "add.rn.{t}",
            "add.{t}",
        )
    ),
    Sub: Tried(
        (
            "sub.rn.{t}",
            "sub.{t}",
        )
    ),
    Mul: Tried(
        (
            "mul.rn.{t}",
            "mul.lo.{t}",
        )
    ),
    Max: Tried(
        (
            "max.NaN.{t}",
            "max.{t}",
        )
    ),
    Min: Tried(
        (
            "min.NaN.{t}",
            "min.{t}",
        )
    ),
    MaxNumber: Tried(("max.{t}",), dict.fromkeys(("s32", "u32"), "integers have no NaN; Max is the same")),
    MinNumber: Tried(("min.{t}",), dict.fromkeys(("s32", "u32"), "integers have no NaN; Min is the same")),
    Neg: Tried(("neg.{t}",)),
    Mov: Tried(("mov.{t}",)),
    Abs: Tried(("abs.{t}",)),
    And: Tried(("and.{t}",)),
    Or: Tried(("or.{t}",)),
    Xor: Tried(("xor.{t}",)),
    Not: Tried(("not.{t}",)),
    Shl: Tried(("shl.{t}",)),
    Shr: Tried(("shr.{t}",)),
    Where: Tried(("selp.{t}",)),
    Compare: Tried(("setp.gt.{t}",)),
    Select: Tried(("selp.{t}",), order="dbca"),
    Div: Tried(
        (
            "div.rn.{t}",
            "div.{t}",
        ),
        {"s32": _TRUNCATES, "u32": _TRUNCATES},
    ),
}
_OF_TYPES = "Unexpected instruction types specified for"


def cards() -> Iterator[Card]:
    """The cards of arithmetic, bits and choice."""
    e4m3, s8, f32 = "e4m3", "s8", "f32"
    listed: tuple[tuple[type[Arithmetic], str, str, str], ...] = (
        (Fma, "fma", "d = a * b + c, rounded once", s8),
        (Add, "add", "d = a + b", s8),
        (Sub, "sub", "d = a - b", s8),
        (Mul, "mul", "d = a * b", s8),
        (Div, "div", "d = a / b", "f16"),
        (Max, "max", "d = numpy.maximum(a, b)", s8),
        (Min, "min", "d = numpy.minimum(a, b)", s8),
        (MaxNumber, "max.number", "d = numpy.fmax(a, b)", s8),
        (MinNumber, "min.number", "d = numpy.fmin(a, b)", s8),
        (Neg, "neg", "d = -a", e4m3),
        (Abs, "abs", "d = numpy.abs(a)", e4m3),
        (Mov, "mov", "d = a", e4m3),
        (And, "and", "d = a & b", f32),
        (Or, "or", "d = a | b", f32),
        (Xor, "xor", "d = a ^ b", f32),
        (Not, "not", "d = ~a", f32),
        (Shl, "shl", "d = where(b > 31, 0, a << b)", f32),
        (Shr, "shr", "d = a >> minimum(b, 31) for s32, where(b > 31, 0, a >> b) for u32", f32),
    )
    for operation, name, meaning, illegal in listed:
        yield card(operation, name, meaning, illegal, _OF_TYPES, TRIED[operation])
    yield card(Where, "where", "d = numpy.where(a > b, c, e), and so for == != < <= >=", s8, _OF_TYPES, TRIED[Where])
    said = "d = a > b, and so for == != < <= >="
    yield card(Compare, "setp", said, s8, _OF_TYPES, TRIED[Compare])
    yield card(Select, "selp", "d = numpy.where(a, b, c)", s8, _OF_TYPES, TRIED[Select])
