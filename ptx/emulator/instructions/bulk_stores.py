"""Bulk copies and reductions from shared to global memory, as agents that belong to bulk async-groups."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tinygpu.ptx.emulator.access.async_global import begin_global_write, global_windows, land_global_write
from tinygpu.ptx.emulator.access.async_shared import (
    Agent,
    Bools,
    Index,
    advise_other_lanes,
    begin_read,
    end_read,
    read_bytes,
)
from tinygpu.ptx.emulator.instructions.bulk_parts import NO_PIECES, Bytes, Part, global_pieces, reduced
from tinygpu.ptx.emulator.instructions.pending_stores import PendingStores, Stored
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.bulk_groups import BulkGroups
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.units.reductions import Reduction
from tinygpu.ptx.emulator.units.tensor_boxes import Runs

Repack = Callable[[list[Bytes]], list[Bytes]]
"""Turns what was read into what is written, part by part."""


@dataclass(slots=True, eq=False)
class Store:
    """A copy or reduction from shared to global memory, in a bulk async-group.

    reads    (index, size) of what is read in shared memory; one per part
    writes   per part where it goes
    reading  nobody has waited for its reads
    repack   what happens to the bytes on the way
    counted  how its global side is counted
    """

    agent: Agent
    reads: list[tuple[Index, int]]
    writes: list[list[Stored]]
    reduce: Reduction | None
    element_bytes: int
    repack: Repack | None = None
    counted: Runs = NO_PIECES
    reading: bool = True
    queue: None = None
    _data: list[Bytes] | None = field(default=None)

    @property
    def origin(self) -> Origin:
        return self.agent.origin

    @property
    def adds(self) -> bool:
        """Whether what it leaves depends on what was there."""
        return self.reduce is not None

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
        PendingStores.of(residents).remove(self)
        for data, parts in zip(self._fetch(), self.writes, strict=True):
            for part in parts:
                self._write(part, part.of(data))
        residents.emulation.changes += 1

    def _write(self, part: Stored, data: Bytes) -> None:
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
) -> Store:  # fmt: skip
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
    writes: list[list[Stored]] = []
    store = Store(agent, reads, writes, reduce, element_bytes, repack, global_pieces(parts))
    pending = PendingStores.of(residents)
    for number, part in enumerate(parts):
        stored: list[Stored] = []
        if part.addresses is not None and part.addresses.size:
            for window, selection in global_windows(agent, part.addresses.view(np.uint64), part.size, verb):
                chosen = None if selection is None else np.flatnonzero(selection)
                at = (part.addresses if chosen is None else part.addresses[chosen]) - window.origin
                piece = Stored(part.size, window, at, chosen)
                unchanged = None if reduce is not None else partial(_unchanged, pending, store, number, piece)
                if begin_global_write(agent, window, at, part.size, reduce is not None, unchanged):
                    stored.append(piece)
        writes.append(stored)
    pending.add(store)
    _issue(store, lane)
    return store


def repeat_store(first: Store, origin: Origin, lane: int) -> None:
    """Issue what another lane of the same warp has issued by the same instruction, and what was found right there.

    Same warp, same moment, same bytes from and to the same places: whatever is asked of the second was answered for the
    first, but for what lanes ask of each other; and others that meet it meet the first. A reduction is never the same
    twice.
    """
    store = Store(
        replace(first.agent, origin=origin), first.reads, first.writes, None, first.element_bytes, first.repack,
        first.counted,
    )  # fmt: skip
    for index, size in first.reads:
        advise_other_lanes(store.agent, index, size)
    _issue(store, lane)


def _issue(store: Store, lane: int) -> None:
    origin, site = store.origin, store.agent.site
    residents = origin.residents
    _, moved = site.count_bulk(*store.counted, residents.first_number + origin.cta)
    counters = residents.emulation.counters
    if store.reduce is None:
        counters.bulk_store_requests += 1
        counters.bulk_store_bytes += moved
    else:
        counters.bulk_reduce_requests += 1
        counters.bulk_reduce_bytes += moved
    BulkGroups.of(residents).add(origin, lane, store)
    residents.agents.start(store)


def _unchanged(pending: PendingStores, store: Store, number: int, piece: Stored) -> Bools:
    """Which accesses of a part write what is there, or what stores under way will have put there by then."""
    return pending.unchanged(piece, piece.of(store.peek()[number]))


class StoresOfLanes:
    """The stores that one instruction issues: what several lanes of a warp ask for alike is worked out once."""

    def __init__(self, c: Cohort) -> None:
        self._emulation = c.emulation
        self._first: dict[Hashable, Store] = {}

    def start(self, origin: Origin, lane: int, what: Hashable, make: Callable[[], Store | None]) -> None:
        """A thread's store. `what` says all that distinguishes it from those of other lanes of its warp."""
        key = (origin.row, what)
        first = self._first.get(key)
        if first is not None:
            repeat_store(first, origin, lane)
            return
        before = self._emulation.faults_found
        store = make()
        if store is not None and store.reduce is None and self._emulation.faults_found == before:
            self._first[key] = store
