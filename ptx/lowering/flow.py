"""Loops and branches at run time, and where all threads of a role meet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import LOOP, Number, Reg
from tinygpu.ptx.lowering.sync import Condition, Meet, Rounds, Trips, When
from tinygpu.ptx.lowering.sync_text import issue


@contextmanager
def counting(context: Context, index: str, trips: Trips, rolled: bool = False) -> Iterator[Reg]:
    """A loop at run time: yields the register that counts the rounds. Rolled: the assembler does not unroll it."""
    emit = context.emit
    start = emit.label(LOOP)
    emit.line(f"// for {index}")
    counter = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {counter}, 0;")
    emit.place_label(start)
    if rolled:
        emit.line('.pragma "nounroll";')
    block = emit.open()
    around, context.looping = context.looping, True
    with context.protocol.block(partial(Rounds, index, trips)):
        yield counter
    again = emit.new("p")
    emit.line(f"add.u32 {counter}, {counter}, 1;")
    emit.line(f"setp.lt.u32 {again}, {counter}, {trips.number};")
    emit.line(f"@{again} bra {start};")
    context.looping = around
    emit.close()
    emit.block.body.extend(block.lines())


@contextmanager
def only_if(context: Context, condition: Number, meaning: Condition, said: bool = False) -> Iterator[None]:
    """Statements that all threads of the CTA skip together where the condition does not hold.

    said  the protocol has it even where it is known to hold
    """
    if isinstance(condition, int):
        if not condition:
            raise LoweringError("a branch that is never taken is not written")
        with context.protocol.block(partial(When, meaning)) if said else nullcontext():
            yield
        return
    skip = context.emit.label("skip")
    context.emit.line(f"@!{condition} bra {skip};")
    with context.protocol.block(partial(When, meaning)):
        yield
    context.emit.place_label(skip)


def barrier(context: Context) -> None:
    """All threads of the role meet."""
    issue(context, Meet(context.barrier_id, context.threads))
    context.dirty = False
