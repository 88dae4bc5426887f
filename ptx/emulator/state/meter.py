"""Exact counts of what a kernel does: sectors per global request, wavefronts per shared request, instructions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.source.types import Array

Pattern = bytes
"""Addresses relative to the first bank, as bytes: requests with equal patterns cost the same."""
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

    instructions         warp instructions issued
    thread_instructions  thread instructions (active lanes)
    by_class             warp instructions by class: "integer", "float", "conversion", "move", ...
    global_*, shared_*   requests, sectors or wavefronts, and bytes by space and direction
    mma                  warp-level matrix instructions by name
    mma_operations       multiply-adds of those, times two
    branches             conditional branches (warps), and how many of them parted a warp
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
    local_requests: int = 0
    mma: dict[str, int] = field(default_factory=dict)
    mma_operations: int = 0
    branches: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    ctas: int = 0


@dataclass(slots=True, eq=False)
class Site:
    """One instruction of the program that accesses memory, with its counts.

    number  position among the sites of the program; races name the writer by it
    """

    instruction: Instruction
    number: int
    requests: int = 0
    sectors: int = 0
    wavefronts: int = 0
    bytes: int = 0
    _wavefront_memo: dict[Pattern, int] = field(default_factory=dict)

    @property
    def line(self) -> int:
        return self.instruction.line

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
        return requests, sectors, lanes * size

    def count_sectors_only(self, addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> int:
        """Count the sectors of the global side of an asynchronous copy, whose request is counted on the shared side."""
        sectors = count_sectors(addresses, mask, size)
        self.sectors += sectors
        return sectors

    def count_shared(self, addresses: Array, mask: NDArray[np.bool_] | None, size: int) -> tuple[int, int, int]:
        """Count a request on (n, 32) shared addresses; returns (requests, wavefronts, bytes)."""
        if mask is None:
            requests, lanes = addresses.shape[0], addresses.size
            key = (addresses - (addresses[:, :1] & ~np.array(127, addresses.dtype))).tobytes()
            found = self._wavefront_memo.get(key)
            if found is None:
                found = count_wavefronts(addresses, None, size)
                if len(self._wavefront_memo) < 256:
                    self._wavefront_memo[key] = found
            wavefronts = found
        else:
            requests, lanes = int(np.count_nonzero(mask.any(axis=1))), int(np.count_nonzero(mask))
            wavefronts = count_wavefronts(addresses, mask, size)
        self.requests += requests
        self.wavefronts += wavefronts
        self.bytes += lanes * size
        return requests, wavefronts, lanes * size


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
