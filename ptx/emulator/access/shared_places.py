"""Where accesses of shared memory lie: addresses of any CTA of a cluster, alignment and bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.cluster_reach import CLUSTER_OFFSET_MASK, CLUSTER_RANK_SHIFT
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.meter import Site

Bools = NDArray[np.bool_]


def _place(c: Cohort, site: Site, addresses: Array, rows: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """(offset within a CTA's shared memory, first byte of that CTA's memory) of shared addresses of any CTA.

    In a cluster the bits from 24 on are the rank of the CTA that an address belongs to. Addresses of other CTAs than
    the executing one are for .shared::cluster and generic accesses only.
    """
    residents = c.residents
    if residents.cluster_size == 1:
        return addresses, np.zeros(1, np.int64)
    wide = addresses.astype(np.int64)
    rank = wide >> CLUSTER_RANK_SHIFT
    cta = np.broadcast_to(rows % len(residents.ctas), wide.shape)
    own = cta % residents.cluster_size
    foreign = rank != own
    if not foreign.any():
        return wide & CLUSTER_OFFSET_MASK, cta * residents.shared.stride_bytes
    bad = foreign if not site.remote else rank >= residents.cluster_size
    if bad.any():
        at = first_true(bad)
        row, lane = c.locate_access(at, bad.size)
        address = int(wide.reshape(-1)[at])
        where = int(rank.reshape(-1)[at])
        if not site.remote:
            sentence = (
                f"`{site.instruction.name}` accesses shared address {address:#x}, which belongs to CTA {where} of the "
                "cluster: only .shared::cluster and generic accesses reach other CTAs"
            )
        else:
            sentence = (
                f"shared address {address:#x} belongs to CTA {where} of a cluster that has {residents.cluster_size}"
            )
        c.emulation.fault(
            "out of bounds", site.instruction, residents, row, lane, sentence, "shared", address,
            int(np.count_nonzero(bad)),
        )  # fmt: skip
        rank = np.where(bad, own, rank)
    target = cta - own + rank
    if c.emulation.checking:
        for one in np.unique(target[target != cta]):
            reader = int(np.broadcast_to(rows, wide.shape)[target == one].reshape(-1)[0])
            residents.reach.touch(site.instruction, reader, int(one))
    return wide & CLUSTER_OFFSET_MASK, target * residents.shared.stride_bytes


def locate(
    c: Cohort, site: Site, addresses: Array, size: int, verb: str, align: int | None = None
) -> tuple[NDArray[np.int64], Bools | None]:
    """Byte index into the shared memory of all resident CTAs, and which accesses are good (None: all).

    addresses  shared addresses of active lanes, in the shape of Cohort.pick
    """
    align = size if align is None else align
    layout = c.emulation.program.shared
    offsets, first = addresses, c.pick_column(c.set.shared_offset)
    if c.residents.cluster_size > 1:
        offsets, first = _place(c, site, addresses, c.pick_column(c.set.column))
    low = int(offsets.min())
    high = int(offsets.max()) + size
    aligned = align == 1 or not int(np.bitwise_or.reduce(offsets, axis=None)) & (align - 1)
    index = offsets.astype(np.int64) + first
    if aligned and layout.holds(low, high):
        return index, None
    good = np.ones(addresses.shape, np.bool_)
    if not aligned:
        bad = (offsets & np.array(align - 1, offsets.dtype)) != 0
        good &= ~bad
        at = first_true(bad)
        row, lane = c.locate(at)
        address = int(offsets.reshape(-1)[at])
        c.emulation.fault(
            "misaligned", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at shared address {address:#x} is misaligned: it must be a multiple of {align}, "
            f"but the remainder is {address % align}",
            "shared", address, int(np.count_nonzero(bad)),
        )  # fmt: skip
    inside = layout.inside(offsets, size)
    outside = good & ~inside
    if outside.any():
        at = first_true(outside)
        row, lane = c.locate(at)
        address = int(offsets.reshape(-1)[at])
        c.emulation.fault(
            "out of bounds", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at shared address {address:#x} is out of bounds: "
            f"{layout.describe(address, size)}",
            "shared", address, int(np.count_nonzero(outside)),
        )  # fmt: skip
    good &= inside
    return np.where(good, index, 0), None if good.all() else good


def locate_rows(
    c: Cohort, site: Site, addresses: Array, size: int, verb: str
) -> tuple[NDArray[np.int64], bool]:
    """Byte index of accesses of which each warp makes the same number: (n, m). False where one of them is a fault."""
    layout = c.emulation.program.shared
    offsets, first = addresses, c.set.shared_offset
    if c.residents.cluster_size > 1:
        offsets, first = _place(c, site, addresses, c.set.column)
    aligned = not int(np.bitwise_or.reduce(offsets, axis=None)) & (size - 1)
    index = offsets.astype(np.int64) + first
    if aligned and layout.holds(int(offsets.min()), int(offsets.max()) + size):
        return index, True
    misaligned = (offsets & np.array(size - 1, offsets.dtype)) != 0
    outside = ~layout.inside(offsets, size)
    bad = misaligned if misaligned.any() else outside
    if not bad.any():
        return index, True
    at = first_true(bad)
    row, lane = c.locate_access(at, bad.size)
    address = int(offsets.reshape(-1)[at])
    if misaligned.any():
        c.emulation.fault(
            "misaligned", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at shared address {address:#x} is misaligned: it must be a multiple of {size}, "
            f"but the remainder is {address % size}",
            "shared", address, int(np.count_nonzero(bad)),
        )  # fmt: skip
    else:
        c.emulation.fault(
            "out of bounds", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at shared address {address:#x} is out of bounds: "
            f"{layout.describe(address, size)}",
            "shared", address, int(np.count_nonzero(bad)),
        )  # fmt: skip
    return index, False
