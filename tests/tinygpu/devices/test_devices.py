"""Laws of the device library: every figure says where it comes from, and nothing is filled in silently."""

from __future__ import annotations

import copy
import doctest
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

import tinygpu.devices.library
from tinygpu.devices import Device, Figure, describe, device, devices, rules, summary, target
from tinygpu.devices.fields import DERIVED, UNITS
from tinygpu.devices.figure import KINDS

ALL = devices()
each = pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)


def test_the_library_has_more_than_twenty_devices_with_distinct_names_and_aliases() -> None:
    assert len(ALL) >= 20
    names = [name.lower() for gpu in ALL for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))


@each
def test_every_figure_has_value_unit_source_and_kind(gpu: Device) -> None:
    assert set(gpu.figures) == set(UNITS)
    for field, figure in gpu.figures.items():
        assert figure.unit == UNITS[field]
        assert figure.kind in KINDS
        assert (figure.value is None) == (figure.kind == "null")
        assert figure.source or figure.kind == "null"


@each
def test_a_figure_without_source_stays_null_or_is_derived_by_a_stated_rule(gpu: Device) -> None:
    for field in UNITS:
        given, used = gpu.given(field), gpu.figure(field)
        if given.value is not None:
            assert used == given
        elif used.value is not None:
            assert used.kind == "derived"
            assert used.source.startswith("rule: ")
    for field in DERIVED:
        used = gpu.figure(field)
        measured = [figure for figure in gpu.figures.values() if figure == used]
        assert used.kind == "null" or used.source.startswith("rule: ") or measured


def test_rules_that_speak_of_a_median_of_measured_parts_tell_the_truth() -> None:
    rule = re.compile(r"rule: ([\d.]+) (?:cycles|us), the median of the measured parts \(([\d.]+) to ([\d.]+)\)")
    checked = set()
    for field in UNITS:
        sources = {gpu.figure(field).source for gpu in ALL}
        for match in filter(None, map(rule.fullmatch, sources)):
            measured = [gpu.number(field) for gpu in ALL if gpu.given(field).kind == "measured"]
            stated = [float(number) for number in match.groups()]
            assert stated == pytest.approx([median(measured), min(measured), max(measured)])
            derived = {gpu.figure(field).value for gpu in ALL if gpu.figure(field).source == match[0]}
            assert derived == {stated[0]}
            checked.add(field)
    assert {"lat_dram", "lat_l2_hit_near", "lat_smem_load", "launch_overhead_graph_us"} <= checked


def test_the_share_for_parts_without_a_measured_product_is_the_median_of_the_measured_ones() -> None:
    shares = [
        gpu.number("gemm_f16_bf16_tflops_measured") / gpu.number("tflops_f16_dense")
        for gpu in ALL
        if gpu.given("gemm_f16_bf16_tflops_measured").kind == "measured"
    ]
    a10 = device("a10")
    assert a10.figure("tflops_f16_sustained").kind == "derived"
    assert a10.number("tflops_f16_sustained") / a10.number("tflops_f16_dense") == pytest.approx(
        median(shares), abs=0.005
    )


def test_the_clock_that_a_power_limit_lets_through_goes_with_the_cube_root_of_the_watts_per_sm() -> None:
    """With more watts never less is sustained; with eight times as many twice as much, up to the datasheet's."""
    l40s, l4 = device("l40s"), device("l4")

    def sustained(watts: float) -> float:
        given = {"tdp_w": replace(l40s.given("tdp_w"), value=watts)}
        return float(l40s.with_figures(given).number("tflops_f16_sustained"))

    same = 72 / 60 * 142  # the watts per SM of the L4, whose library product was measured
    per_sm = l4.number("tflops_f16_sustained") / l4.sm_count
    assert sustained(same) == pytest.approx(per_sm * l40s.sm_count, abs=0.1)
    assert sustained(same / 8) == pytest.approx(sustained(same) / 2, abs=0.1)
    found = [sustained(watts) for watts in range(50, 2000, 50)]
    assert found == sorted(found)
    assert found[-1] == l40s.number("tflops_f16_dense")
    assert l40s.figure("tflops_f16_sustained").source == (
        "rule: SMs x rate x the clock that L4 sustains (same architecture and rate) "
        "x cube root of 2.05, the watts per SM over its own"
    )


def test_siblings_are_parts_of_the_library_whose_products_were_measured() -> None:
    for sibling in rules.SUSTAINED_SIBLINGS:
        gpu = device(sibling.name)
        assert gpu.given("gemm_f16_bf16_tflops_measured").kind == "measured"
        stated = (sibling.cc, sibling.sms, sibling.watts, sibling.rate, sibling.tflops)
        fields = ("tdp_w", "tensor_f16_fp32acc_flop_per_clk_sm", "gemm_f16_bf16_tflops_measured")
        assert stated == (gpu.cc, gpu.sm_count, *(gpu.given(field).value for field in fields))


@each
def test_datasheet_peak_is_sms_times_rate_times_tensor_clock(gpu: Device) -> None:
    sheet = gpu.given("tflops_f16_dense").value
    if sheet and gpu.given("tensor_clock_implied_mhz").value:
        peak = gpu.tensor_flops_per_clk_sm("f16", "f32") * gpu.sm_count * gpu.tensor_clock_hz
        assert peak == pytest.approx(float(sheet) * 1e12, rel=0.01)


@each
def test_what_is_sustained_does_not_exceed_the_datasheet(gpu: Device) -> None:
    assert gpu.number("dram_bw_gbs_sustained") <= gpu.number("dram_bw_gbs_datasheet")
    assert gpu.l2_bytes_per_s >= gpu.dram_bytes_per_s
    assert 0 < gpu.sustained_tensor_share <= 1
    assert 0 < gpu.mma_sync_share() <= 1
    assert gpu.l2_near_bytes <= gpu.l2_bytes


@each
def test_constants_are_integers_and_cover_the_limits(gpu: Device) -> None:
    constants = gpu.constants()
    assert all(type(value) is int for value in constants.values())
    assert constants["max_threads_per_sm"] == 32 * constants["max_warps_per_sm"]
    assert constants["max_smem_per_block_optin"] <= constants["max_smem_per_sm"]
    assert constants["cc"] == gpu.cc
    assert constants["sm_count"] == gpu.sm_count


def test_known_limits_of_the_a100() -> None:
    constants = device("a100").constants()
    assert constants["max_smem_per_block_optin"] == 163 * 1024
    assert constants["registers_per_sm"] == 65536
    assert constants["max_registers_per_thread"] == 255
    assert constants["max_cluster_size_portable"] == 1
    assert constants["cc"] == 80


@pytest.mark.parametrize(
    ("ptx", "runs_on", "refused_by"),
    [
        ("sm_80", ("a100", "3090", "orin", "4090", "h100", "b200", "5090"), ("t4", "v100")),
        ("sm_86", ("3090", "orin", "4090", "h100", "5090"), ("a100",)),
        ("sm_89", ("4090", "h100", "5090"), ("a100", "3090", "orin")),
        ("sm_90", ("h100", "b200", "5090"), ("4090",)),
        ("sm_90a", ("h100", "h200", "gh200", "h20"), ("4090", "b200", "5090")),
        ("sm_100a", ("b200", "gb200"), ("h100", "b300", "5090")),
        ("sm_100f", ("b200", "b300"), ("h100", "thor", "5090")),
        ("sm_103f", ("b300",), ("b200",)),
        ("sm_120a", ("5090", "rtx-pro-6000"), ("b200",)),
    ],
)
def test_ptx_targets_run_where_the_isa_says(ptx: str, runs_on: tuple[str, ...], refused_by: tuple[str, ...]) -> None:
    assert all(device(name).runs(ptx) for name in runs_on)
    assert not any(device(name).runs(ptx) for name in refused_by)
    assert str(target(ptx)) == ptx


def test_every_device_runs_its_own_targets() -> None:
    for gpu in ALL:
        assert gpu.runs(gpu.target)
        assert gpu.runs(gpu.portable_target)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        device("a100").runs("compute_80")
    assert str(caught.value) == "unknown PTX target 'compute_80'; targets are written sm_80, sm_90a or sm_100f"


def test_consumer_parts_halve_f32_sums_and_others_do_not() -> None:
    for name, ratio in (("3090", 2), ("4090", 2), ("5090", 2), ("2080ti", 2), ("a100", 1), ("a6000", 1), ("l40s", 1)):
        gpu = device(name)
        assert gpu.tensor_flops_per_clk_sm("f16", "f16") == ratio * gpu.tensor_flops_per_clk_sm("f16", "f32")


def test_an_unknown_tensor_pair_is_refused() -> None:
    with pytest.raises(ValueError) as caught:
        device("a100").tensor_flops_per_clk_sm("f32", "f32")
    assert str(caught.value) == (
        "no tensor core multiplies f32 and accumulates in f32; known: f16 in f32, f16 in f16, bf16 in f32, tf32 in "
        "f32, e4m3 in f32, e5m2 in f32, e2m3 in f32, e3m2 in f32, e4m3 in f16, e5m2 in f16, e2m1 in f32, s8 in s32, "
        "u8 in s32, f64 in f64"
    )


def test_an_unknown_figure_gets_the_closest_ones() -> None:
    with pytest.raises(ValueError) as caught:
        device("a100").figure("lat_dramm")
    assert str(caught.value).startswith("[device A100-SXM4-80GB] unknown figure 'lat_dramm'; closest: lat_dram")


def test_a_figure_that_nothing_gives_is_refused_as_a_number() -> None:
    assert device("a100").figure("lat_dsmem_load").kind == "null"
    with pytest.raises(ValueError) as caught:
        device("a100").number("lat_dsmem_load")
    assert str(caught.value) == "[device A100-SXM4-80GB] no source gives lat_dsmem_load, and no rule derives it"


def test_devices_are_values(tmp_path: Path) -> None:
    gpu = device("l4")
    assert pickle.loads(pickle.dumps(gpu)) == gpu
    assert copy.deepcopy(gpu) == gpu
    assert len({gpu, copy.deepcopy(gpu)}) == 1
    with pytest.raises(TypeError):
        gpu.figures["sm_count"] = gpu.figures["tpc_count"]  # type: ignore[index]


def test_measured_figures_replace_those_of_the_library() -> None:
    mine = device("a10").with_figures(
        {"dram_bw_gbs_measured": Figure(540.0, "GB/s", "own copy kernel", "measured")}, name="my-a10"
    )
    assert mine.name == "my-a10"
    assert mine.dram_bytes_per_s == 540e9
    assert mine.figure("dram_bw_gbs_sustained").kind == "measured"
    assert device("a10").figure("dram_bw_gbs_sustained").kind == "derived"


def test_tables_show_every_figure_and_every_device() -> None:
    rows = describe(device("t4"))
    assert [row.field for row in rows] == [*UNITS, *DERIVED]
    l2 = next(row for row in rows if row.field == "lat_l2_hit_near")
    assert l2 == (
        "lat_l2_hit_near",
        286,
        "cycles",
        "derived",
        "rule: 286 cycles, the median of the measured parts (176 to 360)",
        "",
    )
    lines = summary()
    assert [line.name for line in lines] == [gpu.name for gpu in ALL]
    a100 = next(line for line in lines if line.name == "A100-SXM4-80GB")
    assert (a100.target, a100.sms, a100.f16_tflops, a100.smem_kib_per_cta) == ("sm_80", 108, 311.9, 163)


def test_importing_devices_loads_neither_sympy_nor_z3() -> None:
    code = (
        "import sys, tinygpu.devices as d; d.devices(); print([m for m in ('sympy', 'z3', 'cuda') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_doctests() -> None:
    result = doctest.testmod(tinygpu.devices.library)
    assert result.attempted > 0
    assert result.failed == 0
