"""Results of warps go to other warps of their role through shared memory: left there, a barrier, and taken.

A role has two places for them and uses them by turns, whatever it exchanges and in whichever round. Who leaves
something in one of them has passed the barrier of the other, and so have all: what was left there before has been read.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.program.exchanged import Exchanged
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.digits import guarded, in_bytes
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.sync import Meet
from tinygpu.ptx.lowering.sync_text import issue


def begin(context: Context) -> None:
    """Which of its two places a role uses: one register for all roles, of which a thread has one."""
    if context.placement.exchanges:
        context.turn = context.emit.new("r", 0)
        context.emit.line(f"mov.u32 {context.turn}, 0;")


@dataclass(frozen=True, slots=True, eq=False)
class Left:
    """What the warps of a role have left, and the address from which a thread takes its share."""

    by: Exchanged
    source: Reg


def leave(context: Context, by: Exchanged, results: list[list[str]]) -> Left:
    """One thread of all that have the same results stores their words, and the warps of the role meet."""
    emit = context.emit
    start, turn = next_place(context)
    target, source = emit.new("r"), emit.new("r")
    emit.line(f"add.u32 {target}, {turn}, {emit.add(start, in_bytes(context, by.left))};")
    emit.line(f"add.u32 {source}, {turn}, {emit.add(start, in_bytes(context, (*by.taken, *by.share)))};")
    guard = guarded(context, by.first, by.threads)
    for word in range(by.words):
        for number, result in enumerate(results):
            emit.line(f"{guard}st.shared.b32 [{target}+{by.offset(number, word, 0)}], {result[word]};")
    issue(context, Meet(context.barrier_id, context.threads))
    return Left(by, source)


def take(context: Context, left: Left, result: int) -> list[list[str]]:
    """The thread's share of what the warps left of one result, warp by warp, as words."""
    by, columns = left.by, []
    for word in range(by.words):
        column: list[str] = []
        for warp in range(0, by.own, by.vector):
            made = [str(context.emit.new("r")) for _ in range(by.vector)]
            width, listed = (f".v{by.vector}", f"{{{', '.join(made)}}}") if by.vector > 1 else ("", made[0])
            context.emit.line(f"ld.shared{width}.b32 {listed}, [{left.source}+{by.offset(result, word, warp)}];")
            column += made
        columns.append(column)
    return [list(words) for words in zip(*columns, strict=True)]


def next_place(context: Context) -> tuple[Number, Reg]:
    """(where the role's places begin, bytes from there to the one that it uses now: the other one than before)."""
    if context.turn is None:
        raise LoweringError("nothing is placed that warps exchange")
    offset, size = context.placement.exchanges[context.role or context.program.roles[0].name]
    context.emit.line(f"xor.b32 {context.turn}, {context.turn}, {size};")
    return context.emit.add(context.arguments["smem"], offset), context.turn
