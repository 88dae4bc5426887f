"""Laws of the device library: every figure says where it comes from, and nothing is filled in silently."""

from __future__ import annotations

import copy
import doctest
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import tinygpu.devices.library
from tinygpu.devices import Device, Figure, describe, device, devices, load_device, rules, summary, target
from tinygpu.devices.fields import DERIVED, REQUIRED, UNITS
from tinygpu.devices.figure import KINDS

ALL = devices()
each = pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)


def test_the_library_has_more_than_twenty_devices_with_distinct_names_and_aliases() -> None:
    assert len(ALL) >= 20
    names = [name.lower() for gpu in ALL for name in (gpu.name, *gpu.aliases)]
    assert len(names) == len(set(names))


# As cuDeviceGetName and nvidia-smi give them, from published logs.
DRIVER_NAMES = {
    "GTX-1080-Ti": ("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
    "V100-SXM2-32GB": ("Tesla V100-SXM2-32GB",),
    "RTX-2080-Ti": ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
    "T4": ("Tesla T4",),
    "A100-SXM4-40GB": ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    "A100-SXM4-80GB": ("NVIDIA A100-SXM4-80GB",),
    "A10": ("NVIDIA A10",),
    "RTX-3090": ("NVIDIA GeForce RTX 3090",),
    "RTX-A6000": ("NVIDIA RTX A6000",),
    "Jetson-AGX-Orin-64GB": ("Orin", "Orin (nvgpu)"),
    "L4": ("NVIDIA L4",),
    "L40S": ("NVIDIA L40S",),
    "RTX-4090": ("NVIDIA GeForce RTX 4090",),
    "GH200": ("NVIDIA GH200 480GB",),
    "H100-PCIe": ("NVIDIA H100 PCIe",),
    "H100-SXM5": ("NVIDIA H100 80GB HBM3",),
    "H20-96GB": ("NVIDIA H20",),
    "H200-SXM": ("NVIDIA H200",),
    "H800-PCIe": ("NVIDIA H800 PCIe",),
    "B200": ("NVIDIA B200",),
    "GB200": ("NVIDIA GB200",),
    "B300": ("NVIDIA B300 SXM6 AC",),
    "Jetson-Thor-T5000": ("NVIDIA Thor",),
    "RTX-5090": ("NVIDIA GeForce RTX 5090",),
    "RTX-PRO-6000-Blackwell": (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    ),
}  # fmt: skip
# Parts of another size or clock, and slices of a GPU, are none of these.
OTHERS = (
    "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 NVL", "NVIDIA H20-3e", "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe", "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", "Tesla V100-SXM2-16GB", "Tesla P100-PCIE-16GB",
    "NVIDIA GH200 144G HBM3e", "NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000",
)  # fmt: skip


@each
def test_a_device_is_found_by_the_names_that_drivers_have_for_it(gpu: Device) -> None:
    for name in DRIVER_NAMES[gpu.name]:
        assert device(name) is gpu


@pytest.mark.parametrize("name", OTHERS)
def test_another_part_of_a_like_name_is_not_taken_for_a_device(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown device "):
        device(name)


def test_no_two_devices_are_found_by_one_name() -> None:
    from tinygpu.devices import library

    found: dict[str, str] = {}
    for gpu in ALL:
        for key in {library._key(name) for name in (gpu.name, *gpu.aliases)}:
            assert found.setdefault(key, gpu.name) == gpu.name


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


ALIASES = {
    "a100": "A100-SXM4-80GB",
    "A100-80GB": "A100-SXM4-80GB",
    "a100-40gb": "A100-SXM4-40GB",
    "a10": "A10",
    "a6000": "RTX-A6000",
    "3090": "RTX-3090",
    "rtx3090": "RTX-3090",
    "l4": "L4",
    "l40s": "L40S",
    "4090": "RTX-4090",
    "rtx4090": "RTX-4090",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "h100": "H100-SXM5",
    "h100-sxm5": "H100-SXM5",
    "H100 PCIe": "H100-PCIe",
    "h200": "H200-SXM",
    "gh200": "GH200",
    "b200": "B200",
    "gb200": "GB200",
    "b300": "B300",
    "5090": "RTX-5090",
    "rtx_5090": "RTX-5090",
    "t4": "T4",
    "v100": "V100-SXM2-32GB",
    "orin": "Jetson-AGX-Orin-64GB",
    "thor": "Jetson-Thor-T5000",
    "h20": "H20-96GB",
    "h800": "H800-PCIe",
    "2080ti": "RTX-2080-Ti",
    "gtx1080ti": "GTX-1080-Ti",
    "rtx-pro-6000": "RTX-PRO-6000-Blackwell",
}


def test_the_figures_of_no_other_device_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(file: str) -> Device:
        asked.append(file)
        return kept(file)

    kept = tinygpu.devices.library._shipped
    monkeypatch.setattr(tinygpu.devices.library, "_shipped", noted)
    assert (device("RTX 4090").name, asked) == ("RTX-4090", ["rtx-4090.json"])


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases_find_their_device(alias: str, name: str) -> None:
    assert device(alias).name == name
    assert device(alias.upper()).name == name


def test_every_own_name_finds_its_device() -> None:
    for gpu in ALL:
        assert device(gpu.name) is gpu
        assert device(gpu) is gpu
        assert all(device(alias) is gpu for alias in gpu.aliases)


def test_an_unknown_name_gets_the_closest_ones_and_the_list() -> None:
    with pytest.raises(ValueError) as caught:
        device("rtx4091")
    assert str(caught.value) == (
        "unknown device 'rtx4091'; closest: RTX-4090, RTX-5090, RTX-3090; known: "
        + ", ".join(gpu.name for gpu in ALL)
        + "; or give the path of a device file that ends in .json"
    )


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


@each
def test_a_saved_device_loads_as_the_same_one(gpu: Device, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    gpu.save(path)
    assert load_device(path) == gpu
    assert device(str(path)) == gpu


def test_measured_figures_replace_those_of_the_library() -> None:
    mine = device("a10").with_figures(
        {"dram_bw_gbs_measured": Figure(540.0, "GB/s", "own copy kernel", "measured")}, name="my-a10"
    )
    assert mine.name == "my-a10"
    assert mine.dram_bytes_per_s == 540e9
    assert mine.figure("dram_bw_gbs_sustained").kind == "measured"
    assert device("a10").figure("dram_bw_gbs_sustained").kind == "derived"


def short_file() -> dict[str, object]:
    """The least that a device file may hold."""
    gpu = device("a10")
    return {
        "schema": "tinygpu-device/1",
        "name": "mine",
        "figures": {field: gpu.given(field).to_json() for field in REQUIRED},
    }


def written(tmp_path: Path, data: object) -> Path:
    path = tmp_path / "mine.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


SIZES = np.arange(1, 17)


@pytest.mark.parametrize("gpu", [gpu for gpu in devices() if gpu.number("max_cluster_size_nonportable") > 1], ids=str)
def test_clusters_have_whole_places_on_sms_that_exist(gpu: Device) -> None:
    sms = gpu.sms_of_clusters(SIZES)
    assert np.all((sms % SIZES == 0) & (sms > 0) & (sms <= gpu.sm_count))
    doubled = gpu.sms_of_clusters(2 ** np.arange(5))
    assert np.all(np.diff(doubled) <= 0)  # where two clusters of half the size stand, they do too
    assert [int(gpu.sms_of_clusters(int(size))) for size in SIZES] == sms.tolist()


def test_clusters_of_a_b300_fit_its_gpcs() -> None:
    gpcs = (*(16,) * 9, 4)
    counted = [sum(sms // size for sms in gpcs) for size in (4, 8, 16)]
    gpu = device("b300")
    assert [gpu.given(f"active_clusters_of_{size}").value for size in (4, 8, 16)] == counted
    assert sum(gpcs) == gpu.sm_count


def test_what_is_not_known_of_clusters_is_at_most_what_fits() -> None:
    said = [device(name).figure(f"active_clusters_of_{size}") for name in ("h200", "b200", "gb200") for size in (8, 16)]
    assert [figure.value for figure in said] == [15, 7, 18, 9, 19, 9]
    assert {figure.kind for figure in said} == {"derived"}
    assert said[0].source == "rule: 15 as on H100-SXM5, of the same die and as many SMs"
    assert said[2].source == "rule: 18 as on B300, of as many SMs"
    assert said[4].source == (
        "rule: active_clusters_of_4 / 2, rounded down: at most, as the sizes of GPCs are not known"
    )


def test_a_device_file_needs_only_the_required_figures(tmp_path: Path) -> None:
    gpu = load_device(written(tmp_path, short_file()))
    assert gpu.sm_count == 72
    assert gpu.figure("lat_dram").kind == "derived"
    assert gpu.constants()["max_cluster_size_nonportable"] == 1
    assert gpu.sustained_tensor_share == 1.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("{", "[{path}] is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ({"schema": "other"}, "[{path}] the schema must be 'tinygpu-device/1', not 'other'"),
        ({"name": ""}, "[{path}] the name must be a text, not ''"),
        ({"aliases": "x"}, "[{path}] aliases must be a list of texts, not 'x'"),
        ({"figures": []}, "[{path}] figures must be an object of field: figure, not []"),
        (
            {"sm_counts": {"value": 1, "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] unknown figure 'sm_counts'; did you mean 'sm_count'?",
        ),
        (
            {"boost_clock_mhz": {"value": 1.7, "unit": "GHz", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] boost_clock_mhz is given in 'GHz'; it must be in 'MHz'",
        ),
        (
            {"sm_count": {"value": "72", "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] sm_count must be a number, not '72'",
        ),
        (
            {"sm_count": {"value": -72, "unit": "SMs", "source": "me", "kind": "spec"}},
            "[{path}] figure 'sm_count': the value of a figure is finite and not negative, not -72",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "kind": "spec"}},
            "[{path}] figure 'sm_count' lacks source: every figure says what it is and where from",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "source": "me", "kind": "spec", "date": "today"}},
            "[{path}] figure 'sm_count' has the unknown key 'date'; known: value, unit, source, kind, note",
        ),
        (
            {"sm_count": {"value": 72, "unit": "SMs", "source": "me", "kind": "guess"}},
            "[{path}] figure 'sm_count': unknown kind of figure 'guess'; known: " + ", ".join(KINDS),
        ),
        (
            {"sm_count": {"value": None, "unit": "SMs", "source": "", "kind": "null"}},
            "[{path}] [device mine] the figure 'sm_count' is missing: no model works without it",
        ),
        (
            {"max_warps_per_sm": {"value": 40, "unit": "warps", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] 40 warps of 32 lanes are not 1536 threads per SM",
        ),
        (
            {"ptx_target": {"value": "sm_90a", "unit": "ptx .target", "source": "me", "kind": "spec"}},
            "[{path}] [device mine] target sm_90a does not belong to compute capability 8.6",
        ),
    ],
)
def test_a_bad_device_file_is_refused_with_a_sentence(change: object, sentence: str, tmp_path: Path) -> None:
    data: object = change
    if isinstance(change, dict):
        base = short_file()
        data = base | change if set(change) & {"schema", "name", "aliases", "figures"} else base
        if data is base:
            base["figures"] = {**base["figures"], **change}  # type: ignore[dict-item]
    path = written(tmp_path, data)
    with pytest.raises(ValueError) as caught:
        device(str(path))
    assert str(caught.value) == sentence.replace("{path}", str(path))


def test_a_missing_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        device(str(tmp_path / "none.json"))
    assert str(caught.value) == f"{tmp_path / 'none.json'} cannot be read: No such file or directory"


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
