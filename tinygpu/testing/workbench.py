"""What checks share from case to case: spaces that were built, layouts that were solved, and a budget of CPU time."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tinygpu.devices import Device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.ptx.protocol.certificate import Proofs
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

# Spaces that are kept: a check comes back to those of its problems, and to the sizes that a smaller case tries.
SPACES = 64


@dataclass(slots=True, eq=False)
class Workbench:
    """Spaces, layouts and proofs, made once.

    solver  layouts of shared memory by the question
    proofs  of hand-overs, by the moves of their roles
    """

    solver: SolverCache = field(default_factory=SolverCache)
    proofs: Proofs = field(default_factory=Proofs)
    _spaces: OrderedDict[tuple[type[Machine], Problem, str], MachineSpace] = field(default_factory=OrderedDict)

    def space(self, machine: type[Machine], problem: Problem, device: Device) -> MachineSpace:
        """The space of one problem on one device."""
        key = (machine, problem, device.name)
        if key not in self._spaces:
            self._spaces[key] = build_space(machine, problem, device)
            if len(self._spaces) > SPACES:
                self._spaces.popitem(last=False)
        self._spaces.move_to_end(key)
        return self._spaces[key]


@dataclass(frozen=True, slots=True)
class Allowance:
    """CPU time that one part of a check may take, counted by this process's clock.

    ends  seconds on the clock; infinite where there is no limit
    """

    ends: float
    clock: Callable[[], float] = time.process_time

    @staticmethod
    def of(seconds: float, clock: Callable[[], float] = time.process_time) -> Allowance:
        return Allowance(clock() + seconds, clock)

    @property
    def spent(self) -> bool:
        return self.clock() >= self.ends
