"""Where the time of a program goes: the loop of each role, and the roles that take turns or sums of tensor memory."""

from __future__ import annotations

from tinygpu.program import nodes as n
from tinygpu.program.products import into_tensor_memory
from tinygpu.program.program import Program
from tinygpu.program.tree import places, walk


def in_turn(program: Program) -> tuple[str, ...]:
    """The roles that take turns within a tile, in their order; none where roles take turns at tiles, or not at all."""
    turns = {p.name for p in program.pipelines if not p.buffers}
    found = (place.role for place in places(program.body) if place.consumes & turns)
    shares = {role.name: role.share[1] for role in program.roles}
    return tuple(dict.fromkeys(name for name in found if shares[name] == 1))


def taking_sums(program: Program) -> tuple[str, ...]:
    """The roles that take sums from tensor memory, in their order."""
    sums = sums_of(program)
    return tuple(dict.fromkeys(place.role for place in places(program.body) if place.consumes & sums))


def sums_of(program: Program) -> frozenset[str]:
    """The pipelines that hand over sums in tensor memory: products are added up in their slots."""
    found = (s for s in walk(program.body) if isinstance(s, n.Multiply) and into_tensor_memory(s))
    return frozenset(s.accumulator.name.split(".")[0] for s in found)


def main_loop(body: tuple[n.Statement, ...], sums: frozenset[str]) -> list[n.Repeated]:
    """The loop of a role in which its time goes: the first that multiplies, or fills slots, or the first there is.

    What loops before it do belongs to the prologue: they look for the tile. A role that takes sums from tensor memory
    outside of its loops, once for each tile, has no such loop.
    """
    loops = [s for s in walk(body) if isinstance(s, n.Repeated) and not s.written_out]
    taken = taking(body, sums)
    if taken and not any(s in taken for s in walk(tuple(loops))):
        return []
    for kind in (n.Multiply, n.Pipelined | n.Produce):
        if found := [s for s in loops if any(isinstance(inner, kind) for inner in walk((s,)))]:
            return found[:1]
    return loops[:1]


def taking(body: tuple[n.Statement, ...], sums: frozenset[str]) -> list[n.Consume]:
    """Where a role takes sums from tensor memory."""
    return [s for s in walk(body) if isinstance(s, n.Consume) and s.pipeline in sums]
