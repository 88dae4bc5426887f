"""Laws of every microbenchmark: it assembles, it is right in the emulator, and its figures count what it does."""

from __future__ import annotations

import doctest
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tinygpu.cost.predictor as predictor
import tinygpu.ptx.calibration.memory_latency
import tinygpu.ptx.calibration.suite
from tinygpu.cost.occupancy import occupancy
from tinygpu.devices import device, devices
from tinygpu.devices.fields import UNITS
from tinygpu.devices.rules import _RULES
from tinygpu.ptx.assembling.assembler import Assembly, assemble
from tinygpu.ptx.calibration import Chip, Microbenchmark, Reading, chosen, microbenchmarks, page
from tinygpu.ptx.calibration.benchmark import MEASURED, Buffer, Launch
from tinygpu.ptx.calibration.chip import chip_of, tiny_chip
from tinygpu.ptx.calibration.emulated import prove

ALL = microbenchmarks()
each = pytest.mark.parametrize("benchmark", ALL, ids=lambda b: b.name)
# an assembler of CUDA 13 knows these; PTX of an "a" target runs on that one alone
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
ORDERED = ("wgmma-f16-rate", "wgmma-bf16-registers-rate", "tcgen05-f16-rate", "tcgen05-f16-latency")
ASYNCHRONOUS = [b for b in ALL if b.group == "copies" or b.name in ORDERED]


def by_name(name: str) -> Microbenchmark:
    return next(b for b in ALL if b.name == name)


@pytest.mark.sampled(12)
@each
def test_it_is_right_in_the_emulator_and_does_what_its_figures_count(benchmark: Microbenchmark) -> None:
    assert prove(benchmark).complaints == ()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("order", ["early", "random"])
@pytest.mark.parametrize("benchmark", ASYNCHRONOUS, ids=lambda b: b.name)
def test_it_is_right_in_whichever_order_copies_land(benchmark: Microbenchmark, order: str) -> None:
    assert prove(benchmark, order=order).complaints == ()  # type: ignore[arg-type]


@pytest.mark.sampled(12)
@each
def test_it_assembles_for_its_target_and_all_later_ones_without_spills_and_without_advice(
    benchmark: Microbenchmark,
) -> None:
    chips = [t for t in TARGETS if tiny_chip(benchmark.target).runs(benchmark.target) and runs(benchmark.target, t)]
    assert chips
    for target in chips:
        made = assembled(benchmark.ptx, target)
        assert not made.spills
        assert made.warnings == ()


def runs(ptx_target: str, target: str) -> bool:
    chip = replace(tiny_chip("sm_75"), cc=int(re.sub(r"\D", "", target)))
    return chip.runs(ptx_target)


@each
def test_its_version_is_the_lowest_that_assembles(benchmark: Microbenchmark) -> None:
    known = ["6.0", "6.3", "6.5", "7.0", "7.4", "7.8", "8.0", "8.3", "8.4", "8.6", "8.7", "8.8"]
    stated = re.search(r"\.version (\S+)", benchmark.ptx)
    assert stated is not None
    lower = known[known.index(stated[1]) - 1]
    with pytest.raises(ValueError, match="PTX"):
        assemble(benchmark.ptx.replace(f".version {stated[1]}", f".version {lower}"), benchmark.target)


@each
def test_every_figure_divides_by_a_count_that_the_emulator_proves(benchmark: Microbenchmark) -> None:
    launch = benchmark.plan(tiny_chip(benchmark.target), 3)
    per_trip = benchmark.per_trip(launch)
    for reading in benchmark.readings:
        assert set(reading.counts) <= set(per_trip)
        assert reading.of in MEASURED or all(per_trip[name] > 0 for name in reading.counts)


@each
def test_counts_grow_by_the_same_with_every_trip(benchmark: Microbenchmark) -> None:
    launch = benchmark.plan(tiny_chip(benchmark.target), 9)
    one, five = benchmark.counts(launch, 1), benchmark.counts(launch, 5)
    per_trip = benchmark.per_trip(launch)
    assert {name: one[name] + 4 * per_trip[name] for name in one} == dict(five)


@each
def test_a_figure_has_the_unit_and_the_range_of_the_library_s(benchmark: Microbenchmark) -> None:
    for reading in benchmark.readings:
        assert 0 < reading.least < reading.most
        if not reading.field:
            continue
        assert reading.unit == UNITS[reading.field]
        for gpu in devices():
            value = gpu.given(reading.field).value
            if value and reading.replaces(chip_of(gpu)) and benchmark.runs_on(chip_of(gpu)):
                assert reading.least <= float(value) <= reading.most, gpu.name


def used(chip: Chip) -> Iterator[Reading]:
    return (r for b in ALL if b.runs_on(chip) for r in b.readings if r.replaces(chip))


@pytest.mark.parametrize("gpu", devices(), ids=lambda gpu: gpu.name)
def test_no_figure_of_a_device_is_given_by_two_microbenchmarks(gpu: object) -> None:
    counted = Counter(r.field for r in used(chip_of(device(gpu))))  # type: ignore[arg-type]
    assert [field for field, count in counted.items() if count > 1] == []


def test_every_rate_and_latency_of_which_the_predictor_speaks_is_measured() -> None:
    asked = set(re.findall(r'number\(f?"(\w+)"\)', inspect.getsource(predictor)))
    asked |= {"launch_overhead_graph_us", "launch_overhead_stream_us", "boost_clock_mhz"}
    asked |= {"dram_bw_gbs_measured", "l2_bw_gbs_measured", "issue_interval_mma_m16n8k16"}
    for name in ("a100", "rtx4090", "h200", "rtx5090", "b200"):
        gpu = device(name)
        missing = asked - {r.field for r in used(chip_of(gpu))}
        assert missing <= {"launch_overhead_", "sm_count"}, name
        tensor = {f for f in UNITS if f.startswith("tensor_") and f.endswith("clk_sm") and gpu.number(f)}
        found = {r.field for r in used(chip_of(gpu))}
        assert tensor - found <= {"tensor_fp4_flop_per_clk_sm", "tensor_fp8_fp16acc_flop_per_clk_sm"}, name


def test_the_rules_that_guess_a_rate_or_a_latency_are_those_that_a_calibration_replaces() -> None:
    found = {r.field for r in used(chip_of(device("h200")))}
    guessed = {f for f in _RULES if f.startswith(("lat_", "launch_", "issue_")) or f.endswith("_per_clk_sm")}
    assert guessed <= found


# What each law would miss if it looked away: a kernel that was changed must not be found right.
MUTANTS = [
    ("fma-latency", "fma.rn.f32 %f1, %f1, %f30, %f31;\n    sub", "sub", "fma.rn.f32 is 255 in the emulator, and 256"),
    ("fma-latency", "%f30, %f31;\n    sub", "%f30, %f30;\n    mul.f32 %f1, %f1, %f1;\n    sub", "and not 257"),
    ("dram-copy", "[%d3+0], {%r8, %r9", "[%d3+0], {%r9, %r8", "the copy is not what was read"),
    ("l2-bandwidth", "@%p0 sub.u32 %r1, %r1, %r3;", "", "out of bounds"),
    ("smem-conflicts-4", "mul.lo.s32 %r23, %r23, %r25;", "shl.b32 %r23, %r23, 2;", "shared_load_wavefronts is"),
    ("tma-latency-l2", "@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 128;", "", "deadlock"),
    ("tma-l2", "@%p2 sub.u32 %r4, %r4, %r8;", "", "the last boxes are not those of the tensor"),
    ("cp-async-l2", "cp.async.wait_group 3;", "cp.async.wait_group 4;", "may still be copying"),
    ("wgmma-bf16-n8-rate", "fence.proxy.async.shared::cta;", "", "without fence.proxy.async"),
    ("wgmma-bf16-n8-rate", "wgmma.wait_group.sync.aligned 0;", "", "wgmma.wait_group must come first"),
    ("tcgen05-s8-rate", "fence.proxy.async.shared::cta;", "", "without fence.proxy.async"),
    ("tcgen05-s8-rate", "tcgen05.fence::after_thread_sync;", "", "tcgen05"),
    ("mbarrier-pair", "@%p3 add.u32 %r1, %r1, 1;", "", "the word was not handed over every time"),
    ("grid-barrier", "add.u32 %r4, %r4, 1;", "add.u32 %r4, %r4, 2;", "a CTA did not take part every time"),
    ("integer-rate", "max.u32 %r1, %r1, %r2;", "min.u32 %r1, %r1, %r2;", "max.u32 is"),
    ("atomic-rate", "add.u32 %r0, %r0, 16384;", "add.u32 %r0, %r0, 16385;", "do not hold the number of atomics"),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "there", "instead", "complaint"), MUTANTS)
def test_a_kernel_that_was_changed_is_noticed(name: str, there: str, instead: str, complaint: str) -> None:
    original = by_name(name)
    assert there in original.ptx
    complaints = prove(replace(original, ptx=original.ptx.replace(there, instead))).complaints
    assert any(complaint in c for c in complaints), complaints


@pytest.mark.end_to_end
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_plans_fit_into_the_memory_of_every_device(first: int) -> None:
    for gpu in devices()[first::4]:
        chip = chip_of(gpu)
        for benchmark in ALL:
            if not benchmark.runs_on(chip):
                continue
            launch = benchmark.plan(chip, benchmark.trips[1])
            size = sum(b.size_bytes for b in launch.all_buffers())
            assert size < 4 << 30
            assert launch.block <= gpu.max_threads_per_block


@pytest.mark.sampled(6)
@each
def test_the_ctas_that_are_to_share_an_sm_do(benchmark: Microbenchmark) -> None:
    for gpu in devices():
        if gpu.cc < 75 or not benchmark.runs_on(chip_of(gpu)):
            continue
        launch = benchmark.plan(tiny_chip(benchmark.target), 3)
        made = assembled(benchmark.ptx, gpu.target)
        fits = occupancy(
            gpu, np.array(launch.block), np.array(made.registers), np.array(made.static_smem_bytes)
        )
        assert int(fits.ctas_per_sm) >= launch.ctas_per_sm, gpu.name


@cache
def assembled(ptx: str, target: str) -> Assembly:
    return assemble(ptx, target)


def test_streams_touch_more_than_l2_holds_and_those_of_l2_stay_in_it() -> None:
    for gpu in devices():
        chip = chip_of(gpu)
        for name in ("dram-copy", "dram-read"):
            launch = by_name(name).plan(chip, by_name(name).trips[1])
            assert launch.buffer("data").size_bytes >= 4 * chip.l2_bytes
        launch = by_name("l2-bandwidth").plan(chip, by_name("l2-bandwidth").trips[1])
        assert launch.buffer("data").size_bytes <= max(chip.l2_near_bytes // 2, 1 << 16)


# ---- choosing ---------------------------------------------------------------------------------------------------


def test_microbenchmarks_are_chosen_by_name_by_group_and_by_figure() -> None:
    assert [b.name for b in chosen(["fma-rate"])] == ["fma-rate"]
    assert [b.name for b in chosen(["lat_l2_hit_far", "clock"])] == ["clock", "l2-latency"]
    assert {b.group for b in chosen(["copies"])} == {"copies"}
    assert chosen([]) == ALL


def test_a_word_that_is_none_gets_the_closest_ones() -> None:
    with pytest.raises(
        ValueError,
        match=re.escape(
            "there is no microbenchmark, group or figure 'lat_drm'; closest: lat_dram, lat_ldmatrix; "
            "`tinygpu calibrate --list` shows all"
        )
        + "$",
    ):
        chosen(["lat_drm"])


def test_names_are_distinct() -> None:
    assert max(Counter(b.name for b in ALL).values()) == 1


# ---- values that are refused ------------------------------------------------------------------------------------


def test_numbers_of_trips_are_two_fewer_first() -> None:
    with pytest.raises(ValueError, match=r"^\[clock\] 5 and 5 are no two numbers of trips, fewer first$"):
        replace(by_name("clock"), trips=(5, 5))


def test_a_chip_has_at_least_one_of_everything() -> None:
    with pytest.raises(ValueError, match=r"^a chip's sms is at least 1, not 0$"):
        Chip(90, 0, 1, 1)


def test_relative_buffers_are_given_word_by_word() -> None:
    with pytest.raises(
        ValueError, match=r"^\[buffer b\] addresses are 64-bit words, and every one of them is given$"
    ):
        Buffer("b", np.zeros(4, np.uint32), relative=True)
    with pytest.raises(ValueError, match=r"^\[buffer b\] 20 bytes are no multiple of 16$"):
        Buffer("b", np.zeros(4, np.uint32), 20)


def test_cycles_of_a_cta_go_from_its_first_start_to_its_last_stop() -> None:
    clocks = np.array([10, 50, 12, 60, 100, 140, 90, 135], np.uint64)
    assert Launch(2, 64, rows=2).cycles(clocks).tolist() == [50, 50]
    assert Launch(2, 64, rows=2, joined=False).cycles(clocks).tolist() == [40, 48, 40, 45]


def test_doctests() -> None:
    for room in (tinygpu.ptx.calibration.memory_latency, tinygpu.ptx.calibration.suite):
        found = doctest.testmod(room)
        assert found.attempted > 0
        assert found.failed == 0


# ---- the page ---------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "calibration.md"


def test_the_page_has_the_tables_of_the_microbenchmarks(tmp_path: Path) -> None:
    assert page.main([str(PAGE), "--check"]) == 0
    old = tmp_path / "calibration.md"
    old.write_text(PAGE.read_text().replace("| `dram-latency` |", "| `dram-chase` |"))
    assert page.main([str(old), "--check"]) == 1
    assert page.main([str(old)]) == 0
    assert old.read_text() == PAGE.read_text()


def test_the_python_of_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
