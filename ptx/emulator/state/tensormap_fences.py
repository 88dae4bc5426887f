"""Tensor maps that a kernel changes itself: which changes have been released to, and acquired by, the tensormap proxy.

PTX ISA, "membar / fence", .proxy.tensormap: the writer releases (fence.proxy.tensormap::generic.release, or
tensormap.cp_fenceproxy), the user acquires (fence.proxy.tensormap::generic.acquire on the map's address).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.memory import Window

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents


@dataclass(slots=True, eq=False)
class TensormapFences:
    """The fences that resident CTAs have passed.

    released_ticks  ticks of writes that were released as they were made
    releases        tick of the last release, per launch-wide warp
    acquires        per address of a map: (resident cluster, column in its clocks, tick)
    in_order        by row and address of a map: the last write to it that a use of it was found to come after
    """

    released_ticks: set[int] = field(default_factory=set)
    releases: dict[int, int] = field(default_factory=dict)
    acquires: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    in_order: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(residents: Residents) -> TensormapFences:
        """Those of these CTAs."""
        found = residents.extensions.get("tensormap fences")
        if not isinstance(found, TensormapFences):
            found = TensormapFences()
            residents.extensions["tensormap fences"] = found
        return found

    def release(self, origin: Origin) -> None:
        self.releases[launch_warp(origin)] = origin.residents.emulation.tick

    def acquire(self, origin: Origin, address: int) -> None:
        residents = origin.residents
        cluster, column = residents.cluster_of(origin.cta), int(residents.clocks.own_column[origin.row])
        self.acquires.setdefault(address, []).append((cluster, column, residents.emulation.tick))

    def found_in_order(self, origin: Origin, window: Window, address: int, size_bytes: int) -> bool:
        """Whether the warp has used this map since its last change, and that was in order."""
        latest = self._latest(window, address, size_bytes)
        return latest is None or self.in_order.get((origin.row, address)) == latest

    def _latest(self, window: Window, address: int, size_bytes: int) -> int | None:
        """Tick of the last write to a map in this launch."""
        shadow = window.shadow
        if shadow is None or shadow.written is None:
            return None
        first = (address - window.origin) // shadow.granule_bytes
        return int(shadow.written[first : first + -(-size_bytes // shadow.granule_bytes)].max()) or None

    def missing(self, origin: Origin, window: Window, address: int, size_bytes: int) -> str | None:
        """Which fence is missing between the last change of a map and its use now; None when none is."""
        shadow = window.shadow
        if shadow is None or shadow.written is None or shadow.writer is None:
            return None
        first = (address - window.origin) // shadow.granule_bytes
        part = slice(first, first + -(-size_bytes // shadow.granule_bytes))
        ticks, writers = shadow.written[part], shadow.writer[part]
        latest = int(ticks.max())
        if not latest:
            return None
        for writer in np.unique(writers[ticks > 0]).tolist():
            last = int(ticks[(writers == writer) & (ticks > 0)].max())
            if last not in self.released_ticks and self.releases.get(writer, 0) < last:
                line = origin.residents.emulation.line_at(last)
                return (
                    f"it was written on line {line}, and the writer must execute "
                    "fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy)"
                )
        residents = origin.residents
        clocks, cluster = residents.clocks, residents.cluster_of(origin.cta)
        own = int(clocks.own_column[origin.row])
        for where, column, tick in self.acquires.get(address, ()):
            if where == cluster and tick > latest and (column == own or int(clocks.vector[origin.row, column]) >= tick):
                self.in_order[origin.row, address] = latest
                return None
        line = residents.emulation.line_at(latest)
        return (
            f"it was written on line {line}, and fence.proxy.tensormap::generic.acquire on its address must come "
            "between"
        )


def launch_warp(origin: Origin) -> int:
    """Number of the thread's warp in the whole launch."""
    residents = origin.residents
    return (origin.cta + residents.first_number) * residents.warps_per_cta + origin.warp
