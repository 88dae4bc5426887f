"""The usual element-wise instructions of one type as a group: what operators and functions of tiles stand for."""

from __future__ import annotations

from tinygpu.language.instruction import Elementwise, Group
from tinygpu.ptx.isa.alu import Abs, Add, And, Div, Fma, Max, Min, Mov, Mul, Neg, Not, Or, Shl, Shr, Sub, Xor
from tinygpu.ptx.isa.cvt import CONVERSIONS, Ceil, Cvt, Floor, Round, Trunc
from tinygpu.ptx.isa.elementwise import Arithmetic
from tinygpu.ptx.isa.predicates import Compare, Select
from tinygpu.ptx.isa.special import Cos, DivFull, Ex2, Lg2, Rcp, RcpApprox, Rsqrt, Sin, Sqrt, SqrtApprox, Tanh
from tinygpu.ptx.isa.unpack import PACKED, UNPACKED, Pack, Unpack

_EVERY: tuple[type[Arithmetic], ...] = (
    Add, Sub, Mul, Fma, Neg, Abs, Max, Min, Ex2, Lg2, Rsqrt, Tanh, Sin, Cos, Floor, Ceil, Round, Trunc, And, Or,
    Xor, Not, Shl, Shr, Compare, Select, Mov,
)  # fmt: skip
_ROUNDED: tuple[type[Arithmetic], ...] = (Div, Rcp, Sqrt)
_APPROXIMATE: tuple[type[Arithmetic], ...] = (DivFull, RcpApprox, SqrtApprox)
_OF_PREDICATES: tuple[type[Arithmetic], ...] = (And, Or, Xor, Not, Mov)


def arithmetic(kind: str = "f32", *, approximate: bool = False) -> Group:
    """The usual instructions of one type, conversions to it and from it, and those of predicates.

    approximate  division, reciprocal and square root are those that are quicker, and not correctly rounded

    Raises ValueError for a type that has no arithmetic.
    """
    if kind not in Add.spelling:
        raise ValueError(f"there is arithmetic for {', '.join(Add.spelling)}, and not for {kind!r}")
    classes = (*_EVERY, *(_APPROXIMATE if approximate else _ROUNDED))
    members: list[Elementwise] = [form for one in classes if kind in one.spelling for form in one.forms(kind)]
    members += [one("pred") for one in _OF_PREDICATES]
    members += [Unpack(origin, to) for origin, to in UNPACKED if kind == to]
    members += [Pack(origin, to) for origin, to in PACKED if kind == origin]
    members += [Cvt(*pair) for pair in CONVERSIONS if kind in pair and pair not in (*UNPACKED, *PACKED)]
    return Group(f'arithmetic("{kind}"{", approximate=True" if approximate else ""})', tuple(members))
