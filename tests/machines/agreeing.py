"""Whether some candidates of a machine agree with its reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

CACHE = SolverCache()


def check(machine: type[Machine], count: int = 4, **asked: Any) -> None:
    """A few admitted candidates assemble and agree with the reference."""
    problem = machine.problem(**asked)
    space = build_space(machine, problem, device("a100"))
    for point in space.space.sample(count, np.random.default_rng(1)):
        kernel = build(space.program(point), problem, point, CACHE).kernel
        assemble(kernel.ptx, "sm_80")
        verification = verify(kernel, machine, problem, orders=("late",))
        assert verification.passed, f"{point}\n{verification}"
