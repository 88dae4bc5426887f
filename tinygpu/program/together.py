"""Loads of tensors that are under way together though they are the same statement: rounds that are written out.

Where nothing is stored between such rounds and nobody waits there, the assembler asks for the data of all of them
before it uses the first, and gives each round registers of its own.
"""

from __future__ import annotations

from tinygpu.expressions import Expr, expr
from tinygpu.language.memories import GMEM, RMEM
from tinygpu.program import nodes as n
from tinygpu.program.tree import Place, walk


def asks_ahead(loop: n.Statement) -> bool:
    """Whether it is a loop whose rounds are written out, and load from tensors and compute in registers alone."""
    if not isinstance(loop, n.Repeated) or not loop.written_out:
        return False
    inside = (s for body in loop.children for s in walk(body.statements))
    return all(s.written_out if isinstance(s, n.Repeated) else _only_loads_and_computes(s) for s in inside)


def rounds_together(place: Place) -> Expr:
    """How many executions of a load have their data under way together, by the loops right around it."""
    out = expr(1)
    for block, _ in reversed(place.around):
        if not isinstance(block, n.Repeated) or not asks_ahead(block):
            break
        out = out * block.trips
    return out


def _only_loads_and_computes(s: n.Statement) -> bool:
    meets = not s.exchanged_bytes.same(0) or not s.cluster_bytes.same(0)
    if s.children or s.tokens or meets or any(tile.memory is not RMEM for tile in s.writes):
        return False
    return all(tile.memory in (GMEM, RMEM) for tile in s.reads)
