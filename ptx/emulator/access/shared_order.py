"""Order in shared memory: who wrote and read what, what is uninitialised, and races by happens-before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import ACTOR_BITS, MOST_ACTORS, PENDING
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.mbarriers import WHAT_COMPLETES
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.shadows import SharedReads

Bools = NDArray[np.bool_]
# A writer is remembered as site * 2^16 + lane * 2^10 + column, so that a race can name the line that wrote.
WARP_BITS = ACTOR_BITS
SITE_BITS = ACTOR_BITS + 6
ACTORS = MOST_ACTORS - 1
LANES = 63
# The lane of a read whose data goes to other lanes than the one that gives the address (ldmatrix).
ANY_LANE = 63


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
    _log_read(c, shadow.reads_of(strong), at, span, rows, who)
    return uninitialised


def _log_read(
    c: Cohort, reads: SharedReads, at: NDArray[np.int64], span: int, rows: NDArray[np.int64], who: NDArray[np.int64]
) -> None:
    residents = c.residents
    shadow = residents.shadow
    columns, lanes = who & ACTORS, who >> WARP_BITS
    if residents.cluster_size == 1:
        reads.log_read(at, span, columns, lanes, c.emulation.tick)
        return
    target = at * (span * shadow.granule_bytes) // residents.shared.stride_bytes
    foreign = target != np.broadcast_to(rows % len(residents.ctas), target.shape)
    if not foreign.any():
        reads.log_read(at, span, columns % residents.warps_per_cta, lanes, c.emulation.tick)
        return
    columns, lanes = np.broadcast_to(columns, at.shape), np.broadcast_to(lanes, at.shape)
    own = columns[~foreign] % residents.warps_per_cta
    reads.log_read(at[~foreign], span, own, lanes[~foreign], c.emulation.tick)
    for column in np.unique(columns[foreign]):
        where = at[foreign & (columns == column)]
        reads.mark_foreign(int(column), where, span, c.emulation.tick)


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
    reader = residents.shadow.reads.read_lane.reshape(-1, span)[at]
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
        known = residents.shared_flags.observed(rows, index) if bad.any() and shadow.atomic is not None else None
        if known is not None and shadow.atomic is not None:
            bad &= ~(gather(shadow.atomic, at, span) & ((known[..., None] if span > 1 else known) >= ticks))
        if bad.any():
            _report(c, site, index, size, bad, writer, ticks, span, "writes", picked)
    # Strong writes and atomics conflict with plain reads only.
    for logged in (shadow.reads,) if atomic else shadow.every_read():
        reads = logged.reads()
        latest = None if reads is None else gather(reads[0], at, span)
        plain = logged is shadow.reads
        if latest is not None and reads is not None and plain and who is not None and int(latest.max()) > synced:
            _advise_warp_overwrite(c, site, reads[1], latest, at, span, rows, who, changed)
        if latest is not None and reads is not None and (residents.doubts or int(latest.max()) > synced):
            first: NDArray[np.int64] = np.zeros(1, np.int64)
            if residents.cluster_size > 1:
                rank = index // residents.shared.stride_bytes % residents.cluster_size
                first = rank * residents.warps_per_cta
                first = first[..., None] if span > 1 else first
            for warp in _unknown_readers(c, logged, index, rows):
                seen = gather(reads[1][warp], at, span)
                column = np.broadcast_to(np.asarray(first + warp), seen.shape)
                if _check_reader(c, site, index, size, seen, column, row_of, changed, span, picked):
                    return
        if not logged.foreign:
            continue
        offsets = at * span % shadow.granules_per_cta
        between = int(offsets.min()), int(offsets.max()) + span
        for number, read in logged.foreign.items() if residents.doubts else logged.foreign_at(*between):
            seen = gather(read, at, span)
            column = np.full(seen.shape, number)
            if _check_reader(c, site, index, size, seen, column, row_of, changed, span, picked):
                return


def _unknown_readers(
    c: Cohort, logged: SharedReads, index: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[int]:
    """The warps of a CTA whose last reads of its shared memory are not known to all who write there.

    Of other warps no read can conflict, wherever it was; where lanes only doubt what they know, all warps are asked.
    """
    residents = c.residents
    everyone = list(range(residents.warps_per_cta))
    owner = index // residents.shared.stride_bytes
    if residents.doubts or (owner != rows % len(residents.ctas)).any():
        return everyone
    writers = c.set.index
    first = residents.clocks.own_column[writers] // residents.warps_per_cta * residents.warps_per_cta
    known = residents.clocks.vector[writers[:, None], first[:, None] + np.arange(residents.warps_per_cta)]
    return list(np.flatnonzero(logged.latest > known.min(axis=0)))


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
    place = int(index.reshape(-1)[at])
    address = place % residents.shared.stride_bytes
    first = int(writer[bad][0])
    sentence = describe_conflict(
        residents, residents.cluster_of(row % len(residents.ctas)), f"{size} bytes at shared address {address:#x}",
        verb, first, int(ticks[bad][0]), place,
    )  # fmt: skip
    c.emulation.fault(
        "race", site.instruction, residents, row, lane, sentence, "shared", address, int(np.count_nonzero(lanes))
    )


def describe_conflict(
    residents: Residents, cluster: int, place: str, verb: str, who: int, tick: int, byte: int
) -> str:
    """What a race is about, in words.

    verb  "reads", "writes" (over what `who` wrote) or "overwrites" (what `who` read)
    who   site, lane and column of the other; only the column where it read
    tick  when it did; PENDING where it goes on
    byte  where, counted in the shared memory of all resident CTAs
    """
    column = who & ACTORS
    pending = tick == PENDING
    name = residents.clocks.name(cluster, column)
    agent = column >= residents.clocks.members
    if verb == "overwrites":
        if agent:
            line = residents.shadow.agent_line(column, byte)
            return (
                f"overwrites {place} that asynchronous work on line {line} ({name}) may still be reading: wait for its "
                "completion, and order the wait before this write"
            )
        line = residents.emulation.line_at(tick)
        return (
            f"overwrites {place} that {name} may still be reading on line {line}: every warp must pass bar.sync after "
            "its last read before anyone writes there"
        )
    line = residents.emulation.program.sites[who >> SITE_BITS].line
    if pending and not agent:
        return (
            f"{verb} {place} into which the cp.async on line {line} by {name} may still be copying: that warp "
            "must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync"
        )
    if agent:
        bytes_of = ", in a phase that expects all of its bytes" if name.startswith(WHAT_COMPLETES) else ""
        return (
            f"{verb} {place} that asynchronous work on line {line} ({name}) "
            f"{'may still be writing' if pending else 'wrote'}: wait for its completion first{bytes_of}"
        )
    return (
        f"{verb} {place} that {name} wrote on line {line}, and no barrier orders the two: put bar.sync "
        "between them"
    )
