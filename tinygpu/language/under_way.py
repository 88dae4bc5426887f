"""A check of sums that tensor cores still work on: nobody else touches them in the loop that consumes their operands.

An asynchronous product of a warpgroup is waited for one round later, so that the next round's is asked for meanwhile;
its accumulators are complete behind the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def check_sums_under_way(program: Program) -> None:
    """Raises DeclarationError where a statement touches the accumulators of a product that is not complete."""
    for consume, around in _consumes(program.body, None):
        sums = {
            s.accumulator.name
            for s in walk(consume.body)
            if isinstance(s, n.Multiply) and s.token is not None and s.accumulator.memory is RMEM
        }
        for s in walk((around or consume).body) if sums else ():
            for name in sorted(sums & _touched(s)):
                raise DeclarationError(
                    f"{program.machine}.program: %{name.removeprefix('%')} is used in the loop that consumes "
                    f"{consume.pipeline!r}, while tensor cores still work on it; use its sums behind the loop"
                )


def _consumes(body: tuple[n.Statement, ...], loop: n.Loop | None) -> Iterator[tuple[n.Consume, n.Loop | None]]:
    """Every block that consumes, and the innermost loop around it."""
    for s in body:
        if isinstance(s, n.Consume):
            yield s, loop
            yield from _consumes(s.body, loop)
        elif isinstance(s, n.Loop):
            yield from _consumes(s.body, s)
        elif isinstance(s, (n.InRole, n.Produce, n.FixUp, n.Scope)):
            yield from _consumes(s.body, loop)


def _touched(s: n.Statement) -> frozenset[str]:
    """Tiles that a statement itself reads or writes, but for the accumulators of a product."""
    tiles: tuple[object, ...] = ()
    if isinstance(s, (n.Constant, n.Load)):
        tiles = (s.result,)
    elif isinstance(s, n.Store):
        tiles = (s.value,)
    elif isinstance(s, n.Apply):
        tiles = (*s.operands, s.result)
    elif isinstance(s, n.Reduce):
        tiles = (s.source, s.result)
    elif isinstance(s, n.Multiply):
        tiles = (s.a, s.b)
    elif isinstance(s, n.FixUp):
        tiles = (s.value, s.result)
    return frozenset(t.name for t in tiles if isinstance(t, Tile))
