"""Bulk copies as agents: what they read and write between issue and completion.

A copy is a list of pieces: accesses of one size (a power of two) whose places in shared and in global memory are known
at issue. Loads complete on an mbarrier; copies out of shared memory belong to a bulk async-group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_global import (
    begin_global_read,
    begin_global_write,
    end_global_read,
    global_windows,
    land_global_write,
)
from tinygpu.ptx.emulator.access.async_shared import (
    Agent,
    Bools,
    Index,
    begin_read,
    begin_write,
    end_read,
    land_write,
    read_bytes,
)
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.bulk_groups import Arrival, BulkGroups
from tinygpu.ptx.emulator.state.clocks import Clock
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Cohort, Residents
from tinygpu.ptx.emulator.state.shadows import SharedShadow
from tinygpu.ptx.emulator.units.reductions import Reduction

Bytes = NDArray[np.uint8]
Repack = Callable[[list[Bytes]], list[Bytes]]
"""Turns what was read into what is written, part by part."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Accesses of `size` bytes.

    offsets    (k,) bytes from the start of the data in shared memory
    addresses  (k,) global addresses; None for bytes that are filled and have no place in global memory
    """

    size: int
    offsets: Index
    addresses: Index | None


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Where a load goes: `address` in the shared memory of a resident CTA, completing on an mbarrier."""

    cta: int
    address: int
    barrier: Mbarrier


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """A part on one window of global memory; `window` is None for bytes that are filled."""

    size: int
    offsets: Index
    window: Window | None
    at: Index
    invalid: Bools | None = None


def linear_parts(size_bytes: int, address: int) -> list[Part]:
    """`size_bytes` (a multiple of 16) contiguous bytes."""
    offsets = np.arange(0, size_bytes, 16, dtype=np.int64)
    return [Part(16, offsets, offsets + address)] if size_bytes else []


def threads(c: Cohort, site: Site) -> Iterator[tuple[Origin, int, int]]:
    """(origin, position of its warp in the cohort, lane) of every active thread."""
    for at, row in enumerate(c.set.index.tolist()):
        lanes = range(32) if c.mask is None else np.flatnonzero(c.mask[at]).tolist()
        for lane in lanes:
            yield Origin(c.residents, site.instruction, row, lane), at, lane


def barrier_at(origin: Origin, address: int, remote: bool) -> Mbarrier | None:
    """The mbarrier at a shared address as the thread sees it; a fault, and None, where there is none."""
    residents = origin.residents
    if address % 8:
        origin.fault(
            "misaligned",
            f"the mbarrier at shared address {address:#x} is misaligned: it must be a multiple of 8, but the remainder "
            f"is {address % 8}",
            "shared", address,
        )  # fmt: skip
        return None
    place = residents.shared_place(origin, address, remote)
    return None if place is None else residents.mbarriers.find(origin, *place)


def own_clock(residents: Residents, row: int) -> Clock:
    """A clock that knows nothing but what this warp has done until now."""
    clock = residents.clocks.nothing()
    clock.known[residents.clocks.own_column[row]] = residents.emulation.tick
    return clock


def count_global(site: Site, origin: Origin, parts: list[Part]) -> int:
    """Count the global side of a copy; returns its bytes."""
    starts, sizes = [], []
    for part in parts:
        if part.addresses is None or not part.addresses.size:
            continue
        breaks = np.flatnonzero(np.diff(part.addresses) != part.size) + 1
        first = np.concatenate([[0], breaks])
        starts.append(part.addresses[first])
        sizes.append(np.diff(np.append(first, part.addresses.size)) * part.size)
    none = np.zeros(0, np.int64)
    residents = origin.residents
    _, moved = site.count_bulk(
        np.concatenate([none, *starts]), np.concatenate([none, *sizes]), residents.first_number + origin.cta
    )
    return moved


# ---- into shared memory ---------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Load:
    """A copy from global memory into the shared memory of one or more CTAs.

    released  what its completion makes known besides its writes: that it has read
    """

    agents: list[Agent]
    targets: list[Target]
    pieces: list[_Piece]
    arrivals: list[Arrival]
    transaction_bytes: int
    fill: int
    rounds_tf32: bool
    released: Clock
    queue: None = None

    @property
    def origin(self) -> Origin:
        return self.agents[0].origin

    def complete(self) -> None:
        residents = self.origin.residents
        tick = residents.emulation.next_tick()
        for piece in self.pieces:
            data = self._data(piece)
            if piece.window is not None:
                # Writes since the issue, also the issuer's own.
                begin_global_read(self.agents[0], piece.window, piece.at, piece.size)
            for agent, target in zip(self.agents, self.targets, strict=True):
                land_write(agent, _index(residents, target, piece.offsets), piece.size, data, piece.invalid)
        for arrival, target in zip(self.arrivals, self.targets, strict=True):
            arrival.landed = tick
            residents.mbarriers.complete_tx(self.origin, target.barrier, self.transaction_bytes, self.released)

    def _data(self, piece: _Piece) -> Bytes:
        if piece.window is None:
            filled = np.frombuffer(self.fill.to_bytes(2, "little") * 8, np.uint8)[: piece.size]
            return np.broadcast_to(filled, (piece.offsets.size, piece.size))
        data = _gather(piece.window, piece.at, piece.size)
        return _rounded_tf32(data) if self.rounds_tf32 else data


def _rounded_tf32(data: Bytes) -> Bytes:
    """Values of 32 bits rounded to tf32: to nearest, ties away from zero; NaN and infinities keep their kind."""
    bits = np.ascontiguousarray(data).view(np.uint32)
    special = (bits & np.uint32(0x7F800000)) == 0x7F800000
    rounded = np.where(special, bits, bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    nan = special & ((bits & np.uint32(0x7FFFFF)) != 0)
    return np.where(nan, np.uint32(0x7FFFE000), rounded).astype(np.uint32).view(np.uint8)


def start_load(
    origin: Origin, site: Site, targets: list[Target], parts: list[Part], transaction_bytes: int, verb: str,
    fill: int = 0, rounds_tf32: bool = False,
) -> None:  # fmt: skip
    """Issue a copy from global memory. Its shared range has been checked."""
    residents = origin.residents
    emulation, groups = residents.emulation, BulkGroups.of(residents)
    clock = residents.clocks.snapshot(origin.row, emulation.tick)
    agents = [Agent(origin, site, target.barrier.column, clock) for target in targets]
    pieces: list[_Piece] = []
    for part in parts:
        if part.addresses is None:
            pieces.append(_Piece(part.size, part.offsets, None, part.offsets))
            continue
        addresses = part.addresses.view(np.uint64)
        for window, selection in global_windows(agents[0], addresses, part.size, verb):
            chosen = slice(None) if selection is None else selection
            at = part.addresses[chosen] - window.origin
            begin_global_read(agents[0], window, at, part.size)
            invalid = end_global_read(agents[0], window, at, part.size)
            pieces.append(_Piece(part.size, part.offsets[chosen], window, at, invalid))
    for agent, target in zip(agents, targets, strict=True):
        if target.cta != origin.cta and emulation.checking:
            residents.touch_remote(origin.instruction, origin.row, target.cta, target.barrier.column)
        for piece in pieces:
            begin_write(agent, _index(residents, target, piece.offsets), piece.size)
    moved = count_global(site, origin, parts)
    emulation.counters.bulk_load_requests += 1
    emulation.counters.bulk_load_bytes += moved
    emulation.counters.multicast_bytes += moved * (len(targets) - 1)
    arrivals = [Arrival(origin, target.barrier.column) for target in targets]
    for target, arrival in zip(targets, arrivals, strict=True):
        groups.expect(target.cta, arrival)
    residents.agents.start(
        Load(
            agents, targets, pieces, arrivals, transaction_bytes, fill, rounds_tf32, own_clock(residents, origin.row)
        )
    )


@dataclass(slots=True, eq=False)
class SharedCopy:
    """A copy, reduction or store into the shared memory of a CTA of the cluster.

    source  byte indices of what is copied; None where `data` was given at issue
    data    (k, size) bytes
    """

    agent: Agent
    target: Target
    offsets: Index
    size: int
    arrival: Arrival
    source: Index | None
    data: Bytes | None
    invalid: Bools | None
    reduce: Reduction | None
    element_bytes: int
    transaction_bytes: int
    queue: None = None

    @property
    def origin(self) -> Origin:
        return self.agent.origin

    def complete(self) -> None:
        residents = self.origin.residents
        tick = residents.emulation.next_tick()
        data = self.data
        if data is None and self.source is not None:
            data = read_bytes(self.agent, self.source, self.size)
            end_read(self.agent, self.source, self.size)
        index = _index(residents, self.target, self.offsets)
        if data is not None:
            if self.reduce is not None:
                old = read_bytes(self.agent, index, self.size)
                data = _reduced(self.reduce, old, data, self.element_bytes)
            land_write(self.agent, index, self.size, data, self.invalid)
        if self.reduce is not None:
            _mark_atomic(residents, index, self.size)
        self.arrival.landed = tick
        residents.mbarriers.complete_tx(self.origin, self.target.barrier, self.transaction_bytes)


def start_shared_copy(
    origin: Origin, site: Site, target: Target, offsets: Index, size: int, source: Index | None, data: Bytes | None,
    reduce: Reduction | None = None, element_bytes: int = 1, proxy: bool = True,
) -> None:  # fmt: skip
    """Issue a copy from `source` (byte indices), or of `data`, to the target. Ranges have been checked."""
    residents = origin.residents
    emulation = residents.emulation
    clock = residents.clocks.snapshot(origin.row, emulation.tick)
    agent = Agent(origin, site, target.barrier.column, clock, proxy)
    invalid = None if source is None else begin_read(agent, source, size)
    index = _index(residents, target, offsets)
    if reduce is None:
        begin_write(agent, index, size)
    elif emulation.checking:
        # Reductions need no order among each other.
        shadow = residents.shadow
        atomic = np.zeros(index.shape, np.bool_) if shadow.atomic is None else shadow.atomic[_first(shadow, index)]
        begin_write(agent, index[~atomic], size)
        _mark_atomic(residents, index, size)
    arrival = Arrival(origin, target.barrier.column)
    BulkGroups.of(residents).expect(target.cta, arrival)
    residents.agents.start(
        SharedCopy(
            agent, target, offsets, size, arrival, source, data, invalid, reduce, element_bytes, offsets.size * size
        )
    )


def _first(shadow: SharedShadow, index: Index) -> Index:
    return index // shadow.granule_bytes


def _mark_atomic(residents: Residents, index: Index, size: int) -> None:
    if not residents.emulation.checking:
        return
    shadow = residents.shadow
    if shadow.atomic is None:
        shadow.atomic = np.zeros(shadow.written.size, np.bool_)
    span = max(1, size // shadow.granule_bytes)
    shadow.atomic[(_first(shadow, index)[:, None] + np.arange(span)).reshape(-1)] = True


def _index(residents: Residents, target: Target, offsets: Index) -> Index:
    return offsets + (target.cta * residents.shared.stride_bytes + target.address)


def _gather(window: Window, at: Index, size: int) -> Bytes:
    whole = window.data[: window.data.size // size * size].reshape(-1, size)
    return np.take(whole, at // size, axis=0)


def _reduced(reduce: Reduction, old: Bytes, value: Bytes, element_bytes: int) -> Bytes:
    unsigned = f"u{element_bytes}"
    result = reduce(np.ascontiguousarray(old).view(unsigned), np.ascontiguousarray(value).view(unsigned))
    return np.ascontiguousarray(result).view(np.uint8).reshape(value.shape)


# ---- out of shared memory -------------------------------------------------------------------------------------------


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
            whole[at] = _reduced(self.reduce, whole[at], data, self.element_bytes)
        else:
            for place, value in zip(at.tolist(), data, strict=True):
                whole[place] = _reduced(self.reduce, whole[place], value, self.element_bytes)

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
    expected = _gather(piece.window, piece.at, piece.size).copy()
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
