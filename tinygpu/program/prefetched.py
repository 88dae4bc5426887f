"""Loads that go a round ahead: of the first step of a round, behind the barrier of the round before.

A loop fills a slot ahead and consumes it in unrolled steps, each of which loads fragments and multiplies them. All
threads meet where a round begins, and the products of its first step wait for that and for its loads. With `prefetch`
they meet before the last step's products: by then every thread has loaded all that it takes from the slot, and the
fragments of the next slot's first step come while the last products are under way.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk


@dataclass(frozen=True, slots=True)
class Steps:
    """The unrolled loop of a round.

    loop   its steps
    loads  with which each of them begins, from the slot to registers
    rest   what it does then, which touches no slot of the loop's
    """

    loop: n.Loop
    loads: tuple[n.Load, ...]
    rest: tuple[n.Statement, ...]

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """What is loaded."""
        return tuple(s.result for s in self.loads)


def steps(s: n.Pipelined) -> Steps:
    """Of a loop that loads ahead."""
    loop = s.consume[0]
    if not isinstance(loop, n.Loop):
        raise ValueError(f"[prefetch] {s.pipeline} is consumed in something else than steps: {loop}")
    loads: list[n.Load] = []
    for inner in loop.body:
        if not (isinstance(inner, n.Load) and inner.result.memory is RMEM and _in_slots(s, inner.source)):
            break
        loads.append(inner)
    return Steps(loop, tuple(loads), loop.body[len(loads) :])


def not_prefetched(s: n.Statement) -> str:
    """Why nothing can be loaded ahead of what a block consumes, in words; "" where it can."""
    if not isinstance(s, n.Pipelined):
        return "another role fills it, or no loop does so ahead; loads go ahead where one role fills and consumes it"
    if len(s.consume) != 1 or not isinstance(s.consume[0], n.Loop) or not s.consume[0].unrolled:
        return "its block is to be one loop of p.unroll, of whose first step loads go ahead"
    found = steps(s)
    if not found.loads:
        return "the steps of its loop do not begin with loads from the slot to registers"
    for inner in walk(found.rest):
        if any(_in_slots(s, tile) for tile in (*inner.reads, *inner.writes)):
            return "behind the loads with which they begin, the steps of its loop touch the slot"
    return ""


def _in_slots(s: n.Pipelined, tile: Tile) -> bool:
    return tile.buffer is not None and tile.buffer.name.split(".")[0] in s.pipelines
