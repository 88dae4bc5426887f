"""Proofs that roles take turns: one at a time, in their order, and nobody waits for ever; for all tiles, by Z3.

Of every role three numbers are followed: turns that it has begun, turns that it has handed on, and phases that its
barrier has completed. One warp stands for a role: a barrier completes a phase only when all warps of the role before
have handed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.induction import MISSED, OVERWRITTEN, STUCK, Question
from tinygpu.ptx.protocol.progress import Automaton, Irregular, Move

ONE_AT_A_TIME = "roles take their turns one at a time, in their order"


def in_order(protocol: sync.Protocol, ring: str, takers: tuple[Automaton, ...]) -> tuple[Automaton, ...]:
    """The roles in the order of their turns. Raises Irregular where these do not go around through all roles."""
    waits = {_only(a, ring, "wait").number: a for a in takers}
    arrivals = {
        step.barrier.slot: step.arrivals
        for step in protocol.body
        if isinstance(step, sync.Init) and step.barrier.pipeline == ring
    }
    if len(waits) != len(takers) or set(arrivals) != set(waits):
        raise Irregular(f"{len(takers)} roles take turns in {ring}, at {len(arrivals)} barriers")
    first = [number for number, a in waits.items() if _only(a, ring, "wait").flipped]
    if len(first) != 1:
        raise Irregular(f"{len(first)} roles begin with a turn of {ring}")
    order: list[Automaton] = []
    number = first[0]
    while waits[number] not in order:
        order.append(waits[number])
        before, number = order[-1].role, _only(order[-1], ring, "arrive").number
        if number not in waits:
            raise Irregular(f"{before.role} hands its turn of {ring} on to nobody")
        warps = 1 if before.one else before.warps
        if arrivals[number] != warps:
            made = arrivals[number]
            raise Irregular(f"a turn of {ring} begins with {made} arrivals, and {before.role} makes {warps}")
    if len(order) != len(takers) or number != first[0]:
        raise Irregular(f"the turns of {ring} do not go around")
    return tuple(order)


def _only(machine: Automaton, ring: str, kind: str) -> Move:
    found = {(m.number, m.flipped, m.use): m for m in machine.of(ring) if m.kind == kind}
    if len(found) != 1:
        raise Irregular(f"{machine.role.role} has {len(found)} ways to {kind} in {ring}")
    return next(iter(found.values()))


@dataclass(frozen=True, slots=True)
class TurnProof:
    """roles  that take turns"""

    ring: str
    roles: int

    def questions(self) -> Iterator[Question]:
        yield Question(MISSED, "at first", self._at_first)
        yield Question(OVERWRITTEN, "one at a time", self._one)
        for role in range(self.roles):
            yield Question(MISSED, f"role {role} waits", partial(self._tells, role=role))
            yield Question(OVERWRITTEN, f"role {role} begins", partial(self._begins, role=role))
            yield Question(OVERWRITTEN, f"role {role} hands on", partial(self._kept, what="handed", role=role))
            yield Question(MISSED, f"turn {role} begins", partial(self._kept, what="phases", role=role))
        yield Question(STUCK, "all wait", self._stuck)

    def _invariant(self, v: Mapping[str, list[Any]]) -> Any:
        begun, handed, phases = v["begun"], v["handed"], v["phases"]
        terms = [handed[-1] >= phases[0], begun[0] <= phases[0] + 1, phases[0] >= 0]
        for role in range(self.roles):
            terms += [handed[role] <= begun[role], begun[role] <= handed[role] + 1, handed[role] >= 0]
            if role:
                terms += [begun[role] <= phases[role], phases[role] <= handed[role - 1]]
        return z3.And(*terms)

    def _at_first(self, context: Any) -> list[Any]:
        return [z3.Not(self._invariant(_numbers(context, self.roles, zero=True)))]

    def _passes(self, v: Mapping[str, list[Any]], role: int) -> Any:
        return v["phases"][role] % 2 != (v["begun"][role] + (role == 0)) % 2

    def _tells(self, context: Any, role: int) -> list[Any]:
        """The parity tells whether the role before has handed its turn on, and no more than that can have happened."""
        v = _numbers(context, self.roles)
        phases, wanted = v["phases"][role], v["begun"][role] + (role != 0)
        waits = v["begun"][role] == v["handed"][role]
        known = z3.And(self._passes(v, role) == (phases >= wanted), phases <= wanted)
        return [self._invariant(v), waits, z3.Not(known)]

    def _begins(self, context: Any, role: int) -> list[Any]:
        v = _numbers(context, self.roles)
        waits = v["begun"][role] == v["handed"][role]
        after = self._invariant(_more(v, "begun", role))
        return [self._invariant(v), waits, self._passes(v, role), z3.Not(after)]

    def _kept(self, context: Any, what: str, role: int) -> list[Any]:
        v = _numbers(context, self.roles)
        may = v["begun"][role] > v["handed"][role] if what == "handed" else v["handed"][role - 1] > v["phases"][role]
        return [self._invariant(v), may, z3.Not(self._invariant(_more(v, what, role)))]

    def _one(self, context: Any) -> list[Any]:
        v = _numbers(context, self.roles)
        having = z3.Sum([b - h for b, h in zip(v["begun"], v["handed"], strict=True)])
        return [self._invariant(v), having > 1]

    def _stuck(self, context: Any) -> list[Any]:
        """All wait or have ended, and no barrier has what it waits for. Who has ended has had all turns before."""
        v = _numbers(context, self.roles)
        ended = [z3.Bool(f"role {role} has ended", context) for role in range(self.roles)]
        terms = [self._invariant(v), z3.Not(z3.And(*ended))]
        for role in range(self.roles):
            terms += [v["begun"][role] == v["handed"][role], v["phases"][role] == v["handed"][role - 1]]
            before = v["begun"][role - 1] >= v["begun"][role] + (role != 0)
            terms += [z3.Implies(z3.Not(ended[role]), z3.Not(self._passes(v, role)))]
            terms += [z3.Implies(z3.And(ended[role - 1], z3.Not(ended[role])), before)]
        return terms


def _numbers(context: Any, roles: int, zero: bool = False) -> dict[str, list[Any]]:
    return {
        what: [z3.IntVal(0, context) if zero else z3.Int(f"{what} {role}", context) for role in range(roles)]
        for what in ("begun", "handed", "phases")
    }


def _more(v: Mapping[str, list[Any]], what: str, role: int) -> dict[str, list[Any]]:
    return {
        name: [number + (name == what and role == at) for at, number in enumerate(of)] for name, of in v.items()
    }
