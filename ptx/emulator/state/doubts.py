"""Order that is doubtful: released by other lanes than those that made an access, or seen without an acquire.

Clocks count by warps. Where some lanes of a warp arrive at an mbarrier, set a flag or pass a fence, they release only
what they did themselves, unless bar.warp.sync (or another collective) let the lanes meet before. What the others did
since then counts as ordered all the same, because kernels known to be right rely on it; but it is remembered as
doubtful, and who relies on it is told by an advisory. The same holds for what a flag says of the own cluster to a load
or atomic without .acquire, until a fence (of other clusters, CtaOrder.lenient says it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.emulation import Emulation

ALL_LANES = 0xFFFFFFFF
# So many instructions that not all lanes executed are remembered.
_MOST = 1 << 14
UNMET = "release for other lanes without bar.warp.sync"
UNFENCED = "acquire without a fence"


@dataclass(frozen=True, slots=True)
class Doubt:
    """Of an actor's accesses with a tick in (low, high], only those of `lanes` (a bit each) are ordered for sure."""

    low: int
    high: int
    lanes: int
    rule: str = UNMET

    def beyond(self, tick: int) -> Doubt | None:
        """What is left where all accesses up to a tick are ordered for sure; None where nothing is."""
        if tick >= self.high:
            return None
        return self if tick <= self.low else replace(self, low=tick)

    def by_fence(self, fence: Doubt | None) -> Doubt:
        """What is left where a fence, of which that was doubtful, comes before the access that releases."""
        return self if fence is None else replace(self, lanes=self.lanes & fence.lanes)

    def both(self, other: Doubt) -> Doubt:
        """What is left where either of two releases is relied on."""
        lanes = self.lanes | other.lanes
        return Doubt(max(self.low, other.low), max(self.high, other.high), lanes, self.rule)


Doubts = Mapping[int, Doubt]
"""By actor; what is doubtful because a fence is missing has a key of its own beside that of the actor."""
UNTIL_FENCE = 1 << 40
"""Doubtful until a fence of any scope: key = UNTIL_FENCE + actor."""
UNTIL_WIDE_FENCE = 2 * UNTIL_FENCE
"""Doubtful until a fence that reaches other CTAs."""
FOR_EVER = 3 * UNTIL_FENCE
"""Released in turn by who had no fence: one by who learns of it comes too late."""


def actor_of(key: int) -> int:
    """Whose accesses a key of doubts stands for."""
    return key % UNTIL_FENCE


def handed_on(doubts: Doubts) -> Doubts:
    """What is doubtful of what someone releases, to whoever acquires it."""
    return {key if key < UNTIL_FENCE else FOR_EVER + actor_of(key): doubt for key, doubt in doubts.items()}


def left_by_fence(doubts: Doubts, near: bool) -> Doubts:
    """What a fence leaves of doubts; `near` says that it is of CTA scope."""
    settled = range(UNTIL_FENCE, UNTIL_WIDE_FENCE if near else FOR_EVER)
    return {key: doubt for key, doubt in doubts.items() if key not in settled}


NO_DOUBTS: Doubts = {}


class LaneRecord:
    """Which lanes carried out the memory instructions that not all lanes of a warp did, by tick."""

    def __init__(self) -> None:
        self._executed: dict[int, tuple[NDArray[np.int64], NDArray[np.bool_]]] = {}
        self._forgotten = 0

    def note(self, tick: int, warps: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        """Warps of the launch, (n, 1), carried out an instruction with these lanes, (n, 32)."""
        self._executed[tick] = (warps, mask)
        if len(self._executed) > _MOST:
            for old in list(self._executed)[: _MOST // 2]:
                del self._executed[old]
                self._forgotten = old

    def lanes(self, tick: int, warp: int) -> int:
        """Lanes of a warp of the launch that carried out the instruction at a tick, a bit each; 0 if forgotten."""
        if tick <= self._forgotten:
            return 0
        found = self._executed.get(tick)
        if found is None:
            return ALL_LANES
        at = np.flatnonzero(found[0].reshape(-1) == warp)
        return lane_bits(found[1][at[0]]) if at.size else ALL_LANES


def lane_bits(mask: NDArray[np.bool_]) -> int:
    """A bit for each of 32 lanes."""
    return int(np.packbits(mask, bitorder="little").view(np.uint32)[0])


def relied_on(
    doubts: Doubts, actors: NDArray[np.int64], ticks: NDArray[np.int32], record: LaneRecord, first_warp: int
) -> int | None:
    """The first key under which an access at these ticks is doubtful; None where none is.

    actors, ticks  of earlier accesses, of one shape
    first_warp     number in the launch of actor 0
    """
    for key, doubt in doubts.items():
        actor = actor_of(key)
        suspects = (actors == actor) & (ticks > doubt.low) & (ticks <= doubt.high)
        for tick in np.unique(ticks[suspects]).tolist():
            if record.lanes(tick, first_warp + actor) & ~doubt.lanes:
                return key
    return None


def advise(emulation: Emulation, instruction: Instruction, doubt: Doubt, whose: str) -> None:
    """Tell who relies on something doubtful that `whose` did."""
    if doubt.rule == UNFENCED:
        sentence = (
            f"accesses what {whose} published: after the atomic or strong load that saw it, a fence (or .acquire) is "
            "missing"
        )
    else:
        sentence = (
            f"relies on accesses of lanes of {whose} that another lane of it released (by an arrival, a flag or a "
            "fence) without bar.warp.sync between the two"
        )
    emulation.advise(doubt.rule, instruction, sentence)
