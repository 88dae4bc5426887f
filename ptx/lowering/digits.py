"""What digits of the thread id say, at run time."""

from __future__ import annotations

from tinygpu.language.meeting import WORD_BYTES
from tinygpu.program.exchanged import DigitStep
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Number


def in_bytes(context: Context, digits: tuple[DigitStep, ...]) -> Number:
    """Words that digits of the thread id add up to, in bytes."""
    emit = context.emit
    total: Number = 0
    for below, size, words in digits:
        place = emit.div(context.role_thread(), below)
        if below * size != context.threads:
            place = emit.rem(place, size)
        total = emit.add(total, emit.mul(place, words * WORD_BYTES))
    return total


def guarded(context: Context, first: tuple[DigitStep, ...], threads: int) -> str:
    """A predicate of the threads whose digits are zero, of those that hold something: a role may have more."""
    emit, thread = context.emit, context.role_thread()
    stores: Number = True
    for below, size, _ in first:
        stores = emit.both(stores, emit.less(emit.rem(emit.div(thread, below), size), 1))
    if threads < context.threads:
        stores = emit.both(stores, emit.less(thread, threads))
    return "" if isinstance(stores, int) else f"@{stores} "
