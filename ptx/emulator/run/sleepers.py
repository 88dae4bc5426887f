"""Sleepers: warps that are set aside until what they wait for (a phase of an mbarrier, tensor memory) has happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.run.groups import Bools, Group, Place, lanes_of, subset
from tinygpu.ptx.emulator.run.program import CompiledBlock
from tinygpu.ptx.emulator.source.control_flow import EXIT
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import MustWait
from tinygpu.ptx.emulator.state.residents import Residents

# So often, waits end by their time limit although nothing has changed since the last time.
_FRUITLESS_TIME_LIMITS = 3
# A deadlock names so many waits.
_MOST_WAITS = 6
NEVER = np.int64(2**62)


@dataclass(slots=True, eq=False)
class Sleeper:
    """Warps set aside at an instruction."""

    place: Place
    group: Group
    wait: MustWait


def key(place: Place) -> int:
    """Places as numbers, in the order of the text."""
    return place[0] << 24 | place[1]


class Sleepers:
    """Who is set aside in one batch of CTAs.

    until  (warps,) key of the first place at which lanes of a warp sleep; NEVER where none does
    """

    def __init__(
        self, residents: Residents, blocks: list[CompiledBlock], go_on: Callable[[Place, Group], None]
    ) -> None:
        self._residents = residents
        self._blocks = blocks
        self._go_on = go_on
        self._asleep: list[Sleeper] = []
        self._seen_signals = 0
        self._fruitless_limits = 0
        self._limits_at_changes = -1
        self.until: NDArray[np.int64] = np.full(residents.warps, NEVER, np.int64)

    def __len__(self) -> int:
        return len(self._asleep)

    def add(self, place: Place, group: Group, wait: MustWait) -> None:
        """Warps of the group whose wait is not over sleep; the others go on."""
        lanes, rowset = lanes_of(group), group[0]
        ready = lanes & wait.ready[:, None]
        if ready.any():
            self._go_on(place, subset(self._residents, ready, rowset))
        waiting = subset(self._residents, lanes & ~wait.ready[:, None], rowset)
        self._asleep.append(Sleeper(place, waiting, wait))
        index = waiting[0].index
        self.until[index] = np.minimum(self.until[index], key(place))

    def wake(self) -> None:
        """Let those go on whose wait is over, if it may be."""
        if not self._asleep or self._residents.emulation.signals == self._seen_signals:
            return
        self._seen_signals = self._residents.emulation.signals
        sleepers, self._asleep = self._asleep, []
        for sleeper in sleepers:
            rowset = sleeper.group[0]
            still = np.array([sleeper.wait.ask(int(row)) for row in rowset.index], np.bool_)
            self._residents.woken[rowset.index[~still]] = self._line(sleeper)
            self._resume(sleeper, ~still)
        self._refresh()

    def end_by_time_limit(self) -> bool:
        """End the waits that have a time limit; False when that has not helped before."""
        changes = self._residents.emulation.changes
        self._fruitless_limits = self._fruitless_limits + 1 if changes == self._limits_at_changes else 0
        self._limits_at_changes = changes
        if self._fruitless_limits >= _FRUITLESS_TIME_LIMITS or not any(s.wait.limit for s in self._asleep):
            return False
        sleepers, self._asleep = self._asleep, []
        for sleeper in sleepers:
            index = sleeper.group[0].index
            if sleeper.wait.limit:
                self._residents.timed_out[index] = self._line(sleeper)
            self._resume(sleeper, np.full(index.size, sleeper.wait.limit))
        self._refresh()
        return True

    def describe(self) -> tuple[Instruction, int, str]:
        """(instruction, warp, sentence): who waits for what, in the cluster of the first; the likeliest cause is first.

        Nobody waits for those who have no signal to give any more. Of the others, who stopped first waits for what is
        missing; the rest went on until they waited for those. Where nothing at all has come, whoever should have begun
        waits for the wrong phase.
        """
        waits = sorted(
            (not self._may_signal(sleeper.place), sleeper.wait.since(row), n, row)
            for n, sleeper in enumerate(self._asleep) for row in sleeper.group[0].index.tolist()
        )  # fmt: skip
        residents, row = self._residents, waits[0][3]
        cluster = residents.cluster_of(row % len(residents.ctas))
        said: dict[tuple[int, str], str] = {}
        fresh = True
        for *_, n, other in waits:
            cta = other % len(residents.ctas)
            if residents.cluster_of(cta) == cluster:
                wait = self._asleep[n].wait
                said.setdefault((cta, wait.reason(other)), residents.warp_name(other))
                fresh &= wait.fresh(other)
        sentence = "; ".join([f"{who} waits {reason}" for (_, reason), who in said.items()][:_MOST_WAITS])
        if fresh and len(said) > 1:
            sentence += (
                "; nothing has come to any of these mbarriers: who waits for room first waits for parity 1, which a "
                "fresh mbarrier lets pass"
            )
        first = self._asleep[waits[0][2]].place
        instruction = self._blocks[first[0]].steps[first[1]].instruction
        return instruction, row, f"deadlock: no thread can run. {sentence}"

    def _may_signal(self, place: Place) -> bool:
        """Whether an instruction that completes something on an mbarrier can be reached from a place."""
        first = self._blocks[place[0]]
        if any(_signals(step.instruction) for step in first.steps[place[1] :]):
            return True
        seen = {EXIT}
        left = list(first.targets)
        while left:
            rank = left.pop()
            if rank in seen:
                continue
            seen.add(rank)
            block = self._blocks[rank]
            if any(_signals(operation.instruction) for operation in block.operations):
                return True
            left.extend(block.targets)
        return False

    def _resume(self, sleeper: Sleeper, going: Bools) -> None:
        """Of a sleeper those rows go on; the others sleep on."""
        lanes, rowset = lanes_of(sleeper.group), sleeper.group[0]
        if going.any():
            self._go_on(sleeper.place, subset(self._residents, lanes & going[:, None], rowset))
        if not going.all():
            left = subset(self._residents, lanes & ~going[:, None], rowset)
            self._asleep.append(Sleeper(sleeper.place, left, sleeper.wait))

    def _line(self, sleeper: Sleeper) -> int:
        return self._blocks[sleeper.place[0]].steps[sleeper.place[1]].instruction.line

    def _refresh(self) -> None:
        self.until[:] = NEVER
        for sleeper in self._asleep:
            rows = sleeper.group[0].index
            self.until[rows] = np.minimum(self.until[rows], key(sleeper.place))


def _signals(i: Instruction) -> bool:
    """Whether an instruction arrives on an mbarrier, or starts what will."""
    if i.opcode == "mbarrier":
        return any(i.has(form) for form in ("arrive", "arrive_drop", "expect_tx", "complete_tx"))
    return any(m == "mbarrier" or m.startswith("mbarrier::") for m in i.modifiers)
