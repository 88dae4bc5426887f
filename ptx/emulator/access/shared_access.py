"""Reading and writing shared memory for the active lanes of a cohort, with bounds, validity and race checks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import ACTOR_BITS, MOST_ACTORS, PENDING
from tinygpu.ptx.emulator.state.cluster_reach import CLUSTER_OFFSET_MASK, CLUSTER_RANK_SHIFT
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents

Bools = NDArray[np.bool_]
# A writer is remembered as site * 2^16 + lane * 2^10 + column, so that a race can name the line that wrote.
WARP_BITS = ACTOR_BITS
SITE_BITS = ACTOR_BITS + 6
ACTORS = MOST_ACTORS - 1
LANES = 63
# The lane of a read whose data goes to other lanes than the one that gives the address (ldmatrix).
ANY_LANE = 63


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


def gather(values: Array, at: NDArray[np.int64], span: int) -> Array:
    """values per granule of each access: the shape of `at`, with an axis of `span` when span > 1."""
    if span > 1:
        return np.take(values.reshape(-1, span), at, axis=0, mode="clip")
    return np.asarray(values[at])


def check_read(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, rows: NDArray[np.int64], who: NDArray[np.int64],
    strong: bool = False,
) -> Bools | None:  # fmt: skip
    """Report reads of what another warp or an asynchronous copy may be writing; which reads are uninitialised.

    index   byte index of each access, any shape; `rows`, and `who` (lane and column), broadcast against it
    strong  the access is volatile, relaxed or acquire: it may race with atomics and strong writes
    """
    shadow = c.residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    ticks = gather(shadow.written, at, span)
    uninitialised: Bools | None = None
    if not ticks.all():
        uninitialised = np.asarray(ticks == 0)
    if shadow.invalid is not None:
        marked = gather(shadow.invalid, at, span)
        uninitialised = marked if uninitialised is None else np.asarray(uninitialised | marked)
    if uninitialised is not None:
        uninitialised = np.asarray(uninitialised.any(axis=-1)) if span > 1 else uninitialised
        if not uninitialised.any():
            uninitialised = None
    clocks = c.residents.clocks
    if clocks.agents or c.residents.doubts or int(ticks.max()) > int(clocks.synced[c.set.index].min()):
        writer = gather(shadow.writer, at, span)
        row_of = rows[..., None] if span > 1 else rows
        bad = ticks > clocks.vector[row_of, writer & ACTORS]
        judged = ticks
        if strong and shadow.atomic is not None:
            by_atomics = gather(shadow.atomic, at, span)
            bad &= ~by_atomics
            if not site.instruction.has("volatile"):
                # Atomics and strong accesses need no order, neither between warps nor, by bar.warp.sync, between lanes.
                judged = np.where(by_atomics, np.int32(0), ticks)
        if c.residents.doubts:
            c.residents.advise_doubts(site.instruction, row_of, writer & ACTORS, judged)
        if bad.any():
            _report(c, site, index, size, bad, writer, ticks, span, "reads")
        _advise_warp_exchange(c, site, judged, writer, row_of, who[..., None] if span > 1 else who)
    c.note_access()
    if not strong:
        _log_read(c, at, span, rows, who)
    return uninitialised


def _log_read(
    c: Cohort, at: NDArray[np.int64], span: int, rows: NDArray[np.int64], who: NDArray[np.int64]
) -> None:
    residents = c.residents
    shadow = residents.shadow
    columns, lanes = who & ACTORS, who >> WARP_BITS
    if residents.cluster_size == 1:
        shadow.log_read(at, span, columns, lanes, c.emulation.tick)
        return
    target = at * (span * shadow.granule_bytes) // residents.shared.stride_bytes
    foreign = target != np.broadcast_to(rows % len(residents.ctas), target.shape)
    if not foreign.any():
        shadow.log_read(at, span, columns % residents.warps_per_cta, lanes, c.emulation.tick)
        return
    columns, lanes = np.broadcast_to(columns, at.shape), np.broadcast_to(lanes, at.shape)
    own = columns[~foreign] % residents.warps_per_cta
    shadow.log_read(at[~foreign], span, own, lanes[~foreign], c.emulation.tick)
    for column in np.unique(columns[foreign]):
        where = at[foreign & (columns == column)]
        shadow.mark_foreign_read(int(column), (where[..., None] * span + np.arange(span)).reshape(-1), c.emulation.tick)


def _advise_warp_exchange(
    c: Cohort, site: Site, ticks: NDArray[np.int32], writer: NDArray[np.int32], rows: NDArray[np.int64],
    who: NDArray[np.int64],
) -> None:  # fmt: skip
    """Lanes of one warp that exchange data without bar.warp.sync: undefined by the manual, though it mostly works."""
    stale = (ticks > c.residents.clocks.warp_synced[rows]) & (ticks != PENDING)
    stale &= ((writer & ACTORS) == (who & ACTORS)) & ((writer >> WARP_BITS & LANES) != who >> WARP_BITS)
    if stale.any():
        line = c.emulation.program.sites[int(writer[stale][0]) >> SITE_BITS].line
        c.emulation.advise(
            "warp exchange without bar.warp.sync", site.instruction,
            f"a lane reads what another lane of its warp wrote on line {line}, without bar.warp.sync between the two",
        )  # fmt: skip


def _advise_warp_overwrite(
    c: Cohort, site: Site, read_by: NDArray[np.int32], latest: NDArray[np.int32], at: NDArray[np.int64], span: int,
    rows: NDArray[np.int64], who: NDArray[np.int64], changed: Bools | None,
) -> None:  # fmt: skip
    """A lane that writes over what another lane of its warp read, without bar.warp.sync between the two."""
    residents = c.residents
    warp = np.broadcast_to(rows // len(residents.ctas), at.shape)
    own = read_by.reshape(residents.warps_per_cta, -1, span)[warp, at]
    reader = residents.shadow.read_lane.reshape(-1, span)[at]
    synced = np.broadcast_to(residents.clocks.warp_synced[rows], at.shape)[..., None]
    writer = np.broadcast_to(who >> WARP_BITS, at.shape)[..., None]
    stale = (own > synced) & (own == latest.reshape(own.shape)) & (reader != writer) & (reader != ANY_LANE)
    if changed is not None:
        stale &= np.broadcast_to(changed, at.shape)[..., None]
    if stale.any():
        c.emulation.advise(
            "warp exchange without bar.warp.sync", site.instruction,
            "a lane overwrites what another lane of its warp read, without bar.warp.sync between the two",
        )  # fmt: skip


def check_write(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, rows: NDArray[np.int64], changed: Bools | None,
    atomic: bool = False, picked: Bools | None = None, who: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Report writes over what another warp may be reading or writing, or an asynchronous copy may be writing.

    changed  per access whether it changes the bytes there: rewriting the same value is no conflict
    atomic   the write is atomic: it does not conflict with other atomics
    picked   where `index` holds only some of the active lanes: which of them, flattened
    who      lane and column of each access, where lanes write what is theirs
    """
    residents = c.residents
    shadow, clocks = residents.shadow, residents.clocks
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    synced = int(clocks.synced[c.set.index].min())
    ticks = gather(shadow.written, at, span)
    row_of = rows[..., None] if span > 1 else rows
    if residents.mbarriers.live:
        residents.drop_overwritten_mbarriers(index, size, site.line)
    c.note_access()
    if clocks.agents or residents.doubts or int(ticks.max()) > synced:
        writer = gather(shadow.writer, at, span)
        bad = ticks > clocks.vector[row_of, writer & ACTORS]
        judged = ticks
        if atomic and shadow.atomic is not None:
            by_atomics = gather(shadow.atomic, at, span)
            bad &= ~by_atomics
            judged = np.where(by_atomics, np.int32(0), ticks)
        if residents.doubts:
            residents.advise_doubts(site.instruction, row_of, writer & ACTORS, judged)
        if changed is not None:
            bad &= (changed[..., None] if span > 1 else changed) | (ticks == PENDING)
        if bad.any():
            _report(c, site, index, size, bad, writer, ticks, span, "writes", picked)
    reads = shadow.reads()
    latest = None if reads is None else gather(reads[0], at, span)
    if latest is not None and reads is not None and who is not None and int(latest.max()) > synced:
        _advise_warp_overwrite(c, site, reads[1], latest, at, span, rows, who, changed)
    if latest is not None and (residents.doubts or int(latest.max()) > synced):
        first: NDArray[np.int64] = np.zeros(1, np.int64)
        if residents.cluster_size > 1:
            rank = index // residents.shared.stride_bytes % residents.cluster_size
            first = rank * residents.warps_per_cta
            first = first[..., None] if span > 1 else first
        for warp in range(shadow.warps_per_cta):
            seen = gather(reads[1][warp], at, span)  # type: ignore[index]
            column = np.broadcast_to(np.asarray(first + warp), seen.shape)
            if _check_reader(c, site, index, size, seen, column, row_of, changed, span, picked):
                return
    for number, read in shadow.foreign.items():
        seen = gather(read, at, span)
        column = np.full(seen.shape, number)
        if _check_reader(c, site, index, size, seen, column, row_of, changed, span, picked):
            return


def _check_reader(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, seen: NDArray[np.int32], column: NDArray[np.int64],
    row_of: NDArray[np.int64], changed: Bools | None, span: int, picked: Bools | None,
) -> bool:  # fmt: skip
    if c.residents.doubts:
        c.residents.advise_doubts(site.instruction, row_of, column, seen)
    bad = seen > c.residents.clocks.vector[row_of, column]
    if changed is not None:
        bad &= (changed[..., None] if span > 1 else changed) | (seen == PENDING)
    if not bad.any():
        return False
    _report(c, site, index, size, bad, column.astype(np.int32), seen, span, "overwrites", picked)
    return True


def mark_written(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, who: NDArray[np.int64], tick: int,
    atomic: bool = False,
) -> None:  # fmt: skip
    """Remember a write that happens at `tick` (PENDING for an asynchronous copy that was only issued)."""
    mark_written_by(c.residents, site, index, size, who, tick, atomic)


def mark_written_by(
    residents: Residents, site: Site, index: NDArray[np.int64], size: int, who: NDArray[np.int64], tick: int,
    atomic: bool = False,
) -> None:  # fmt: skip
    """The same for writes that no cohort carries out now."""
    shadow = residents.shadow
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


def mark_unknown(c: Cohort, index: NDArray[np.int64], size: int, unknown: Array) -> None:
    """Of the values just written these bits are uninitialised: in the values' shape and type.

    A granule that is known in part (a member of a struct with its padding) counts as known.
    """
    shadow = c.residents.shadow
    if shadow.invalid is None:
        shadow.invalid = np.zeros(shadow.written.size, np.bool_)
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    parts = np.ascontiguousarray(unknown).view(np.uint8).reshape(*index.shape, span, -1).all(axis=-1)
    shadow.invalid.reshape(-1, span)[at] |= parts


def unknown_bits(c: Cohort, index: NDArray[np.int64], width: int, count: int) -> Array:
    """Which bits there were never written, in the shape and type of the values of a load."""
    shadow = c.residents.shadow
    size = width * count
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    bad = shadow.written.reshape(-1, span)[at] == 0
    if shadow.invalid is not None:
        bad = bad | shadow.invalid.reshape(-1, span)[at]
    marks = np.repeat(bad, size // span, axis=-1).astype(np.uint8) * np.uint8(0xFF)
    words = np.ascontiguousarray(marks).view(f"u{width}")
    return np.asarray(words if count > 1 else words[..., 0])


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
    residents = c.residents
    address = int(index.reshape(-1)[at]) % residents.shared.stride_bytes
    first = int(writer[bad][0])
    pending = bool(ticks[bad][0] == PENDING)
    sentence = describe_conflict(
        residents, residents.cluster_of(row % len(residents.ctas)), f"{size} bytes at shared address {address:#x}",
        verb, first, pending,
    )  # fmt: skip
    c.emulation.fault(
        "race", site.instruction, residents, row, lane, sentence, "shared", address, int(np.count_nonzero(lanes))
    )


def describe_conflict(residents: Residents, cluster: int, place: str, verb: str, who: int, pending: bool) -> str:
    """What a race is about, in words.

    verb  "reads", "writes" (over what `who` wrote) or "overwrites" (what `who` read)
    who   site, lane and column of the other; only the column where it read
    """
    column = who & ACTORS
    name = residents.clocks.name(cluster, column)
    agent = column >= residents.clocks.members
    if verb == "overwrites":
        if agent:
            return (
                f"overwrites {place} that asynchronous work ({name}) may still be reading: wait for its completion, "
                "and order the wait before this write"
            )
        return (
            f"overwrites {place} that {name} may still be reading: every warp must pass bar.sync after its last "
            "read before anyone writes there"
        )
    line = residents.emulation.program.sites[who >> SITE_BITS].line
    if pending and not agent:
        return (
            f"{verb} {place} into which the cp.async on line {line} by {name} may still be copying: that warp "
            "must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync"
        )
    if agent:
        return (
            f"{verb} {place} that asynchronous work on line {line} ({name}) "
            f"{'may still be writing' if pending else 'wrote'}: wait for its completion first"
        )
    return (
        f"{verb} {place} that {name} wrote on line {line}, and no barrier orders the two: put bar.sync "
        "between them"
    )


def load(
    c: Cohort, site: Site, addresses: Array, width: int, count: int, strong: bool = False
) -> tuple[Array, Array | None]:
    """Values at the active lanes' addresses and which of their bits are uninitialised (None: none).

    addresses  (n, 32) shared addresses; returns the shape of Cohort.pick, with an axis of `count` when count > 1
    strong     the access is volatile, relaxed or acquire: what was released at these places is learned
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
        invalid = check_read(c, site, index, size, c.pick_column(c.set.column), c.pick(c.set.who), strong)
        if strong:
            c.residents.exchange(c, index, True, False, acquire=site.instruction.has("acquire"))
        return values, None if invalid is None else unknown_bits(c, index, width, count)
    values[~good] = 0
    return values, None


def store(
    c: Cohort, site: Site, addresses: Array, values: Array, width: int, count: int, strong: bool = False
) -> NDArray[np.int64] | None:
    """Write the active lanes' values; returns the byte index of each access (None where nothing was written).

    strong  the access is volatile, relaxed or release: it may race with atomics, and releases what was fenced
    """
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
    check_write(c, site, index, size, rows, changed, strong, who=None if strong else who)
    view[at] = values
    mark_written(c, site, index, size, who, c.emulation.tick, strong)
    if strong:
        c.residents.exchange(c, index, False, True, site.instruction.has("release"))
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
