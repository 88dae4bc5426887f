"""Exact counts of what a kernel does: sectors per global request, wavefronts per shared request, instructions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array

Pattern = bytes
"""Addresses relative to the first bank, as bytes: requests with equal patterns cost the same."""
MatrixUnit = Literal["mma", "wgmma", "tcgen05"]
SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4


@dataclass(slots=True)
class LineCounters:
    """Counts of one line of the PTX text.

    executed    warp instructions issued on this line
    threads     thread instructions: active lanes (guard true) over all of them
    requests    warp instructions that accessed memory with at least one lane
    sectors     distinct 32-byte sectors of global or local memory, summed over requests
    wavefronts  shared-memory wavefronts, summed over requests
    bytes       bytes moved between memory and registers (or from global to shared, for asynchronous copies)
    """

    executed: int = 0
    threads: int = 0
    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    bytes: int = 0

    @property
    def lanes(self) -> float:
        """Active lanes per warp instruction: 32 where no warp was parted or cut off, 0 where nothing ran."""
        return self.threads / self.executed if self.executed else 0.0

    def add(self, other: LineCounters) -> None:
        """Add another line's counts to these."""
        self.executed += other.executed
        self.threads += other.threads
        self.requests += other.requests
        self.sectors += other.sectors
        self.wavefronts += other.wavefronts
        self.bytes += other.bytes


@dataclass(slots=True)
class Counters:
    """Totals of a run.

    instructions           warp instructions issued
    thread_instructions    thread instructions (active lanes)
    by_class               warp instructions by class: "integer", "float", "conversion", "move", ...
    global_*, shared_*     requests, sectors or wavefronts, and bytes by space and direction
    atomic_requests        atom and red, in global and shared memory
    global_atomic_*        those in global memory, with the sectors and bytes of their lanes
    shared_atomic_*        those in shared memory, with their wavefronts and bytes; and their turns: for each of them
                           the most lanes that update words of one bank, the same word or others
    local_requests         loads and stores of local memory; local_load_* and local_store_* tell them apart
    bulk_*                 copies by the bulk and tensor copy engine: into shared memory, out of it, reductions in
                           global memory; multicast_bytes are what further CTAs of a cluster got of the same load
    mma, wgmma, tcgen05    matrix instructions by name: of a warp, of a warpgroup, of a CTA or a pair
    *_operations           multiply-adds of those, times two
    branches               conditional branches (warps), and how many of them parted a warp
    """

    instructions: int = 0
    thread_instructions: int = 0
    by_class: dict[str, int] = field(default_factory=dict)
    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_load_bytes: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_bytes: int = 0
    shared_load_requests: int = 0
    shared_load_wavefronts: int = 0
    shared_load_bytes: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_bytes: int = 0
    atomic_requests: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    global_atomic_bytes: int = 0
    shared_atomic_requests: int = 0
    shared_atomic_wavefronts: int = 0
    shared_atomic_turns: int = 0
    shared_atomic_bytes: int = 0
    local_requests: int = 0
    local_load_requests: int = 0
    local_load_sectors: int = 0
    local_load_bytes: int = 0
    local_store_requests: int = 0
    local_store_sectors: int = 0
    local_store_bytes: int = 0
    bulk_load_requests: int = 0
    bulk_load_bytes: int = 0
    bulk_store_requests: int = 0
    bulk_store_bytes: int = 0
    bulk_reduce_requests: int = 0
    bulk_reduce_bytes: int = 0
    multicast_bytes: int = 0
    mma: dict[str, int] = field(default_factory=dict)
    mma_operations: int = 0
    wgmma: dict[str, int] = field(default_factory=dict)
    wgmma_operations: int = 0
    tcgen05: dict[str, int] = field(default_factory=dict)
    tcgen05_operations: int = 0
    branches: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    ctas: int = 0

    @property
    def lanes(self) -> float:
        """Active lanes per warp instruction, 32 at most."""
        return self.thread_instructions / self.instructions if self.instructions else 0.0

    @property
    def tensor_operations(self) -> int:
        """Multiply-adds of all matrix instructions, times two."""
        return self.mma_operations + self.wgmma_operations + self.tcgen05_operations

    def count_matrix(self, unit: MatrixUnit, name: str, instructions: int, operations: int) -> None:
        """Count matrix instructions of one unit.

        name        shape and types, as the reports show them
        operations  multiply-adds of all these instructions, times two
        """
        by_name: dict[str, int] = getattr(self, unit)
        by_name[name] = by_name.get(name, 0) + instructions
        setattr(self, f"{unit}_operations", getattr(self, f"{unit}_operations") + operations)


@dataclass(slots=True)
class Tally:
    """Requests of one instruction on one memory; `units` are sectors, or wavefronts of shared memory."""

    requests: int = 0
    units: int = 0
    bytes: int = 0

    def count(self, requests: int, units: int, moved_bytes: int) -> None:
        self.requests += requests
        self.units += units
        self.bytes += moved_bytes


@dataclass(slots=True, eq=False)
class Site:
    """One instruction of the program that accesses memory, with its counts.

    number     position among the sites of the program; races name the writer by it
    in_global  what of the counts was global memory's; a generic address may lie in several
    in_shared  the same of shared memory
    in_local   the same of local memory
    recorder   told of every access to global memory; None where nobody listens
    """

    instruction: Instruction
    number: int
    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    bytes: int = 0
    in_global: Tally = field(default_factory=Tally)
    in_shared: Tally = field(default_factory=Tally)
    in_local: Tally = field(default_factory=Tally)
    recorder: Recorder | None = None
    _wavefront_memo: dict[Pattern, int] = field(default_factory=dict)
    _last_shared: tuple[Pattern, int] = (b"", 0)

    @property
    def line(self) -> int:
        return self.instruction.line

    @property
    def remote(self) -> bool:
        """Whether it may reach the shared memory of other CTAs of the cluster."""
        spaces = [m for m in self.instruction.modifiers if m.startswith("shared")]
        return not spaces or "shared::cluster" in spaces

    def forget_counts(self) -> None:
        """Begin to count anew."""
        self.requests = self.sectors = self.wavefronts = self.bytes = 0
        self.in_global, self.in_shared, self.in_local = Tally(), Tally(), Tally()

    def count_global(self, addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> tuple[int, int, int]:
        """Count a request on (n, 32) byte addresses; returns (requests, sectors, bytes)."""
        if mask is None:
            requests, lanes = addresses.shape[0], addresses.size
        else:
            requests, lanes = int(np.count_nonzero(mask.any(axis=1))), int(np.count_nonzero(mask))
        sectors = count_sectors(addresses, mask, size)
        self.requests += requests
        self.sectors += sectors
        self.bytes += lanes * size
        self.in_global.count(requests, sectors, lanes * size)
        if self.recorder is not None:
            self.recorder.lanes(self, addresses, mask)
        return requests, sectors, lanes * size

    def count_sectors_only(self, addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> int:
        """Count the sectors of the global side of an asynchronous copy, whose request is counted on the shared side."""
        sectors = count_sectors(addresses, mask, size)
        self.sectors += sectors
        if self.recorder is not None:
            self.recorder.lanes(self, addresses, mask)
        return sectors

    def count_local(self, requests: int, lanes: int, size: int) -> None:
        """Count requests on local memory, `size` bytes per lane."""
        # The same word of a warp's 32 lanes is contiguous (CUDA C++ Programming Guide, "Local Memory").
        sectors = requests * max(1, size * 32 // SECTOR_BYTES)
        self.requests += requests
        self.sectors += sectors
        self.bytes += lanes * size
        self.in_local.count(requests, sectors, lanes * size)

    def count_bulk(self, starts: NDArray[np.int64], sizes_bytes: NDArray[np.int64], cta: int) -> tuple[int, int]:
        """Count one bulk or tensor copy's side in global memory; returns (sectors, bytes).

        starts       (k,) first byte of each contiguous piece; a piece is at least one byte
        sizes_bytes  (k,) its bytes
        cta          number among the CTAs that are run, of the CTA that issued the copy
        """
        first, last = starts // SECTOR_BYTES, (starts + sizes_bytes - 1) // SECTOR_BYTES
        sectors, moved = int((last - first + 1).sum()), int(sizes_bytes.sum())
        self.requests += 1
        self.sectors += sectors
        self.bytes += moved
        if self.recorder is not None:
            self.recorder.pieces(self, first, last, cta)
        return sectors, moved

    def count_shared(self, addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> tuple[int, int, int]:
        """Count a request on (n, 32) shared addresses; returns (requests, wavefronts, bytes)."""
        if mask is None:
            requests, lanes = addresses.shape[0], addresses.size
            raw = addresses.tobytes()
            if raw != self._last_shared[0]:
                # Most instructions in a loop come back to the addresses of the round before.
                self._last_shared = (raw, self._wavefronts(addresses, size))
            wavefronts = self._last_shared[1]
        else:
            requests, lanes = int(np.count_nonzero(mask.any(axis=1))), int(np.count_nonzero(mask))
            wavefronts = count_wavefronts(addresses, mask, size)
        self.requests += requests
        self.wavefronts += wavefronts
        self.bytes += lanes * size
        self.in_shared.count(requests, wavefronts, lanes * size)
        return requests, wavefronts, lanes * size

    def _wavefronts(self, addresses: Array, size: int) -> int:
        key = (addresses - (addresses[:, :1] & ~np.array(127, addresses.dtype))).tobytes()
        found = self._wavefront_memo.get(key)
        if found is None:
            found = count_wavefronts(addresses, None, size)
            if len(self._wavefront_memo) < 256:
                self._wavefront_memo[key] = found
        return found


class Recorder(Protocol):
    """Who wants to know which sectors of global memory are accessed, in order."""

    def lanes(self, site: Site, addresses: Array, mask: NDArray[np.bool_] | None) -> None:
        """A request of (n, 32) byte addresses, at most one sector per lane."""

    def pieces(self, site: Site, first: NDArray[np.int64], last: NDArray[np.int64], cta: int) -> None:
        """A copy of pieces that lie in the sectors first to last, both included."""


def add_sites(counters: Counters, sites: Iterable[Site]) -> None:
    """Add up what only the sites tell apart: atomics and local memory by direction."""
    for site in sites:
        if site.instruction.opcode in ("atom", "red"):
            counters.global_atomic_requests += site.in_global.requests
            counters.global_atomic_sectors += site.in_global.units
            counters.global_atomic_bytes += site.in_global.bytes
            counters.shared_atomic_requests += site.in_shared.requests
            counters.shared_atomic_wavefronts += site.in_shared.units
            counters.shared_atomic_bytes += site.in_shared.bytes
        elif site.instruction.opcode.startswith("ld"):
            counters.local_load_requests += site.in_local.requests
            counters.local_load_sectors += site.in_local.units
            counters.local_load_bytes += site.in_local.bytes
        else:
            counters.local_store_requests += site.in_local.requests
            counters.local_store_sectors += site.in_local.units
            counters.local_store_bytes += site.in_local.bytes


def count_sectors(addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> int:
    """Distinct 32-byte sectors per warp, summed over warps.

    addresses  (n, 32) byte address per lane, aligned to `size`
    mask       (n, 32) active lanes, or None for all
    size       bytes per lane

    >>> count_sectors(np.arange(32, dtype=np.uint64)[None, :] * np.uint64(4), None, 4)
    4
    """
    sectors = (addresses >> np.array(5, addresses.dtype)).astype(np.int64)
    if mask is not None:
        sectors = np.where(mask, sectors, np.int64(-1))
    step = sectors[:, 1:] - sectors[:, :-1]
    if mask is not None or bool((step < 0).any()):
        sectors = np.sort(sectors, axis=1)
        step = sectors[:, 1:] - sectors[:, :-1]
    distinct = int(np.count_nonzero(step)) + int(sectors.shape[0])
    if mask is not None:
        # The value -1 of inactive lanes is no sector.
        distinct -= int(np.count_nonzero(sectors[:, 0] == -1))
    if size > SECTOR_BYTES:
        distinct *= size // SECTOR_BYTES
    return distinct


def count_turns(addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> int:
    """Turns in which the banks of shared memory update words one after another, summed over warps.

    The arguments are those of `count_wavefronts`. Lanes that read one word share it; lanes that update it do not.

    >>> count_turns(np.zeros((1, 32), np.uint64), None, 4)
    32
    """
    banks = (addresses >> np.array(2, addresses.dtype)).astype(np.int64) % 32
    active = np.ones(banks.shape, np.bool_) if mask is None else mask
    warps = np.broadcast_to(np.arange(len(banks))[:, None], banks.shape)
    found = np.zeros((len(banks), 32), np.int64)
    for word in range(max(1, size // WORD_BYTES)):
        np.add.at(found, (warps[active], (banks[active] + word) % 32), 1)
    return int(found.max(axis=1, initial=0).sum())


def count_wavefronts(addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> int:
    """Shared-memory wavefronts, summed over warps.

    addresses  (n, 32) byte address per lane, aligned to `size`
    mask       (n, 32) active lanes, or None for all
    size       bytes per lane: up to 4, 8 or 16

    A warp's lanes are served in phases of 32 lanes (up to 4 bytes), 16 lanes (8 bytes) or 8 lanes (16 bytes); a phase
    takes as many wavefronts as the largest number of distinct 4-byte words in one of the 32 banks.

    >>> count_wavefronts(np.arange(32, dtype=np.uint64)[None, :] * np.uint64(8), None, 4)
    2
    """
    words_each = max(1, size // WORD_BYTES)
    lanes = 32 // words_each
    words = (addresses >> np.array(2, addresses.dtype)).astype(np.int64)
    if mask is not None:
        words = np.where(mask, words, np.int64(-1))
    words = words.reshape(-1, lanes)
    if words_each > 1:
        spread = words[:, :, None] + np.arange(words_each)
        if mask is not None:
            spread = np.where(words[:, :, None] < 0, np.int64(-1), spread)
        words = spread.reshape(words.shape[0], -1)
    return phase_wavefronts(words)


def phase_wavefronts(words: NDArray[np.int64]) -> int:
    """Wavefronts of phases given as (phases, words) word addresses; -1 is no access."""
    ordered = np.sort(words, axis=1)
    fresh = np.ones(ordered.shape, np.bool_)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    fresh &= ordered >= 0
    phases = words.shape[0]
    key = (ordered & (BANKS - 1)) + np.arange(phases)[:, None] * BANKS
    counts: Array = np.bincount(key[fresh], minlength=phases * BANKS)
    worst: NDArray[np.int64] = counts.reshape(phases, BANKS).max(axis=1)
    return int(worst.sum())
