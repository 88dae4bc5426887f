"""Reading and writing shared memory for the active lanes of a cohort, with bounds, validity and race checks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.races import PENDING
from tinygpu.ptx.emulator.state.residents import Cohort

Bools = NDArray[np.bool_]
# A writer is remembered as site * 4096 + lane * 64 + warp, so that a race can name the line that wrote.
WARP_BITS = 6
SITE_BITS = 12
_WARP = (1 << WARP_BITS) - 1
# The lane of a read whose data goes to other lanes than the one that gives the address (ldmatrix).
ANY_LANE = 63


def locate(
    c: Cohort, site: Site, addresses: Array, size: int, verb: str, align: int | None = None
) -> tuple[NDArray[np.int64], Bools | None]:
    """Byte index into the shared memory of all resident CTAs, and which accesses are good (None: all).

    addresses  shared addresses of active lanes, in the shape of Cohort.pick
    """
    align = size if align is None else align
    layout = c.emulation.program.shared
    low = int(addresses.min())
    high = int(addresses.max()) + size
    aligned = align == 1 or not int(np.bitwise_or.reduce(addresses, axis=None)) & (align - 1)
    index = addresses.astype(np.int64) + c.pick_column(c.set.shared_offset)
    if aligned and layout.holds(low, high):
        return index, None
    good = np.ones(addresses.shape, np.bool_)
    if not aligned:
        bad = (addresses & np.array(align - 1, addresses.dtype)) != 0
        good &= ~bad
        at = first_true(bad)
        row, lane = c.locate(at)
        address = int(addresses.reshape(-1)[at])
        c.emulation.fault(
            "misaligned", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at shared address {address:#x} is misaligned: it must be a multiple of {align}, "
            f"but the remainder is {address % align}",
            "shared", address, int(np.count_nonzero(bad)),
        )  # fmt: skip
    inside = layout.inside(addresses, size)
    outside = good & ~inside
    if outside.any():
        at = first_true(outside)
        row, lane = c.locate(at)
        address = int(addresses.reshape(-1)[at])
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
    aligned = not int(np.bitwise_or.reduce(addresses, axis=None)) & (size - 1)
    index = addresses.astype(np.int64) + c.set.shared_offset
    if aligned and layout.holds(int(addresses.min()), int(addresses.max()) + size):
        return index, True
    misaligned = (addresses & np.array(size - 1, addresses.dtype)) != 0
    outside = ~layout.inside(addresses, size)
    bad = misaligned if misaligned.any() else outside
    if not bad.any():
        return index, True
    at = first_true(bad)
    row, lane = c.locate_access(at, bad.size)
    address = int(addresses.reshape(-1)[at])
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


def check_read(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, rows: NDArray[np.int64], who: NDArray[np.int64]
) -> Bools | None:
    """Report reads of what another warp or an asynchronous copy may be writing; which reads are uninitialised.

    index  byte index of each access, any shape; `rows`, and `who` (lane * 64 + warp), broadcast against it
    """
    shadow = c.residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    ticks = np.take(shadow.written.reshape(-1, span), at, axis=0, mode="clip") if span > 1 else shadow.written[at]
    uninitialised: Bools | None = None
    if not ticks.all():
        uninitialised = np.asarray(ticks == 0)
    if shadow.invalid is not None:
        marked = shadow.invalid.reshape(-1, span)[at] if span > 1 else shadow.invalid[at]
        uninitialised = marked if uninitialised is None else np.asarray(uninitialised | marked)
    if uninitialised is not None:
        uninitialised = np.asarray(uninitialised.any(axis=-1)) if span > 1 else uninitialised
        if not uninitialised.any():
            uninitialised = None
    clocks = c.residents.clocks
    if int(ticks.max()) > int(clocks.synced[c.set.index].min()):
        writer = shadow.writer.reshape(-1, span)[at] if span > 1 else shadow.writer[at]
        row_of = rows[..., None] if span > 1 else rows
        bad = ticks > clocks.vector[row_of, writer & _WARP]
        if bad.any():
            _report(c, site, index, size, bad, writer, ticks, span, "reads")
        _advise_warp_exchange(c, site, ticks, writer, row_of, who[..., None] if span > 1 else who)
    shadow.log_read(at, span, who & _WARP, c.emulation.tick)
    return uninitialised


def _advise_warp_exchange(
    c: Cohort, site: Site, ticks: NDArray[np.int32], writer: NDArray[np.int32], rows: NDArray[np.int64],
    who: NDArray[np.int64],
) -> None:  # fmt: skip
    """Lanes of one warp that exchange data without bar.warp.sync: undefined by the manual, though it mostly works."""
    stale = (ticks > c.residents.clocks.warp_synced[rows]) & (ticks != PENDING)
    stale &= ((writer & _WARP) == (who & _WARP)) & ((writer >> WARP_BITS & _WARP) != who >> WARP_BITS)
    if stale.any():
        line = c.emulation.program.sites[int(writer[stale][0]) >> SITE_BITS].line
        c.emulation.advise(
            "warp exchange without bar.warp.sync", site.instruction,
            f"a lane reads what another lane of its warp wrote on line {line}, without bar.warp.sync between the two",
        )  # fmt: skip


def check_write(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, rows: NDArray[np.int64], changed: Bools | None,
    atomic: bool = False, picked: Bools | None = None,
) -> None:  # fmt: skip
    """Report writes over what another warp may be reading or writing, or an asynchronous copy may be writing.

    changed  per access whether it changes the bytes there: rewriting the same value is no conflict
    atomic   the write is atomic: it does not conflict with other atomics
    picked   where `index` holds only some of the active lanes: which of them, flattened
    """
    shadow = c.residents.shadow
    clocks = c.residents.clocks
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    synced = int(clocks.synced[c.set.index].min())
    ticks = np.take(shadow.written.reshape(-1, span), at, axis=0, mode="clip") if span > 1 else shadow.written[at]
    row_of = rows[..., None] if span > 1 else rows
    if int(ticks.max()) > synced:
        writer = shadow.writer.reshape(-1, span)[at] if span > 1 else shadow.writer[at]
        bad = ticks > clocks.vector[row_of, writer & _WARP]
        if changed is not None:
            bad &= (changed[..., None] if span > 1 else changed) | (ticks == PENDING)
        if atomic and shadow.atomic is not None:
            bad &= ~(shadow.atomic.reshape(-1, span)[at] if span > 1 else shadow.atomic[at])
        if bad.any():
            _report(c, site, index, size, bad, writer, ticks, span, "writes", picked)
    reads = shadow.reads()
    if reads is None:
        return
    last, by_warp = reads
    latest = np.take(last.reshape(-1, span), at, axis=0, mode="clip") if span > 1 else last[at]
    if int(latest.max()) <= synced:
        return
    for warp in range(shadow.warps_per_cta):
        seen = by_warp[warp].reshape(-1, span)[at] if span > 1 else by_warp[warp][at]
        bad = seen > clocks.vector[row_of, warp]
        if changed is not None:
            bad &= changed[..., None] if span > 1 else changed
        if bad.any():
            who = np.full(bad.shape, warp, np.int32)
            _report(c, site, index, size, bad, who, seen, span, "overwrites", picked)
            return


def mark_written(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, who: NDArray[np.int64], tick: int,
    atomic: bool = False,
) -> None:  # fmt: skip
    """Remember a write that happens at `tick` (PENDING for an asynchronous copy that was only issued)."""
    shadow = c.residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    who = (np.broadcast_to(who, at.shape) + (site.number << SITE_BITS)).astype(np.int32)
    if span > 1:
        shadow.written.reshape(-1, span)[at] = tick
        shadow.writer.reshape(-1, span)[at] = who[..., None]
        if shadow.invalid is not None:
            shadow.invalid.reshape(-1, span)[at] = False
    else:
        shadow.written[at] = tick
        shadow.writer[at] = who
        if shadow.invalid is not None:
            shadow.invalid[at] = False
    if atomic and shadow.atomic is None:
        shadow.atomic = np.zeros(shadow.written.size, np.bool_)
    if shadow.atomic is not None:
        if span > 1:
            shadow.atomic.reshape(-1, span)[at] = atomic
        else:
            shadow.atomic[at] = atomic


def is_unwritten(c: Cohort, index: NDArray[np.int64], size: int) -> Bools | None:
    """Which accesses touch bytes that were never written; None for none."""
    shadow = c.residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    bad = shadow.written.reshape(-1, span)[at].min(axis=-1) == 0
    if shadow.invalid is not None:
        bad |= shadow.invalid.reshape(-1, span)[at].any(axis=-1)
    return bad if bad.any() else None


def mark_invalid(c: Cohort, index: NDArray[np.int64], size: int, bad: Bools) -> None:
    """The values just written by accesses where `bad` are uninitialised."""
    shadow = c.residents.shadow
    if shadow.invalid is None:
        shadow.invalid = np.zeros(shadow.written.size, np.bool_)
    span = max(1, size // shadow.granule_bytes)
    at = index[np.broadcast_to(bad, index.shape)] // (span * shadow.granule_bytes)
    if span > 1:
        shadow.invalid.reshape(-1, span)[at] = True
    else:
        shadow.invalid[at] = True


def _report(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, bad: Bools, writer: NDArray[np.int32],
    ticks: NDArray[np.int32], span: int, verb: str, picked: Bools | None = None,
) -> None:  # fmt: skip
    lanes = bad.any(axis=-1) if span > 1 else bad
    at = first_true(lanes)
    if picked is None:
        row, lane = c.locate_access(at, lanes.size)
    else:
        row, lane = c.locate(int(np.flatnonzero(picked)[at]))
    address = int(index.reshape(-1)[at]) % c.residents.shared.stride_bytes
    first = int(writer[bad][0])
    warp = first & _WARP
    pending = bool((ticks[bad][0] == PENDING) and verb != "overwrites")
    place = f"{size} bytes at shared address {address:#x}"
    if verb == "overwrites":
        sentence = (
            f"overwrites {place} that warp {warp} may still be reading: every warp must pass bar.sync after its last "
            "read before anyone writes there"
        )
    else:
        line = c.emulation.program.sites[first >> SITE_BITS].line
        if pending:
            sentence = (
                f"{verb} {place} into which the cp.async on line {line} by warp {warp} may still be copying: that warp "
                "must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync"
            )
        else:
            sentence = (
                f"{verb} {place} that warp {warp} wrote on line {line}, and no barrier orders the two: put bar.sync "
                "between them"
            )
    c.emulation.fault(
        "race", site.instruction, c.residents, row, lane, sentence, "shared", address, int(np.count_nonzero(lanes))
    )


def load(c: Cohort, site: Site, addresses: Array, width: int, count: int) -> tuple[Array, Bools | None]:
    """Values at the active lanes' addresses and which of them are uninitialised (None: none).

    addresses  (n, 32) shared addresses; returns the shape of Cohort.pick, with an axis of `count` when count > 1
    """
    picked = c.pick(addresses)
    size = width * count
    if picked.size == 0:
        return np.zeros((0, count) if count > 1 else (0,), f"u{width}"), None
    index, good = locate(c, site, picked, size, "load")
    values = np.take(
        c.residents.shared.view(width, count), index // size if size > 1 else index, axis=0, mode="clip"
    )
    if not c.emulation.checking:
        return values, None
    if good is None:
        return values, check_read(c, site, index, size, c.pick_column(c.set.column), c.pick(c.set.who))
    values[~good] = 0
    return values, None


def store(c: Cohort, site: Site, addresses: Array, values: Array, width: int, count: int) -> NDArray[np.int64] | None:
    """Write the active lanes' values; returns the byte index of each access (None where nothing was written)."""
    picked = c.pick(addresses)
    if picked.size == 0:
        return None
    size = width * count
    index, good = locate(c, site, picked, size, "store")
    rows, who = c.pick_column(c.set.column), c.pick(c.set.who)
    if good is not None:
        index, values, who = index[good], values[good], who[good]
        rows = np.broadcast_to(rows, good.shape)[good]
        if index.size == 0:
            return None
    view = c.residents.shared.view(width, count)
    at = index // size if size > 1 else index
    if not c.emulation.checking:
        c.emulation.changes += 1
        view[at] = values
        return index
    changed = np.asarray(np.take(view, at, axis=0, mode="clip") != values)
    if count > 1:
        changed = np.asarray(changed.any(axis=-1))
    c.emulation.changes += bool(changed.any())
    check_write(c, site, index, size, rows, changed)
    view[at] = values
    mark_written(c, site, index, size, who, c.emulation.tick)
    lost = np.asarray(np.take(view, at, axis=0, mode="clip") != values)
    if count > 1:
        lost = np.asarray(lost.any(axis=-1))
    if lost.any() and good is None:
        first = first_true(lost)
        row, lane = c.locate(first)
        address = int(index.reshape(-1)[first]) % c.residents.shared.stride_bytes
        c.emulation.fault(
            "race", site.instruction, c.residents, row, lane,
            f"writes {size} bytes at shared address {address:#x}, to which another thread writes a different value in "
            "the same instruction: give each thread its own bytes, or use atomics",
            "shared", address, int(np.count_nonzero(lost)),
        )  # fmt: skip
    return index if good is None else None
