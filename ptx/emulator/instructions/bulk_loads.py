"""Bulk copies into shared memory, as agents that complete on an mbarrier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.emulator.access.async_global import begin_global_read, end_global_read, global_windows
from tinygpu.ptx.emulator.access.async_shared import (
    Agent,
    Bools,
    Index,
    begin_read,
    begin_write,
    begin_write_run,
    end_read,
    land_write,
    mark_run,
    read_bytes,
)
from tinygpu.ptx.emulator.instructions.bulk_parts import Bytes, Part, count_global, gathered, reduced, touch
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.bulk_groups import Arrival, BulkGroups
from tinygpu.ptx.emulator.state.clocks import Clock
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.shadows import SharedShadow
from tinygpu.ptx.emulator.state.swizzled_writes import SwizzledWrites
from tinygpu.ptx.emulator.units.reductions import Reduction

GRAIN_BYTES = 16
"""What bulk copies and the boxes of tensor copies are whole numbers of."""


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


def own_clock(residents: Residents, row: int) -> Clock:
    """A clock that knows nothing but what this warp has done until now."""
    clock = residents.clocks.nothing()
    clock.known[residents.clocks.own_column[row]] = residents.emulation.tick
    return clock


@dataclass(slots=True, eq=False)
class Load:
    """A copy from global memory into the shared memory of one or more CTAs.

    released  what its completion makes known besides its writes: that it has read
    run       first byte and the one behind the last, from the start of the data, where all between them are written
    swizzle   by which a tensor copy writes; "" for others
    """

    agents: list[Agent]
    targets: list[Target]
    pieces: list[_Piece]
    arrivals: list[Arrival]
    transaction_bytes: int
    fill: int
    rounds_tf32: bool
    released: Clock
    run: tuple[int, int] | None = None
    swizzle: str = ""
    queue: None = None

    @property
    def origin(self) -> Origin:
        return self.agents[0].origin

    def complete(self) -> None:
        residents = self.origin.residents
        tick = residents.emulation.next_tick()
        if self.swizzle and residents.emulation.checking:
            SwizzledWrites.of(residents).wrote(tick, self.swizzle, self.origin.instruction.line)
        if self.run is not None and residents.emulation.checking:
            for agent, target in zip(self.agents, self.targets, strict=True):
                mark_run(agent, *_run(residents, target, self.run), tick)
        for piece in self.pieces:
            data = self._data(piece)
            if piece.window is not None:
                # Writes since the issue, also the issuer's own.
                begin_global_read(self.agents[0], piece.window, piece.at, piece.size)
            for agent, target in zip(self.agents, self.targets, strict=True):
                index = _index(residents, target, piece.offsets)
                land_write(agent, index, piece.size, data, piece.invalid, self.run is not None)
        for arrival, target in zip(self.arrivals, self.targets, strict=True):
            arrival.landed = tick
            residents.mbarriers.complete_tx(self.origin, target.barrier, self.transaction_bytes, self.released)

    def _data(self, piece: _Piece) -> Bytes:
        if piece.window is None:
            filled = np.frombuffer(self.fill.to_bytes(2, "little") * 8, np.uint8)[: piece.size]
            return np.broadcast_to(filled, (piece.offsets.size, piece.size))
        data = gathered(piece.window, piece.at, piece.size)
        return _rounded_tf32(data) if self.rounds_tf32 else data


def _rounded_tf32(data: Bytes) -> Bytes:
    """Values of 32 bits rounded to tf32: to nearest, ties away from zero; NaN and infinities keep their kind."""
    bits = np.ascontiguousarray(data).view(np.uint32)
    special = (bits & np.uint32(0x7F800000)) == 0x7F800000
    rounded = np.where(special, bits, bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    nan = special & ((bits & np.uint32(0x7FFFFF)) != 0)
    return np.where(nan, np.uint32(0x7FFFE000), rounded).astype(np.uint32).view(np.uint8)


def _written(pieces: list[_Piece], granule: int) -> list[tuple[int, Index]]:
    """(size, offsets) of what the pieces write; those smaller than a granule are told by whole granules, each once.

    At the edge of a tensor of bytes, one granule holds elements from memory and elements that are filled in.
    """
    small = [piece.offsets.reshape(-1) for piece in pieces if piece.size < granule]
    out = [(piece.size, piece.offsets) for piece in pieces if piece.size >= granule]
    if small:
        out.append((granule, np.unique(np.concatenate(small) // granule) * granule))
    return out


def _between(pieces: list[_Piece]) -> tuple[int, int] | None:
    """The bytes that the pieces write, where they leave none out between the first and the last; else None.

    The pieces of a copy have no byte in common.
    """
    filled = [piece for piece in pieces if piece.offsets.size]
    if not filled:
        return None
    low = min(int(piece.offsets.min()) for piece in filled)
    high = max(int(piece.offsets.max()) + piece.size for piece in filled)
    whole = high - low == sum(piece.offsets.size * piece.size for piece in filled)
    return (low, high) if whole and low % GRAIN_BYTES == 0 and high % GRAIN_BYTES == 0 else None


def _run(residents: Residents, target: Target, run: tuple[int, int]) -> tuple[int, int]:
    """The same, as indices of bytes in the shared memory of all CTAs."""
    start = target.cta * residents.shared.stride_bytes + target.address
    return start + run[0], start + run[1]


def start_load(
    origin: Origin, site: Site, targets: list[Target], parts: list[Part], transaction_bytes: int, verb: str,
    fill: int = 0, rounds_tf32: bool = False, swizzle: str = "",
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
    run, written = _between(pieces), None
    for agent, target in zip(agents, targets, strict=True):
        touch(origin, target.cta, target.barrier)
        if run is not None and begin_write_run(agent, *_run(residents, target, run)):
            continue
        written = written or _written(pieces, residents.shadow.granule_bytes)
        for size, offsets in written:
            begin_write(agent, _index(residents, target, offsets), size)
    moved = count_global(site, origin, parts)
    emulation.counters.bulk_load_requests += 1
    emulation.counters.bulk_load_bytes += moved
    emulation.counters.multicast_bytes += moved * (len(targets) - 1)
    arrivals = [Arrival(origin, target.barrier.column) for target in targets]
    for target, arrival in zip(targets, arrivals, strict=True):
        groups.expect(target.cta, arrival)
    residents.agents.start(
        Load(
            agents, targets, pieces, arrivals, transaction_bytes, fill, rounds_tf32, own_clock(residents, origin.row),
            run, swizzle,
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
                data = reduced(self.reduce, old, data, self.element_bytes)
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
    touch(origin, target.cta, target.barrier, reads_own=source is not None)
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
