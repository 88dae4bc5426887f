"""Which slots a statement reads and writes, and who does: the threads, or what goes on when they have issued it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.products import into_cells, into_tensor_memory
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.sync import Agent, Touch


def put_off(s: n.Statement) -> bool:
    """Whether lowering writes a product later than its statement: threads bring an operand of it into registers."""
    return isinstance(s, n.Multiply) and s.token is not None and s.a.memory is RMEM


def at_once(s: n.Statement) -> bool:
    """Whether a statement touches slots where it stands: bulk copies do so where one thread issues them."""
    return not put_off(s) and not (isinstance(s, n.Copy) and isinstance(s.instruction, BulkTransfer))


def touches(context: Context, s: n.Statement) -> Iterator[Touch]:
    """What a statement does to the slots that are open. Bulk copies into them are not in here: they are a `Bring`."""
    for tile, verb, by in accesses(s):
        if (verb, by) == ("write", "cp.async.bulk"):
            continue
        for pipeline in context.program.pipelines:
            if any(buffer.name == tile.name for buffer in pipeline.buffers):
                yield Touch(pipeline.name, context.slots[pipeline.name], verb, by)


def accesses(s: n.Statement) -> Iterator[tuple[Tile, Literal["read", "write"], Agent]]:
    """(tile, whether it is read or written, by whom) for what a statement moves or multiplies."""
    match s:
        case n.Load():
            yield s.source, "read", "tcgen05.ld" if s.source.memory is TMEM else "threads"
        case n.Store():
            yield s.target, "write", "tcgen05.st" if s.target.memory is TMEM else "threads"
        case n.Copy() if isinstance(s.instruction, BulkTransfer):
            yield s.source, "read", "cp.async.bulk"
            yield s.target, "write", "cp.async.bulk"
        case n.Copy() if into_cells(s):
            yield s.source, "read", "tcgen05"
            yield s.target, "write", "tcgen05"
        case n.Copy():
            grouped = s.token is not None and s.token.completion == "commit group"
            yield s.source, "read", "threads"
            yield s.target, "write", "cp.async" if grouped else "threads"
        case n.Multiply() if into_tensor_memory(s):
            yield s.accumulator, "write", "tcgen05"
            for operand in (s.a, s.b, *s.scales):
                yield operand, "read", "tcgen05"
        case n.Multiply():
            for operand in (s.a, s.b):
                yield operand, "read", "threads" if s.token is None else "wgmma"
