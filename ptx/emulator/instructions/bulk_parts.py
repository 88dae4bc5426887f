"""What a bulk copy moves, as pieces: accesses of one size whose places are known at issue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_shared import Index
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.units.reductions import Reduction
from tinygpu.ptx.emulator.units.tensor_boxes import Runs, contiguous_runs

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Accesses of `size` bytes.

    offsets    (k,) bytes from the start of the data in shared memory
    addresses  (k,) global addresses; None for bytes that are filled and have no place in global memory
    runs       first byte and bytes of each contiguous run of the addresses, where that is known
    """

    size: int
    offsets: Index
    addresses: Index | None
    runs: Runs | None = None


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
    """The mbarrier on which a thread's asynchronous work completes; a fault, and None, where there is none."""
    residents = origin.residents
    if address % 8:
        origin.fault(
            "misaligned",
            f"the mbarrier at shared address {address:#x} is misaligned: it must be a multiple of 8, but the remainder "
            f"is {address % 8}",
            "shared", address,
        )  # fmt: skip
        return None
    place = residents.reach.shared_place(origin, address, remote, issues=True)
    barrier = None if place is None else residents.mbarriers.find(origin, *place)
    if barrier is not None:
        touch(origin, barrier.cta, barrier)
    return barrier


def touch(origin: Origin, cta: int, barrier: Mbarrier, reads_own: bool = False) -> None:
    """Asynchronous work reaches into the shared memory of a CTA until it completes on an mbarrier.

    reads_own  it reads that of the CTA that starts it, too, which is not told
    """
    residents = origin.residents
    if cta != origin.cta and residents.emulation.checking:
        for reached in (cta, origin.cta)[: 1 + reads_own]:
            residents.reach.touch(origin.instruction, origin.row, reached, barrier.column)


NO_PIECES: Runs = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def global_pieces(parts: list[Part]) -> Runs:
    """The contiguous pieces that parts touch in global memory."""
    runs = [
        contiguous_runs(part.addresses, part.size) if part.runs is None else part.runs
        for part in parts if part.addresses is not None and part.addresses.size
    ]  # fmt: skip
    if len(runs) == 1:
        return runs[0]
    starts, sizes = zip(NO_PIECES, *runs, strict=True)
    return np.concatenate(starts), np.concatenate(sizes)


def count_global(site: Site, origin: Origin, parts: list[Part]) -> int:
    """Count the global side of a copy; returns its bytes."""
    _, moved = site.count_bulk(*global_pieces(parts), origin.residents.first_number + origin.cta)
    return moved


def reduced(reduce: Reduction, old: Bytes, value: Bytes, element_bytes: int) -> Bytes:
    """Element by element what the reduction makes of old bytes and new ones, in the shape of `value`."""
    unsigned = f"u{element_bytes}"
    result = reduce(np.ascontiguousarray(old).view(unsigned), np.ascontiguousarray(value).view(unsigned))
    return np.ascontiguousarray(result).view(np.uint8).reshape(value.shape)


def gathered(window: Window, at: Index, size: int) -> Bytes:
    """The bytes of accesses at these offsets from the window's origin: (k, size)."""
    whole = window.data[: window.data.size // size * size].reshape(-1, size)
    return np.take(whole, at // size, axis=0)
