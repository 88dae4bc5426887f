"""Tensor maps that a kernel changes itself: which changes have been released to, and acquired by, the tensormap proxy.

PTX ISA, "membar / fence", .proxy.tensormap: the writer releases (fence.proxy.tensormap::generic.release, or
tensormap.cp_fenceproxy), the user acquires (fence.proxy.tensormap::generic.acquire on the map's address), and each of
the three is ordered before the next.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tinygpu.ptx.emulator.state.clocks import Ticks
from tinygpu.ptx.emulator.state.memory import Window

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.agents import Origin


@dataclass(frozen=True, slots=True, eq=False)
class Acquire:
    """A warp of a cluster acquires a map.

    known  by warp of the launch: the tick up to which its accesses happened before
    """

    warp: int
    cluster: int
    tick: int
    known: Ticks


@dataclass(slots=True, eq=False)
class TensormapFences:
    """The fences that the warps of a launch have passed; warps are numbered as in the launch.

    released_ticks  ticks of writes that were released as they were made
    releases        ticks of the releases of each warp, in order
    acquires        by address of a map
    in_order        by warp and address of a map: the last write to it that a use of it was found to come after
    """

    released_ticks: set[int] = field(default_factory=set)
    releases: dict[int, list[int]] = field(default_factory=dict)
    acquires: dict[int, list[Acquire]] = field(default_factory=dict)
    in_order: dict[tuple[int, int], int] = field(default_factory=dict)

    def release(self, origin: Origin) -> None:
        self.releases.setdefault(_launch_warp(origin), []).append(origin.residents.emulation.tick)

    def acquire(self, origin: Origin, address: int) -> None:
        residents = origin.residents
        known = residents.order.everything_before(origin.row)
        acquire = Acquire(_launch_warp(origin), _cluster(origin), residents.emulation.tick, known)
        self.acquires.setdefault(address, []).append(acquire)

    def found_in_order(self, origin: Origin, window: Window, address: int, size_bytes: int) -> bool:
        """Whether the warp has used this map since its last change, and that was in order."""
        latest = self._latest(window, address, size_bytes)
        return latest is None or self.in_order.get((_launch_warp(origin), address)) == latest

    def _latest(self, window: Window, address: int, size_bytes: int) -> int | None:
        """Tick of the last write to a map in this launch."""
        shadow = window.shadow
        if shadow is None or shadow.written is None:
            return None
        first = (address - window.origin) // shadow.granule_bytes
        return int(shadow.written[first : first + -(-size_bytes // shadow.granule_bytes)].max()) or None

    def missing(self, origin: Origin, window: Window, address: int, size_bytes: int) -> str | None:
        """What is missing between the last changes of a map and its use now, in words; None when nothing is."""
        shadow = window.shadow
        if shadow is None or shadow.written is None or shadow.writer is None:
            return None
        first = (address - window.origin) // shadow.granule_bytes
        part = slice(first, first + -(-size_bytes // shadow.granule_bytes))
        ticks, writers = shadow.written[part], shadow.writer[part]
        happened = origin.residents.order.happened_before(origin.row)
        # What other clusters acquire, which run elsewhere, is not acquired here.
        mine = [a for a in self.acquires.get(address, ()) if a.cluster == _cluster(origin)]
        acquires = [a for a in mine if happened(a.warp, a.tick)]
        for writer in np.unique(writers[ticks > 0]).tolist():
            last = int(ticks[(writers == writer) & (ticks > 0)].max())
            release = self._release_of(writer, last)
            line_at = origin.residents.emulation.line_at
            line = line_at(last)
            if release is None:
                return (
                    f"it was written on line {line}, and the writer must execute "
                    "fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy)"
                )
            if not any(a.tick > last for a in acquires):
                return (
                    f"it was written on line {line}, and fence.proxy.tensormap::generic.acquire on its address must "
                    "come between"
                )
            if not any(a.known[writer] >= release for a in acquires):
                return (
                    f"it was written on line {line} and released on line {line_at(release)}, and nothing orders that "
                    "before fence.proxy.tensormap::generic.acquire on its address"
                )
        if ticks.any():
            self.in_order[_launch_warp(origin), address] = int(ticks.max())
        return None

    def _release_of(self, writer: int, tick: int) -> int | None:
        """When a warp released what it wrote at a tick, first; None where it has not."""
        if tick in self.released_ticks:
            return tick
        releases = self.releases.get(writer, [])
        at = bisect_left(releases, tick)
        return releases[at] if at < len(releases) else None


def _launch_warp(origin: Origin) -> int:
    """Number of the thread's warp in the whole launch."""
    residents = origin.residents
    return (origin.cta + residents.first_number) * residents.warps_per_cta + origin.warp


def _cluster(origin: Origin) -> int:
    """Number of the thread's cluster in the whole launch."""
    residents = origin.residents
    return (origin.cta + residents.first_number) // residents.cluster_size
