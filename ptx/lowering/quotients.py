"""Quotients in a loop by what is known before it: by a reciprocal that is computed there, once.

Of a and b below 2^32 let r = floor((2^32 - 1) / b), which is at least 2^32 / b - 1. Then floor(a r / 2^32) is the
quotient, or one less: what is left, below 2b, says which. A division takes the assembler some sixteen instructions in
every round, even by what no round changes; this takes six, for quotient and remainder together.
"""

from __future__ import annotations

from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg

LARGEST = 0xFFFFFFFF


def quotient(emit: Emitter, a: Number, b: Number) -> Number:
    """a / b, rounded down, of numbers without signs."""
    found = _both(emit, a, b)
    return emit.div(a, b) if found is None else found[0]


def remainder(emit: Emitter, a: Number, b: Number) -> Number:
    """What is left of a."""
    found = _both(emit, a, b)
    return emit.rem(a, b) if found is None else found[1]


def _both(emit: Emitter, a: Number, b: Number) -> tuple[Number, Number] | None:
    """The two by a reciprocal; None where b is not known before a."""
    inverse = _reciprocal(emit, b, a.depth) if isinstance(a, Reg) and isinstance(b, Reg) else None
    if inverse is None:
        return None
    near = emit.computed("r", "mul.hi.u32 {d}, {0}, {1};", a, inverse)
    left = emit.sub(a, emit.mul(near, b))
    more = emit.computed("p", "setp.ge.u32 {d}, {0}, {1};", left, b)
    less = emit.sub(left, b)  # of what is below b already, a large number
    return emit.add(near, emit.select(1, 0, more)), emit.minimum(left, less)


def _reciprocal(emit: Emitter, b: Number, depth: int) -> Number | None:
    """That of a number that is known before a block of this depth, or of one of two such numbers; None of others."""
    if isinstance(b, int):
        return LARGEST // b
    if b.depth < depth:
        return emit.div(LARGEST, b)
    if b not in emit.selected:
        return None
    yes, no, condition = emit.selected[b]
    either = [_reciprocal(emit, one, depth) for one in (yes, no)]
    return None if None in either else emit.select(either[0] or 0, either[1] or 0, condition)
