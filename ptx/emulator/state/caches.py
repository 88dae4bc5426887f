"""A simple model of L1, L2 and DRAM: which sectors a kernel's accesses move between them.

What the model says, in full:

- CTAs run in waves of sms * ctas_per_sm, in the order of their numbers; the n-th CTA of a wave is on SM n mod sms. The
  CTAs of a wave go at the same pace: first everyone's first request, then everyone's second. So the figures depend on
  the kernel and on `Caches` alone, not on how the emulator batches CTAs.
- L1: one per SM, lines of 128 bytes with four sectors of 32 that are filled one by one, fully associative, the least
  recently used line leaves. It starts empty. Only loads use it: ld without .cg, .cv, .volatile or an order, and
  cp.async.ca. Stores and atomics go through to L2 and leave L1 as it is.
- L2: one for the device, sectors of 32 bytes, fully associative, the least recently used sector leaves. It starts
  empty. Loads and atomics that miss bring the sector from DRAM; a store takes a sector without reading it. Sectors that
  were written go to DRAM when they leave; what is left at the end is written then.

Constant memory, parameters and local memory are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import LaunchError
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.meter import SECTOR_BYTES
from tinygpu.ptx.emulator.state.reuse import Bools, Ints, lru_misses, previous_access, resident_at_end

LINE_BYTES = 128
_SECTORS_PER_LINE = LINE_BYTES // SECTOR_BYTES


@dataclass(frozen=True, slots=True)
class Caches:
    """What of a device the model needs, as plain numbers.

    l1_bytes     what one SM's L1 holds: its unified array less the shared memory of the resident CTAs; 0 for none
    l2_bytes     what the device's L2 holds
    sms          number of SMs
    ctas_per_sm  CTAs that are resident on an SM at the same time
    """

    l1_bytes: int
    l2_bytes: int
    sms: int
    ctas_per_sm: int = 1

    def __post_init__(self) -> None:
        for name, unit in (("l1_bytes", LINE_BYTES), ("l2_bytes", SECTOR_BYTES)):
            size = getattr(self, name)
            if size < 0 or size % unit:
                raise LaunchError(f"{name} must be a multiple of {unit} bytes and not negative, not {size}")
        for name in ("sms", "ctas_per_sm"):
            if getattr(self, name) < 1:
                raise LaunchError(f"{name} must be at least 1, not {getattr(self, name)}")


class AccessKind(IntEnum):
    """How an access uses the caches."""

    CACHED_LOAD = 0
    LOAD = 1
    STORE = 2
    ATOMIC = 3


def access_kind(i: Instruction) -> AccessKind:
    """How an instruction's accesses to global memory use the caches."""
    if i.opcode in ("atom", "red", "multimem") or i.has("reduce"):
        return AccessKind.ATOMIC
    if i.opcode == "st":
        return AccessKind.STORE
    if i.opcode == "cp" and i.has("bulk"):
        spaces = [m for m in i.modifiers if m.startswith(("global", "shared"))]
        writes = bool(spaces) and spaces[0].startswith("global") and not i.has("prefetch")
        return AccessKind.STORE if writes else AccessKind.LOAD
    if i.opcode == "cp":
        return AccessKind.CACHED_LOAD if i.has("ca") else AccessKind.LOAD
    around = ("cg", "cv", "volatile", "relaxed", "acquire", "mmio")
    return AccessKind.LOAD if any(i.has(m) for m in around) else AccessKind.CACHED_LOAD


@dataclass(frozen=True, slots=True)
class LineTraffic:
    """What one line of the PTX text moved: sectors asked of L1 and of L2, how many of them were there, DRAM reads."""

    l1_sectors: int
    l1_hit_sectors: int
    l2_sectors: int
    l2_hit_sectors: int
    dram_read_bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What moved between the memories, by the model above.

    caches                  the sizes it was computed for
    l1_sectors              sectors that loads asked of L1, and how many of them were there (l1_hit_sectors)
    l2_load_sectors         sectors that L2 was asked for, and how many of them were there (l2_load_hit_sectors)
    l2_store_sectors        sectors stored to L2
    l2_atomic_sectors       sectors updated in L2
    dram_read_bytes         L2's misses of loads and atomics
    dram_write_bytes        sectors that were written and left L2, or were in it at the end
    left_in_l2_bytes        the part of dram_write_bytes that was still in L2 when the kernel ended
    lines                   the same per line of the PTX text
    """

    caches: Caches
    l1_sectors: int = 0
    l1_hit_sectors: int = 0
    l2_load_sectors: int = 0
    l2_load_hit_sectors: int = 0
    l2_store_sectors: int = 0
    l2_atomic_sectors: int = 0
    dram_read_bytes: int = 0
    dram_write_bytes: int = 0
    left_in_l2_bytes: int = 0
    lines: Mapping[int, LineTraffic] = field(default_factory=dict)

    @property
    def l1_hit_rate(self) -> float:
        return self.l1_hit_sectors / self.l1_sectors if self.l1_sectors else 0.0

    @property
    def l2_load_hit_rate(self) -> float:
        return self.l2_load_hit_sectors / self.l2_load_sectors if self.l2_load_sectors else 0.0

    @property
    def l2_bytes(self) -> int:
        """All bytes between the SMs and L2."""
        return SECTOR_BYTES * (self.l2_load_sectors + self.l2_store_sectors + self.l2_atomic_sectors)

    @property
    def dram_evicted_bytes(self) -> int:
        """What was written to DRAM while the kernel ran."""
        return self.dram_write_bytes - self.left_in_l2_bytes

    @property
    def dram_bytes(self) -> int:
        return self.dram_read_bytes + self.dram_write_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """Accesses to sectors of global memory, in the order in which each CTA makes them.

    sectors  (n,) number of the sector: byte address / 32
    ctas     (n,) number of the CTA among those that are run
    steps    (n,) which of its CTA's requests made the access; accesses of one request follow each other
    lines    (n,) line of the PTX text
    kinds    (n,) an AccessKind each
    """

    sectors: Ints
    ctas: NDArray[np.int32]
    steps: NDArray[np.int32]
    lines: NDArray[np.int32]
    kinds: NDArray[np.int8]


def traffic(accesses: Accesses, caches: Caches) -> Traffic:
    """What these accesses move between L1, L2 and DRAM."""
    if not accesses.sectors.size:
        return Traffic(caches)
    wave = accesses.ctas // (caches.sms * caches.ctas_per_sm)
    order = np.lexsort((accesses.ctas, accesses.steps, wave))
    sectors, kinds, lines = accesses.sectors[order], accesses.kinds[order], accesses.lines[order]
    sm = accesses.ctas[order] % (caches.sms * caches.ctas_per_sm) % caches.sms
    asks_l1 = (kinds == AccessKind.CACHED_LOAD) & (caches.l1_bytes > 0)
    hits_l1 = np.zeros(sectors.size, np.bool_)
    for number in np.unique(sm[asks_l1]):
        at = np.flatnonzero(asks_l1 & (sm == number))
        hits_l1[at] = _l1_hits(sectors[at], caches.l1_bytes // LINE_BYTES)
    to_l2 = ~hits_l1
    misses, stays = _residencies(sectors[to_l2], caches.l2_bytes // SECTOR_BYTES)
    kind = kinds[to_l2]
    stores, atomics = kind == AccessKind.STORE, kind == AccessKind.ATOMIC
    loads = ~(stores | atomics)
    reads_dram = misses & ~stores
    dirty = np.zeros(int(stays.max(initial=-1)) + 1, np.bool_)
    dirty[stays[stores | atomics]] = True
    left = resident_at_end(sectors[to_l2], caches.l2_bytes // SECTOR_BYTES)
    return Traffic(
        caches,
        _count(asks_l1), _count(hits_l1),
        _count(loads), _count(loads & ~misses), _count(stores), _count(atomics),
        SECTOR_BYTES * _count(reads_dram),
        SECTOR_BYTES * _count(dirty),
        SECTOR_BYTES * _count(dirty[stays[left]]),
        _by_line(lines, asks_l1, hits_l1, lines[to_l2], misses, reads_dram),
    )  # fmt: skip


def _l1_hits(sectors: Ints, capacity_lines: int) -> Bools:
    """Which sectors are found: their line is there, and this sector was brought in since the line came."""
    _, stays = _residencies(sectors // _SECTORS_PER_LINE, capacity_lines)
    return previous_access(stays * _SECTORS_PER_LINE + sectors % _SECTORS_PER_LINE) >= 0


def _residencies(keys: Ints, capacity: int) -> tuple[Bools, Ints]:
    """(which accesses miss, number of the stay in the cache that each access belongs to: a miss begins a new one)."""
    misses = lru_misses(keys, capacity)
    order = np.argsort(keys, kind="stable")
    stays = np.empty(keys.size, np.int64)
    stays[order] = np.cumsum(misses[order]) - 1
    return misses, stays


def _by_line(
    lines: NDArray[np.int32], asks_l1: Bools, hits_l1: Bools, l2_lines: NDArray[np.int32], misses: Bools,
    reads_dram: Bools,
) -> dict[int, LineTraffic]:  # fmt: skip
    size = int(lines.max()) + 1

    def per_line(which: NDArray[np.int32]) -> list[int]:
        counts: list[int] = np.bincount(which, minlength=size).tolist()
        return counts

    columns = (
        per_line(lines[asks_l1]), per_line(lines[hits_l1]), per_line(l2_lines), per_line(l2_lines[~misses]),
        per_line(l2_lines[reads_dram]),
    )  # fmt: skip
    found: list[int] = np.unique(lines).tolist()
    return {
        n: LineTraffic(columns[0][n], columns[1][n], columns[2][n], columns[3][n], SECTOR_BYTES * columns[4][n])
        for n in found
    }


def _count(which: Bools) -> int:
    return int(np.count_nonzero(which))
