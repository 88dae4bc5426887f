"""Pipelines of a run: slots that producers commit and consumers release, and turns that roles take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tinygpu.interpreter.store import Stored
from tinygpu.language.roles import Role


def takes(role: Role, tile: int) -> bool:
    """Whether a role works on a tile, by its number among those of the CTA."""
    rest, every = role.share
    return tile % every == rest


@dataclass(slots=True, eq=False)
class Ring:
    """The slots of a pipeline in one CTA; a slot is empty again when all its consumers have released it.

    buffers    name of a buffer -> its stages
    consumers  the roles that consume it
    acquired   for each slot that was acquired, in order: the number of the tile that it is for
    committed  how many of them are full
    goes_on    whether what is left in its one slot is added to
    next       per role the slot that it consumes next
    released   per slot, how many of its consumers have released it
    moves      how often something was handed over
    """

    name: str
    stages: int
    buffers: dict[str, list[Stored]]
    consumers: tuple[Role, ...]
    goes_on: bool = False
    acquired: list[int] = field(default_factory=list)
    committed: int = 0
    next: dict[str, int] = field(default_factory=dict)
    released: list[int] = field(default_factory=list)
    moves: int = 0

    def acquire(self, tile: int) -> Iterator[str]:
        """Waits until the next slot is empty, and takes it; yields what it waits for."""
        number = len(self.acquired)
        while not (number < self.stages or self._is_empty(number - self.stages)):
            yield f"for an empty slot of {self.name}"
            number = len(self.acquired)
        self.acquired.append(tile)
        self.released.append(0)
        for stages in () if self.goes_on else self.buffers.values():
            written = stages[number % self.stages].written
            if written is not None:
                written[...] = False

    def commit(self) -> None:
        self.committed += 1
        self.moves += 1

    def wait(self, role: Role) -> Iterator[str]:
        """Waits until the role's next slot is full; yields what it waits for."""
        while not self._is_full(role):
            yield f"for a full slot of {self.name}"

    def release(self, role: Role) -> None:
        number = self.next[role.name]
        self.released[number] += 1
        self.next[role.name] = number + 1
        self.moves += 1

    def producing(self) -> int:
        """The slot that is being filled."""
        return (len(self.acquired) - 1) % self.stages

    def consuming(self, role: Role) -> int:
        """The slot that a role consumes."""
        return self.next[role.name] % self.stages

    def _is_empty(self, number: int) -> bool:
        wanted = sum(takes(role, self.acquired[number]) for role in self.consumers)
        return number < self.committed and self.released[number] >= wanted

    def _is_full(self, role: Role) -> bool:
        """Passes over the slots that other roles consume."""
        number = self.next.get(role.name, 0)
        while number < self.committed and not takes(role, self.acquired[number]):
            number += 1
        self.next[role.name] = number
        return number < self.committed


@dataclass(slots=True, eq=False)
class Turns:
    """A pipeline without buffers: roles take turns, in the order in which they first do."""

    name: str
    order: tuple[str, ...]
    done: dict[str, int] = field(default_factory=dict)
    moves: int = 0

    def wait(self, role: Role) -> Iterator[str]:
        place = self.order.index(role.name)
        before, turn = self.order[place - 1], self.done.get(role.name, 0)
        while self.done.get(before, 0) < turn + (place > 0):
            yield f"for its turn in {self.name}"

    def pass_on(self, role: Role) -> None:
        self.done[role.name] = self.done.get(role.name, 0) + 1
        self.moves += 1
