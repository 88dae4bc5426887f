"""Accesses of asynchronous operations to global memory: begun at issue, ended at completion (see async_shared)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access.async_shared import Agent, Bools, Index
from tinygpu.ptx.emulator.state.clocks import PENDING, Ticks
from tinygpu.ptx.emulator.state.memory import Window
from tinygpu.ptx.emulator.state.shadows import GlobalShadow


def global_windows(
    agent: Agent, addresses: NDArray[np.uint64], size: int, verb: str
) -> list[tuple[Window, Bools | None]]:
    """Which windows hold accesses of `size` bytes at these addresses (None: all); a fault where there is none."""
    memory = agent.origin.residents.emulation.memory
    low, high = int(addresses.min()), int(addresses.max()) + size
    window = memory.window_of(low, high)
    if window is not None:
        return [(window, None)]
    found = memory.window_indices(addresses, size)
    missing = found < 0
    if missing.any():
        address = int(addresses.reshape(-1)[int(np.argmax(missing.reshape(-1)))])
        kind, sentence = memory.describe_missing(address, size, f"{verb} of {size} bytes")
        agent.origin.fault(kind, sentence, "global", address, int(np.count_nonzero(missing)))
    return [(memory.windows[int(n)], np.asarray(found == n)) for n in np.unique(found[~missing])]


def begin_global_read(agent: Agent, window: Window, offsets: Index, size: int) -> None:
    """An operation starts to read `size` bytes at each byte offset from the window's origin. Races are faults."""
    _check_global(agent, window, offsets, size, "reads")


def end_global_read(agent: Agent, window: Window, offsets: Index, size: int) -> Bools | None:
    """The operation has read these bytes; which accesses are uninitialised (None: none)."""
    residents = agent.origin.residents
    if not residents.emulation.checking:
        return None
    shadow = _shadow(agent, window)
    granule = shadow.granule_bytes
    span = max(1, size // granule)
    warp = np.full(1, _launch_warp(agent), np.int64)
    if offsets.size and (size % granule or bool((offsets % (span * granule)).any())):
        flat = global_granules(offsets, size, granule)
        shadow.log_read(flat, 1, warp, residents.emulation.tick, residents.clocks.members)
    else:
        shadow.log_read(
            offsets // (span * granule), span, warp, residents.emulation.tick, residents.clocks.members
        )
    if window.valid is None:
        return None
    known = window.valid[offsets[..., None] + np.arange(size)].all(axis=-1)
    return None if known.all() else np.asarray(~known)


def begin_global_write(
    agent: Agent, window: Window, offsets: Index, size: int, atomic: bool = False,
    unchanged: Callable[[], Bools] | None = None,
) -> bool:  # fmt: skip
    """An operation starts to write; False, and a fault, where the memory cannot be written. Races are faults.

    atomic     it is a reduction: it does not conflict with other atomics
    unchanged  which accesses write what is there, or what pending stores are going to put there: they conflict with
               nothing
    """
    if not window.allocation.writable:
        agent.origin.fault(
            "read-only", f"store to {window.allocation.name}, {window.allocation.why_read_only}",
            window.allocation.space, window.origin + int(offsets.reshape(-1)[0]),
        )  # fmt: skip
        return False
    _check_global(agent, window, offsets, size, "writes", atomic, unchanged)
    _mark_global(agent, window, offsets, size, int(PENDING), atomic)
    return True


def land_global_write(agent: Agent, window: Window, offsets: Index, size: int, atomic: bool = False) -> None:
    """The bytes have been written (by the caller, into window.data): they are the issuer's own writes from now on."""
    residents = agent.origin.residents
    residents.emulation.changes += 1
    residents.emulation.async_global_ticks.add(residents.emulation.tick)
    _mark_global(agent, window, offsets, size, residents.emulation.tick, atomic)
    if window.valid is not None:
        window.valid[offsets[..., None] + np.arange(size)] = True


def _shadow(agent: Agent, window: Window) -> GlobalShadow:
    if window.shadow is None:
        window.shadow = GlobalShadow(
            window.data.size, agent.origin.residents.emulation.program.global_granule_bytes
        )
    return window.shadow


def _launch_warp(agent: Agent) -> int:
    residents = agent.origin.residents
    return (agent.origin.cta + residents.first_number) * residents.warps_per_cta + agent.origin.warp


def global_granules(offsets: Index, size: int, granule: int) -> Index:
    """The granules that accesses touch, one by one."""
    if size % granule or bool((offsets % granule).any()):
        every = np.unique((offsets.reshape(-1, 1) + np.arange(size)) // granule)
        return np.asarray(every)
    return np.asarray((offsets.reshape(-1, 1) // granule + np.arange(size // granule)).reshape(-1))


def _mark_global(agent: Agent, window: Window, offsets: Index, size: int, tick: int, atomic: bool) -> None:
    if not agent.origin.residents.emulation.checking:
        return
    shadow = _shadow(agent, window)
    written, writer, atomics = shadow.open_writes()
    at = global_granules(offsets, size, shadow.granule_bytes)
    written[at], writer[at], atomics[at] = tick, _launch_warp(agent), atomic
    shadow.note_pending(at, agent.site.line)


def _check_global(
    agent: Agent, window: Window, offsets: Index, size: int, verb: str, atomic: bool = False,
    unchanged: Callable[[], Bools] | None = None,
) -> None:  # fmt: skip
    residents = agent.origin.residents
    emulation = residents.emulation
    if not emulation.checking or not offsets.size:
        return
    shadow = _shadow(agent, window)
    if unchanged is not None:
        unchanged = partial(_unchanged_granules, unchanged, offsets, size, shadow.granule_bytes)
    at: Index | None = None
    if shadow.written is not None:
        written, writer, atomics = shadow.open_writes()
        at = global_granules(offsets, size, shadow.granule_bytes)
        ticks, who = written[at], writer[at]
        if ticks.any():
            bad = _unordered(agent, ticks, who)
            if atomic:
                bad &= ~atomics[at]
            bad = _without(bad, unchanged)
            if bad.any():
                _report_global(agent, window, at, shadow, bad, ticks, who, verb, "wrote")
                return
            if verb == "reads":
                _check_global_proxy(agent, window, at, shadow.granule_bytes, ticks, who)
    if verb == "reads":
        return
    shadow.flush(residents.clocks.members)
    if shadow.read is None or shadow.reader is None or shadow.other_read is None or shadow.other_reader is None:
        return
    at = global_granules(offsets, size, shadow.granule_bytes) if at is None else at
    for read, reader in ((shadow.read, shadow.reader), (shadow.other_read, shadow.other_reader)):
        ticks, who = read[at], reader[at]
        if ticks.any():
            bad = _without(_unordered(agent, ticks, who), unchanged)
            if bad.any() and not atomic:
                _report_global(agent, window, at, shadow, bad, ticks, who, "overwrites", "may still be reading")
                return


def _without(bad: Bools, unchanged: Callable[[], Bools] | None) -> Bools:
    """Conflicts of granules, but for those that do not change."""
    if unchanged is None or not bad.any():
        return bad
    return np.asarray(bad & ~unchanged())


def _unchanged_granules(unchanged: Callable[[], Bools], offsets: Index, size: int, granule: int) -> Bools:
    """Which granules (of global_granules) no access changes; several narrow accesses may share one."""
    same = unchanged().reshape(-1)
    if size % granule or bool((offsets % granule).any()):
        touched = (offsets.reshape(-1, 1) + np.arange(size)) // granule
        return np.isin(np.unique(touched), touched[~same], invert=True)
    return np.repeat(same, size // granule)


def _unordered(agent: Agent, ticks: Ticks, who: NDArray[np.int32]) -> Bools:
    residents = agent.origin.residents
    members = residents.clocks.members
    near = who // members == _launch_warp(agent) // members
    limit = agent.clock.limit((who % members).astype(np.int64))
    strict, lenient = residents.order.limits(np.full(who.shape, agent.origin.row), who)
    far = strict if lenient is None else lenient
    return np.asarray((ticks > 0) & (ticks > np.where(near, limit, far)))


def _check_global_proxy(
    agent: Agent, window: Window, at: Index, granule: int, ticks: Ticks, who: NDArray[np.int32]
) -> None:
    """What was written through the generic proxy in this launch needs a proxy fence by its writer or by the reader."""
    emulation = agent.origin.residents.emulation
    if not agent.proxy:
        return
    fences = emulation.global_proxy_fences
    mine = int(fences.get(_launch_warp(agent), 0))
    for warp in np.unique(who[ticks > 0]):
        latest = int(ticks[(who == warp) & (ticks > 0)].max())
        if max(mine, fences.get(int(warp), 0)) < latest and latest not in emulation.async_global_ticks:
            bad = (who == warp) & (ticks > 0)
            address = window.origin + int(at[int(np.argmax(bad))]) * granule
            agent.origin.fault(
                "race",
                f"reads through the asynchronous proxy global memory at byte {address - window.allocation.base} of "
                f"{window.allocation.name}, which was written through the generic proxy in this launch, without "
                f"fence.proxy.async between the two (line {emulation.line_at(latest)})",
                "global", address,
            )  # fmt: skip
            return


def _report_global(
    agent: Agent, window: Window, at: Index, shadow: GlobalShadow, bad: Bools, ticks: Ticks, who: NDArray[np.int32],
    verb: str, other: str,
) -> None:  # fmt: skip
    residents = agent.origin.residents
    first = int(np.argmax(bad))
    address = window.origin + int(at[first]) * shadow.granule_bytes
    pending = int(ticks[first]) == PENDING
    other = "may still be writing" if pending else other
    line = shadow.pending_line(int(at[first])) if pending else residents.emulation.line_at(int(ticks[first]))
    wpc = residents.warps_per_cta
    launch_warp = int(who[first])
    if launch_warp // wpc == _launch_warp(agent) // wpc:
        whom, remedy = f"warp {launch_warp % wpc} of the same CTA", "wait for its completion, and put a barrier between"
    else:
        whom = f"CTA {residents.emulation.cta_of(launch_warp // wpc)}"
        remedy = "CTAs run in any order: use reductions, or give each CTA its own bytes"
    agent.origin.fault(
        "race",
        f"{verb} byte {address - window.allocation.base} of {window.allocation.name} (global address {address:#x}) "
        f"that {whom} {other} on line {line}, and nothing orders the two: {remedy}",
        "global", address, int(np.count_nonzero(bad)),
    )  # fmt: skip
