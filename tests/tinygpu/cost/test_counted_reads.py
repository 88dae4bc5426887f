"""What machines are counted to ask of L2: no less than all of their inputs, whatever clusters share or reach beyond."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.cost.demand import SECTOR_BYTES
from tinygpu.devices import device
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import build_space

MACHINES = (("matmul_ampere", "a100"), ("matmul_hopper", "h100"), ("matmul_skinny", "h100"), ("matmul_simt", "l40s"))


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(40))
def test_every_byte_of_the_inputs_is_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    name, gpu = MACHINES[(seed // 8 + seed) % len(MACHINES)]
    (machine,) = family(name).machines
    # few tiles along an axis, so that clusters and tiles reach beyond the last element
    m, n, k = (int(rng.integers(1, 40)) * int(rng.choice((8, 24, 64, 128))) for _ in range(3))
    if name == "matmul_skinny":
        m = int(rng.integers(1, 33))
    space = build_space(machine, machine.problem(m=m, n=n, k=k), device(gpu))
    if not space.space.size:
        return
    points = space.space.sample(min(400, space.space.size), rng)
    columns = {name: np.array([point[name] for point in points]) for name in points[0]}
    a, b = space.problem.operands[:2]
    inputs = (a.dtype.bits * m * k + b.dtype.bits * k * n) // 8
    for index, mask, chosen in PredictedTime(space).by_structure(columns, len(points)):
        demand = space.counts(index).demand({**space.environment, **chosen}, space.device)
        asked = np.broadcast_to(demand.ctas * demand.total.sectors_read * SECTOR_BYTES, int(mask.sum()))
        short = np.flatnonzero(mask)[asked < inputs]
        assert not len(short), (m, n, k, inputs, dict(points[short[0]]))
