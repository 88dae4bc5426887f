"""Laws of the predictor: bounds that no kernel beats, what must never help, and what each device figure must do."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import CAUSES, UNITS, predict
from tinygpu.cost.rates import Rates
from tinygpu.devices import Device, Figure, device, devices

amounts = st.integers(0, 1 << 16)
works = st.builds(Work, **{f.name: amounts for f in fields(Work)})
chains = st.builds(Chain, **{f.name: st.integers(0, 8) for f in fields(Chain)})
phases = st.builds(Phase, works, chains)
demands = st.builds(
    Demand,
    ctas=st.integers(1, 5000),
    threads_per_cta=st.sampled_from((32, 64, 128, 256, 512, 1024)),
    registers_per_thread=st.integers(16, 64),
    smem_bytes_per_cta=st.integers(0, 99 * 1024),
    iteration=phases,
    iterations=st.integers(1, 64),
    prologue=phases,
    epilogue=phases,
    prefetch_iterations=st.integers(0, 4),
    held=st.integers(0, 1),
    late=st.floats(0, 0.5),
    persistent=st.integers(0, 1),
    even=st.integers(0, 1),
    turns=st.integers(1, 3),
    in_turn=st.integers(0, 1),
    circulating=st.integers(0, 4),
    scored_ahead=st.integers(0, 1),
    cluster=st.sampled_from((1, 2, 4)),
    rows=st.tuples(st.tuples(phases, phases), st.tuples(phases)),
    bytes_in_flight_per_cta=st.integers(1, 1 << 17),
    dram_bytes_read=st.integers(0, 1 << 30),
    dram_bytes_written=st.integers(0, 1 << 30),
)
ampere_or_later = st.sampled_from([gpu.name for gpu in devices() if gpu.cc >= 80])


@settings(max_examples=150)
@given(ampere_or_later, demands)
def test_time_is_the_busiest_unit_and_what_is_lost(name: str, demand: Demand) -> None:
    gpu = device(name)
    found = predict(gpu, demand)
    parts = found.breakdown()
    assert set(parts) == set(CAUSES)
    assert all(seconds >= 0 for seconds in parts.values())
    whole = max(parts[key] for key in UNITS) + sum(parts[key] for key in set(CAUSES) - set(UNITS))
    assert float(found.seconds) == pytest.approx(whole, rel=1e-9)
    first = found.bottleneck()
    assert parts[first] == max(parts.values())
    busy = sorted((parts[key] for key in UNITS if key != first and parts[key] > 0), reverse=True)
    whole_s = float(found.seconds)
    said = re.findall(r"(\d+) %", found.sentence())
    assert said == [f"{100 * seconds / whole_s:.0f}" for seconds in (parts[first], *busy[:2])]


@settings(max_examples=150)
@given(ampere_or_later, demands)
def test_nothing_beats_the_roofline(name: str, demand: Demand) -> None:
    gpu = device(name)
    found = predict(gpu, demand)
    assert float(found.seconds) >= float(found.roofline_s)
    assert 0 <= float(found.share_of_roofline) <= 1


@settings(max_examples=150)
@given(ampere_or_later, demands, st.sampled_from([f.name for f in fields(Work)]), st.integers(1, 1 << 16))
def test_more_work_is_never_faster(name: str, demand: Demand, unit: str, more: int) -> None:
    gpu = device(name)
    if unit.startswith("sectors"):  # which also say in which phase the DRAM traffic falls
        demand = replace(demand, dram_bytes_read=0, dram_bytes_written=0)
    work = demand.iteration.work
    heavier = replace(work, **{unit: np.add(getattr(work, unit), more)})
    slower = replace(demand, iteration=replace(demand.iteration, work=heavier))
    assert float(predict(gpu, slower).seconds) >= float(predict(gpu, demand).seconds) * (1 - 1e-9)


@settings(max_examples=150)
@given(ampere_or_later, demands, st.integers(1, 4))
def test_more_bytes_under_way_are_never_slower(name: str, demand: Demand, more: int) -> None:
    """A ring with more stages, of the same bytes each, that has been asked for as far ahead."""
    gpu = device(name)
    demand = replace(demand, prefetch_iterations=np.maximum(demand.prefetch_iterations, 1))
    deeper = replace(
        demand,
        prefetch_iterations=demand.prefetch_iterations + more,
        bytes_in_flight_per_cta=demand.bytes_in_flight_per_cta * (1 + more),
    )
    assert float(predict(gpu, deeper).seconds) <= float(predict(gpu, demand).seconds) * (1 + 1e-9)


@settings(max_examples=150)
@given(ampere_or_later, demands, st.integers(1, 1 << 16))
def test_data_that_come_ahead_do_not_wait_for_what_rounds_store(name: str, demand: Demand, sectors: int) -> None:
    """Loads of a round that nothing runs ahead of queue up behind the stores of the round before."""
    gpu = device(name)
    demand = replace(demand, persistent=0, held=0, dram_bytes_written=0)

    def reads_s(prefetch: int, written: int) -> float:
        work = Work(sectors_read=sectors, sectors_written=written)
        whole = replace(
            demand, iteration=replace(demand.iteration, work=work), prefetch_iterations=prefetch,
            dram_bytes_written=32 * written * int(np.asarray(demand.ctas)),
        )  # fmt: skip
        return float(predict(gpu, whole).reads_s)

    assert reads_s(1, 1 << 20) == reads_s(1, 0)
    assert reads_s(0, 1 << 20) > reads_s(0, 0)


@settings(max_examples=100)
@given(ampere_or_later, st.integers(1, 8), st.integers(2, 40))
def test_a_persistent_cta_looks_up_every_tile(name: str, trips: int, tiles: int) -> None:
    gpu = device(name)
    looking = Demand(
        ctas=tiles * gpu.sm_count, threads_per_cta=128, registers_per_thread=32, persistent=1,
        smem_bytes_per_cta=gpu.max_smem_bytes_per_block,  # one CTA on an SM
        iterations=1, iteration=Phase(Work(sectors_read=1)), prefetch_iterations=1, bytes_in_flight_per_cta=32,
        prologue=Phase(chain=Chain(global_loads=1 + trips)),  # and the first data
    )  # fmt: skip
    nearest_s = gpu.number("lat_l2_hit_near") / (gpu.number("boost_clock_mhz") * 1e6)
    assert float(predict(gpu, looking).seconds) >= tiles * trips * nearest_s


@settings(max_examples=100)
@given(ampere_or_later, demands)
def test_groups_that_take_turns_gain_nothing_where_each_cta_has_one_tile(name: str, demand: Demand) -> None:
    gpu = device(name)
    crowd = gpu.max_smem_bytes_per_block  # one CTA on an SM
    sms = int(gpu.sms_of_clusters(int(np.asarray(demand.cluster))))
    alone = replace(demand, ctas=min(int(np.asarray(demand.ctas)), sms), even=0, persistent=1, smem_bytes_per_cta=crowd)
    lone, turns = (float(predict(gpu, replace(alone, turns=t)).seconds) for t in (1, 2))
    assert turns == pytest.approx(lone, rel=1e-12)


@settings(max_examples=100)
@given(ampere_or_later, demands)
def test_turns_within_a_tile_hide_what_groups_wait_for_and_no_more(name: str, demand: Demand) -> None:
    """No slower than without turns, and no faster than a loop that waits for nothing."""
    gpu = device(name)
    never = replace(demand, iteration=replace(demand.iteration, chain=Chain()))
    least, found, most = (
        float(predict(gpu, d).seconds) for d in (never, replace(demand, in_turn=1), replace(demand, in_turn=0))
    )
    assert least * (1 - 1e-9) <= found <= most * (1 + 1e-9)


@settings(max_examples=100)
@given(ampere_or_later, demands, st.sampled_from([f.name for f in fields(Chain)]), st.integers(1, 50))
def test_longer_chains_are_never_faster(name: str, demand: Demand, link: str, more: int) -> None:
    gpu = device(name)
    chain = demand.iteration.chain
    longer = replace(demand.iteration, chain=replace(chain, **{link: np.add(getattr(chain, link), more)}))
    slower = replace(demand, iteration=longer)
    assert float(predict(gpu, slower).seconds) >= float(predict(gpu, demand).seconds) * (1 - 1e-9)


def faster(gpu: Device, field: str, factor: float) -> Device:
    figure = gpu.figure(field)
    return gpu.with_figures({field: Figure(gpu.number(field) * factor, figure.unit, "a better part", "measured")})


@settings(max_examples=100)
@given(
    ampere_or_later,
    demands,
    st.sampled_from(
        [
            ("dram_bw_gbs_measured", 2.0),
            ("l2_bw_gbs_measured", 2.0),
            ("smem_bytes_per_clk_sm", 2.0),
            ("fp32_fma_per_clk_sm", 2.0),
            ("lat_dram", 0.5),
            ("lat_barrier_cta", 0.5),
            ("launch_overhead_graph_us", 0.5),
        ]
    ),
)
def test_a_better_figure_is_never_slower(name: str, demand: Demand, change: tuple[str, float]) -> None:
    gpu = device(name)
    field, factor = change
    if gpu.given(field).value is None and field.endswith("_measured"):
        return
    assert float(predict(faster(gpu, field, factor), demand).seconds) <= float(predict(gpu, demand).seconds) * (
        1 + 1e-9
    )


@settings(max_examples=40)
@given(ampere_or_later, st.lists(demands, min_size=1, max_size=6))
def test_arrays_agree_with_scalars(name: str, points: list[Demand]) -> None:
    gpu = device(name)

    def stacked(values: list[Any]) -> Any:
        first = values[0]
        if isinstance(first, Work | Chain | Phase):
            return type(first)(*(stacked([getattr(v, f.name) for v in values]) for f in fields(first)))
        if isinstance(first, tuple):
            return tuple(stacked(list(column)) for column in zip(*values, strict=True))
        return first if first is None or isinstance(first, str) else np.array(values)

    many = Demand(*(stacked([getattr(p, f.name) for p in points]) for f in fields(Demand)))
    found = predict(gpu, many)
    for index, point in enumerate(points):
        one = predict(gpu, point)
        assert found.seconds[index] == pytest.approx(float(one.seconds), rel=1e-12)
        assert found.bottleneck(index) == one.bottleneck()
    assert found.best == min(range(len(points)), key=lambda i: float(found.seconds[i]))


def stream(elements: int, **changes: object) -> Demand:
    """y[i] = a x[i] + y[i] in f32, 4 elements a thread."""
    per_cta = 1024
    work = Work(
        fma_flops=2 * per_cta,
        warp_instructions=8 * 15,
        sectors_read=per_cta * 8 // 32,
        sectors_written=per_cta * 4 // 32,
    )
    whole = Demand(
        ctas=-(-elements // per_cta),
        threads_per_cta=256,
        registers_per_thread=24,
        smem_bytes_per_cta=0,
        iteration=Phase(work),
        bytes_in_flight_per_cta=per_cta * 8,
        dram_bytes_read=8 * elements,
        dram_bytes_written=4 * elements,
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.name)
def test_a_long_stream_runs_at_dram_bandwidth(gpu: Device) -> None:
    elements = 1 << 27
    found = predict(gpu, stream(elements))
    ideal_s = 12 * elements / gpu.dram_bytes_per_s
    assert ideal_s <= float(found.seconds) <= 1.05 * ideal_s
    assert found.bottleneck() == "dram"


def test_a_tiny_stream_is_launch_overhead() -> None:
    found = predict(device("a100"), stream(1024))
    assert found.bottleneck() == "launch"
    assert found.sentence() == "launch overhead, 67 % of the time; DRAM 0 %, L2 0 %"
    assert float(predict(device("a100"), stream(1024), launch="stream").seconds) > float(found.seconds)


def test_too_few_bytes_in_flight_leave_dram_idle() -> None:
    """Little's law: bandwidth is at most bytes under way / latency."""
    gpu = device("a100")
    lonely = stream(1 << 27, smem_bytes_per_cta=160 * 1024, bytes_in_flight_per_cta=1024)
    found = predict(gpu, lonely)
    latency_s = gpu.number("lat_dram") / gpu.boost_clock_hz
    bandwidth = 8 * (1 << 27) / float(found.seconds)
    assert int(found.occupancy.ctas_per_sm) == 1
    assert bandwidth <= gpu.sm_count * 1024 / latency_s
    assert found.bottleneck() == "latency"
    twice = float(predict(gpu, replace(lonely, bytes_in_flight_per_cta=2048)).seconds)
    assert twice < 0.6 * float(found.seconds)


def tensor_only(flops: int = 1 << 26, **changes: object) -> Demand:
    whole = Demand(
        ctas=64 * 132,
        threads_per_cta=256,
        registers_per_thread=64,
        smem_bytes_per_cta=0,
        iteration=Phase(Work(tensor_flops=flops)),
        operand="f16",
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "ratio"), [("3090", 2), ("4090", 2), ("5090", 2), ("a6000", 1), ("l40s", 1)])
def test_consumer_parts_take_twice_as_long_with_f32_sums(name: str, ratio: int) -> None:
    f32 = float(predict(device(name), tensor_only()).busy_s["tensor"])
    f16 = float(predict(device(name), tensor_only(accumulator="f16")).busy_s["tensor"])
    assert f32 == pytest.approx(ratio * f16)


def test_mma_sync_is_slower_than_wgmma_on_hopper_and_than_tcgen05_on_blackwell() -> None:
    for name, path, least, most in (("h100", "wgmma", 1.5, 1.8), ("b300", "tcgen05", 3.9, 4.3)):
        fast = predict(device(name), tensor_only(tensor_path=path)).busy_s["tensor"]
        slow = predict(device(name), tensor_only()).busy_s["tensor"]
        assert least <= float(slow / fast) <= most


def test_sustained_tensor_work_runs_at_the_sustained_rate() -> None:
    for name in ("a100", "h200", "4090"):
        gpu = device(name)
        path = "wgmma" if gpu.cc == 90 else "mma.sync"
        demand = tensor_only(ctas=64 * gpu.sm_count, tensor_path=path)
        found = predict(gpu, demand)
        rate = 64 * gpu.sm_count * (1 << 26) / (float(found.seconds) - float(found.launch_s))
        assert rate == pytest.approx(gpu.number("tflops_f16_sustained") * 1e12, rel=0.01)
        assert float(found.power_s) > 0


@pytest.mark.parametrize(("name", "power"), [("a100", 2 / 3), ("h100", 1 / 6), ("b200", 1 / 6)])
@pytest.mark.parametrize("fraction", [0.99, 0.9, 0.75])
def test_tensor_cores_that_wait_lose_less_than_they_wait(name: str, power: float, fraction: float) -> None:
    """With the tensor cores busy for a part of the time, power lets them run at a higher rate meanwhile."""
    gpu = device(name)
    rates = Rates.of(gpu, tensor_only(ctas=1))
    flops = np.asarray(1e15)
    peak_s = 1e15 / (rates.peak_flops_per_clk * gpu.sm_count * gpu.tensor_clock_hz)
    always, found = (float(rates.throttled_s(flops, np.asarray(peak_s / part))) for part in (1.0, fraction))
    assert always == pytest.approx(peak_s / gpu.sustained_tensor_share, rel=1e-12)
    assert found == pytest.approx(always * fraction**-power, rel=1e-12)
    assert found * fraction < always < found  # the rate while they multiply, and the mean rate


def test_lanes_without_rows_take_time_and_no_power() -> None:
    """64 rows by one CTA: half of the lanes idle, at half of the datasheet's rate, which no power limits."""
    gpu, flops = device("b200"), 1 << 34
    all_lanes = replace(tensor_only(ctas=148, iteration=Phase(Work(tensor_flops=flops))), tensor_path="tcgen05")
    half = replace(all_lanes, iteration=Phase(Work(tensor_flops=flops, idle_flops=flops // 2)))
    whole, idle = predict(gpu, all_lanes), predict(gpu, half)
    assert float(idle.power_s) == 0 < float(whole.power_s)
    assert float(idle.seconds) == pytest.approx(float(whole.seconds - whole.power_s), rel=1e-12)


@settings(max_examples=100)
@given(st.sampled_from(["h100", "h200", "b200", "b300"]), demands, st.sampled_from((8, 16)))
def test_clusters_have_the_sms_that_they_find(name: str, demand: Demand, cluster: int) -> None:
    """Without work of the whole device, as on a part that has no other SMs."""
    gpu = device(name)
    reached = int(gpu.sms_of_clusters(cluster))
    assert 0 < reached < gpu.sm_count
    demand = replace(demand, cluster=cluster, dram_bytes_read=0, dram_bytes_written=0)
    figures = {"sm_count": Figure(reached, "SMs", "those of clusters", "derived")}
    figures["l2_bw_gbs_measured"] = Figure(
        gpu.number("l2_bw_gbs_sustained") * reached / gpu.sm_count, "GB/s", "their share", "derived"
    )
    found, part = predict(gpu, demand), predict(gpu.with_figures(figures), replace(demand, cluster=1))
    unthrottled = [float(p.seconds - p.power_s) for p in (found, part)]
    assert unthrottled[0] == pytest.approx(unthrottled[1], rel=1e-9)
    assert float(found.waves) == pytest.approx(float(part.waves), rel=1e-12)


def test_a_short_burst_of_tensor_work_is_not_limited_by_power() -> None:
    waiting = Phase(Work(tensor_flops=1 << 22), Chain(barriers=2000))
    assert float(predict(device("a100"), tensor_only(ctas=108, iteration=waiting)).power_s) == 0


def test_one_cta_more_than_a_wave_costs_a_tail() -> None:
    gpu = device("a100")
    full, more = (predict(gpu, tensor_only(ctas=ctas, smem_bytes_per_cta=160 * 1024)) for ctas in (108, 109))
    assert float(full.tail_s) < 1e-12
    assert float(full.waves) == 1
    assert float(more.tail_s) > 0.9 * float(full.busy_s["tensor"])


def test_ctas_with_an_sm_each_go_in_step_wave_after_wave() -> None:
    """Nothing of a CTA hides what another one waits for: where data come first, every wave takes both times."""
    gpu = device("a100")
    read, waits = Phase(Work(sectors_read=1 << 12)), Phase(Work(), Chain(barriers=500))
    alone = tensor_only(ctas=108, smem_bytes_per_cta=160 * 1024, prologue=read, iteration=waits, iterations=1)
    times = []
    for waves in (1, 2, 5):
        found = predict(gpu, replace(alone, ctas=108 * waves, dram_bytes_read=(108 << 17) * waves))
        times.append(float(found.seconds) - float(found.launch_s))
    assert times[1:] == pytest.approx([2 * times[0], 5 * times[0]])
    reading, waiting = (
        predict(gpu, replace(alone, ctas=108, dram_bytes_read=size, **{phase: Phase()}))
        for size, phase in ((108 << 17, "iteration"), (0, "prologue"))
    )
    assert times[0] == pytest.approx(sum(float(p.seconds) - float(p.launch_s) for p in (reading, waiting)))


def test_no_tensor_work_takes_no_time_of_what_a_part_sustains() -> None:
    for gpu in devices():
        if gpu.cc >= 80:
            with np.errstate(all="raise"):
                assert float(Rates.of(gpu, tensor_only(ctas=1)).throttled_s(np.zeros(()), np.zeros(()))) == 0


def test_two_warps_use_half_of_the_tensor_cores() -> None:
    small = tensor_only(ctas=108, threads_per_cta=64)
    large = tensor_only(ctas=108, threads_per_cta=128)
    gpu = device("a100")
    waiting = [float(p.seconds - p.launch_s) for p in (predict(gpu, small), predict(gpu, large))]
    assert waiting[0] >= 1.6 * waiting[1]


def test_a_refused_launch_is_infinite_and_says_so() -> None:
    found = predict(device("3090"), tensor_only(smem_bytes_per_cta=np.array([0, 160 * 1024])))
    assert np.isfinite(found.seconds[0])
    assert found.seconds[1] == np.inf
    assert found.bottleneck(1) == "refused"
    assert found.sentence(1) == "the launch is refused: it exceeds the limits of a CTA on RTX-3090"
    assert found.best == 0
    assert found.share_of_roofline[1] == 0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: predict(device("a100"), tensor_only(tensor_path="wgmma")),
            "A100-SXM4-80GB (sm_80) has no wgmma for f16 with f32 sums",
        ),
        (
            lambda: predict(device("a100"), tensor_only(operand="e4m3")),
            "A100-SXM4-80GB (sm_80) has no mma.sync for e4m3 with f32 sums",
        ),
        (
            lambda: predict(device("v100"), tensor_only(operand="bf16")),
            "V100-SXM2-32GB (sm_70) has no mma.sync for bf16 with f32 sums",
        ),
        (lambda: tensor_only(ctas=0), "a demand needs at least 1 for ctas, not 0"),
        (lambda: Work(fma_flops=-1), "fma_flops of a work must not be negative, not -1"),
        (lambda: Chain(barriers=-2), "barriers of a chain must not be negative, not -2"),
        (lambda: tensor_only(dram_bytes_read=-1), "dram_bytes_read of a demand must not be negative, not -1"),
        (
            lambda: stream(1024, bytes_in_flight_per_cta=0),
            "a demand whose iterations read global memory must say how many bytes of it are under way at a time: "
            "bytes_in_flight_per_cta is 0",
        ),
        (
            lambda: tensor_only(tensor_path="mma"),
            "unknown tensor path 'mma'; known: mma.sync, wgmma, tcgen05",
        ),
    ],
)
def test_impossible_demands_are_refused(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == sentence


def test_a_count_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError) as caught:
        Work(alu_ops="many")  # type: ignore[arg-type]
    assert str(caught.value) == "alu_ops of a work must be a number or an array of numbers, not 'many'"


def test_a_demand_has_the_shape_of_any_of_its_counts() -> None:
    lone = tensor_only(1, bytes_in_flight_per_cta=1)
    assert lone.shape == ()
    three = np.array([1, 2, 3])
    for field in fields(Demand):
        if field.name in ("prologue", "iteration", "epilogue"):
            for part in (Work, Chain):
                for name in (f.name for f in fields(part)):
                    phase = Phase(**{part.__name__.lower(): part(**{name: three})})
                    assert replace(lone, **{field.name: phase}).shape == (3,)
        elif field.name == "rows":
            assert replace(lone, rows=((Phase(), Phase(Work(alu_ops=three))),)).shape == (3,)
        elif field.name not in ("operand", "accumulator", "tensor_path"):
            assert replace(lone, **{field.name: three}).shape == (3,)


def test_work_adds_and_scales() -> None:
    twice = np.array([1, 2]) * (Work(fma_flops=3) + Work(fma_flops=4, alu_ops=1))
    assert np.array_equal(np.asarray(twice.fma_flops), [7, 14])
    assert np.array_equal(np.asarray(twice.alu_ops), [1, 2])
