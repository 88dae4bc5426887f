"""Pipelines nested at random, within roles and between them: what is declared is proved, for all stages."""

from __future__ import annotations

import numpy as np
import pytest
from nested_blocks import block, machine
from structures import PROOFS

from tinygpu.devices import device
from tinygpu.language import DeclarationError
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.mark.parametrize("seed", [pytest.param(s, marks=pytest.mark.slow) if s > 11 else s for s in range(200)])
def test_what_is_nested_at_random_is_proved_for_all_stages(seed: int) -> None:
    """The same machines as those of which the emulator finds that they are right."""
    rng = np.random.default_rng(seed)
    root, between_roles = block(rng, int(rng.integers(1, 4 if seed < 100 else 5)), "ring"), bool(rng.integers(2))
    try:
        made = machine(root, between_roles, int(rng.integers(1, 3)))
    except DeclarationError:
        return
    problem = made.problem(m=19, k=64, w=32)
    space = build_space(made, problem, device("h100"))
    for stages in (1, 3):
        (point,) = space.space.restrict({"stages": stages}).sample(1, rng)
        program = space.program(point)
        swizzles = solve_buffers(program, SolverCache()).swizzles
        found = certify(lowered(program, problem, point, swizzles).protocol, PROOFS)
        other = [r for r in found.rings if r.verdict != "proved" or r.states]
        assert not other, f"seed {seed}: {root}, between roles: {between_roles}, {stages} stages\n{found}"
