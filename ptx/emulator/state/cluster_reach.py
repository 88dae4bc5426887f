"""Who reaches into the shared memory of another CTA of the cluster, and whether that CTA is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tinygpu.ptx.emulator.state.agents import Origin

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.residents import Residents

CLUSTER_RANK_SHIFT = 24
"""In a cluster, bits from here on of a shared address are the rank of the CTA that it belongs to.

Where they lie is up to the implementation; production kernels rely on 24 (they clear that bit for the even CTA).
"""
CLUSTER_OFFSET_MASK = (1 << CLUSTER_RANK_SHIFT) - 1


class ClusterReach:
    """The accesses to other CTAs' shared memory of a batch of clusters.

    leaving  what else is checked when a CTA exits: functions of (resident CTA, exiting instruction)
    """

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self.leaving: list[Callable[[int, Instruction], None]] = []
        # Of each CTA that was reached: column in the clocks and whether it arrived -> (moment, line).
        self._remote: dict[int, dict[tuple[int, bool], tuple[int, int]]] = {}
        # (row, rank) of warps that know a CTA of their cluster to have started: they go on knowing it.
        self._started: set[tuple[int, int]] = set()

    def shared_place(
        self, origin: Origin, address: int, remote: bool, issues: bool = False
    ) -> tuple[int, int] | None:
        """(resident CTA, byte address there) of a shared address as one thread sees it.

        remote  whether the instruction may reach other CTAs of the cluster. None, and a fault, where it may not.
        issues  it starts asynchronous work, which is over when its mbarrier says so: who starts it calls `touch`
        """
        residents = self._residents
        if residents.cluster_size == 1:
            return origin.cta, address
        rank, offset = address >> CLUSTER_RANK_SHIFT, address & CLUSTER_OFFSET_MASK
        own = origin.cta % residents.cluster_size
        if rank == own:
            return origin.cta, offset
        if rank >= residents.cluster_size:
            origin.fault(
                "out of bounds", f"shared address {address:#x} belongs to CTA {rank} of a cluster that has "
                f"{residents.cluster_size}", "shared", address,
            )  # fmt: skip
            return None
        if not remote:
            origin.fault(
                "out of bounds", f"`{origin.instruction.name}` needs shared memory of its own CTA, but address "
                f"{address:#x} belongs to CTA {rank} of the cluster", "shared", address,
            )  # fmt: skip
            return None
        target = origin.cta - own + rank
        if residents.emulation.checking:
            self._check_running(origin.instruction, origin.row, target)
            if not issues:
                self._remember(origin.instruction, origin.row, target, None)
        return target, offset

    def touch(self, instruction: Instruction, row: int, target: int, column: int | None = None) -> None:
        """A warp (or its agent `column`) reaches into the shared memory of another CTA, which must be running."""
        self._check_running(instruction, row, target)
        self._remember(instruction, row, target, column)

    def _remember(self, instruction: Instruction, row: int, target: int, column: int | None) -> None:
        if column is None:
            column = int(self._residents.clocks.own_column[row])
        moment = (self._residents.emulation.tick, instruction.line)
        self._remote.setdefault(target, {})[column, instruction.opcode == "mbarrier"] = moment

    def _check_running(self, instruction: Instruction, row: int, target: int) -> None:
        residents = self._residents
        emulation, clocks = residents.emulation, residents.clocks
        rank = target % residents.cluster_size
        if (row, rank) not in self._started:
            first = rank * residents.warps_per_cta
            executed = clocks.vector if clocks.executed is None else clocks.executed
            if int(executed[row, first : first + residents.warps_per_cta].max()) <= clocks.start:
                emulation.fault(
                    "cluster", instruction, residents, row, None,
                    f"reaches into the shared memory of CTA {rank} of the cluster, which may not have started: a "
                    "cluster barrier (barrier.cluster.arrive and .wait) must come before",
                )  # fmt: skip
            self._started.add((row, rank))
        if not residents.alive[target :: len(residents.ctas)].any():
            if instruction.opcode == "mbarrier":
                self._advise_late_arrival(
                    instruction, f"this arrives on an mbarrier of CTA {rank} of the cluster, which has exited"
                )
            else:
                emulation.fault(
                    "cluster", instruction, residents, row, None,
                    f"reaches into the shared memory of CTA {rank} of the cluster, which has exited: all CTAs must "
                    "stay until a last cluster barrier",
                )  # fmt: skip

    def _advise_late_arrival(self, instruction: Instruction, what: str) -> None:
        """Kernels that end so are published and run right as long as the CTA that exits is not replaced at once."""
        self._residents.emulation.advise(
            "arrival at an exited CTA", instruction, f"{what}: all CTAs must stay until a last cluster barrier"
        )

    def check_leaving(self, cta: int, instruction: Instruction) -> None:
        """The last threads of a CTA exit: nobody may still reach into its shared memory.

        Units with more to check put a function (resident CTA, exiting instruction) into `leaving`.
        """
        residents = self._residents
        for check in self.leaving:
            check(cta, instruction)
        # That it was executed before is enough: relaxed cluster barriers end kernels that run right on hardware.
        rows = residents.rows_of(cta)
        known = residents.clocks.vector[rows].max(axis=0)
        if residents.clocks.executed is not None:
            known = np.maximum(known, residents.clocks.executed[rows].max(axis=0))
        for (column, arrives), (tick, line) in self._remote.pop(cta, {}).items():
            if int(known[column]) >= tick:
                continue
            name = residents.clocks.name(residents.cluster_of(cta), column)
            if arrives:
                self._advise_late_arrival(
                    instruction, f"a CTA exits here, and {name} may still arrive on an mbarrier of it (line {line})"
                )
            else:
                residents.emulation.fault(
                    "cluster", instruction, residents, int(residents.rows_of(cta)[0]), None,
                    f"this CTA exits, but {name} may still reach into its shared memory (line {line}): a cluster "
                    "barrier must come before the exit",
                )  # fmt: skip
