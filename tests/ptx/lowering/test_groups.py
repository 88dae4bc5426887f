"""Products that go on while others begin and threads compute: drawn programs are right, and no wait comes too late."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn_groups import drawn_ops, machine

from tinygpu.devices import device
from tinygpu.program.groups import Groups, groups
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering import context
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Drawn:
    """A drawn program, with a candidate that is admitted."""

    def __init__(self, seed: int) -> None:
        self.machine = machine(drawn_ops(np.random.default_rng(seed)))
        self.problem = self.machine.problem(m=65, k=(64, 136, 304)[seed % 3])
        space = build_space(self.machine, self.problem, device("h100"))
        (self.point,) = space.sample(1, seed)
        self.program = space.program(self.point)

    def kernel(self) -> Kernel:
        return build(self.program, self.problem, self.point, SolverCache()).kernel

    def is_right(self, kernel: Kernel) -> bool:
        return verify(kernel, self.machine, self.problem, orders=("late", "random"), random_inputs=False).passed


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.sampled(60)
@pytest.mark.end_to_end
def test_drawn_groups_are_right_and_their_rings_proved(seed: int) -> None:
    drawn = Drawn(seed)
    assert drawn.is_right(drawn.kernel()), f"{drawn.program}"
    swizzles = solve_buffers(drawn.program, SolverCache()).swizzles
    found = certify(lowered(drawn.program, drawn.problem, drawn.point, swizzles).protocol)
    assert found.proved, str(found)


def too_late(body: Any, one_slot: Any, number: int) -> Groups:
    """The waits of a program, of which one leaves a group more under way."""
    found = groups(body, one_slot)
    s, wait = list(found.before.items())[number]
    return replace(found, before={**found.before, s: replace(wait, pending=wait.pending + 1)})


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(30)
def test_a_wait_that_comes_too_late_is_seen(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Drawn(seed)
    waits = groups(drawn.program.body, drawn.program.of_one_slot).before
    for number in range(len(waits)):
        wrong: Callable[..., Groups] = lambda body, one_slot, number=number: too_late(body, one_slot, number)  # noqa: E731
        with monkeypatch.context() as broken:
            broken.setattr(context, "groups", wrong)
            kernel = drawn.kernel()
        assert not drawn.is_right(kernel), f"wait {number} of {drawn.program}"
