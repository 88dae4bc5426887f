"""How far a role is in a round of its rings: slots and parities relative to the round, what it reads, and its moves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from tinygpu.ptx.lowering import sync

# How far behind a role may fall with anything before it is said to fall behind without end.
FARTHEST = 4
# Behind which fence, and then the warp's meeting, a slot may be given back, by who has read it.
FENCE = "fence.proxy.async"
BEFORE = "tcgen05.fence::before_thread_sync"
FENCES = {"threads": FENCE, "tcgen05.ld": BEFORE, "tcgen05.st": BEFORE}
# What is complete only where the instruction's own wait has said so.
WAITED_FOR = ("tcgen05.ld", "tcgen05.st")


class Irregular(Exception):
    """What a role does cannot be written as a function of the round, with the sentence that says why."""


@dataclass(frozen=True, slots=True, order=True)
class SlotOf:
    """The slot of use n + ahead."""

    ring: str
    ahead: int


@dataclass(frozen=True, slots=True, order=True)
class ParityOf:
    """How often the slots have begun again by use n + ahead, odd or even; the other way round where flipped."""

    ring: str
    ahead: int
    flipped: int


@dataclass(frozen=True, slots=True, order=True)
class Constant:
    value: int


Value: TypeAlias = SlotOf | ParityOf | Constant


@dataclass(frozen=True, slots=True, order=True)
class Reading:
    """A use that is read, or stored into: whether a fence, and then the warp's meeting, came since; or its group.

    group  commits since its own; -1: in no group yet; of loads and stores of tensor memory, 0 when complete
    """

    ahead: int
    by: str
    fenced: bool = False
    met: bool = False
    group: int = -1


@dataclass(frozen=True, slots=True, order=True)
class Progress:
    """How far a role is in a ring: uses below n + each number are waited for, expected, brought, given back."""

    waited: int = 0
    expected: int = 0
    brought: int = 0
    released: int = 0
    reading: tuple[Reading, ...] = ()
    bytes: tuple[tuple[int, int, int | None], ...] = ()  # (bytes, CTAs, axis) brought for use n + brought
    expecting: int = 0  # bytes that were said to come for it

    def shifted(self, does: frozenset[str]) -> Progress:
        """The same, counted from the next use on. What the role never does in the ring is not counted."""
        kinds = {"wait": self.waited, "expect": self.expected, "bring": self.brought, "arrive": self.released}
        if any(number <= -FARTHEST for kind, number in kinds.items() if kind in does):
            raise Irregular("it falls behind with every round")
        reading = tuple(replace(r, ahead=r.ahead - 1) for r in self.reading)
        waited, expected, brought, released = (number - 1 if kind in does else 0 for kind, number in kinds.items())
        return Progress(waited, expected, brought, released, reading, self.bytes, self.expecting)


@dataclass(frozen=True, slots=True)
class State:
    """registers: (name, value), sorted; progress: (ring, how far), sorted; turn: the ring of turns that it has"""

    registers: tuple[tuple[str, Value], ...] = ()
    progress: tuple[tuple[str, Progress], ...] = ()
    turn: str = ""

    def of(self, ring: str) -> Progress:
        return dict(self.progress).get(ring, Progress())


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a role in a ring.

    kind    wait, expect, bring, read, arrive
    side    of the barrier
    use     relative to n; of turns, `number` says whose barrier it is
    flipped whether a wait's parity is flipped
    before  how far the role was, and
    after   is then
    turn    the ring of turns that it has
    """

    kind: str
    ring: str
    side: str
    use: int
    flipped: int
    before: Progress
    after: Progress
    turn: str = ""
    number: int = 0
    ctas: int = 1
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Automaton:
    """All moves of a role.

    ends   how far it may be when it has ended
    loads  what it brings for one use, by ring
    tails  rings of which it waits at its end until every slot is empty, and whether the parities are flipped
    """

    role: sync.RoleBody
    moves: tuple[Move, ...]
    ends: tuple[tuple[tuple[str, Progress], ...], ...]
    loads: tuple[tuple[str, int, tuple[tuple[int, int, int | None], ...]], ...]
    tails: tuple[tuple[str, int], ...] = ()

    def of(self, ring: str) -> tuple[Move, ...]:
        return tuple(m for m in self.moves if m.ring == ring)


def ordered(now: Progress, action: sync.Action) -> Progress:
    """What a fence, a meeting of lanes, a commit or a wait for groups says of what is being read."""
    match action:
        case sync.Fence(text):
            reading = [replace(r, fenced=True) if _fences(text, r) else r for r in now.reading]
        case sync.MeetWarp() | sync.Meet():
            reading = [replace(r, met=r.fenced) if r.by in FENCES else r for r in now.reading]
        case sync.Settled(of):
            reading = [replace(r, group=0) if r.by == of else r for r in now.reading]
        case sync.Commit(of):
            reading = [replace(r, group=r.group + 1) if r.by == of else r for r in now.reading]
        case sync.WaitGroup(of, pending):
            left = pending or 0
            reading = [r for r in now.reading if r.by != of or r.group < left]
        case _:
            return now
    return replace(now, reading=tuple(sorted(reading)))


def _fences(text: str, reading: Reading) -> bool:
    """Whether a fence orders what was touched: of loads and stores of tensor memory, only when they are complete."""
    settled = reading.by not in WAITED_FOR or reading.group >= 0
    return settled and reading.by in FENCES and text.startswith(FENCES[reading.by])
