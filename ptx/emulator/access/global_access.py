"""Reading and writing global memory for the active lanes of a cohort, with bounds, validity and race checks."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import OWN, PENDING
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.emulation import first_true
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.scopes import Scope, scope_of
from tinygpu.ptx.emulator.state.shadows import GlobalShadow

Selection = NDArray[np.bool_] | None


def resolve(
    c: Cohort, site: Site, addresses: Array, size: int, verb: str, align: int | None = None
) -> list[tuple[Window, Selection]]:
    """Which windows hold these accesses; lanes outside every window, or misaligned, are faults and are left out.

    addresses  uint64 byte addresses of active lanes, any shape, not empty
    size       bytes per lane
    align      required alignment; `size` where None
    """
    align = size if align is None else align
    low = int(addresses.min())
    high = int(addresses.max()) + size
    aligned = align == 1 or not int(np.bitwise_or.reduce(addresses, axis=None)) & (align - 1)
    window = c.emulation.memory.window_of(low, high)
    if window is not None and aligned:
        return [(window, None)]
    good = np.ones(addresses.shape, np.bool_)
    if not aligned:
        bad = (addresses & np.uint64(align - 1)) != 0
        good &= ~bad
        at = first_true(bad)
        address = int(addresses.reshape(-1)[at])
        row, lane = c.locate(at)
        c.emulation.fault(
            "misaligned", site.instruction, c.residents, row, lane,
            f"{verb} of {size} bytes at global address {address:#x} is misaligned: it must be a multiple of {align}, "
            f"but the remainder is {address % align}",
            "global", address, int(np.count_nonzero(bad)),
        )  # fmt: skip
    found = c.emulation.memory.window_indices(addresses, size)
    missing = (found < 0) & good
    if missing.any():
        _report_missing(c, site, addresses, size, missing, verb)
    good &= found >= 0
    result: list[tuple[Window, Selection]] = []
    for number in np.unique(found[good]):
        result.append((c.emulation.memory.windows[int(number)], good & (found == number)))
    return result


def _report_missing(
    c: Cohort, site: Site, addresses: Array, size: int, missing: NDArray[np.bool_], verb: str
) -> None:
    at = first_true(missing)
    address = int(addresses.reshape(-1)[at])
    row, lane = c.locate(at)
    kind, sentence = c.emulation.memory.describe_missing(address, size, f"{verb} of {size} bytes")
    c.emulation.fault(
        kind, site.instruction, c.residents, row, lane, sentence, "global", address, int(np.count_nonzero(missing))
    )


def load(
    c: Cohort, site: Site, addresses: Array, width: int, count: int, strong: bool = False
) -> tuple[Array, Array | None]:
    """Values at the active lanes' addresses, and which of their bits are uninitialised (None: none).

    addresses  (n, 32) uint64; returns the shape of Cohort.pick, with an axis of `count` behind it when count > 1
    strong     the access is volatile, relaxed or acquire: it may race with atomics
    """
    picked = c.pick(addresses)
    size = width * count
    if picked.size == 0:
        return np.zeros((0, count) if count > 1 else (0,), f"u{width}"), None
    parts = resolve(c, site, picked, size, "load")
    if len(parts) == 1 and parts[0][1] is None:
        window = parts[0][0]
        return _load_window(c, site, window, picked, width, count, None, strong)
    values = np.zeros((*picked.shape, count) if count > 1 else picked.shape, f"u{width}")
    unknown: Array | None = None
    for window, selection in parts:
        part, bits = _load_window(c, site, window, picked, width, count, selection, strong)
        values[selection] = part
        if bits is not None:
            unknown = np.zeros_like(values) if unknown is None else unknown
            unknown[selection] = bits
    return values, unknown


def _load_window(
    c: Cohort, site: Site, window: Window, picked: Array, width: int, count: int, selection: Selection, strong: bool
) -> tuple[Array, Array | None]:
    size = width * count
    addresses = picked if selection is None else picked[selection]
    offsets = (addresses - np.uint64(window.origin)).view(np.int64)
    index = offsets // size if size > 1 else offsets
    values = np.take(window.view(width, count), index, axis=0, mode="clip")
    unknown: Array | None = None
    if c.emulation.checking:
        if window.valid is not None:
            known = window.valid[: window.data.size // size * size].reshape(-1, size)[index]
            if not known.all():
                bits = np.where(known, np.uint8(0), np.uint8(0xFF)).view(f"u{width}")
                unknown = bits if count > 1 else bits[..., 0]
        check_read(c, site, window, offsets, size, selection, strong)
    return values, unknown


def _shadow(c: Cohort, window: Window) -> GlobalShadow:
    if window.shadow is None:
        window.shadow = GlobalShadow(window.data.size, c.emulation.program.global_granule_bytes)
    return window.shadow


def _warps(c: Cohort, selection: Selection) -> NDArray[np.int64]:
    """Number in the launch of the warp of each access."""
    warps = c.pick_column(c.set.global_warp)
    if selection is None:
        return warps
    return np.broadcast_to(warps, selection.shape)[selection]


def check_read(
    c: Cohort, site: Site, window: Window, offsets: NDArray[np.int64], size: int, selection: Selection,
    strong: bool = False,
) -> None:  # fmt: skip
    """Report reads of what another warp may be writing; remember the read."""
    shadow = _shadow(c, window)
    granule = shadow.granule_bytes
    span = max(1, size // granule)
    index = offsets // (span * granule)
    if shadow.written is not None:
        _check_order(c, site, window, shadow, index, span, size, selection, strong, "reads", None)
        if site.instruction.has("nc"):
            _advise_changed(c, site, window, shadow.written, index, span)
    c.note_access()
    reads = shadow.strong_reads() if strong else shadow
    reads.log_read(index, span, _warps(c, selection), c.emulation.tick, c.residents.clocks.members)


def _advise_changed(
    c: Cohort, site: Site, window: Window, written: NDArray[np.int32], index: NDArray[np.int64], span: int
) -> None:
    """ld.global.nc is for what no thread writes while the kernel runs: a cache may have what was there before."""
    ticks = written.reshape(-1, span)[index] if span > 1 else written[index]
    when = int(ticks.max(initial=0))
    if when:
        c.emulation.advise(
            "read-only load of what is written", site.instruction,
            f"reads bytes of {window.allocation.name} that the kernel wrote on line {c.emulation.line_at(when)}: "
            "ld.global.nc is for memory that nobody writes while the kernel runs; use ld.global",
        )  # fmt: skip


def check_write(
    c: Cohort, site: Site, window: Window, offsets: NDArray[np.int64], size: int, selection: Selection,
    changed: NDArray[np.bool_] | None, atomic: bool = False,
) -> None:  # fmt: skip
    """Report writes over what another warp may be reading or writing; remember the write.

    changed  per access whether it changes the bytes there: rewriting the same value is no conflict
    """
    shadow = _shadow(c, window)
    granule = shadow.granule_bytes
    span = max(1, size // granule)
    index = offsets // (span * granule)
    c.note_access()
    written, writer, atomics = shadow.open_writes()
    _check_order(c, site, window, shadow, index, span, size, selection, atomic, "writes", changed)
    _check_readers(c, site, window, shadow, index, span, size, selection, changed, atomic)
    if not atomic and shadow.strong is not None:
        _check_readers(c, site, window, shadow.strong, index, span, size, selection, changed)
    warps = _warps(c, selection)
    who = np.broadcast_to(warps, index.shape)
    shadow.mark_scope(index, span, scope_of(site.instruction, c.residents.cluster_size) if atomic else Scope.LAUNCH)
    if span > 1:
        written.reshape(-1, span)[index] = c.emulation.tick
        writer.reshape(-1, span)[index] = who[..., None]
        atomics.reshape(-1, span)[index] = atomic
    else:
        written[index] = c.emulation.tick
        writer[index] = who
        atomics[index] = atomic


def _unordered(
    c: Cohort, site: Site, selection: Selection, ticks: NDArray[np.int32], who: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which earlier accesses (tick > 0, by launch-wide warp `who`) did not happen before this one."""
    residents = c.residents
    members = residents.clocks.members
    mine = _warps(c, selection)
    rows = c.pick_column(c.set.column)
    if selection is not None:
        rows = np.broadcast_to(rows, selection.shape)[selection]
    if mine.ndim < who.ndim:
        mine, rows = mine[..., None], rows[..., None]
    near = who // members == mine // members
    if residents.doubts and near.any():
        residents.advise_doubts(site.instruction, rows, np.where(near, who % members, -1), ticks)
    if residents.order.doubts:
        residents.order.advise_doubts(site.instruction, rows, who, ticks)
    limit = residents.clocks.vector[rows, who % members]
    strict, lenient = residents.order.limits(rows, who)
    bad = np.asarray((ticks > 0) & (ticks > np.where(near, limit, strict)))
    if lenient is None or not bad.any():
        return bad
    worse = bad & (ticks > np.where(near, limit, lenient))
    excused = bad & ~worse
    if excused.any():
        c.emulation.advise(
            "acquire without a fence", site.instruction,
            f"accesses what CTA {c.emulation.cta_of(int(who[excused][0]) // residents.warps_per_cta)} published: "
            "after the atomic or strong load that saw it, a fence (or .acquire) is missing",
        )  # fmt: skip
    return worse


def _check_order(
    c: Cohort, site: Site, window: Window, shadow: GlobalShadow, index: NDArray[np.int64], span: int, size: int,
    selection: Selection, strong: bool, verb: str, changed: NDArray[np.bool_] | None,
) -> None:  # fmt: skip
    written, writer, atomics = shadow.open_writes()
    ticks = written.reshape(-1, span)[index] if span > 1 else written[index]
    if not ticks.any():
        return
    who = writer.reshape(-1, span)[index] if span > 1 else writer[index]
    if strong:
        # Strong accesses need no order among themselves: a loop around a cas begins with a relaxed load.
        strongly = atomics.reshape(-1, span)[index] if span > 1 else atomics[index]
        _advise_scope(c, site, shadow, index, span, selection, np.where(strongly, ticks, 0), who)
        ticks = np.where(strongly, 0, ticks)
    bad = _unordered(c, site, selection, ticks, who)
    if changed is not None:
        bad &= changed[..., None] if bad.ndim > changed.ndim else changed
    if verb == "writes" and c.emulation.observed and bad.any():
        strongly = atomics.reshape(-1, span)[index] if span > 1 else atomics[index]
        seen = _observed(c, window, index * (span * shadow.granule_bytes), selection)
        bad &= ~(strongly & ((seen[..., None] if span > 1 else seen) >= ticks))
    if bad.any():
        _report(c, site, window, index, span, size, selection, bad, ticks, who, verb, "wrote")


def note_observed(c: Cohort, addresses: Array, missed: Collection[tuple[int, int]]) -> None:
    """Active lanes have seen, by strong loads, what was written at these addresses; not those that saw older values.

    Who resets a lock after it has seen its release need not be ordered behind that by anything else: a write after a
    read of the same place comes after what was read (PTX memory model, "Coherence").
    """
    if not c.emulation.checking:
        return
    tick = c.emulation.tick
    warps = np.broadcast_to(c.pick_column(c.set.global_warp), addresses.shape).reshape(-1).tolist()
    rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1).tolist()
    for warp, row, address in zip(warps, rows, addresses.reshape(-1).tolist(), strict=True):
        if (row, address) not in missed:
            c.emulation.observed[warp, address] = tick


def _observed(c: Cohort, window: Window, offsets: NDArray[np.int64], selection: Selection) -> NDArray[np.int64]:
    """When the warp of each access last saw what stands there; 0 where it never has."""
    warps = np.broadcast_to(_warps(c, selection), offsets.shape).reshape(-1).tolist()
    places = (offsets + window.origin).reshape(-1).tolist()
    seen = [c.emulation.observed.get(key, 0) for key in zip(warps, places, strict=True)]
    return np.array(seen, np.int64).reshape(offsets.shape)


def _advise_scope(
    c: Cohort, site: Site, shadow: GlobalShadow, index: NDArray[np.int64], span: int, selection: Selection,
    ticks: NDArray[np.int32], who: NDArray[np.int32],
) -> None:  # fmt: skip
    """Strong accesses of different CTAs, one of them of a scope that does not reach the other, unordered else."""
    scope = scope_of(site.instruction, c.residents.cluster_size)
    if not ticks.any() or (scope is Scope.LAUNCH and shadow.scope is None):
        return
    theirs = shadow.scopes()
    both = np.minimum(np.uint8(scope), theirs.reshape(-1, span)[index] if span > 1 else theirs[index])
    wpc, members = c.residents.warps_per_cta, c.residents.clocks.members
    mine = _warps(c, selection)
    mine = mine[..., None] if mine.ndim < who.ndim else mine
    apart = np.where(who // wpc == mine // wpc, Scope.CTA, Scope.LAUNCH)
    apart = np.where(who // members == mine // members, np.minimum(apart, Scope.CLUSTER), apart)
    far = (ticks > 0) & (both < apart)
    if far.any() and _unordered(c, site, selection, np.where(far, ticks, 0), who).any():
        within = int(apart.reshape(-1)[first_true(far)]) == Scope.CLUSTER
        whose = "a CTA of another cluster" if c.residents.cluster_size > 1 else "another CTA"
        c.emulation.advise(
            "scope narrower than its users", site.instruction,
            f"meets a strong access or atomic of {'another CTA of the cluster' if within else whose} at the same "
            "place, and nothing else orders the two: both must have "
            f"{'.cluster, .gpu or .sys' if within else '.gpu or .sys'} scope",
        )  # fmt: skip


def _check_readers(
    c: Cohort, site: Site, window: Window, shadow: GlobalShadow, index: NDArray[np.int64], span: int, size: int,
    selection: Selection, changed: NDArray[np.bool_] | None, atomic: bool = False,
) -> None:  # fmt: skip
    shadow.flush(c.residents.clocks.members)
    if shadow.read is None or shadow.reader is None or shadow.other_read is None or shadow.other_reader is None:
        return
    for read, reader in ((shadow.read, shadow.reader), (shadow.other_read, shadow.other_reader)):
        ticks = read.reshape(-1, span)[index] if span > 1 else read[index]
        if not ticks.any():
            continue
        who = reader.reshape(-1, span)[index] if span > 1 else reader[index]
        bad = _unordered(c, site, selection, ticks, who)
        if changed is not None:
            bad &= changed[..., None] if bad.ndim > changed.ndim else changed
        if atomic and bad.any():
            bad &= ~_advise_other_clusters(c, site, selection, bad, who)
        if bad.any():
            _report(
                c, site, window, index, span, size, selection, bad, ticks, who, "overwrites", "may still be reading"
            )
            return


def _advise_other_clusters(
    c: Cohort, site: Site, selection: Selection, bad: NDArray[np.bool_], who: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Plain reads by other clusters of what an atomic changes: which of these they are, (as `bad`)."""
    members = c.residents.clocks.members
    mine = _warps(c, selection)
    far = bad & (who // members != (mine[..., None] if mine.ndim < who.ndim else mine) // members)
    if far.any():
        c.emulation.advise(
            "plain read of what atomics change", site.instruction,
            f"changes what CTA {c.emulation.cta_of(int(who[far][0]) // c.residents.warps_per_cta)} read with a plain "
            "load, and nothing orders the two: the load should be .relaxed or .volatile",
        )  # fmt: skip
    return np.asarray(far)


def _report(
    c: Cohort, site: Site, window: Window, index: NDArray[np.int64], span: int, size: int, selection: Selection,
    bad: NDArray[np.bool_], ticks: NDArray[np.int32], who: NDArray[np.int32], verb: str, other_verb: str,
) -> None:  # fmt: skip
    lanes = bad.any(axis=-1) if span > 1 else bad
    at = first_true(lanes)
    other = int(who[bad][0])
    position = at if selection is None else int(np.flatnonzero(selection.reshape(-1))[at])
    row, lane = c.locate(position)
    granule = max(size, c.emulation.program.global_granule_bytes)
    address = window.origin + int(index.reshape(-1)[at]) * granule
    wpc = c.residents.warps_per_cta
    mine = int(c.spread(c.set.global_warp)[int(np.searchsorted(c.set.index, row)), 0])
    offset = address - window.allocation.base
    if other // wpc == mine // wpc:
        whom = f"warp {other % wpc} of the same CTA"
        remedy = "put bar.sync between the two"
    else:
        whom = f"CTA {c.emulation.cta_of(other // wpc)}"
        remedy = "CTAs run in any order: use atomics, or give each CTA its own bytes"
    tick = int(ticks[bad][0])
    line = c.emulation.line_at(tick)
    if other_verb == "wrote" and tick == PENDING and window.shadow is not None:
        access, within = divmod(first_true(bad), span)
        line = window.shadow.pending_line(int(index.reshape(-1)[access]) * span + within)
        other_verb = "may still be writing by a bulk copy"
        remedy = "the thread that issued it must wait for it (cp.async.bulk.wait_group), and a barrier must follow"
    c.emulation.fault(
        "race", site.instruction, c.residents, row, lane,
        f"{verb} {size} bytes at byte {offset} of {window.allocation.name} (global address {address:#x}) that {whom} "
        f"{other_verb} on line {line}, and nothing orders the two: {remedy}",
        "global", address, int(np.count_nonzero(lanes)),
    )  # fmt: skip


def store(
    c: Cohort, site: Site, addresses: Array, values: Array, width: int, count: int, strong: bool = False
) -> None:
    """Write the active lanes' values; of lanes that write the same bytes the last wins.

    addresses  (n, 32) uint64
    values     unsigned, shape of Cohort.pick, with an axis of `count` behind it when count > 1
    """
    picked = c.pick(addresses)
    if picked.size == 0:
        return
    size = width * count
    for window, selection in resolve(c, site, picked, size, "store"):
        chosen = picked if selection is None else picked[selection]
        part = values if selection is None else values[selection]
        if not window.allocation.writable:
            row, lane = c.locate(0 if selection is None else first_true(selection))
            c.emulation.fault(
                "read-only", site.instruction, c.residents, row, lane,
                f"store to {window.allocation.name}, {window.allocation.why_read_only}",
                window.allocation.space, int(chosen.reshape(-1)[0]), int(chosen.size),
            )  # fmt: skip
            continue
        offsets = (chosen - np.uint64(window.origin)).view(np.int64)
        index = offsets // size if size > 1 else offsets
        view = window.view(width, count)
        if c.emulation.checking:
            changed = np.asarray(np.take(view, index, axis=0, mode="clip") != part)
            if count > 1:
                changed = np.asarray(changed.any(axis=-1))
            c.emulation.changes += bool(changed.any())
            check_write(c, site, window, offsets, size, selection, changed, atomic=strong)
            view[index] = part
            if not strong:  # of strong ones one comes last, as of any others
                _check_same_instruction(c, site, window, view, index, part, count, offsets, selection)
            if window.valid is not None:
                window.valid[: window.data.size // size * size].reshape(-1, size)[index] = True
        else:
            c.emulation.changes += 1
            view[index] = part


def _check_same_instruction(
    c: Cohort, site: Site, window: Window, view: Array, index: NDArray[np.int64], part: Array, count: int,
    offsets: NDArray[np.int64], selection: Selection,
) -> None:  # fmt: skip
    """Two lanes that write different values to the same bytes in one instruction."""
    lost = np.asarray(np.take(view, index, axis=0, mode="clip") != part)
    if count > 1:
        lost = np.asarray(lost.any(axis=-1))
    if not lost.any():
        return
    at = first_true(lost)
    position = at if selection is None else int(np.flatnonzero(selection.reshape(-1))[at])
    row, lane = c.locate(position)
    offset = int(offsets.reshape(-1)[at])
    c.emulation.fault(
        "race", site.instruction, c.residents, row, lane,
        f"writes byte {offset + window.origin - window.allocation.base} of {window.allocation.name} (global address "
        f"{window.origin + offset:#x}), to which another thread writes a different value in the same instruction: "
        "give each thread its own bytes, or use atomics",
        "global", window.origin + offset, int(np.count_nonzero(lost)),
    )  # fmt: skip


__all__ = ["OWN", "check_read", "check_write", "load", "note_observed", "resolve", "store"]
