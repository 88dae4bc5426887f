"""From times to figures: fewer and more trips, the amount of work between them, and what is not believed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from synthetic import H200, SyntheticGpu

from tinygpu.ptx.calibration import Microbenchmark, Outcome, Rounds, measure, microbenchmarks
from tinygpu.ptx.calibration.benchmark import MOST_LAUNCHES, Launch
from tinygpu.ptx.calibration.chip import Chip, tiny_chip
from tinygpu.ptx.calibration.launcher import LaunchFailed, chip_on
from tinygpu.ptx.calibration.measuring import Measured, warm_up

CHIP = chip_on(H200, 2)
ALL = {b.name: b for b in microbenchmarks()}


def blind(name: str) -> Microbenchmark:
    """A microbenchmark whose data nobody looks at, for a GPU that runs nothing."""
    return replace(ALL[name], check=lambda launch, trips, left: "")


def figures(name: str, cycles: object = 1000.0, seconds: float = 1e-6, **words: object) -> dict[str, Measured]:
    gpu = SyntheticGpu(cycles={name: cycles}, seconds={name: seconds}, emulating=False, **words)  # type: ignore[arg-type]
    outcome = measure(blind(name), gpu, CHIP)
    assert outcome.failure is None
    return {f.field or f.name: f for f in outcome.figures}


# (microbenchmark, cycles of a trip, seconds of a trip, figure, value): by hand, for 132 SMs and 60 MiB of L2 in two
# halves. The numbers of a trip: 256 dependent FMAs; 16 warps x 128 FMAs x 32 lanes; 32 hops; 16 warps x 2 KiB; ...
BY_HAND = [
    ("fma-latency", 1024, 0, "lat_fma_dependent", 4.0),
    ("fma-rate", 512, 0, "fp32_fma_per_clk_sm", 16 * 128 * 32 / 512),
    ("fma-f64-rate", 1024, 0, "fp64_fma_per_clk_sm", 64.0),
    ("special-rate", 4096, 0, "sfu_per_clk_sm", 16.0),
    ("special-latency", 256 * 21, 0, "lat_sfu", 21.0),
    ("integer-rate", 1024, 0, "int32_add_per_clk_sm", 64.0),
    ("dram-latency", 32 * 690, 0, "lat_dram", 690.0),
    ("l1-latency", 32 * 40, 0, "lat_l1_hit", 40.0),
    ("l1-bandwidth", 256, 0, "l1_bytes_per_clk_sm", 1024 * 32 / 256),
    ("l2-bandwidth", 1775, 264 * 512 * 64 / 9.65e12, "l2_bw_gbs_measured", 9650.0),
    ("l2-bandwidth", 1775, 1e-6, "l2_bytes_per_clk_sm", 2 * 512 * 64 / 1775),
    ("dram-copy", 0, 2 * 264 * 512 * 64 / 4.3e12, "dram_bw_gbs_measured", 4300.0),
    ("smem-latency", 64 * 29, 0, "lat_smem_load", 29.0),
    ("smem-loads", 256, 0, "smem_bytes_per_clk_sm", 128.0),
    ("smem-conflicts-1", 128, 0, "ldst_lanes_per_clk_sm", 32.0),
    ("smem-conflicts-32", 128 * 32, 0, "cycles of a request", 32.0),
    ("ldmatrix-latency", 64 * 33, 0, "lat_ldmatrix", 33.0),
    ("mma-f16-latency", 16 * 24, 0, "lat_mma_m16n8k16", 24.0),
    # 64 mma on each scheduler
    ("mma-f16-rate", 64 * 6.6, 0, "issue_interval_mma_m16n8k16", 6.6),
    # two warpgroups x 4 x 2 x 64 x 256 x 16 operations
    ("wgmma-f16-rate", 1024, 0, "tensor_f16_fp32acc_flop_per_clk_sm", 4096.0),
    ("wgmma-f16-rate", 1024, 0, "issue_interval_wgmma_m64n256k16", 128.0),
    ("wgmma-fp8-rate", 1024, 0, "tensor_fp8_fp32acc_flop_per_clk_sm", 8192.0),
    ("wgmma-tf32-rate", 1024, 0, "tensor_tf32_flop_per_clk_sm", 2048.0),
    ("wgmma-f16-latency", 4 * 150, 0, "lat_wgmma_m64n256k16", 150.0),
    ("mma-f64-wide-rate", 16 * 16 * 4096 / 256, 0, "tensor_f64_flop_per_clk_sm", 256.0),
    ("tma-latency-dram", 8 * 703, 0, "lat_tma_load_dram", 703.0),
    ("bulk-issue", 64 * 48, 0, "tma_issue_interval", 48.0),
    ("tma-l2", 0, 132 * 5 * 8192 / 7e12, "tensor copies from L2", 7000.0),
    ("barrier-512", 32 * 45, 0, "lat_barrier_cta", 45.0),
    ("mbarrier-round", 32 * 54, 0, "lat_mbarrier_roundtrip", 54.0),
    ("remote-latency", 32 * 181, 0, "lat_dsmem_load", 181.0),
    ("grid-barrier", 0, 1.13e-6, "grid_sync_us", 1.13),
    ("atomic-rate", 8 * 1024 * 132 / 400, 0, "atomic_add_per_clk_device", 400.0),
]


@pytest.mark.parametrize(("name", "cycles", "seconds", "figure", "value"), BY_HAND)
def test_a_figure_is_what_one_works_out_by_hand(
    name: str, cycles: float, seconds: float, figure: str, value: float
) -> None:
    found = figures(name, cycles or 1000.0, seconds or 1e-6)[figure]
    assert found.value == pytest.approx(value, rel=2e-3)


def test_what_a_launch_costs_beside_its_trips_cancels() -> None:
    cheap, dear = (figures("fma-latency", 1024, overhead=o)["lat_fma_dependent"].value for o in (0.0, 1e6))
    assert cheap == dear


def test_near_and_far_lines_are_told_apart() -> None:
    # two thirds of the lines of every SM are near
    found = figures("l2-latency", lambda row: 32 * (414.0 if row % 3 == 0 else 280.0))
    assert found["lat_l2_hit_near"].value == pytest.approx(280)
    assert found["lat_l2_hit_far"].value == pytest.approx(414)


def test_the_clock_is_cycles_over_seconds() -> None:
    found = figures("clock", 1024.0, 1024 / 1.98e9)
    assert found["boost_clock_mhz"].value == pytest.approx(1980, rel=1e-4)


def test_launches_are_told_apart_by_how_they_are_queued_and_streams_are_held() -> None:
    gpu = SyntheticGpu(emulating=False)
    found = {f.field: f.value for f in measure(blind("launch"), gpu, CHIP).figures}
    assert found == {
        "launch_overhead_stream_us": pytest.approx(2.5),
        "launch_overhead_graph_us": pytest.approx(1.25),
    }
    few, many = ALL["launch"].trips
    ways = {(1, count, queue) for count in (few, many) for queue in ("stream", "graph")}
    assert set(gpu.timed) == ways  # launches of one trip each, as many as trips elsewhere
    assert set(gpu.held) == {0, ALL["launch"].held}
    assert gpu.held.count(0) == len(gpu.held) // 2


def test_the_median_of_noisy_rounds_stays_near_and_says_how_far_they_spread() -> None:
    found = figures("fma-rate", 512, noise=0.01)["fp32_fma_per_clk_sm"]
    assert found.value == pytest.approx(128, rel=0.03)
    assert 0 < found.spread < 0.06
    assert found.used


# ---- what is not used -------------------------------------------------------------------------------------------


def test_rounds_that_differ_too_much_are_not_used() -> None:
    found = figures("fma-rate", 512, noise=0.15)["fp32_fma_per_clk_sm"]
    assert not found.used
    assert re.fullmatch(r"the rounds differ by \d+ %, and 10 % is the most that is used", found.doubt)


def test_what_no_gpu_has_is_not_used() -> None:
    found = figures("fma-latency", 256)["lat_fma_dependent"]
    assert not found.used
    assert found.doubt == "1 cycles is outside of what any GPU has, 2 to 40"


def test_more_trips_that_take_no_longer_are_not_used() -> None:
    found = figures("fma-latency", 0.0)["lat_fma_dependent"]
    assert not found.used
    assert found.doubt == "40 trips did not take longer than 8"


def test_cycles_that_did_not_pass_while_seconds_did_are_not_used() -> None:
    found = figures("clock", 0.0, 1e-6)["boost_clock_mhz"]
    few, many = ALL["clock"].trips
    assert (found.value, found.used, found.doubt) == (0.0, False, f"{many} trips did not take longer than {few}")


def test_what_stands_for_another_figure_on_this_chip_replaces_none() -> None:
    found = figures("mma-f16-rate", 256)
    assert found["mma.sync, f16 in f32"].field == ""
    assert found["issue_interval_mma_m16n8k16"].used


# ---- failures ---------------------------------------------------------------------------------------------------


def test_a_kernel_that_is_wrong_on_the_gpu_gives_no_figure() -> None:
    gpu = SyntheticGpu(emulating=False)
    outcome = measure(ALL["barrier-128"], gpu, CHIP)
    assert outcome.figures == ()
    assert outcome.failure is not None
    assert outcome.failure.sentence == "the kernel is wrong on this GPU: a thread did not pass every barrier"
    assert not outcome.failure.skipped
    assert gpu.closed == 1


def test_a_launch_that_fails_costs_its_microbenchmark_and_a_lost_gpu_ends_all() -> None:
    gpu = SyntheticGpu(fails={"fma-rate": ("no memory", False), "fma-latency": ("gone", True)})
    outcome = measure(ALL["fma-rate"], gpu, CHIP)
    assert outcome.failure is not None
    assert outcome.failure.sentence == "no memory"
    with pytest.raises(LaunchFailed, match=r"^gone$"):
        measure(ALL["fma-latency"], gpu, CHIP)
    assert gpu.closed == 2


def test_a_chip_without_the_instruction_is_told_so() -> None:
    gpu = SyntheticGpu(emulating=False)
    a100 = replace(CHIP, cc=80)
    assert measure(ALL["wgmma-f16-rate"], gpu, a100).failure is not None
    assert measure(ALL["wgmma-f16-rate"], gpu, a100) == Outcome.from_json(
        {
            "figures": [],
            "failure": {
                "benchmark": "wgmma-f16-rate",
                "sentence": "its PTX is of sm_90a, which compute capability 8 does not run",
                "skipped": True,
            },
        }
    )
    found = measure(ALL["mma-fp8-rate"], gpu, CHIP).failure
    assert found is not None
    assert found.sentence == (
        "compute capability 9 has no such instruction: its assembler makes others of it"
    )
    assert gpu.runs == []


def test_rounds_stay_within_the_launches_for_which_buffers_are_made() -> None:
    gpu = SyntheticGpu(emulating=False)
    most = Rounds(10, 0).rounds
    measure(blind("clock"), gpu, CHIP, most)
    assert len(gpu.runs) + 2 * len(gpu.held) <= MOST_LAUNCHES
    with pytest.raises(ValueError, match=r"^a microbenchmark is timed in 2 to 10 rounds, not 11$"):
        Rounds(11)


def test_a_launch_is_planned_for_the_most_trips_that_it_makes() -> None:
    for name in ("clock", "fma-latency"):
        planned: list[int] = []

        def plan(chip: Chip, trips: int, planned: list[int] = planned, name: str = name) -> Launch:
            planned.append(trips)
            return ALL[name].plan(chip, trips)

        noted = replace(blind(name), plan=plan)
        for use in (measure, warm_up):
            gpu, moments = SyntheticGpu(emulating=False), iter(range(100))
            if use is measure:
                measure(noted, gpu, CHIP, 2)
            else:
                warm_up(noted, gpu, CHIP, 2.0, lambda moments=moments: float(next(moments)))  # type: ignore[misc]
            assert planned.pop() == max(trips for _, trips in gpu.runs)
            assert not planned


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_without_warming_up_nothing_is_loaded_and_no_clock_read(seconds: float) -> None:
    moments = iter(range(100))
    warm_up(ALL["clock"], SyntheticGpu(emulating=False), CHIP, seconds, lambda: float(next(moments)))
    assert next(moments) == 0


def test_warming_up_lasts_as_long_as_is_said() -> None:
    gpu, moments = SyntheticGpu(emulating=False), iter(range(100))
    warm_up(ALL["clock"], gpu, CHIP, 5.0, lambda: float(next(moments)))
    assert len(gpu.runs) == 4
    warm_up(ALL["clock"], gpu, CHIP, 0.0, lambda: 0.0)
    assert len(gpu.runs) == 4


def test_every_other_round_begins_with_more_trips() -> None:
    gpu = SyntheticGpu(emulating=False)
    measure(blind("fma-latency"), gpu, CHIP, 4)
    assert [trips for _, trips in gpu.runs] == [8, 40, 8, 40, 40, 8, 8, 40, 40, 8]


@pytest.mark.parametrize("name", ["dram-latency", "tma-latency-dram", "atomic-rate", "grid-barrier", "l2-latency"])
def test_launches_that_go_on_where_the_last_one_stopped_stay_right(name: str) -> None:
    """On a GPU that runs every launch on the same buffers: cursors and counters."""
    short = replace(ALL[name], trips=(1, 2))
    gpu = SyntheticGpu(cycles={name: 32 * 300.0})
    outcome = measure(short, gpu, tiny_chip(short.target), 3)
    assert outcome.failure is None
    assert len(gpu.runs) >= 2
