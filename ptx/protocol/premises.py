"""What the proof of a ring takes for granted, looked up in the text: arrivals, bytes, turns, and the slots of a tile.

Each raises Irregular, with the sentence of what is otherwise.
"""

from __future__ import annotations

import math
from collections import Counter

from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.roles import ARRIVALS
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.counting import Count, ahead, passed, steps_of, used
from tinygpu.ptx.protocol.progress import Automaton, Irregular
from tinygpu.ptx.protocol.turns import in_order


def check_counts(
    protocol: sync.Protocol, ring: sync.Ring, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]
) -> bool:
    """Whether CTAs fill each other's slots. Raises Irregular unless a phase completes when all have arrived."""
    for machine in producers:
        _check_kinds(machine, ring.name, ("wait", "expect", "bring"))
    for machine in consumers:
        _check_kinds(machine, ring.name, ("wait", "arrive"))
    parts = _parts(ring, producers, consumers)
    each = 1 if ring.completion == ARRIVALS else parts  # warps say for themselves that they have stored
    axes: set[tuple[int, int]] = set()
    for machine in producers:
        for name, expected, boxes in machine.loads:
            if name == ring.name:
                comes = each * sum(count * ctas for count, ctas, _ in boxes)
                if comes != expected:
                    raise Irregular(f"{machine.role.role} expects {expected} bytes of a slot, and {comes} come")
                axes |= {(axis, ctas) for _, ctas, axis in boxes if axis is not None and ctas > 1}
    if any(_neighbours(protocol, axis, parts) != ctas for axis, ctas in axes):
        raise Irregular("boxes go to other CTAs than those of the cluster along an axis")
    sources = 1 + sum(ctas - 1 for _, ctas in axes)
    along = tuple(sorted(axis for axis, _ in axes))
    for machine in consumers:
        for move in machine.of(ring.name):
            if move.kind == "arrive" and (move.ctas, move.axes if move.ctas > 1 else ()) != (sources, along):
                raise Irregular(f"{machine.role.role} gives slots back to {move.ctas} CTAs, and {sources} fill them")
    inits = [s for s in protocol.body if isinstance(s, sync.Init) and s.barrier.pipeline == ring.name]
    made = Counter((s.barrier.side, s.barrier.slot) for s in inits)
    if made != Counter((side, slot) for side in ("full", "empty") for slot in range(ring.stages)):
        raise Irregular(f"the {ring.stages} slots of {ring.name} have not one barrier for full and one for empty each")
    for step in inits:
        group = producers if step.barrier.side == "full" else consumers
        for tile in range(math.lcm(*(a.role.share[1] for a in group))):
            taking = [a.role for a in group if tile % a.role.share[1] == a.role.share[0]]
            if step.barrier.side == "full":
                come = sum(role.warps * ring.pair if ring.completion == ARRIVALS else 1 for role in taking)
            else:
                come = sources * sum(1 if role.one else role.warps * ring.pair for role in taking)
            if come != step.arrivals:
                raise Irregular(
                    f"a phase of the {step.barrier.side} barrier of slot {step.barrier.slot} completes with "
                    f"{step.arrivals} arrivals, and {come} come"
                )
    return sources * parts > 1


def _neighbours(protocol: sync.Protocol, axis: int, parts: int) -> int:
    """CTAs of a cluster along an axis; of slots that `parts` CTAs fill, neighbours along the last axis, such pairs."""
    return protocol.cluster[axis] // (parts if axis == len(protocol.cluster) - 1 else 1)


def _parts(ring: sync.Ring, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]) -> int:
    """CTAs that each bring a part of a slot.

    Of slots that a pair shares, the first CTA's role multiplies for both, and everybody says so at its barriers. A pair
    is then to the proof as one CTA: what either brings fills its slots, and warps of either give back its sums. Slots
    that only roles of the first CTA fill and drain are its own.
    """
    summed = ring.completion == COMMIT
    own = summed and ring.pair == 1 and all(machine.role.pair > 1 for machine in (*producers, *consumers))
    for machines, pair in ((producers, ring.pair if summed else 1), (consumers, 1 if summed else ring.pair)):
        for machine in machines:
            role = machine.role
            if role.pair != pair and not own:
                where = "in the first CTA of each pair only" if pair > 1 else "in each CTA"
                raise Irregular(f"{role.role} uses slots of {ring.name}, and does not so {where}")
            for s in steps_of(role.body):
                if not isinstance(s, sync.Expect | sync.Bring | sync.Arrive | sync.CommitAt):
                    continue
                if s.barrier.pipeline == ring.name and s.pair != ring.pair:
                    raise Irregular(f"{role.role} takes slots of {ring.name} for those of {s.pair} CTAs")
    return 1 if summed else ring.pair


def _check_kinds(machine: Automaton, ring: str, needs: tuple[str, ...]) -> None:
    kinds = {m.kind for m in machine.of(ring)} - {"read"}
    if kinds != set(needs):
        odd = " and ".join(sorted(set(needs) ^ kinds))
        raise Irregular(f"of what {machine.role.role} does in {ring}, {odd} is missing or too much")


def check_turns(
    protocol: sync.Protocol, ring: str, group: tuple[Automaton, ...], automata: tuple[Automaton, ...], verb: str
) -> None:
    """Roles of different tiles follow each other: all that they do in the ring stands in their turn."""
    shares = {a.role.share for a in group if a.role.share[1] > 1}
    if not shares:
        return
    turns = {m.turn for a in group if a.role.share[1] > 1 for m in a.of(ring)}
    if turns == {""} or len(turns) > 1:
        raise Irregular(f"roles of different tiles {verb} {ring}, and not all that they do there is in their turn")
    (turn,) = turns
    order = in_order(protocol, turn, tuple(a for a in automata if a.of(turn)))
    if [a.role.share for a in order] != [(place, len(order)) for place in range(len(order))]:
        raise Irregular(f"roles {verb} {ring} in another order than that of their tiles")


def check_slots(ring: str, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]) -> None:
    """All use the same slots of each tile, and pass over those of other roles' tiles."""
    each = used(producers[0].role, ring) if producers else Counter()
    for machine in (*producers, *consumers):
        role = machine.role
        if used(role, ring) != each:
            raise Irregular(f"{role.role} uses other slots of a tile than {producers[0].role.role}")
        first, every = role.share
        expected = _sum(each, range(first)), _sum(each, range(1, every))
        if passed(role, ring) != expected:
            raise Irregular(f"{role.role} passes over other slots than those that others use")


def _sum(each: Count, tiles: range) -> Count:
    total: Count = Counter()
    for tile in tiles:
        total.update(ahead(each, tile))
    return total
