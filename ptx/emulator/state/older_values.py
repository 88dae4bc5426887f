"""Older values that a strong read may still see: what strong writes and atomics replaced, and who has seen what.

Strong accesses (volatile, relaxed, acquire) of one place need no order among themselves, and a read may come back with
what stood there before, as long as it cannot have missed the write (PTX memory model, "Coherence", "Causality Order"):
what happened before the read, what its warp has seen itself, and what somebody saw who happened before the read. A flag
that another CTA sets may look unset for a while, so that a loop that polls it must be a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.setbacks import Setbacks

Told = TypeVar("Told")
Ordered = Callable[[int, int], bool]
"""(warp, tick) -> whether what the warp did at this tick happened before the read."""
# Of a write before one of these, when it came or whether it is over is not known.
UNKNOWN = -1
# So many writes are remembered.
_MOST = 1 << 18


@dataclass(slots=True, eq=False)
class Replaced(Generic[Told]):
    """What the strong writes of one instruction replaced, in k places.

    places   (k,) first bytes; several lanes may write to one place
    values   (k, bytes) what stood there
    before   (k,) tick of the write that had put it there, or UNKNOWN
    authors  (k,) whose write that was
    who      (k,) who writes now
    told     by place, what had been published there until then
    after    by number of the write (0 to k - 1), the same behind it, where others of these follow at its place
    in_turn  atomics that meet at a place go one after another, and values are what each of them found
    seen     by number of the write, who has seen what it wrote, and when first
    """

    places: NDArray[np.int64]
    values: NDArray[np.uint8]
    before: NDArray[np.int64]
    authors: NDArray[np.int64]
    who: NDArray[np.int64]
    told: dict[int, Told]
    after: dict[int, Told]
    in_turn: bool = False
    seen: dict[int, dict[int, int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of each place."""
        return int(self.values.shape[1])

    def last(self, place: int) -> int | None:
        """The number of the last write to a place; None where there is none."""
        at = np.flatnonzero(self.places == place)
        return int(at[-1]) if at.size else None

    def shows(self, number: int, tick: int, ordered: Ordered) -> bool:
        """Whether a reader cannot miss a write; of writes of one value at once, any of them."""
        same = [number] if self.in_turn else np.flatnonzero(self.places == self.places[number]).tolist()
        if any(ordered(int(self.who[n]), tick) for n in same):
            return True
        return any(ordered(who, when) for n in same for who, when in self.seen.get(n, {}).items())

    def saw(self, number: int, reader: int, now: int) -> None:
        """A reader has seen what a write wrote."""
        self.seen.setdefault(number, {}).setdefault(reader, now)


@dataclass(frozen=True, slots=True, eq=False)
class Older(Generic[Told]):
    """An older value.

    tick, number  the write that it is of; None where that is not known here
    told          what had been published with it (None: nothing)
    """

    value: NDArray[np.uint8]
    tick: int
    number: int | None
    told: Told | None


class OlderValues(Generic[Told]):
    """Of one memory, what strong writes replaced: by tick of the write."""

    def __init__(self) -> None:
        self._replaced: dict[int, Replaced[Told]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._replaced)

    def note(self, tick: int, replaced: Replaced[Told]) -> None:
        """The writes of one instruction."""
        self._replaced[tick] = replaced
        self._count += replaced.places.size
        while self._count > _MOST:
            first = next(iter(self._replaced))
            self._count -= self._replaced.pop(first).places.size

    def look(
        self, row: int, who: int, place: int, size: int, ticks: Array, now: int, ordered: Ordered, setbacks: Setbacks
    ) -> Older[Told] | None:
        """What a read of `size` bytes sees instead of the latest value; None where it sees that.

        row, who  who reads: its row, and its number as the writers are numbered
        ticks     of the last writes there
        """
        last = int(ticks[0])
        if bool((ticks == last).all()):
            found = self._candidates(place, size, last, ordered)
            if found and setbacks.fails((row, place), last):
                setbacks.count((row, place))
                older = found[setbacks.pick(len(found))]
                if older.number is not None:
                    self._replaced[older.tick].saw(older.number, who, now)
                return older
        for tick in np.unique(ticks).tolist():
            replaced = self._replaced.get(tick)
            if replaced is not None:
                touched = (replaced.places < place + size) & (replaced.places + replaced.size > place)
                for other in np.unique(replaced.places[touched]).tolist():
                    number = replaced.last(other)
                    if number is not None:
                        replaced.saw(number, who, now)
        return None

    def _candidates(self, place: int, size: int, tick: int, ordered: Ordered) -> list[Older[Told]]:
        """Older values, the newest first, as far back as nothing shows the reader a write."""
        out: list[Older[Told]] = []
        while (replaced := self._replaced.get(tick)) is not None and replaced.size == size:
            numbers = np.flatnonzero(replaced.places == place).tolist()
            if not replaced.in_turn:
                numbers = numbers[:1]
            for number, earlier in zip(numbers[::-1], [*numbers[-2::-1], None], strict=True):
                if replaced.shows(number, tick, ordered):
                    return out
                if earlier is not None:
                    out.append(Older(replaced.values[number], tick, earlier, replaced.after.get(earlier)))
            if not numbers:
                break
            before, previous = int(replaced.before[numbers[0]]), None
            if before in self._replaced:
                previous = self._replaced[before].last(place)
            # What nothing orders behind a plain write is a race of its own.
            known = previous is not None or before == 0 or ordered(int(replaced.authors[numbers[0]]), before)
            if before == UNKNOWN or not known:
                break
            out.append(Older(replaced.values[numbers[0]], before, previous, replaced.told.get(place)))
            tick = before
        return out
