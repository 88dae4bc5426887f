"""What a loop was meant to carry on, and does not: numbers that rounds read, and nothing writes into."""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import places, walk


def never_carried(program: Program) -> Iterator[str]:
    """A sentence for each tile of a number that rounds compute another of its kind from, and that nothing writes into.

    In `h = a * h + x` Python gives the name h to another tile, and the next round reads what the loop began with.
    """
    begun = {s.result.name: s for s in walk(program.body) if isinstance(s, n.Constant)}
    written = {t.name for s in walk(program.body) if not isinstance(s, n.Constant) for t in s.writes}
    told = set[str]()
    for place in places(program.body):
        s = place.statement
        if not isinstance(s, n.Apply) or s.instruction.sign in ("where", "move"):
            continue
        rounds = [loop for loop in place.loops if isinstance(loop, n.Loop)]
        for tile in s.reads:
            start = begun.get(tile.name)
            if start is None or tile.name in written | told or not rounds or start in walk(rounds[-1].body):
                continue
            if s.result.dtype == tile.dtype and list(map(str, s.result.shape)) == list(map(str, tile.shape)):
                told.add(tile.name)
                yield (
                    f"%{tile.name}, which begins as {start.value}{start.place and f' ({start.place})'}, is read in "
                    "every round of a loop, and nothing writes into it: `x = x + y` makes another tile in each round, "
                    "and `x += y` or into= goes on with it"
                )
