"""Proofs that roles which wait in several rings never lock up: an order of all that they do, in which no wait is early.

The order is that of `tinygpu.program.order`, of what the nodes say from which the text was printed: a rank of a
well-founded order, which is a tile, rounds of its loops, a step in the round. What each stretch between two heads of
loops needs is asked of Z3, for any number of uses before it and any number of stages from the least on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import z3

from tinygpu.program.order import (
    HOLDS,
    Block,
    Deed,
    Item,
    Items,
    Key,
    Stretch,
    Takers,
    Unordered,
    bases,
    do,
    needed,
)
from tinygpu.program.order import order as ordered
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.induction import STUCK, Question
from tinygpu.ptx.protocol.progress import Automaton, Irregular
from tinygpu.ptx.protocol.turns import in_order


@dataclass(frozen=True, slots=True)
class OrderProof:
    """The questions about the order of all that is done in some rings.

    rings      with their least numbers of stages; 0 of those without buffers
    takers     of rings without buffers, the roles in the order of their turns
    stretches  of the order, of which any may follow the one that ends as it begins
    """

    rings: tuple[tuple[str, int], ...]
    takers: tuple[tuple[str, tuple[str, ...]], ...]
    stretches: tuple[Stretch, ...]

    @property
    def ring(self) -> str:
        return " and ".join(name for name, _ in self.rings)

    def questions(self) -> Iterator[Question]:
        for number, stretch in enumerate(self.stretches):
            yield Question(STUCK, f"stretch {number} of the order", partial(self._fails, stretch))

    def _fails(self, stretch: Stretch, context: Any) -> list[Any]:
        """Something in a stretch waits for what comes later, or it does not end as the next ones begin."""
        uses, later = (
            {ring: z3.Int(f"uses of {ring}{when}", context) for ring, _ in self.rings} for when in ("", " later")
        )
        stages = {ring: z3.Int(f"stages of {ring}", context) for ring, least in self.rings if least}
        counts: dict[Key, Any] = {k: n if k[2] == HOLDS else z3.Int(" ".join(k), context) for k, n in stretch.before}
        known = [stages[ring] >= least for ring, least in self.rings if least]
        known += [counts[k] == uses[k[1]] + n for k, n in stretch.before if k[2] != HOLDS]
        wrong, takers = [], dict(self.takers)
        for role, deed in stretch.deeds:
            more = stages[deed.ring] if deed.verb == "acquire" else 0
            wrong += [done + more < least for done, least in needed(role, deed, counts, takers)]
            do(role, deed, counts)
        known += [later[ring] == counts[key] - n for ring, (key, n) in bases(stretch.after).items()]
        ends = [counts[k] == (n if k[2] == HOLDS else later[k[1]] + n) for k, n in stretch.after]
        wrong += [z3.Not(end) if z3.is_expr(end) else z3.BoolVal(not end, context) for end in ends]
        return [*known, z3.Or(*wrong)]


# ---- what roles do --------------------------------------------------------------------------------------------------


def deeds(role: sync.RoleBody, rings: frozenset[str]) -> Items:
    """What a role does of a tile in some rings. Raises Irregular."""
    tiles = [step for step in role.body if isinstance(step, sync.Tiles)]
    if len(tiles) > 1 or (tiles and any(True for s in role.body if s not in tiles for _ in _items((s,), rings, {}))):
        raise Irregular(f"{role.role} waits outside of its tiles")
    pipes = {s.pipe.slot.name: s.pipe.name for s in _starts(role.body)}
    held = {s.pipe.held.name: s.pipe.name for s in role.body if isinstance(s, sync.Start)}
    return tuple(_items(tiles[0].body if tiles else role.body, rings, pipes | held))


def _starts(steps: tuple[sync.Step, ...]) -> Iterator[sync.Start]:
    """Where a role begins in rings; of answers, where it begins to ask for them: who hears them fills nothing."""
    for s in steps:
        if isinstance(s, sync.Start) and s.pipe.name != sync.ANSWERS:
            yield s
        elif isinstance(s, sync.When) and s.condition == sync.ASKING:
            yield from (start for start in s.body if isinstance(start, sync.Start))


def _items(steps: tuple[sync.Step, ...], rings: frozenset[str], pipes: Mapping[str, str]) -> Iterator[Item]:
    for step in steps:
        match step:
            case sync.Wait(barrier) if barrier.pipeline in rings:
                yield Deed("acquire" if barrier.side == "empty" else "wait", barrier.pipeline)
            case sync.Arrive(barrier, held=held) if barrier.pipeline in rings and barrier.side != "full":
                yield Deed("hand back" if held else "release", barrier.pipeline)
            case sync.CommitAt(barrier) if barrier.pipeline in rings and barrier.side == "empty":
                yield Deed("release", barrier.pipeline)
            case sync.Advance(slot) if pipes.get(slot.name) in rings:
                yield Deed("fill", pipes[slot.name])
            case sync.Set(register, value) if pipes.get(register.name) in rings:
                yield Deed("drop" if value == sync.NOBODY else "hold", pipes[register.name])
            case sync.Rounds(_, trips, body):
                number = trips.number if isinstance(trips.number, int) else None
                key = "rounds", trips.base or trips.text
                yield from _block(Block(key, True, number, tuple(_items(body, rings, pipes)), trips.more))
            case sync.When("one thread" | sync.ASKING, body):
                yield from _items(body, rings, pipes)
            case sync.When(condition, body):
                inside = tuple(_items(body, rings, pipes))
                if inside and not (isinstance(condition, sync.Before) and not condition.index):
                    raise Irregular("who waits for whom where a condition holds that others do not know is not proved")
                if inside and isinstance(condition, sync.Before):
                    yield from _where(condition, inside)
            case sync.Ahead(body=body) | sync.Tiles(body):
                yield from _items(body, rings, pipes)
            case _:
                pass


def _where(condition: sync.Before, inside: Items) -> Iterator[Item]:
    """What is done where there are so many rounds: a loop that may have none, or anything else."""
    first, *others = inside
    key = "rounds", condition.trips.base or condition.trips.text
    if (
        not condition.offset
        and isinstance(first, Block)
        and (first.key, first.more) == (key, condition.trips.more)
        and all(isinstance(item, Deed) and item.verb in ("hand back", "drop") for item in others)
    ):
        yield replace(first, least=0)
        yield from others  # nothing where there was no round
    else:
        yield Block(("some", str(condition.offset), condition.trips.text), False, None, inside)


def _block(block: Block) -> Iterator[Block]:
    if block.body:
        yield block


# ---- the order ------------------------------------------------------------------------------------------------------


def order(
    rings: tuple[sync.Ring, ...], automata: tuple[Automaton, ...], protocol: sync.Protocol, stages: Mapping[str, int]
) -> OrderProof:
    """The order of all that roles do in these rings, with so many stages or more. Raises Blocked, Irregular."""
    names = frozenset(ring.name for ring in rings)
    using = [a for a in automata if any(a.of(name) for name in names)]
    takers: Takers = {
        ring.name: tuple(a.role.role for a in in_order(protocol, ring.name, tuple(a for a in using if a.of(ring.name))))
        for ring in rings
        if ring.completion == "turn"
    }
    whole = {step.role: step for step in protocol.body if isinstance(step, sync.RoleBody)}
    fills: dict[str, set[str]] = {a.role.role: set() for a in using}
    for a in using:
        fills[a.role.role] |= {m.ring for m in a.moves if m.kind == "bring"}
    items = {name: _own(own, deeds(whole[name], names)) for name, own in fills.items()}
    try:
        stretches = ordered(items, {a.role.role: a.role.share for a in using}, takers, stages)
    except Unordered as why:
        raise Irregular(str(why)) from None
    least = tuple((ring.name, stages.get(ring.name, 0)) for ring in rings)
    return OrderProof(least, tuple(takers.items()), stretches)


def _own(fills: set[str], items: Items) -> Items:
    """Without the steps to the next slot of rings that a role does not fill."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Block):
            out.append(replace(item, body=_own(fills, item.body)))
        elif item.verb != "fill" or item.ring in fills:
            out.append(item)
    return tuple(out)
