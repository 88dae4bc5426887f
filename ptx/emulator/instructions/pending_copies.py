"""Copies of cp.async that nobody has waited for: what is known of each, and how their bytes land."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import shared_order
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(slots=True, eq=False)
class PendingCopy:
    """One execution of a cp.async whose bytes may not have landed.

    index    (k,) byte index into the resident CTAs' shared memory
    threads  (k,) row * 32 + lane of the issuing thread
    who      (k,) lane * 64 + warp within the CTA
    group    (k,) commit group of the issuing thread, or one number for all
    parts    where the source bytes lie: (window, byte offsets, which of the k, bytes really read or None for all)
    landed   the bytes are already in shared memory
    issued   tick of its issue
    """

    site: Site
    size: int
    index: NDArray[np.int64]
    threads: NDArray[np.int64]
    who: NDArray[np.int64]
    group: NDArray[np.int64]
    parts: list[tuple[Window, NDArray[np.int64], NDArray[np.bool_] | None, NDArray[np.int64] | None]]
    landed: bool
    uniform_group: int | None
    rows: Any
    issued: int


class CopyQueue:
    """The copies of all resident CTAs that nobody has waited for, in order of issue.

    arrivals  rows some of whose copies arrive on an mbarrier: (greatest commit group, tick) of those that have arrived
    """

    def __init__(self) -> None:
        self.pending: list[PendingCopy] = []
        self.arrivals: dict[int, list[tuple[int, int]]] = {}


Part = tuple[Window, NDArray[np.int64], "NDArray[np.bool_] | None", "NDArray[np.int64] | None"]


def keep(part: Part, good: NDArray[np.bool_]) -> Part:
    window, offsets, chosen, counts = part
    lanes = np.ones(good.size, np.bool_) if chosen is None else chosen
    kept = good[lanes]
    return window, offsets[kept], lanes[good], None if counts is None else counts[kept]


def queue_of(residents: Residents) -> CopyQueue:
    if residents.copies is None:
        residents.copies = CopyQueue()
    return residents.copies


def land(residents: Residents, copy: PendingCopy, done: NDArray[np.bool_] | None) -> None:
    """Read the sources and write the bytes into shared memory, for all or for those `done`."""
    words = copy.size // 4
    view = residents.shared.view(4, words)
    simple = len(copy.parts) == 1 and copy.parts[0][2] is None and copy.parts[0][3] is None
    if simple and done is None:
        window, offsets, _, _ = copy.parts[0]
        data = np.take(window.view(4, words), offsets // copy.size, axis=0, mode="clip")
        view[copy.index // copy.size] = data
        return
    data = np.zeros((copy.index.size, copy.size), np.uint8)
    for window, offsets, chosen, counts in copy.parts:
        where = np.arange(copy.index.size) if chosen is None else np.flatnonzero(chosen)
        byte = np.arange(copy.size)[None, :]
        source = np.minimum(offsets[:, None] + byte, max(window.data.size - 1, 0))
        got = window.data[source]
        if counts is not None:
            got = np.where(byte < counts[:, None], got, np.uint8(0))
        data[where] = got
    shaped = data.view(np.uint32)
    shaped = shaped if words > 1 else shaped.reshape(-1)
    if done is None:
        view[copy.index // copy.size] = shaped
    else:
        view[copy.index[done] // copy.size] = shaped[done]


def complete(c: Cohort, queue: CopyQueue, limit: NDArray[np.int64]) -> None:
    """Finish the copies of the active threads whose group number is below `limit` (n, 32)."""
    residents = c.residents
    low, high = int(limit.min()), int(limit.max())
    uniform = c.mask is None and low == high
    everyone: NDArray[np.int64] | None = None
    kept: list[PendingCopy] = []
    for copy in queue.pending:
        if uniform and copy.uniform_group is not None and copy.rows is not None and _same_rows(copy.rows, c.set.rows):
            if copy.uniform_group < low:
                _finish(c, copy, None)
            else:
                kept.append(copy)
            continue
        if everyone is None:
            everyone = np.full((residents.warps, 32), -1, np.int64)
            if c.mask is None:
                everyone[c.set.rows] = limit
            else:
                everyone[c.set.rows] = np.where(c.mask, limit, -1)
            everyone = everyone.reshape(-1)
        done = copy.group < everyone[copy.threads]
        if not done.any():
            kept.append(copy)
        elif done.all():
            _finish(c, copy, None)
        else:
            _finish(c, copy, done)
            kept.append(rest(copy, ~done))
    queue.pending = kept


def _same_rows(first: Any, second: Any) -> bool:
    if isinstance(first, slice) and isinstance(second, slice):
        return first == second
    return first is second


def _finish(c: Cohort, copy: PendingCopy, done: NDArray[np.bool_] | None) -> None:
    if not copy.landed:
        land(c.residents, copy, done)
    if c.emulation.checking:
        index = copy.index if done is None else copy.index[done]
        who = copy.who if done is None else copy.who[done]
        shared_order.mark_written(c, copy.site, index, copy.size, who, c.emulation.tick)


def rest(copy: PendingCopy, left: NDArray[np.bool_]) -> PendingCopy:
    parts: list[Part] = [keep(part, left) for part in copy.parts]
    group = copy.group[left]
    low, high = int(group.min()), int(group.max())
    return PendingCopy(
        copy.site, copy.size, copy.index[left], copy.threads[left], copy.who[left], group, parts, copy.landed,
        low if low == high else None, None, copy.issued,
    )  # fmt: skip
