"""Least slots of rings: roles that come to the slots of several rings in different orders need enough of them.

Otherwise each waits for the other: one for an empty slot of a ring, the other for a full one of another. How many are
enough for every size is found by `tinygpu.program.order`, on what the program says that each role does of a tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, FloorDiv, all_of, any_of, rounded_up
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import HANDED_OVER
from tinygpu.program import nodes as n
from tinygpu.program.groups import Groups, Wait, groups
from tinygpu.program.order import Block, Blocked, Deed, Item, Unordered, Verb, order
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk

# What hands rings over from role to role; slots beyond which no order is looked for.
BETWEEN_ROLES, MOST_SLOTS = (*HANDED_OVER, "turn"), 64
# More slots than any role can run ahead.
ANY = 1 << 30


def waiting(program: Program) -> list[Constraint]:
    """Legality: as many slots as roles need that wait for each other in several rings.

    Raises DeclarationError where no number of slots is enough, or none can be shown to be.
    """
    found: list[Constraint] = []
    for rings in _tangled(program):
        found += _Waits(program, rings).constraints()
    return found


def _tangled(program: Program) -> list[frozenset[str]]:
    """Groups of rings in which roles may wait for each other in a circle.

    Who uses one ring alone waits for nobody that waits for others on the way. So such roles are left out, then rings
    that one role is left of, and so on.
    """
    users = {
        p.name: {u.place.role for u in uses(program.body, p.name)}
        for p in program.pipelines
        if p.completion in BETWEEN_ROLES
    }
    before: dict[str, set[str]] = {}
    while before != users:
        before = users
        often = [role for roles in users.values() for role in roles]
        users = {name: {r for r in roles if often.count(r) > 1} for name, roles in users.items()}
        users = {name: roles for name, roles in users.items() if len(roles) > 1}
    groups: list[frozenset[str]] = []
    for name, roles in users.items():
        near = [group for group in groups if any(users[other] & roles for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append(frozenset({name}).union(*near))
    return groups


@dataclass(frozen=True, eq=False)
class _Waits:
    """What roles do in rings that they wait in for each other."""

    program: Program
    rings: frozenset[str]

    def constraints(self) -> list[Constraint]:
        try:
            self.carry_out({})
        except Blocked as stuck:
            raise self.error(f"wait for each other, however many slots there are: {stuck}") from None
        except Unordered as why:
            raise self.error(
                f"wait for each other, and {why}; let all that use a ring go through loops of as many rounds"
            ) from None
        least = {name: self.least(name) for name in self.slotted}
        if self.enough(least):
            return [self.constraint(name, number) for name, number in least.items() if number > 1]
        together = [all_of([self.stages(k) >= v for k, v in some.items()]) for some in self.fewest(least)]
        sentence = (
            f"{self.roles} have slots enough of {_and(self.slotted)} together not to wait for each other for ever"
        )
        return [Constraint(f"slots of {_and(self.slotted)}", any_of(together), sentence, source="pipelines")]

    def constraint(self, name: str, number: int) -> Constraint:
        sentence = (
            f"{self.roles}, which use {_and(sorted(self.rings))} in different orders, have slots enough of {name} not "
            "to wait for each other for ever"
        )
        return Constraint(f"slots of {name}", self.stages(name) >= number, sentence, source="pipelines")

    @property
    def slotted(self) -> list[str]:
        return [p.name for p in self.program.pipelines if p.name in self.rings and p.buffers]

    @cached_property
    def roles(self) -> str:
        using = {u.place.role for name in self.rings for u in uses(self.program.body, name)}
        return _and([r.name for r in self.program.roles if r.name in using])

    def stages(self, name: str) -> Expr:
        return self.program.pipeline(name).stages

    def error(self, what: str) -> DeclarationError:
        rings = _and([repr(name) for name in sorted(self.rings)])
        return DeclarationError(f"{self.program.machine}.program: in the pipelines {rings} roles {what}")

    # -- how many slots --------------------------------------------------------------------------------------------

    def least(self, name: str) -> int:
        """Slots of a ring without which there is no order, however many the others have."""
        for number in range(1, MOST_SLOTS + 1):
            if self.enough({name: number}):
                return number
        raise self.error(f"wait for each other where {name!r} has {MOST_SLOTS} slots")

    def fewest(self, least: Mapping[str, int]) -> list[dict[str, int]]:
        """Numbers of slots that are enough together, and of which none can be less."""
        more = next((m for m in range(1, 8) if self.enough({k: v + m for k, v in least.items()})), 8)
        found: list[dict[str, int]] = []
        ranges = [range(v, v + more + 1) for v in least.values()]
        for numbers in sorted(itertools.product(*ranges), key=sum):
            some = dict(zip(least, numbers, strict=True))
            if not any(all(some[k] >= v for k, v in fewer.items()) for fewer in found) and self.enough(some):
                found.append(some)
        return found

    def enough(self, stages: Mapping[str, int]) -> bool:
        """Whether there is an order with so many slots, and any number in the rings that are not named."""
        try:
            self.carry_out(stages)
        except (Blocked, Unordered):
            return False
        return True

    def carry_out(self, stages: Mapping[str, int]) -> None:
        slots = {name: stages.get(name, ANY) for name in self.slotted}
        found = groups(self.program.body, frozenset(name for name, number in slots.items() if number == 1))
        deeds = {r.name: tuple(self.of_role(r.name, found)) for r in self.program.roles}
        shares = {r.name: r.share for r in self.program.roles if deeds[r.name]}
        takers = {
            name: tuple(dict.fromkeys(u.place.role for u in uses(self.program.body, name)))
            for name in self.rings
            if name not in slots
        }
        order({name: deeds[name] for name in shares}, shares, takers, slots)

    # -- what roles do ---------------------------------------------------------------------------------------------

    def of_role(self, role: str, found: Groups) -> Iterator[Item]:
        for s in walk(self.program.body):
            if isinstance(s, n.InRole) and s.role == role:
                yield from self.items(s.body, found)

    def items(self, body: tuple[n.Statement, ...], found: Groups) -> Iterator[Item]:
        for s in body:
            yield from self.waited(found.before.get(s))
            if isinstance(s, n.InSlot):
                yield from self.slot(s, found)
            elif isinstance(s, n.Repeated):
                yield from self.rounds(s, found)
            else:
                for inner in s.children:
                    yield from self.items(inner.statements, found)

    def waited(self, wait: Wait | None, holding: str = "") -> Iterator[Item]:
        """Slots that are given back behind a wait for products; of `holding`, another one is held then."""
        for name in wait.returned if wait is not None else ():
            if name in self.rings:
                yield Deed("hand back", name)
                if name != holding:
                    yield Deed("drop", name)

    def slot(self, s: n.InSlot, found: Groups) -> Iterator[Item]:
        late = s in found.late
        inside = tuple(self.items(s.body, found))
        if isinstance(s, n.Produce):
            yield from (*self.deed("acquire", s), *inside, *self.deed("fill", s))
            return
        yield from self.deed("wait", s)
        yield from self.waited(found.entered.get(s), s.pipeline)
        yield from inside
        yield from self.waited(found.behind.get(s), s.pipeline if late else "")
        yield from self.deed("hold" if late else "release", s)

    def deed(self, verb: Verb, s: n.InSlot) -> Iterator[Item]:
        """What is done in a ring, if roles wait in it for each other."""
        if s.pipeline in self.rings:
            yield Deed(verb, s.pipeline)

    def rounds(self, s: n.Repeated, found: Groups) -> Iterator[Item]:
        bodies = [tuple(self.items(b.statements, found)) for b in s.children]
        bodies = [items for items in bodies if items]
        if len(bodies) > 1:
            raise Unordered(f"the loop over {s.index} waits both in what it produces ahead and in what it consumes")
        if not bodies:
            return
        (body,) = bodies
        often, more = s.trips.split
        least = _least(s.trips.sympy, self.dims)
        if s.trips.is_number:
            yield Block(("rounds", str(s.trips)), True, int(s.trips), body)
        elif least < 0:  # no rounds where the number is negative: not those of the key and some more
            yield Block(("rounds", str(s.trips), str(s.divided)), True, None, body, 0, 0)
        else:
            yield Block(("rounds", str(often), str(s.divided)), True, None, body, more, least)
        yield from self.waited(Wait(0, found.left.get(s, ())))

    @cached_property
    def dims(self) -> frozenset[str]:
        of_tensors = {d for t in self.program.tensors for d in t.dims}
        return frozenset(of_tensors.union(*(a.tiles.symbols for a in self.program.grid.axes)))


def _least(node: Any, dims: frozenset[str]) -> int:
    """What a number is at least: dims are 1 or more, what else has a name 0 or more. -1 where that is not seen."""
    if node.is_Integer:
        return int(node)
    if node.is_Symbol:
        return int(node.name in dims)
    if isinstance(node, FloorDiv) and (whole := rounded_up(node)) is not None:
        return max(-1, min(1, _least(whole, dims)))
    if isinstance(node, FloorDiv):
        inside = _least(node.args[0], dims)
        return inside // int(node.args[1]) if node.args[1].is_Integer else max(-1, min(0, inside))
    parts = [_least(a, dims) for a in node.args]
    if isinstance(node, (sympy.Max, sympy.Min)):
        return max(parts) if isinstance(node, sympy.Max) else min(parts)
    if node.is_Add and all(p >= 0 or a.is_Integer for p, a in zip(parts, node.args, strict=True)):
        return sum(parts)
    if node.is_Mul and all(p >= 0 for p in parts):
        return math.prod(parts)
    return -1


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
