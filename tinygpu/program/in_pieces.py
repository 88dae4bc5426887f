"""Results that leave a tile piece by piece: each is put into a slot, from which a bulk copy takes it."""

from __future__ import annotations

from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.memories import SMEM
from tinygpu.program import nodes as n
from tinygpu.program.tree import places, walk


def leaves_in_pieces(body: tuple[n.Statement, ...]) -> frozenset[n.Statement]:
    """The blocks in rounds that are written out from whose slot bulk copies store: with one slot, the next round waits
    until that is read, and then all threads meet once more.
    """
    return frozenset(
        place.statement
        for place in places(body)
        if isinstance(place.statement, n.Consume)
        and any(loop.written_out for loop in place.loops)
        and any(_stores(s) for s in walk(place.statement.body))
    )


def _stores(s: n.Statement) -> bool:
    return isinstance(s, n.Copy) and isinstance(s.instruction, BulkTransfer) and s.source.memory is SMEM
