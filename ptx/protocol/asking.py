"""Clusters that take each other over: what the proof of their answers' ring takes for granted, looked up in the text.

One role of the first CTA of a cluster fills the ring for all of them, and reads it like all others. As one who fills
and as one who reads it is two automata, `parts`: what holds however the two go on holds as they do, one after the
other. To the proof all CTAs of the cluster are as one: a slot is full in each when its bytes have come there, and empty
when all warps of all CTAs have said so at the first one's barrier.

That nobody asks after a no is in the text itself: a walk goes on from an answer that takes a cluster over, and in each
tile who asks does so once, before it hears what came of it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from tinygpu.language.buffer_space import ANSWER_BYTES
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.progress import Automaton, Irregular


def parts(role: sync.RoleBody) -> tuple[sync.RoleBody, ...]:
    """A role, and what it asks as a role of one warp; its own part is the first."""
    if not any(_asking(s) for s in steps_of(role.body)):
        return (role,)
    asks = replace(role, warps=1, walks=1, one=True, pair=1, body=_asked(role.body))
    return replace(role, body=_heard(role.body)), asks


def _asking(step: sync.Step) -> bool:
    return isinstance(step, sync.When) and step.condition == sync.ASKING


def _heard(steps: tuple[sync.Step, ...]) -> tuple[sync.Step, ...]:
    """All but what is asked."""
    inside = (s for s in steps if not _asking(s))
    return tuple(replace(s, body=_heard(s.body)) if isinstance(s, sync.Tiles) else s for s in inside)


def _asked(steps: tuple[sync.Step, ...]) -> tuple[sync.Step, ...]:
    out: list[sync.Step] = []
    for s in steps:
        if isinstance(s, sync.When) and s.condition == sync.ASKING:
            out += s.body
        elif isinstance(s, sync.Tiles):
            out.append(replace(s, body=_asked(s.body)))
    return tuple(out)


def check_answers(
    protocol: sync.Protocol, ring: sync.Ring, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]
) -> None:
    """Raises Irregular unless one role asks once a tile, and every answer comes to all and is heard by all."""
    cluster = math.prod(protocol.cluster)
    roles = [step for step in protocol.body if isinstance(step, sync.RoleBody)]
    names = [machine.role.role for machine in producers]
    if len(names) != 1:
        raise Irregular(f"one role asks for other clusters, and here {' and '.join(names) or 'none'} does")
    _check_order(next(role for role in roles if role.role == names[0]))
    for name, expected, boxes in producers[0].loads:
        if name == ring.name and (expected, boxes) != (ANSWER_BYTES, ((ANSWER_BYTES, cluster, None),)):
            comes = " and ".join(f"{count} in {ctas} CTAs" for count, ctas, _ in boxes)
            wanted = f"an answer has {ANSWER_BYTES} bytes in {cluster} CTAs"
            raise Irregular(f"{wanted}; {comes} come, and {expected} are expected")
    hearing = {machine.role.role for machine in consumers}
    for role in roles:
        if role.role not in hearing or not any(isinstance(s, sync.Tiles) and s.answered for s in role.body):
            raise Irregular(f"{role.role} goes on to other tiles and hears no answer")
        for s in steps_of(role.body):
            mine = getattr(getattr(s, "barrier", None), "pipeline", "") == ring.name
            if mine and isinstance(s, sync.Expect) and s.ctas != cluster:
                raise Irregular(f"an answer is expected in {s.ctas} CTAs, and comes to {cluster}")
            if mine and isinstance(s, sync.Arrive) and s.home != cluster:
                raise Irregular(f"{role.role} does not give an answer's slot back to the CTA that asks")
    made = Counter(
        (s.barrier.side, s.barrier.slot, s.arrivals)
        for s in protocol.body
        if isinstance(s, sync.Init) and s.barrier.pipeline == ring.name
    )
    come = {"full": 1, "empty": sum(role.walks * cluster // role.pair for role in roles)}
    if made != Counter((side, slot, count) for side, count in come.items() for slot in range(ring.stages)):
        raise Irregular(
            f"a slot of answers is full by {come['full']} arrival and empty by {come['empty']}, and its barriers are "
            "made for others"
        )


def _check_order(role: sync.RoleBody) -> None:
    """Who asks does so once a tile, before it hears the answer by which it goes on."""
    (tiles,) = [step for step in role.body if isinstance(step, sync.Tiles)]
    kinds = [
        "ask" if _asking(step) else "hear"
        for step in tiles.body
        if _asking(step) or isinstance(step, sync.Hear)
    ]
    inside = [s for s in steps_of(tiles.body) if isinstance(s, sync.Ask | sync.Hear)]
    if kinds != ["ask", "hear"] or len(inside) != len(kinds):
        raise Irregular(f"{role.role} asks again without having heard that a cluster was taken over")
