"""Products into tensor memory in closed form: what is behind their loops, what hides what, beside the simulator."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import Prediction, predict
from tinygpu.devices import device
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import MachineSpace, build_space

B200 = device("b200")
POINT: dict[str, Any] = {
    "store": "staged", "bm": 128, "ctas": "pairs", "tiles": 2, "cluster_m": 2, "cluster_n": 1, "raster": 8,
    "split_k": 1, "stream_k": 0, "launch_control": 0, "outs": 2, "swizzle_c": 128, "vc": 8, "bn": 256, "bk": 64,
    "stages": 6, "swizzle": 128, "piece": 64,
}  # fmt: skip


@cache
def space_of(m: int, n: int, k: int) -> MachineSpace:
    return build_space(MatmulBlackwell, MatmulBlackwell.problem(m=m, n=n, k=k, dtypes={"a": "bf16"}), B200)


def running(found: Prediction) -> float:
    """Seconds of the SMs: without launch and power."""
    return float(found.seconds - found.launch_s - found.power_s)


def predicted(sizes: tuple[int, int, int], **changed: Any) -> Prediction:
    point = POINT | changed
    assert point in space_of(*sizes).space, point
    return PredictedTime(space_of(*sizes)).prediction(point)


@pytest.mark.parametrize("store", ["staged", "direct"])
def test_what_a_role_does_with_sums_is_counted_behind_the_loop(store: str) -> None:
    space = space_of(4096, 4096, 4096)
    index = next(i for i, s in enumerate(space.structures) if ("store", store) in s and ("ctas", "pairs") in s)
    names = dict(zip(space.counts(index).names, space.counts(index).expressions, strict=True))
    assert str(names["prologue.sectors_written"]) == str(names["prologue.barriers"]) == "0"
    assert str(names["epilogue.sectors_written"]) != "0"
    assert str(names["epilogue.barriers"]) != "0"


def test_one_slot_of_sums_shows_what_is_done_with_them_and_two_hide_it() -> None:
    sizes = (8192, 8192, 1024)
    one, two = (running(predicted(sizes, tiles=tiles)) for tiles in (1, 2))
    busiest = max(float(s) for s in predicted(sizes).busy_s.values())
    assert one > 1.025 * two
    assert two < 1.04 * busiest


def test_one_role_stores_tile_behind_tile_however_many_slots_there_are() -> None:
    """128 threads take and store 256 columns each: with few rounds that takes longer than the products do."""
    sizes = (8192, 8192, 64)
    one, two = (predicted(sizes, tiles=tiles, store="direct", outs=1, swizzle_c=32, piece=64, stages=4)
                for tiles in (1, 2))  # fmt: skip
    assert running(two) <= running(one)
    demand = Demand(
        ctas=148 * 20, threads_per_cta=256, registers_per_thread=64, smem_bytes_per_cta=120_000, persistent=1, turns=2,
        iteration=Phase(Work(tensor_flops=1 << 20)), epilogue=Phase(Work(), Chain(barriers=1000)),
        tensor_path="tcgen05",
    )  # fmt: skip
    apart, by_one = (float(predict(B200, replace(demand, one_stores=one)).seconds) for one in (0, 1))
    assert by_one > 1.8 * apart


@pytest.mark.parametrize("path", ["wgmma", "tcgen05"])
def test_products_that_go_on_hide_what_rounds_wait_for(path: Any) -> None:
    demand = Demand(
        ctas=148, threads_per_cta=256, registers_per_thread=64, smem_bytes_per_cta=200_000, iterations=1000, held=1,
        iteration=Phase(Work(tensor_flops=1 << 24), Chain(barriers=1)), tensor_path=path,
    )  # fmt: skip
    gpu = device("h100") if path == "wgmma" else B200
    waited, hidden = (predict(gpu, replace(demand, ahead=ahead)) for ahead in (0, 1))
    bare = predict(gpu, replace(demand, iteration=Phase(Work(tensor_flops=1 << 24))))
    assert float(hidden.latency_s) == pytest.approx(float(bare.latency_s), abs=1e-9)
    assert float(waited.latency_s) > float(hidden.latency_s) + 1e-5
    # of short rounds, what they wait for is longer than the products, and shows
    short = replace(demand, iteration=Phase(Work(tensor_flops=1 << 12), Chain(barriers=1)), ahead=1)
    assert float(predict(gpu, short).seconds) > 900 * gpu.number("lat_barrier_cta") / gpu.boost_clock_hz


# A large product, few columns of k, odd sizes, few rows; with pairs and without, deep and shallow rings; and how far
# apart they may be: less where CTAs have many tiles.
CASES: tuple[tuple[tuple[int, int, int], dict[str, Any], float], ...] = (
    ((8192, 8192, 8192), {}, 0.04), ((8192, 8192, 8192), {"tiles": 1}, 0.04), ((8192, 8192, 512), {}, 0.08),
    ((5000, 3000, 2000), {"bn": 128, "piece": 32, "swizzle_c": 64}, 0.05),
    ((256, 8192, 4096), {"ctas": "one", "bn": 64, "cluster_m": 1}, 0.06), ((2048, 2048, 2048), {"stages": 4}, 0.12),
    ((1000, 1000, 1000), {"ctas": "one", "bn": 64, "cluster_m": 1, "stages": 4}, 0.12),
)  # fmt: skip


@pytest.mark.parametrize(("sizes", "changed", "apart"), CASES)
def test_the_closed_form_says_what_the_simulator_says(
    sizes: tuple[int, int, int], changed: dict[str, Any], apart: float
) -> None:
    simulated = Simulator(space_of(*sizes)).simulate(POINT | changed)
    assert simulated.sm_s == pytest.approx(running(predicted(sizes, **changed)), rel=apart)


def test_sectors_under_way_are_those_that_are_asked_for() -> None:
    """Rows of 2,000 bytes begin within sectors: boxes of 32 bytes ask for half as much again, and have it under way."""
    problem = MatmulHopper.problem(m=1000, n=1000, k=1000)
    space = build_space(MatmulHopper, problem, device("h100"))
    for point in space.sample(20, 3):
        index = space.structure_index(point)
        counts = space.counts(index)
        values = space.environment | {a: int(point[a]) for a in space.traces[index].axes}
        asked = 32 * int(counts.value("iteration.sectors_read", values))
        assert int(counts.value("in_flight", values)) == int(point["stages"]) * asked
