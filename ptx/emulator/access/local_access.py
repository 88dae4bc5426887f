"""Local memory: bytes that belong to one thread, with bounds and validity."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.meter import Site

Bools = NDArray[np.bool_]


def _locate(c: Cohort, site: Site, picked: Array, size: int, verb: str) -> tuple[NDArray[np.int64], Bools | None]:
    """Byte index into the local memory of all threads, and which accesses are good (None: all)."""
    layout = c.emulation.program.local
    threads = c.set.threads if c.mask is None else c.set.threads[c.mask]
    index = picked.view(np.int64) + threads * c.residents.local.stride_bytes
    aligned = (picked & np.uint64(size - 1)) == 0
    good = layout.inside(picked, size) & aligned & (picked < np.uint64(1 << 62))
    if good.all():
        return index, None
    at = first_true(~good)
    address = int(picked.reshape(-1)[at])
    row, lane = c.locate(at)
    if not bool(aligned.reshape(-1)[at]):
        c.emulation.fault(
            "misaligned", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at local address {address:#x} is misaligned: it must be a multiple of {size}, "
            f"but the remainder is {address % size}",
            "local", address, int(np.count_nonzero(~good)),
        )  # fmt: skip
    else:
        c.emulation.fault(
            "out of bounds", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at local address {address:#x} is out of bounds: {layout.describe(address, size)}",
            "local", address, int(np.count_nonzero(~good)),
        )  # fmt: skip
    return np.where(good, index, 0), good


def _count(c: Cohort, site: Site, size: int) -> None:
    requests, lanes = c.active_warps(), c.active_lanes()
    site.count_local(requests, lanes, size)
    c.emulation.counters.local_requests += requests


def load(c: Cohort, site: Site, addresses: Array, width: int, count: int) -> tuple[Array, Array | None]:
    """Values at the active lanes' local addresses, and which of their bits are uninitialised (None: none)."""
    picked = c.pick(addresses)
    size = width * count
    if picked.size == 0:
        return np.zeros((0, count) if count > 1 else (0,), f"u{width}"), None
    _count(c, site, size)
    index, good = _locate(c, site, picked, size, "load")
    at = index // size
    values = np.take(c.residents.local.view(width, count), at, axis=0, mode="clip")
    if good is not None:
        values[~good] = 0
    if not c.emulation.checking:
        return values, None
    unknown = np.take(c.residents.local_unknown.view(width, count), at, axis=0, mode="clip")
    return values, unknown if unknown.any() else None


def store(
    c: Cohort, site: Site, addresses: Array, values: Array, width: int, count: int, unknown: Array | None
) -> None:
    """Write the active lanes' values to their local addresses; `unknown` are their uninitialised bits (None: none)."""
    picked = c.pick(addresses)
    size = width * count
    if picked.size == 0:
        return
    _count(c, site, size)
    index, good = _locate(c, site, picked, size, "store")
    if good is not None:
        index, values = index[good], values[good]
        unknown = None if unknown is None else unknown[good]
    at = index // size
    c.residents.local.view(width, count)[at] = values
    c.residents.local_unknown.view(width, count)[at] = 0 if unknown is None else unknown
