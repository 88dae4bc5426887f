"""Rows that the CTAs of a cluster share, of one element, of one more than their tiles have, and of several rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.cross_entropy import CrossEntropy
from tinygpu.machines.gradients import LayerNormBackward, RmsNormBackward, SoftmaxBackward
from tinygpu.machines.matvec import Matvec
from tinygpu.machines.reductions import ArgMax, RowReduction
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SHARED: dict[str, list[Any]] = {"ctas": [2, 4, 8]}
IN_CLUSTERS: dict[str, list[Any]] = {"meet": ["in a cluster"]}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("n", [1, 1025, 5000])
@pytest.mark.parametrize(
    ("machine", "columns", "options", "shared"),
    [
        (RowReduction, "n", {"operation": "max"}, SHARED),
        (RowReduction, "n", {"operation": "norm"}, SHARED),
        (ArgMax, "n", {}, SHARED),
        (CrossEntropy, "n", {}, SHARED),
        (SoftmaxBackward, "n", {"logarithm": True}, SHARED),
        (RmsNormBackward, "n", {}, SHARED),
        (LayerNormBackward, "n", {}, SHARED),
        (Matvec, "k", {}, IN_CLUSTERS),
    ],
)
def test_clusters_give_what_the_reference_gives(
    machine: type[Machine], columns: str, options: dict[str, Any], shared: dict[str, list[Any]], n: int
) -> None:
    problem = machine.problem(**{"m": 3, columns: n}, options=options)
    space = build_space(machine, problem, device("h100"))
    found = space.space.restrict(shared)
    if (machine, n) == (Matvec, 1):  # CTAs share rows only where each has rounds of its own
        assert not found.size
        return
    for point in found.sample(2, np.random.default_rng(n)):
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert kernel.cluster[1] > 1 or kernel.cluster[0] > 1
        verification = verify(kernel, machine, problem)
        assert verification.passed, (point, verification.checks)


@pytest.mark.parametrize("machine", [RowReduction, ArgMax, CrossEntropy, SoftmaxBackward])
def test_a_device_without_clusters_has_none(machine: type[Machine]) -> None:
    space = build_space(machine, machine.problem(m=64, n=4096), device("a100"))
    assert not space.space.restrict(SHARED).size
    assert space.space.size
