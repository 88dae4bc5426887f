"""Bulk stores that have not landed, by place: what global memory will hold once they have.

Two stores of the same bytes that nothing orders are no conflict where both write the same. So a store that meets others
under way asks what they will leave. Per window, the last store under way to each granule is remembered from the first
such question on; most kernels never ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_global import global_granules
from tinygpu.ptx.emulator.access.async_shared import Bools, Index
from tinygpu.ptx.emulator.instructions.bulk_parts import Bytes, gathered
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(slots=True, eq=False)
class Stored:
    """A part of a store on one window: `chosen` are its accesses among those read.

    at  (k,) byte offsets from the window's origin of accesses of `size` bytes
    """

    size: int
    window: Window
    at: Index
    chosen: NDArray[np.int64] | None

    def of(self, data: Bytes) -> Bytes:
        """Its own bytes, (k, size), among those of the part."""
        return data if self.chosen is None else data[self.chosen]


class PendingStore(Protocol):
    """A store under way."""

    writes: list[list[Stored]]

    @property
    def adds(self) -> bool:
        """Whether what it leaves depends on what was there."""
        ...

    def peek(self) -> list[Bytes]: ...


@dataclass(slots=True, eq=False)
class PendingStores:
    """The stores of resident CTAs that are under way, in order of issue.

    _latest  per window the number of the last store to each granule; 0 for none
    """

    granule_bytes: int
    _under_way: dict[int, PendingStore] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)
    _latest: dict[int, tuple[Window, NDArray[np.int32]]] = field(default_factory=dict)
    _issued: int = 0

    @staticmethod
    def of(residents: Residents) -> PendingStores:
        """Those of these CTAs."""
        found = residents.extensions.get("pending stores")
        if not isinstance(found, PendingStores):
            found = PendingStores(residents.emulation.program.global_granule_bytes)
            residents.extensions["pending stores"] = found
        return found

    def add(self, store: PendingStore) -> None:
        """A store was issued."""
        self._issued += 1
        self._under_way[self._issued] = store
        self._numbers[id(store)] = self._issued
        for window, latest in self._latest.values():
            self._mark(window, latest, self._issued, store)

    def remove(self, store: PendingStore) -> None:
        """A store has landed, or a repetition of one."""
        number = self._numbers.pop(id(store), None)
        if number is not None:
            del self._under_way[number]

    def unchanged(self, piece: Stored, data: Bytes) -> Bools:
        """(k,) which accesses of a store would write what is there, or what those under way will have put there.

        data  what it writes, (k, size)
        """
        same = np.asarray((gathered(piece.window, piece.at, piece.size) == data).all(axis=-1))
        if piece.size % self.granule_bytes or bool((piece.at % self.granule_bytes).any()):
            granules = (piece.at[:, None] + np.arange(piece.size)) // self.granule_bytes
        else:
            granules = (piece.at // self.granule_bytes)[:, None] + np.arange(piece.size // self.granule_bytes)
        latest = self._latest_on(piece.window)[granules]
        for number in np.unique(latest).tolist():
            if number not in self._under_way:
                continue
            # Stores by accesses of other sizes leave nothing that is known to be the same.
            touched = (latest == number).any(axis=1)
            same[touched] = _leaves(self._under_way[number], piece, touched, data[touched])
        return same

    def _latest_on(self, window: Window) -> NDArray[np.int32]:
        found = self._latest.get(id(window))
        if found is None:
            found = (window, np.zeros(-(-window.data.size // self.granule_bytes), np.int32))
            self._latest[id(window)] = found
            for number, store in self._under_way.items():
                self._mark(*found, number, store)
        return found[1]

    def _mark(self, window: Window, latest: NDArray[np.int32], number: int, store: PendingStore) -> None:
        for pieces in store.writes:
            for piece in pieces:
                if piece.window is window and piece.at.size:
                    latest[global_granules(piece.at, piece.size, self.granule_bytes)] = number


def _leaves(store: PendingStore, piece: Stored, chosen: Bools, data: Bytes) -> Bools:
    """Whether a store under way leaves these bytes at these accesses of a piece."""
    wanted = piece.at[chosen]
    same = np.zeros(wanted.size, np.bool_)
    if store.adds:
        return same
    for theirs, parts in zip(store.peek(), store.writes, strict=True):
        for other in parts:
            if other.window is not piece.window or other.size != piece.size or not other.at.size:
                continue
            order = np.argsort(other.at)
            found = order[np.minimum(np.searchsorted(other.at, wanted, sorter=order), order.size - 1)]
            same |= (other.at[found] == wanted) & (other.of(theirs)[found] == data).all(axis=-1)
    return same
