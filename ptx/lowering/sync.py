"""Synchronisation as values: what a kernel waits for, arrives at, brings, reads and gives back, in its order.

Lowering makes these values where it derives how a buffer is handed over. `sync_text` writes each of them as PTX and
keeps it in the kernel's `Protocol`: what is printed and what is proved (`tinygpu.ptx.protocol`) is the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import Barrier, Pipe

# What no slot is called.
NOBODY = 0xFFFFFFFF
Agent: TypeAlias = Literal["threads", "cp.async", "wgmma", "cp.async.bulk", "tcgen05", "tcgen05.ld", "tcgen05.st"]


# ---- how often ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trips:
    """How many rounds a loop has.

    text    the same for loops that have the same number of rounds of the same tile
    number  its value at run time
    ahead   of the tile that the CTA takes so many tiles later
    shared  whether CTAs deal the rounds out in a row: then tiles have different numbers of them
    base    what is left of `text` without its constant, and `more` is that: loops of n and n - 1 rounds have one base
    """

    text: str
    number: Number
    ahead: int = 0
    shared: bool = False
    base: str = ""
    more: int = 0


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots that statements use: some, and for each loop those of its body in every round."""

    some: int = 0
    loops: tuple[tuple[Trips, Slots], ...] = ()

    def __add__(self, other: Slots) -> Slots:
        return Slots(self.some + other.some, self.loops + other.loops)


@dataclass(frozen=True, slots=True)
class Before:
    """Whether a round, `offset` rounds behind the one that a loop counts with `index`, is one of `trips` rounds.

    index  "" counts from the first round on
    """

    index: str
    offset: int
    trips: Trips


# What is done by the warp that asks for other clusters, in the first CTA of its cluster.
ASKING: Literal["asking"] = "asking"
Condition: TypeAlias = Before | Literal["one thread", "last CTA", "shared tile", "branch", "asking"]
# The ring of the answers, which is no pipeline of a program, and what tells that one of its slots is full.
ANSWERS, ANSWERED = "launch control", "answer"


# ---- what is done ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Init:
    """A barrier is made: each of its phases completes with so many arrivals."""

    barrier: Barrier
    arrivals: int


@dataclass(frozen=True, slots=True)
class Start:
    """A role begins at slot 0, and waits with this parity; it holds no slot."""

    pipe: Pipe
    parity: int


@dataclass(frozen=True, slots=True)
class Take:
    """The slot and parity of a pipe as they are now, for a block in which the pipe may move on."""

    pipe: Pipe
    slot: Reg
    parity: Reg


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits until the phase of a barrier that has this parity has completed.

    scope  what is acquired beyond the CTA, as `try_wait.parity` spells it
    """

    barrier: Barrier
    parity: Reg
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """One arrival, which also says how many bytes the phase waits for.

    pair  2: the first CTA of a pair alone does so, for what comes to both
    ctas  of a cluster: in each of so many, by one lane for each
    """

    barrier: Barrier
    bytes: int
    pair: int = 1
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class Bring:
    """A bulk copy into a slot, which completes so many bytes at the slot's barrier.

    ctas  CTAs that get them, each at its own barrier; with more than one, along this axis of the grid
    pair  2: at the barrier of the first CTA of a pair, instead of their own; along the last axis, those of the same
          place in their pairs get them
    """

    barrier: Barrier
    bytes: int
    ctas: int = 1
    axis: int | None = None
    pair: int = 1


@dataclass(frozen=True, slots=True)
class Ask:
    """Asks for a cluster that has not begun. The answer comes to the same slot in each of `ctas` CTAs of the cluster,
    and completes its bytes at the slot's barrier there.

    at  where the answers begin in shared memory, in bytes
    """

    barrier: Barrier
    at: int
    ctas: int = 1


@dataclass(frozen=True, slots=True)
class Hear:
    """Reads the answer in a slot: whether a cluster was taken over, and the number of its first CTA.

    at     where the answers begin in shared memory, in bytes
    taken  is true where one was
    first  the number, which means nothing where none was
    """

    slot: Reg
    at: int
    taken: Reg
    first: Reg


@dataclass(frozen=True, slots=True)
class Touch:
    """A slot's buffers are read or written: by the threads themselves, or by what goes on when they have issued it."""

    pipeline: str
    slot: Number
    verb: Literal["read", "write"]
    by: Agent


@dataclass(frozen=True, slots=True)
class Settled:
    """What the threads have issued of this kind is complete: the instruction's own text has waited for it."""

    of: Agent


@dataclass(frozen=True, slots=True)
class Arrive:
    """One lane of each warp arrives at a barrier, in each of `ctas` CTAs of the cluster.

    held     only if the slot is one: what a role holds may be none
    threads  after reads of threads, which an arrival at another CTA releases
    axes     of the grid, along which the CTAs are neighbours
    pair     2: at the barrier of the first CTA of the pair, instead of the own one
    home     at the barrier of the first CTA of a cluster of so many, instead of the own one
    """

    barrier: Barrier
    ctas: int = 1
    held: bool = False
    threads: bool = False
    axes: tuple[int, ...] = ()
    pair: int = 1
    home: int = 1


@dataclass(frozen=True, slots=True)
class CommitAt:
    """One arrival at a barrier, in each of `ctas` CTAs of the cluster, when all products into tensor memory that the
    thread has issued are complete.

    axes  of the grid, along which the CTAs are neighbours
    pair  2: in both CTAs of each of `ctas` pairs
    """

    barrier: Barrier
    ctas: int = 1
    axes: tuple[int, ...] = ()
    pair: int = 1


@dataclass(frozen=True, slots=True)
class Set:
    """A register gets a value: a slot is held, or none; a slot begins."""

    register: Reg
    value: Number


@dataclass(frozen=True, slots=True)
class Same:
    """A register gets the slot that another has, which goes on while it stands still."""

    register: Reg
    of: Reg


@dataclass(frozen=True, slots=True)
class Turn:
    """It is this slot's turn; straight-line code knows its number. A role begins so, and goes on to the next one."""

    pipeline: str
    slot: int


@dataclass(frozen=True, slots=True)
class Advance:
    """The next slot is next; behind the last one the first, and the parity flips."""

    slot: Reg
    stages: int
    parity: Reg | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Passes over the slots that other roles use.

    slots  the same count, in terms of the loops of the program
    """

    pipe: Pipe
    count: Number
    slots: Slots


@dataclass(frozen=True, slots=True)
class Tail:
    """A role that fills waits until every slot has been given back, and uses the pipe no more.

    scope  as of a wait
    """

    pipe: Pipe
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Flip:
    """The parity of the next phase."""

    parity: Reg


@dataclass(frozen=True, slots=True)
class Commit:
    """What was issued since the last one is a group."""

    of: Agent


@dataclass(frozen=True, slots=True)
class WaitGroup:
    """Waits until at most `pending` groups are under way; without a number, for what is in no group as well.

    read   bulk copies out of a slot have read it, and may still write
    one    only one thread has issued them: the others have nothing to wait for
    slots  a pipeline, of which `pending` is told from the number of slots; "": it is a number of its own
    """

    of: Agent
    pending: int | None
    read: bool = False
    one: bool = False
    slots: str = ""


@dataclass(frozen=True, slots=True)
class Meet:
    """All threads of a role meet at a barrier of the CTA; number 0 is that of all threads.

    any      (result, own): whether any of the threads has this predicate
    aligned  the lanes of a warp come together
    """

    number: int
    threads: int
    any: tuple[Reg, Reg] | None = None
    aligned: bool = True


@dataclass(frozen=True, slots=True)
class MeetWarp:
    """The lanes of each warp meet."""


@dataclass(frozen=True, slots=True)
class MeetCluster:
    """All threads of a cluster meet; where lanes come one by one, they are not aligned."""

    aligned: bool


@dataclass(frozen=True, slots=True)
class Fence:
    """What was done before is seen before what follows, by whom the text says."""

    text: str


Action: TypeAlias = (
    Init | Start | Take | Wait | Expect | Bring | Ask | Hear | Touch | Arrive | CommitAt | Set | Same | Turn | Advance
    | Skip | Tail | Flip
    | Commit | Settled | WaitGroup | Meet | MeetWarp | MeetCluster | Fence
)  # fmt: skip


# ---- in which order -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RoleBody:
    """What the warps of a role do.

    one    of them one thread issues it, which its warp elects
    share  (r, n): it takes the tiles whose number leaves r when divided by n
    pair   2: it exists in the first CTA of each pair only
    walks  warps that go through the tiles, where one may go on alone
    """

    role: str
    warps: int
    one: bool
    share: tuple[int, int]
    body: tuple[Step, ...] = ()
    pair: int = 1
    walks: int = 1


@dataclass(frozen=True, slots=True)
class Tiles:
    """A walk over the tiles that a role takes; it may take none.

    answered  it goes on by the answer that it hears last in each tile, to one tile at least
    """

    body: tuple[Step, ...] = ()
    answered: bool = False


@dataclass(frozen=True, slots=True)
class Rounds:
    """A loop at run time. It has one round at least: what may have none stands in a `When`."""

    index: str
    trips: Trips
    body: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Ahead:
    """Round `number` of those that are written out before a loop, and fill slots ahead of it.

    along  other pipelines whose slots go with those of the first
    """

    pipeline: str
    number: int
    along: tuple[str, ...] = ()
    body: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class When:
    """What is done where a condition holds."""

    condition: Condition
    body: tuple[Step, ...] = ()


Block: TypeAlias = RoleBody | Tiles | Rounds | Ahead | When
Step: TypeAlias = Action | Block


@dataclass(frozen=True, slots=True)
class Ring:
    """A pipeline of the kernel: its slots, the buffers that they consist of, and what tells that one is full.

    places  (start, end) of each buffer with all of its slots, in bytes of shared memory
    pair    2: a slot is that of both CTAs of a pair, which multiply together
    """

    name: str
    stages: int
    buffers: tuple[str, ...]
    completion: str
    places: tuple[tuple[int, int], ...] = ()
    pair: int = 1

    def overlaps(self, other: Ring) -> bool:
        """Whether some of its memory is memory of the other as well: their scopes follow each other."""
        return any(a < d and c < b for a, b in self.places for c, d in other.places)


@dataclass(frozen=True, slots=True)
class Protocol:
    """All synchronisation of one kernel, in the order of its text.

    cluster  CTAs of a cluster along each axis of the grid
    """

    rings: tuple[Ring, ...]
    cluster: tuple[int, ...]
    body: tuple[Step, ...]


@dataclass(slots=True, eq=False)
class Recording:
    """The protocol of a kernel that is being written."""

    bodies: list[list[Step]] = field(default_factory=lambda: [[]])

    def add(self, step: Step) -> None:
        self.bodies[-1].append(step)

    @contextmanager
    def block(self, close: Callable[[tuple[Step, ...]], Block]) -> Iterator[None]:
        """What is added meanwhile is the body of a block, which `close` makes."""
        self.bodies.append([])
        yield
        body = tuple(self.bodies.pop())
        self.add(close(body))
