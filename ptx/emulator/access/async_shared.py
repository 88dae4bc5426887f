"""Accesses of asynchronous operations to shared memory, in two steps: begin at issue, end at completion.

An access counts as going on from begin to end (PENDING), whatever the moment at which the emulator moves the bytes. It
is judged by the clock of its issuer: what must have happened before is what the issuer knew. Reads of the asynchronous
proxy see generic writes only through a proxy fence. Byte indices count in the shared memory of all resident CTAs:
cta * residents.shared.stride_bytes + address.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.shared_order import ACTORS, LANES, SITE_BITS, WARP_BITS, describe_conflict, gather
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import PENDING, Clock, Ticks
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.shadows import SharedReads

Bools = NDArray[np.bool_]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Agent:
    """Who accesses memory asynchronously.

    origin  the thread that issued the operation
    site    its instruction, counted and named in races
    column  the agent in the clocks of the origin's cluster
    clock   what the issuer knew at issue (Clocks.issue)
    proxy   whether it accesses memory through the asynchronous proxy (TMA, wgmma, tcgen05)
    """

    origin: Origin
    site: Site
    column: int
    clock: Clock
    proxy: bool = True


def check_shared_range(agent: Agent, address: int, size: int, align: int, verb: str) -> bool:
    """Whether one shared variable holds bytes [address, address + size) of a CTA; a fault where not."""
    layout = agent.origin.residents.emulation.program.shared
    if address % align:
        agent.origin.fault(
            "misaligned",
            f"{verb} at shared address {address:#x} is misaligned: it must be a multiple of {align}, but the remainder "
            f"is {address % align}",
            "shared", address,
        )  # fmt: skip
        return False
    if size and not layout.holds(address, address + size):
        agent.origin.fault(
            "out of bounds",
            f"{verb} of {size} bytes at shared address {address:#x} is out of bounds: {layout.describe(address, size)}",
            "shared", address,
        )  # fmt: skip
        return False
    return True


def begin_read(agent: Agent, index: Index, size: int) -> Bools | None:
    """An operation starts to read accesses of `size` bytes at these byte indices, each a multiple of `size`.

    Races are faults. Returns which accesses are uninitialised (None: none), in the shape of `index`.
    """
    residents = agent.origin.residents
    if not residents.emulation.checking or not index.size:
        return None
    shadow = residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    ticks, writer = gather(shadow.written, at, span), gather(shadow.writer, at, span)
    shadow.reads.mark_foreign(agent.column, at, span, int(PENDING))
    shadow.note_lines(agent.column, index, agent.site.line)
    if shadow.invalid is None and _one_ordered_write(agent, ticks, writer):
        return None
    invalid: Bools | None = None
    if not ticks.all():
        invalid = np.asarray(ticks == 0)
    if shadow.invalid is not None:
        marked = gather(shadow.invalid, at, span)
        invalid = marked if invalid is None else np.asarray(invalid | marked)
    if invalid is not None:
        invalid = np.asarray(invalid.any(axis=-1)) if span > 1 else invalid
        invalid = invalid if invalid.any() else None
    columns = writer & ACTORS
    bad = ticks > agent.clock.limit(columns)
    _advise_lanes(agent, columns, ticks, writer)
    if bad.any():
        _report(agent, index, size, span, bad, writer, ticks, "reads")
    elif agent.proxy:
        generic = (columns < residents.clocks.members) & (ticks > 0)
        if generic.any():
            unfenced = generic & (ticks > agent.clock.proxied_limit(columns))
            if unfenced.any():
                _report_unfenced(agent, index, size, span, unfenced, writer)
    return invalid


def _one_ordered_write(agent: Agent, ticks: Ticks, writer: NDArray[np.int32]) -> bool:
    """Whether all of this was written at once, and the issuer knows of that; False where more must be asked.

    Most copies and operands are what one copy brought before.
    """
    residents = agent.origin.residents
    clocks = residents.clocks
    tick, who = int(ticks.item(0)), int(writer.item(0))
    column = who & ACTORS
    if not tick or tick > agent.clock.tick_of(column) or residents.doubts:
        return False
    if column < clocks.members and (
        column == clocks.own_column[agent.origin.row] or tick > _entry(agent.clock.proxied, column)
    ):
        return False
    return not np.count_nonzero(ticks != tick) and not np.count_nonzero(writer != who)


def end_read(agent: Agent, index: Index, size: int) -> None:
    """The operation has read these bytes."""
    residents = agent.origin.residents
    if not residents.emulation.checking or not index.size:
        return
    shadow = residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    shadow.reads.finish_foreign(agent.column, at, span, residents.emulation.tick)


def read_bytes(agent: Agent, index: Index, size: int) -> NDArray[np.uint8]:
    """The bytes of accesses of `size` (1, 2, 4, 8 or a multiple of 4) bytes: index.shape + (size,)."""
    data = agent.origin.residents.shared.data
    if size == 1:
        return np.asarray(data[index][..., None])
    whole = data[: data.size // size * size].reshape(-1, size)
    return np.asarray(whole[index // size])


def begin_write(agent: Agent, index: Index, size: int) -> None:
    """An operation starts to write accesses of `size` bytes, each at a multiple of `size`. Races are faults."""
    residents = agent.origin.residents
    if not residents.emulation.checking or not index.size:
        return
    shadow = residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    if residents.mbarriers.live:
        residents.drop_overwritten_mbarriers(index, size, agent.site.line)
    ticks, writer = gather(shadow.written, at, span), gather(shadow.writer, at, span)
    if not _one_ordered_write(agent, ticks, writer):
        _check_writers(agent, index, size, span, ticks, writer)
    _check_readers(agent, index, size, at, span)
    mark_written(agent, index, size, int(PENDING))


def begin_write_run(agent: Agent, low: int, high: int) -> bool:
    """An operation starts to write all bytes from one index to another, where nothing there can be in its way.

    False, and nothing was begun, where more must be asked, access by access: `begin_write`. Most copies fill what one
    copy filled before, and what whoever issues knows to have been read.

    low, high  multiples of 16
    """
    residents = agent.origin.residents
    if not residents.emulation.checking:
        return True
    shadow = residents.shadow
    first, behind = low // shadow.granule_bytes, high // shadow.granule_bytes
    if residents.doubts or residents.mbarriers_between(low, high):
        return False
    if not _all_ordered(agent, shadow.written[first:behind], shadow.writer[first:behind]):
        return False
    if not all(_all_read(agent, logged, low, first, behind) for logged in shadow.every_read()):
        return False
    mark_run(agent, low, high, int(PENDING))
    return True


def _all_ordered(agent: Agent, ticks: Ticks, writer: NDArray[np.int32]) -> bool:
    """Whether nothing was written here, or all of it at once by an agent of whose completion the issuer knows."""
    tick, who = int(ticks[0]), int(writer[0])
    column = who & ACTORS
    if tick:
        known = agent.clock.tick_of(column)
        if agent.proxy:
            known = max(known, _entry(agent.clock.proxied, column))
        if tick > known or column < agent.origin.residents.clocks.members:
            return False
    return not np.count_nonzero(ticks != tick) and not (tick and np.count_nonzero(writer != who))


def _all_read(agent: Agent, logged: SharedReads, low: int, first: int, behind: int) -> bool:
    """Whether the issuer knows of all reads of granules [first, behind), of which `low` is a byte's index."""
    residents, clock = agent.origin.residents, agent.clock
    members = residents.clocks.members
    reads = logged.reads()
    if reads is not None:
        rank = low // residents.shared.stride_bytes % residents.cluster_size
        warps = slice(rank * residents.warps_per_cta, (rank + 1) * residents.warps_per_cta)
        least = min(int(clock.known[warps].min()), int(clock.proxied[warps].min()))
        if int(reads[0][first:behind].max()) > least:
            return False
    for column, ticks in logged.foreign_between(first, behind):
        known, fenced = _entry(clock.known, column), _entry(clock.proxied, column)
        if column < members:
            known = min(known, fenced)
        elif agent.proxy:
            known = max(known, fenced)
        if int(ticks.max()) > known:
            return False
    return True


def _check_writers(
    agent: Agent, index: Index, size: int, span: int, ticks: Ticks, writer: NDArray[np.int32]
) -> None:
    """Report writes over what may still be written."""
    clocks = agent.origin.residents.clocks
    columns = writer & ACTORS
    bad = ticks > agent.clock.limit(columns)
    if agent.proxy and bad.any():
        bad = ticks > agent.clock.completed_limit(columns)
    _advise_lanes(agent, columns, ticks, None)
    if bad.any():
        _report(agent, index, size, span, bad, writer, ticks, "writes")
    elif agent.proxy:
        crossed = (columns < clocks.members) & (ticks > clocks.start)
        if crossed.any() and (crossed & (ticks > agent.clock.proxied_limit(columns))).any():
            agent.origin.advise(
                "asynchronous write over generic accesses",
                "overwrites through the asynchronous proxy what was written through the generic proxy, without "
                "fence.proxy.async between the two",
            )


def _check_readers(agent: Agent, index: Index, size: int, at: Index, span: int) -> None:
    """Report writes over what may still be read."""
    crossed = False
    for logged in agent.origin.residents.shadow.every_read():
        found = _conflicts(agent, logged, index, size, at, span)
        if found is None:
            return
        crossed |= found
    if crossed and agent.proxy:
        agent.origin.advise(
            "asynchronous write over generic accesses",
            "overwrites through the asynchronous proxy what was read through the generic proxy, without "
            "fence.proxy.async between the two",
        )


def _conflicts(agent: Agent, logged: SharedReads, index: Index, size: int, at: Index, span: int) -> bool | None:
    """Report a write over what may still be read (then None); whether reads of the generic proxy were not fenced."""
    residents = agent.origin.residents
    shadow, clocks = residents.shadow, residents.clocks
    crossed = False
    reads = logged.reads()
    if reads is not None:
        rank = int(index.reshape(-1)[0]) // residents.shared.stride_bytes % residents.cluster_size
        first = rank * residents.warps_per_cta
        warps = np.arange(first, first + shadow.warps_per_cta)
        # No warp has read here later than whoever issues knows of every warp: nothing to ask of each.
        least = min(int(agent.clock.limit(warps).min()), int(agent.clock.proxied_limit(warps).min()))
        if not residents.doubts and int(gather(reads[0], at, span).max()) <= least:
            warps = warps[:0]
        for column in warps.tolist():
            seen = gather(reads[1][column - first], at, span)
            _advise_readers(agent, column, seen)
            bad = seen > _entry(agent.clock.known, column)
            if bad.any():
                who = np.full(bad.shape, column, np.int32)
                _report(agent, index, size, span, bad, who, seen, "overwrites")
                return None
            crossed |= bool((seen > _entry(agent.clock.proxied, column)).any())
    between = int(at.min()) * span, (int(at.max()) + 1) * span
    for column, read in logged.foreign.items():
        if not logged.reaches(column, *between):
            continue
        seen = gather(read, at, span)
        _advise_readers(agent, column, seen)
        known = _entry(agent.clock.known, column)
        if agent.proxy:
            known = max(known, _entry(agent.clock.proxied, column))
        bad = seen > known
        if bad.any():
            who = np.full(bad.shape, column, np.int32)
            _report(agent, index, size, span, bad, who, seen, "overwrites")
            return None
        crossed |= column < clocks.members and bool((seen > _entry(agent.clock.proxied, column)).any())
    return crossed


def advise_other_lanes(agent: Agent, index: Index, size: int) -> None:
    """Another lane of a warp reads what one of its lanes was found to read rightly: whose lanes have not met since."""
    residents = agent.origin.residents
    if not residents.emulation.checking or not index.size:
        return
    shadow = residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    ticks, writer = gather(shadow.written, at, span), gather(shadow.writer, at, span)
    _advise_unmet(agent, writer & ACTORS, ticks, writer)


def _advise_lanes(agent: Agent, columns: Index, ticks: Ticks, writer: NDArray[np.int32] | None) -> None:
    """Tell who issues for other lanes than those that made the accesses, which lanes have not met since.

    writer  who wrote (site, lane and column); None where what is relied on was not written
    """
    origin, residents = agent.origin, agent.origin.residents
    if residents.doubts:
        residents.advise_doubts(origin.instruction, np.full(1, origin.row), columns, ticks)
    if writer is not None and origin.lane is not None:
        _advise_unmet(agent, columns, ticks, writer)


def _advise_readers(agent: Agent, column: int, ticks: Ticks) -> None:
    if agent.origin.residents.doubts:
        _advise_lanes(agent, np.full(ticks.shape, column), ticks, None)


def _advise_unmet(agent: Agent, columns: Index, ticks: Ticks, writer: NDArray[np.int32]) -> None:
    origin, residents = agent.origin, agent.origin.residents
    stale = (columns == residents.clocks.own_column[origin.row]) & (ticks > residents.clocks.warp_synced[origin.row])
    stale &= ticks != PENDING
    if stale.any() and (stale & ((writer >> WARP_BITS & LANES) != origin.lane)).any():
        origin.advise(
            "warp exchange without bar.warp.sync",
            "a lane issues asynchronous work on what another lane of its warp wrote, without bar.warp.sync between the "
            "two",
        )


def _entry(ticks: Ticks, column: int) -> int:
    return int(ticks[column]) if column < ticks.size else 0


def mark_written(agent: Agent, index: Index, size: int, tick: int) -> None:
    """Remember that the agent writes these bytes at `tick`."""
    shadow = agent.origin.residents.shadow
    span = max(1, size // shadow.granule_bytes)
    at = index // (span * shadow.granule_bytes)
    who = np.int32((agent.site.number << SITE_BITS) + agent.column)
    for values, value in ((shadow.written, np.int32(tick)), (shadow.writer, who)):
        if span > 1:
            values.reshape(-1, span)[at] = value
        else:
            values[at] = value
    for marks in (shadow.invalid, shadow.atomic):
        if marks is not None:
            marks.reshape(-1, span)[at] = False


def mark_run(agent: Agent, low: int, high: int, tick: int) -> None:
    """The same of all bytes from one index to another, which are multiples of 16."""
    shadow = agent.origin.residents.shadow
    granules = slice(low // shadow.granule_bytes, high // shadow.granule_bytes)
    shadow.written[granules] = tick
    shadow.writer[granules] = (agent.site.number << SITE_BITS) + agent.column
    for marks in (shadow.invalid, shadow.atomic):
        if marks is not None:
            marks[granules] = False


def land_write(
    agent: Agent, index: Index, size: int, data: NDArray[np.uint8], invalid: Bools | None = None, marked: bool = False
) -> None:
    """The bytes arrive: data has index.shape + (size,). `invalid` accesses are uninitialised.

    marked  `mark_run` has told of them
    """
    residents = agent.origin.residents
    memory = residents.shared.data
    if size == 1:
        memory[index] = data[..., 0]
    else:
        memory[: memory.size // size * size].reshape(-1, size)[index // size] = data
    residents.emulation.changes += 1
    if not residents.emulation.checking:
        return
    if not marked:
        mark_written(agent, index, size, residents.emulation.tick)
    if invalid is not None and invalid.any():
        shadow = residents.shadow
        if shadow.invalid is None:
            shadow.invalid = np.zeros(shadow.written.size, np.bool_)
        span = max(1, size // shadow.granule_bytes)
        shadow.invalid.reshape(-1, span)[index[invalid] // (span * shadow.granule_bytes)] = True


def _report(
    agent: Agent, index: Index, size: int, span: int, bad: Bools, who: NDArray[np.int32], ticks: Ticks, verb: str
) -> None:
    residents = agent.origin.residents
    accesses = bad.any(axis=-1) if span > 1 else bad
    place = int(index.reshape(-1)[int(np.argmax(accesses.reshape(-1)))])
    cta, address = divmod(place, residents.shared.stride_bytes)
    at = int(np.argmax(bad.reshape(-1)))
    what = f"{size} bytes at shared address {address:#x}"
    if cta != agent.origin.cta:
        what += f" of the cluster's CTA {cta % residents.cluster_size}"
    sentence = describe_conflict(
        residents, residents.cluster_of(cta), what, verb, int(who.reshape(-1)[at]), int(ticks.reshape(-1)[at]), place,
    )  # fmt: skip
    agent.origin.fault("race", sentence, "shared", address, int(np.count_nonzero(accesses)))


def _report_unfenced(agent: Agent, index: Index, size: int, span: int, bad: Bools, who: NDArray[np.int32]) -> None:
    residents = agent.origin.residents
    accesses = bad.any(axis=-1) if span > 1 else bad
    place = int(index.reshape(-1)[int(np.argmax(accesses.reshape(-1)))])
    cta, address = divmod(place, residents.shared.stride_bytes)
    writers = who[bad]
    sites = residents.emulation.program.sites
    copied = [sites[number].instruction.opcode == "cp" for number in np.unique(writers >> SITE_BITS).tolist()]
    if all(copied):
        # Kernels that are known to be right on hardware give what cp.async brought to wgmma without the fence.
        agent.origin.advise(
            "cp.async before the asynchronous proxy",
            "reads through the asynchronous proxy what cp.async wrote, without fence.proxy.async between the two: the "
            "threads that copied must execute it after their wait, before the barrier",
        )
        return
    writer = int(writers[0])
    name = residents.clocks.name(residents.cluster_of(cta), writer & ACTORS)
    agent.origin.fault(
        "race",
        f"reads through the asynchronous proxy {size} bytes at shared address {address:#x} that {name} wrote through "
        f"the generic proxy on line {sites[writer >> SITE_BITS].line}, without fence.proxy.async between the two: the "
        "writing threads must execute fence.proxy.async after their stores, before the barrier",
        "shared", address, int(np.count_nonzero(accesses)),
    )  # fmt: skip
