"""Warps that carry out one instruction together, and how an instruction says that some of them cannot yet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.registers import LANES, Files

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(slots=True, eq=False)
class RowSet:
    """A set of warps and what is looked up about them often.

    rows           slice or sorted array of row numbers
    index          (n,) row numbers
    column         (n, 1) row numbers
    warp           (n, 1) warp of each row within its CTA
    member         (n, 1) number of the warp in its cluster: its column in the clocks
    cta            (n, 1) resident CTA of each row
    shared_offset  (n, 1) first byte of the CTA's shared memory
    global_warp    (n, 1) number of the warp in the whole launch
    threads        (n, 32) row * 32 + lane
    who            (n, 32) lane * 2^10 + member: who accesses shared memory
    """

    rows: slice | NDArray[np.int64]
    index: NDArray[np.int64]
    column: NDArray[np.int64]
    warp: NDArray[np.int64]
    member: NDArray[np.int64]
    cta: NDArray[np.int64]
    shared_offset: NDArray[np.int64]
    global_warp: NDArray[np.int64]
    threads: NDArray[np.int64]
    who: NDArray[np.int64]


class Incomplete(Exception):
    """Some lanes that an instruction needs are not here yet, but may still come: it is tried again with them.

    lanes  (n, 32) those of the cohort that wait for others; the rest need not. None: all of them
    """

    def __init__(self, lanes: NDArray[np.bool_] | None = None) -> None:
        super().__init__()
        self.lanes = lanes


def _last(row: int) -> int:
    """Who waits for all others, or for a unit that serves them, is named after those."""
    return sys.maxsize


def _no(row: int) -> bool:
    return False


class MustWait(Exception):
    """Some warps have to wait at an instruction, which has done nothing yet.

    ready   (n,) warps that need not wait: they carry out the instruction now
    ask     whether a warp (by row) still has to wait
    reason  for a deadlock: what a warp (by row) waits for, in words
    limit   the wait has a time limit, after which the instruction goes on without what it waited for
    since   for a deadlock: the tick since when a warp (by row) has waited for this
    fresh   for a deadlock: whether a warp (by row) waits for the first phase of an mbarrier to which nothing has come
    """

    def __init__(
        self, ready: NDArray[np.bool_], ask: Callable[[int], bool], reason: Callable[[int], str], limit: bool = False,
        since: Callable[[int], int] = _last, fresh: Callable[[int], bool] = _no,
    ) -> None:  # fmt: skip
        super().__init__()
        self.ready = ready
        self.ask = ask
        self.reason = reason
        self.limit = limit
        self.since = since
        self.fresh = fresh


class Cohort:
    """Warps that carry out the same instruction together.

    files    typed registers, each (n, 32)
    mask     (n, 32) active lanes, or None when all are
    where    the same for NumPy's `where=` (True when all are)
    patient  lanes of these warps may have been left behind by the scheduler: an instruction that needs them may raise
             Incomplete instead of reporting a fault
    """

    __slots__ = ("emulation", "files", "mask", "n", "patient", "residents", "set", "where")

    def __init__(
        self, residents: Residents, rowset: RowSet, files: Files, mask: NDArray[np.bool_] | None, patient: bool = False
    ) -> None:
        self.patient = patient
        self.residents = residents
        self.emulation = residents.emulation
        self.set = rowset
        self.files = files
        self.n = rowset.index.size
        self.mask = mask
        self.where: Any = True if mask is None else mask

    def narrow(self, mask: NDArray[np.bool_] | None) -> None:
        """Change the active lanes."""
        self.mask = mask
        self.where = True if mask is None else mask

    def spread(self, values: Any) -> Array:
        """(n, 32) values of all lanes, of an array that may have one for all warps, or for all lanes."""
        values = np.asarray(values)
        shape = (self.n, LANES)
        return values if values.shape == shape else np.broadcast_to(values, shape)

    def pick(self, values: Array) -> Array:
        """Values of the active lanes only: (n, 32) as it is when all are active, (k,) otherwise."""
        return values if self.mask is None else values[self.mask]

    def pick_column(self, column: Array) -> Array:
        """The same for an (n, 1) array of one value per warp; stays (n, 1) when all lanes are active."""
        if self.mask is None:
            return column
        return np.broadcast_to(column, self.mask.shape)[self.mask]

    def note_access(self) -> None:
        """The active lanes access memory now: remembered for what some lanes release of others' accesses."""
        self.residents.clocks.accessed[self.set.rows] = self.emulation.tick
        self.note_lanes()

    def note_lanes(self) -> None:
        """Remember which lanes carry out what is done at this time."""
        if self.mask is not None and self.emulation.checking:
            self.emulation.lanes.note(self.emulation.tick, self.set.global_warp, self.mask)

    def locate(self, flat: int) -> tuple[int, int]:
        """(row, lane) of the flat-th of the active lanes."""
        if self.mask is None:
            at, lane = divmod(flat, LANES)
        else:
            where = np.flatnonzero(self.mask.reshape(-1))[flat]
            at, lane = divmod(int(where), LANES)
        return int(self.set.index[at]), lane

    def locate_access(self, flat: int, total: int) -> tuple[int, int]:
        """The same where each warp makes `total / n` accesses (as in ldmatrix), when all lanes are active."""
        if self.mask is not None:
            return self.locate(flat)
        at, lane = divmod(flat, max(1, total // self.n))
        return int(self.set.index[at]), lane

    def active_lanes(self) -> int:
        return self.n * LANES if self.mask is None else int(np.count_nonzero(self.mask))

    def active_warps(self) -> int:
        return self.n if self.mask is None else int(np.count_nonzero(self.mask.any(axis=1)))


def compact_rows(index: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """A slice for sorted row numbers that are evenly spaced, else the array itself."""
    if index.size == 1:
        return slice(int(index[0]), int(index[0]) + 1, 1)
    step = int(index[1] - index[0])
    if int(index[-1] - index[0]) == step * (index.size - 1) and (step == 1 or bool((np.diff(index) == step).all())):
        return slice(int(index[0]), int(index[-1]) + 1, step)
    return index
