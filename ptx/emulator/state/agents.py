"""Asynchronous work: operations that are issued by a thread and completed on their own.

How an asynchronous instruction is written:

1. At issue it builds an `Origin` (who issued it, for faults), asks `residents.clocks` for its agent column and for the
   issuer's clock (`clocks.issue(row)`), checks its operands, and tells the memories what it will touch
   (`access.async_shared.begin_read`, `begin_write`): from here on these bytes count as being accessed (PENDING).
2. It hands an `Operation` to `residents.agents.start(operation)`. Depending on the launch's `order` it is completed at
   once ("early"), by chance ("random"), or not before somebody waits for it or nobody else can run ("late").
3. `Operation.complete()` moves the data (`async_shared.read_bytes`, `land_write`), ends the accesses (`end_read`), and
   signals: `residents.mbarriers.complete_tx(...)`, an arrival, or nothing (commit groups are asked by who waits).
4. Whoever waits learns what completion ordered: an mbarrier's clock by `mbarriers.learn`, a commit group by
   `clocks.learn(row, Clock.with_entry(column, tick))`.

Operations with the same `queue` complete in order of issue (tcgen05 pipelines); those without complete in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from tinygpu.ptx.emulator.faults import FaultKind
from tinygpu.ptx.emulator.source.syntax import Instruction

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Which thread (row and lane) carries out or issued which instruction."""

    residents: Residents
    instruction: Instruction
    row: int
    lane: int | None = None

    @property
    def cta(self) -> int:
        """The resident CTA of the thread."""
        return self.row % len(self.residents.ctas)

    @property
    def warp(self) -> int:
        return self.row // len(self.residents.ctas)

    def fault(
        self, kind: FaultKind, sentence: str, space: str = "", address: int | None = None, count: int = 1
    ) -> None:
        """Raise or collect a fault of this thread."""
        self.residents.emulation.fault(
            kind, self.instruction, self.residents, self.row, self.lane, sentence, space, address, count
        )

    def advise(self, rule: str, sentence: str) -> None:
        self.residents.emulation.advise(rule, self.instruction, sentence)

    def unwritten(self, did: str) -> None:
        """What this thread's instruction did with values that nobody wrote, should they be found where they matter."""
        self.residents.emulation.note_unwritten(self.instruction, did)


class Operation(Protocol):
    """Something that was issued and has not completed."""

    @property
    def origin(self) -> Origin: ...

    @property
    def queue(self) -> Hashable | None: ...

    def complete(self) -> None: ...


class Agents:
    """The operations of resident CTAs that have not completed, in order of issue."""

    def __init__(self, order: str, random: Any) -> None:
        self._order = order
        self._random = random
        self._pending: dict[int, Operation] = {}  # by identity: each is found at once, however many there are
        self._queues: dict[Hashable, deque[Operation]] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def pending(self) -> tuple[Operation, ...]:
        """What has not completed, oldest first."""
        return tuple(self._pending.values())

    def start(self, operation: Operation) -> None:
        """Take over an operation that was issued."""
        self._pending[id(operation)] = operation
        if operation.queue is not None:
            self._queues.setdefault(operation.queue, deque()).append(operation)
        if self._order == "early":
            self.finish(operation)
        elif self._order == "random":
            while self._pending and self._random.integers(3) == 0:
                self._complete_any()

    def run_one(self) -> bool:
        """Complete operations as nobody else can go on: one at random, or the oldest of each CTA. False for none."""
        if not self._pending:
            return False
        if self._order == "random":
            self._complete_any()
            return True
        # CTAs that stay in step are carried out together.
        oldest: dict[int, Operation] = {}
        for operation in self._pending.values():
            oldest.setdefault(operation.origin.cta, operation)
        for operation in oldest.values():
            self.finish(operation)
        return True

    def finish(self, operation: Operation) -> None:
        """Complete an operation now, and before it those of its queue; nothing where it has completed."""
        while self._pending.get(id(operation)) is operation:
            self._complete(operation)

    def finish_all(self) -> None:
        """Complete everything: the launch is over."""
        while self._pending:
            self._complete(next(iter(self._pending.values())))

    def _complete_any(self) -> None:
        chosen = int(self._random.integers(len(self._pending)))
        self._complete(next(islice(self._pending.values(), chosen, None)))

    def _complete(self, operation: Operation) -> None:
        """Complete an operation, or the oldest one of its queue."""
        if operation.queue is not None:
            operation = self._queues[operation.queue].popleft()
        del self._pending[id(operation)]
        emulation = operation.origin.residents.emulation
        emulation.line = operation.origin.instruction.line
        emulation.landing = True
        operation.complete()
        emulation.landing = False
