"""Products that tell of their completion themselves: what is handed over behind them waits for it, and no warp does."""

from functools import cache

import pytest

from tinygpu.devices import device
from tinygpu.machines.matmul_basic_blackwell import MatmulBasicBlackwell
from tinygpu.simulator.simulate import Simulation
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import build_space

ROUNDS = 8  # of a tile
DEPTHS = {2: 128, 4: 64}  # slots -> k of each, so that one CTA fills an SM's shared memory
POINT = {"bn": 256, "tiles": 2, "raster": 1, "swizzle": 128, "piece": 32, "vc": 8}


@cache
def simulated(stages: int) -> Simulation:
    """Two tiles for the busiest SM."""
    problem = MatmulBasicBlackwell.problem(m=128, n=256 * 296, k=DEPTHS[stages] * ROUNDS)
    space = build_space(MatmulBasicBlackwell, problem, device("b200"))
    (found,) = space.space.restrict({**POINT, "stages": stages, "bk": DEPTHS[stages]}).points()
    return Simulator(space).simulate(found, keep=10_000)


def times(run: Simulation, row: str, label: str = "") -> list[tuple[float, float]]:
    """When each span of a row began and ended, in their order."""
    return [(s.start_s, s.stop_s) for s in run.spans if s.row == row and s.label.startswith(label)]


@pytest.mark.parametrize("stages", DEPTHS)
def test_a_slot_is_filled_again_when_its_products_are_complete(stages: int) -> None:
    run = simulated(stages)
    copies, products = times(run, "slot 0 producer copies", "a by"), times(run, "slot 0 multiplier products")
    assert len(copies) == len(products) == 2 * ROUNDS
    for (_, complete), (begun, _) in zip(products, copies[stages:], strict=False):
        assert begun >= complete


@pytest.mark.parametrize("stages", DEPTHS)
def test_sums_are_taken_when_the_last_of_their_products_is_complete(stages: int) -> None:
    run = simulated(stages)
    products = times(run, "slot 0 multiplier products")
    taken = times(run, "slot 0 epilogue", "tcgen05.ld")
    assert len(taken) == 2
    assert taken[0][0] >= products[ROUNDS - 1][1]
    assert taken[-1][0] >= products[-1][1]


def test_the_thread_that_multiplies_does_not_wait_for_its_products() -> None:
    run = simulated(4)
    assert not any("products" in label for label in run.roles_s["multiplier"])


def test_one_thread_has_all_tensor_cores_of_the_sm() -> None:
    """The first product has nothing before it: it takes what its busiest unit takes."""
    run = simulated(4)
    begun, complete = times(run, "slot 0 multiplier products")[0]
    unit = max(run.busy_s["tensor"], run.busy_s["smem"])
    assert complete - begun <= 1.001 * unit / (2 * ROUNDS)
