"""A candidate that is right in the emulator, and whose rings are proved for any number of rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygpu.ptx.emulator.state.emulation import Order
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build, solve_buffers
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace


def right_and_proved(space: MachineSpace, point: Any, orders: Sequence[Order] = ("late",)) -> Kernel:
    """The kernel of a point, once it agrees with the reference and its protocol is proved."""
    program = space.program(point)
    kernel = build(program, space.problem, point, SolverCache()).kernel
    found = verify(kernel, space.machine, space.problem, orders=orders)
    assert found.passed, f"{space.problem} {point}\n{found}"
    swizzles = solve_buffers(program, SolverCache()).swizzles
    assert certify(lowered(program, space.problem, point, swizzles).protocol).proved
    return kernel
