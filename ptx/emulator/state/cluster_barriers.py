"""The barrier of a cluster: who arrived in which phase, and what those who wait learn (PTX ISA, "barrier.cluster")."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import Clock, join

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.residents import Residents

Bools = NDArray[np.bool_]


class ClusterBarriers:
    """One barrier per resident cluster. A phase completes when all threads of the cluster that live have arrived."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        clusters = len(residents.ctas) // residents.cluster_size
        self._phase = np.zeros(clusters, np.int64)
        # Phase (from 1) in which a lane last arrived; 0 for one that has waited since.
        self._arrived = np.zeros((residents.warps, 32), np.int64)
        self._gathered: dict[int, Clock] = {}
        self._released: dict[int, Clock] = {}
        self._instructions: dict[int, Instruction] = {}

    def _cluster(self, row: int) -> int:
        return self._residents.cluster_of(row % len(self._residents.ctas))

    def _rows(self, cluster: int) -> NDArray[np.int64]:
        residents = self._residents
        return np.concatenate([residents.rows_of(cta) for cta in residents.mates(cluster * residents.cluster_size)])

    def arrive(self, origin: Origin, lanes: Bools, clock: Clock | None) -> None:
        """Lanes of a warp arrive; `clock` is what they release."""
        row = origin.row
        cluster = self._cluster(row)
        phase = int(self._phase[cluster])
        self._instructions[cluster] = origin.instruction
        if self._arrived[row][lanes].any():
            origin.fault(
                "barrier",
                "arrives at the cluster barrier twice: barrier.cluster.wait must come between",
            )
        self._arrived[row][lanes] = phase + 1
        if clock is not None:
            known = self._gathered.get(cluster)
            self._gathered[cluster] = clock if known is None else join([known, clock])
        self._settle(cluster)

    def waits_for(self, origin: Origin, lanes: Bools) -> int | None:
        """The phase that these lanes have to wait for; None where it is over. A fault without an arrival before."""
        row = origin.row
        arrived = self._arrived[row][lanes]
        if (arrived == 0).any():
            origin.fault("barrier", "waits at the cluster barrier without having arrived (barrier.cluster.arrive)")
            return None
        latest = int(arrived.max())
        return None if int(self._phase[self._cluster(row)]) >= latest else latest

    def completed(self, row: int, phase: int) -> bool:
        """Whether the row's cluster has completed this phase."""
        return int(self._phase[self._cluster(row)]) >= phase

    def passed(self, row: int, lanes: Bools) -> None:
        """Lanes of a row pass the barrier."""
        self._arrived[row][lanes] = 0
        clock = self._released.get(self._cluster(row))
        if clock is not None:
            self._residents.learn(row, clock)

    def after_exit(self, cta: int) -> None:
        """Threads of a CTA exited: they count as arrived."""
        self._settle(self._residents.cluster_of(cta))

    def describe(self, row: int) -> str:
        """Who is missing, in words."""
        residents = self._residents
        cluster = self._cluster(row)
        rows = self._rows(cluster)
        missing = residents.alive[rows] & (self._arrived[rows] <= self._phase[cluster])
        count = len(residents.ctas)
        names = [
            f"warp {int(r) // count} of the cluster's CTA {int(r) % count % residents.cluster_size}"
            for r in rows[missing.any(axis=1)]
        ]
        return f"{', '.join(names[:6])} never arrives" if names else "everybody has arrived"

    def _settle(self, cluster: int) -> None:
        rows = self._rows(cluster)
        alive = self._residents.alive[rows]
        if (self._arrived[rows][alive] <= self._phase[cluster]).any() or not alive.any():
            return
        emulation = self._residents.emulation
        self._count_exited(cluster, rows)
        self._phase[cluster] += 1
        emulation.signals += 1
        emulation.changes += 1
        gathered = self._gathered.pop(cluster, None)
        if gathered is not None:
            known = self._released.get(cluster)
            self._released[cluster] = gathered if known is None else join([known, gathered])

    def _count_exited(self, cluster: int, rows: NDArray[np.int64]) -> None:
        """Threads that exited without having arrived count as arrived, as at bar.sync: what they did is ordered."""
        residents = self._residents
        exited = residents.exists[rows] & ~residents.alive[rows] & (self._arrived[rows] <= self._phase[cluster])
        if not exited.any():
            return
        residents.emulation.advise(
            "barrier after exit", self._instructions[cluster],
            "some threads of the cluster have exited before this barrier; hardware counts them as arrived",
        )  # fmt: skip
        if not residents.emulation.checking:
            return
        known = [residents.snapshot(int(row)) for row in rows[exited.any(axis=1)]]
        gathered = self._gathered.get(cluster)
        self._gathered[cluster] = join(known if gathered is None else [gathered, *known])
