"""What machines are counted to ask of L2: no less than all of their inputs, whatever clusters share or reach beyond."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.cost.demand import SECTOR_BYTES
from tinygpu.devices import device
from tinygpu.machines.gradients import RmsNormBackward
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


@pytest.mark.parametrize("m", [1000, 8192])
def test_of_tiles_that_reach_beyond_the_last_row_no_more_comes_from_dram_than_there_is(m: int) -> None:
    """However many rows a CTA takes, its CTAs read every row once, and all of the weights, in one wave or several."""
    space = build_space(RmsNormBackward, RmsNormBackward.problem(m=m, n=2048), device("a100"))
    points = space.space.restrict({"warps": [8], "across": [256], "vector": [4]}).take(range(40))
    columns = {name: np.array([point[name] for point in points]) for name in points[0]}
    assert len(set(columns["rounds"])) > 10
    least = 4 * (2 * m * 2048 + 2 * 2048)  # x, dy, w, and dw, which is added to
    for index, _, chosen in PredictedTime(space).by_structure(columns, len(points)):
        demand = space.counts(index).demand({**space.environment, **chosen}, space.device)
        read = np.asarray(demand.dram_bytes_read, dtype=np.float64)
        assert (read >= least).all()
        assert (read <= least * 1.0001).all()
