"""Strong reads that see older values, in global and in shared memory (state/older_values.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.shared_order import ACTORS
from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import PENDING
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.cta_order import Known, both_known
from tinygpu.ptx.emulator.state.flags import MissedClocks
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.older_values import UNKNOWN, Replaced
from tinygpu.ptx.emulator.state.published import Published
from tinygpu.ptx.emulator.state.scopes import Scope, scope_of

MissedGlobal = Mapping[tuple[int, int], tuple[Published, Known | None] | None]
"""As MissedClocks, with what had been published to other clusters."""


@dataclass(frozen=True, slots=True)
class _Lanes:
    """The lanes of one warp that read one place."""

    row: int
    place: int
    lanes: list[int]


def _by_place(c: Cohort, places: Array) -> list[_Lanes]:
    rows = np.broadcast_to(c.pick_column(c.set.column), places.shape).reshape(-1).tolist()
    found: dict[tuple[int, int], list[int]] = {}
    for lane, key in enumerate(zip(rows, places.reshape(-1).tolist(), strict=True)):
        found.setdefault(key, []).append(lane)
    return [_Lanes(row, place, lanes) for (row, place), lanes in found.items()]


def _put(values: Array, lanes: list[int], value: NDArray[np.uint8], accesses: int) -> None:
    """Lanes get another value, given as its bytes."""
    flat = values.reshape(accesses, -1)
    flat[lanes] = value.view(values.dtype)


# ---- global memory ----------------------------------------------------------------------------------------------


def note_global(c: Cohort, site: Site, addresses: Array, size: int) -> Replaced[tuple[Published, Known | None]] | None:
    """Active lanes are about to carry out strong writes or atomics at these addresses."""
    older = c.emulation.older
    if older is None or not addresses.size:
        return None
    places = addresses.reshape(-1).astype(np.int64)
    window = c.emulation.memory.window_of(int(places.min()), int(places.max()) + size)
    if window is None or (places % size).any():
        return None
    bytes_of = (places - window.origin)[:, None] + np.arange(size)
    before = np.zeros(places.size, np.int64)
    authors = np.zeros(places.size, np.int64)
    if window.shadow is not None and window.shadow.written is not None:
        written, writer, _ = window.shadow.open_writes()
        granules = bytes_of[:, :: window.shadow.granule_bytes] // window.shadow.granule_bytes
        before, authors = _last(written[granules]), writer[granules[:, 0]].astype(np.int64)
    if window.valid is not None:
        before = np.where(window.valid[bytes_of].all(axis=1), before, UNKNOWN)
    who = np.broadcast_to(c.pick_column(c.set.global_warp), addresses.shape).reshape(-1)
    rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1).tolist()
    flags, order, locations = c.residents.global_flags, c.residents.order, c.emulation.locations
    writers = zip(places.tolist(), rows, strict=True)
    told = {place: (flags.published(place, row), locations.get(place)) for place, row in writers}
    after: dict[int, tuple[Published, Known | None]] = {}
    if len(told) < places.size:
        scope, releases = scope_of(site.instruction, c.residents.cluster_size), _releases(site)
        for number, earlier in _followed(places).items():
            near, far = told[int(places[number])] if earlier is None else after[earlier]
            row = rows[number]
            mine = order.publication(c, row, releases) if scope is Scope.LAUNCH else None
            told_near = flags.publication(c, row, releases, Scope.CLUSTER) if scope > Scope.CTA else None
            after[number] = (near.joined(told_near), both_known(far, None if mine is None else mine.known))
    replaced = Replaced(places, window.data[bytes_of], before, authors, who, told, after)
    older.note(c.emulation.tick, replaced)
    return replaced


def _releases(site: Site) -> bool:
    return site.instruction.has("release") or site.instruction.has("acq_rel")


def _followed(places: NDArray[np.int64]) -> dict[int, int | None]:
    """Numbers of the accesses that others follow at the same place, each with the one before it there."""
    latest: dict[int, int] = {}
    out: dict[int, int | None] = {}
    for number, place in enumerate(places.tolist()):
        if place in latest:
            out.setdefault(latest[place], None)
            out[number] = latest[place]
        latest[place] = number
    return {n: e for n, e in out.items() if latest[int(places[n])] != n}


def found_in_turn(replaced: Replaced[Any] | None, values: list[Array]) -> None:
    """What each of the atomics found that was noted, by elements of a vector: (k,), or (k, 2) of two halves."""
    if replaced is not None:
        parts = [np.ascontiguousarray(part).view(np.uint8).reshape(replaced.places.size, -1) for part in values]
        replaced.values, replaced.in_turn = np.concatenate(parts, axis=1), True


def _last(ticks: Array) -> NDArray[np.int64]:
    """(k,) ticks of the last writes of places, each of some granules; UNKNOWN where they differ or go on."""
    same = (ticks == ticks[:, :1]).all(axis=1) & (ticks[:, 0] != PENDING)
    return np.where(same, ticks[:, 0].astype(np.int64), UNKNOWN)


def look_global(c: Cohort, addresses: Array, size: int, values: Array) -> MissedGlobal:
    """Strong reads of active lanes: puts older values in place of those that need not have been seen yet."""
    older, setbacks = c.emulation.older, c.residents.setbacks
    missed: dict[tuple[int, int], tuple[Published, Known | None] | None] = {}
    if not older or setbacks is None:
        return missed
    order, wpc = c.residents.order, c.residents.warps_per_cta
    count = len(c.residents.ctas)
    for group in _by_place(c, addresses):
        window = c.emulation.memory.window_of(group.place, group.place + size)
        if window is None or window.shadow is None or window.shadow.written is None or group.place % size:
            continue
        granule = window.shadow.granule_bytes
        first = (group.place - window.origin) // granule
        ticks = window.shadow.written[first : first + max(1, size // granule)]
        who = (group.row % count + c.residents.first_number) * wpc + group.row // count
        ordered = order.happened_before(group.row)
        found = older.look(group.row, who, group.place, size, ticks, c.emulation.tick, ordered, setbacks)
        if found is not None:
            _put(values, group.lanes, found.value, addresses.size)
            missed[group.row, group.place] = found.told
    return missed


# ---- shared memory ----------------------------------------------------------------------------------------------


def note_shared(
    c: Cohort, site: Site, index: NDArray[np.int64], size: int, rows: NDArray[np.int64]
) -> Replaced[Published] | None:
    """Warps (`rows`) are about to carry out strong writes or atomics at these bytes of shared memory."""
    older = c.residents.older
    if older is None or not index.size:
        return None
    shadow = c.residents.shadow
    places = index.reshape(-1)
    bytes_of = places[:, None] + np.arange(size)
    granules = bytes_of[:, :: shadow.granule_bytes] // shadow.granule_bytes
    before = _last(shadow.written[granules])
    # What was never written has no value.
    before = np.where(before == 0, UNKNOWN, before)
    if shadow.invalid is not None:
        before = np.where(shadow.invalid[granules].any(axis=1), UNKNOWN, before)
    authors = (shadow.writer[granules[:, 0]] & ACTORS).astype(np.int64)
    who = c.residents.clocks.own_column[np.broadcast_to(rows, index.shape).reshape(-1)]
    flat = np.broadcast_to(rows, index.shape).reshape(-1).tolist()
    flags = c.residents.shared_flags
    told = {place: flags.published(place, row) for place, row in zip(places.tolist(), flat, strict=True)}
    values = c.residents.shared.view(1, 1)[bytes_of]
    after: dict[int, Published] = {}
    wide = scope_of(site.instruction, c.residents.cluster_size) > Scope.CTA
    for number, earlier in _followed(places).items():
        base = told[int(places[number])] if earlier is None else after[earlier]
        mine = flags.publication(c, flat[number], _releases(site), Scope.CLUSTER) if wide else None
        after[number] = base.joined(mine)
    replaced = Replaced(places, values, before, authors, who, told, after)
    older.note(c.emulation.tick, replaced)
    return replaced


def look_shared(c: Cohort, index: NDArray[np.int64], size: int, values: Array) -> MissedClocks:
    """The same as look_global, for bytes of shared memory."""
    older, setbacks = c.residents.older, c.residents.setbacks
    missed: dict[tuple[int, int], Published | None] = {}
    if not older or setbacks is None:
        return missed
    shadow, vector = c.residents.shadow, c.residents.clocks.vector
    span = max(1, size // shadow.granule_bytes)
    for group in _by_place(c, index):
        first = group.place // shadow.granule_bytes
        known = vector[group.row]

        def ordered(column: int, tick: int, known: NDArray[np.int32] = known) -> bool:
            return tick <= int(known[column])

        who = int(c.residents.clocks.own_column[group.row])
        ticks = shadow.written[first : first + span]
        found = older.look(group.row, who, group.place, size, ticks, c.emulation.tick, ordered, setbacks)
        if found is not None:
            _put(values, group.lanes, found.value, index.size)
            missed[group.row, group.place] = found.told
    return missed


