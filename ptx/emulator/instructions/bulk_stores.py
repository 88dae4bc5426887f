"""Bulk copies and reductions from shared to global memory, as agents that belong to bulk async-groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_global import begin_global_write, global_windows, land_global_write
from tinygpu.ptx.emulator.access.async_shared import Agent, Index, begin_read, end_read, read_bytes
from tinygpu.ptx.emulator.instructions.bulk_parts import Bytes, Part, count_global, gathered, reduced
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.bulk_groups import BulkGroups
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.units.reductions import Reduction

Repack = Callable[[list[Bytes]], list[Bytes]]
"""Turns what was read into what is written, part by part."""


@dataclass(slots=True, eq=False)
class _Stored:
    """A part on one window: `chosen` are its accesses among those read."""

    size: int
    window: Window
    at: Index
    chosen: NDArray[np.int64] | None


@dataclass(slots=True, eq=False)
class Store:
    """A copy or reduction from shared to global memory, in a bulk async-group.

    reads    (index, size) of what is read in shared memory; one per part
    writes   per part where it goes
    reading  nobody has waited for its reads
    repack   what happens to the bytes on the way
    """

    agent: Agent
    reads: list[tuple[Index, int]]
    writes: list[list[_Stored]]
    reduce: Reduction | None
    element_bytes: int
    repack: Repack | None = None
    reading: bool = True
    queue: None = None
    _data: list[Bytes] | None = field(default=None)

    @property
    def origin(self) -> Origin:
        return self.agent.origin

    def peek(self) -> list[Bytes]:
        """What it would write if it read now; what it writes, once it has read."""
        if self._data is not None:
            return self._data
        data = [read_bytes(self.agent, index, size) for index, size in self.reads]
        return data if self.repack is None else self.repack(data)

    def _fetch(self) -> list[Bytes]:
        self._data = self.peek()
        return self._data

    def complete(self) -> None:
        residents = self.origin.residents
        residents.emulation.next_tick()
        for data, parts in zip(self._fetch(), self.writes, strict=True):
            for part in parts:
                mine = data if part.chosen is None else data[part.chosen]
                self._write(part, mine)
        residents.emulation.changes += 1

    def _write(self, part: _Stored, data: Bytes) -> None:
        whole = part.window.data[: part.window.data.size // part.size * part.size].reshape(-1, part.size)
        at = part.at // part.size
        if self.reduce is None:
            whole[at] = data
        elif np.unique(at).size == at.size:
            whole[at] = reduced(self.reduce, whole[at], data, self.element_bytes)
        else:
            for place, value in zip(at.tolist(), data, strict=True):
                whole[place] = reduced(self.reduce, whole[place], value, self.element_bytes)

    def end_reads(self) -> None:
        """Its thread waited until the shared memory has been read."""
        self._fetch()
        self.reading = False
        for index, size in self.reads:
            end_read(self.agent, index, size)

    def end_writes(self) -> None:
        """Its thread waited until the global memory has been written."""
        for parts in self.writes:
            for part in parts:
                land_global_write(self.agent, part.window, part.at, part.size, self.reduce is not None)


def start_store(
    origin: Origin, lane: int, site: Site, address: int, parts: list[Part], verb: str,
    reduce: Reduction | None = None, element_bytes: int = 1, read_parts: list[Part] | None = None,
    repack: Repack | None = None,
) -> None:  # fmt: skip
    """Issue a copy from shared address `address` of the own CTA to global memory. Its shared range has been checked.

    read_parts  what is read where that is not what is written; `repack` then turns one into the other
    """
    residents = origin.residents
    emulation, groups = residents.emulation, BulkGroups.of(residents)
    clock = residents.clocks.snapshot(origin.row, emulation.tick)
    agent = Agent(origin, site, groups.column(origin), clock)
    base = origin.cta * residents.shared.stride_bytes + address
    reads: list[tuple[Index, int]] = []
    for part in parts if read_parts is None else read_parts:
        index = part.offsets + base
        reads.append((index, part.size))
        invalid = begin_read(agent, index, part.size)
        if invalid is not None:
            place = int(index[int(np.argmax(invalid))]) - origin.cta * residents.shared.stride_bytes
            origin.fault(
                "uninitialised",
                f"{verb} stores {part.size} bytes at shared address {place:#x} to global memory, but they were never "
                "initialised: write them first, or copy less",
                "shared", place, int(np.count_nonzero(invalid)),
            )  # fmt: skip
    writes: list[list[_Stored]] = []
    store = Store(agent, reads, writes, reduce, element_bytes, repack)
    for number, part in enumerate(parts):
        stored: list[_Stored] = []
        if part.addresses is not None and part.addresses.size:
            for window, selection in global_windows(agent, part.addresses.view(np.uint64), part.size, verb):
                chosen = None if selection is None else np.flatnonzero(selection)
                at = (part.addresses if chosen is None else part.addresses[chosen]) - window.origin
                piece = _Stored(part.size, window, at, chosen)
                unchanged = None if reduce is not None else partial(_unchanged, store, number, piece)
                if begin_global_write(agent, window, at, part.size, reduce is not None, unchanged):
                    stored.append(piece)
        writes.append(stored)
    moved = count_global(site, origin, parts)
    counters = emulation.counters
    if reduce is None:
        counters.bulk_store_requests += 1
        counters.bulk_store_bytes += moved
    else:
        counters.bulk_reduce_requests += 1
        counters.bulk_reduce_bytes += moved
    groups.add(origin, lane, store)
    residents.agents.start(store)


def _unchanged(store: Store, number: int, piece: _Stored) -> NDArray[np.bool_]:
    """Which accesses of a part write what is there, or what pending stores will have put there by then."""
    data = store.peek()[number]
    data = data if piece.chosen is None else data[piece.chosen]
    expected = gathered(piece.window, piece.at, piece.size).copy()
    place = piece.at // piece.size
    for pending in store.origin.residents.agents.pending:
        if not isinstance(pending, Store):
            continue
        for theirs, parts in zip(pending.peek(), pending.writes, strict=True):
            for other in parts:
                if other.window is not piece.window:
                    continue
                if pending.reduce is not None or other.size != piece.size:
                    return np.zeros(place.shape, np.bool_)
                _, mine, its = np.intersect1d(place, other.at // other.size, return_indices=True)
                expected[mine] = (theirs if other.chosen is None else theirs[other.chosen])[its]
    return np.asarray((expected == data).all(axis=-1))
