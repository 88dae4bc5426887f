"""The order in which roles come to the slots of several rings: where it is the same for all, they never lock up.

One role produces, and each consumer waits for full slots in the order in which they are produced. Say the producer
waits, for a slot that some consumer has not given back, to fill it for use u of its ring. That consumer waits too, for
a slot that is not full: so none before u. And it has not come past u, which is not full either: so it waits for u
itself. Producer and consumer then wait for each other in one ring, and of each ring by itself it is proved that they
do not.
"""

from __future__ import annotations

from typing import TypeAlias

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.pipe import Side
from tinygpu.ptx.protocol.automaton import Automaton

# The name of a ring, or a block with what is in it: ("rounds", trip count, ..), ("tiles", ..), ("when", condition, ..).
Order: TypeAlias = "tuple[str | Order, ...]"


def in_one_order(rings: frozenset[str], automata: tuple[Automaton, ...]) -> bool:
    """Whether one role produces the slots of all these rings, and all others consume them in its order."""
    using = [a for a in automata if any(m.ring in rings for m in a.moves)]
    producers = [a for a in using if any(m.kind == "bring" and m.ring in rings for m in a.moves)]
    if len(producers) != 1:
        return False
    (producer,) = producers
    for machine in using:
        if machine.role.share != (0, 1) or any(m.side == "turn" for m in machine.moves):
            return False
        if machine is not producer:
            own = frozenset(m.ring for m in machine.moves) & rings
            if _order(machine.role.body, "full", own) != _order(producer.role.body, "empty", own):
                return False
    return {m.ring for m in producer.moves} >= rings


def _order(steps: tuple[sync.Step, ...], side: Side, rings: frozenset[str]) -> Order:
    """Where a role waits for these rings, in the blocks in which it does so."""
    out: list[str | Order] = []
    for step in steps:
        match step:
            case sync.Wait(barrier) if barrier.side == side and barrier.pipeline in rings:
                out.append(barrier.pipeline)
            case sync.Tiles(body):
                out += _block(("tiles",), _order(body, side, rings))
            case sync.Rounds(_, trips, body):
                out += _block(("rounds", trips.text), _order(body, side, rings))
            case sync.When(condition, body):
                out += _block(("when", _said(condition)), _order(body, side, rings))
            case _:
                pass
    return tuple(out)


def _said(condition: sync.Condition) -> str:
    if isinstance(condition, sync.Before):
        return f"round {condition.offset} of {condition.trips.text}"
    return condition


def _block(of: tuple[str, ...], inside: Order) -> tuple[Order, ...]:
    return ((*of, *inside),) if inside else ()
