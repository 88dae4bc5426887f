"""From a GPU to a file: the process that is lost, the measured profile, and what reads it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from synthetic import H200, SyntheticGpu

from tinygpu.api.calibrate import calibrate as calibrate_device
from tinygpu.cli import main, printing
from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, Figure, device, devices
from tinygpu.files.error import FileError
from tinygpu.ptx.calibration import (
    Calibration,
    Rounds,
    Settings,
    calibrate,
    chosen,
    load_calibration,
    measure,
    measured_profile,
    microbenchmarks,
    save_profile,
)
from tinygpu.ptx.calibration.__main__ import main as module_main
from tinygpu.ptx.calibration.launcher import Gpu, chip_on
from tinygpu.ptx.calibration.measuring import Failure, Measured
from tinygpu.ptx.calibration.profile import calibration_of
from tinygpu.ptx.runtime.errors import GpuUnavailable

CHIP = chip_on(H200, 2)
QUICK = Settings(driver="clocked_cuda", rounds=Rounds(2, 0.0), limit_s=60.0)


def calibration(*figures: Measured, gpu: Gpu = H200, failures: tuple[Failure, ...] = ()) -> Calibration:
    state = {"sm_mhz": 1980, "memory_mhz": 3201, "watts": 120.0, "celsius": 40, "held_back": []}
    return Calibration(gpu, "2026-11-21 08:10 UTC", "tinygpu calibrate", "H200-SXM", figures, failures, state, state)


def figure(field: str, value: float, unit: str, doubt: str = "") -> Measured:
    return Measured(f"of-{field}", f"words of {field}", field, value, unit, 0.004, "cycles / `x`", 1.0, doubt)


# ---- the process ------------------------------------------------------------------------------------------------


@pytest.mark.end_to_end
def test_a_calibration_on_a_driver_gives_what_its_clocks_say(tmp_path: Path) -> None:
    names = ["fma-latency", "barrier-512", "launch", "dram-latency", "remote-latency", "tma-latency-l2", "grid-barrier"]
    short = {"dram-latency": (1, 3), "launch": (5, 9), "tma-latency-l2": (1, 3), "grid-barrier": (1, 3)}
    told = []
    done = calibrate_device(
        names, settings=replace(QUICK, trips=short), out=tmp_path / "here" / "mine.json", command="tinygpu calibrate",
        tell=lambda b, outcome: told.append(b.name),
    )  # fmt: skip
    assert sorted(told) == sorted(names)
    assert done.calibration.failures == ()
    found = {f.field: f.value for f in done.calibration.figures}
    assert found["lat_fma_dependent"] == pytest.approx(1280 / 256)
    assert found["lat_barrier_cta"] == pytest.approx(1280 / 32)
    assert found["lat_dsmem_load"] == pytest.approx(1280 / 32)
    assert found["lat_tma_load_l2_hit"] == pytest.approx(1280 / 8)
    # launches of one trip, behind one that holds the stream: 2 us and 1,280 cycles at 2 GHz
    assert found["launch_overhead_stream_us"] == pytest.approx(2.64)
    assert found["launch_overhead_graph_us"] == pytest.approx(2.64)
    assert found["grid_sync_us"] == pytest.approx(0.64)
    assert done.calibration.gpu.name == "NVIDIA H200"
    assert done.base is not None
    assert done.base.name == "H200-SXM"
    assert done.stand_in == ""
    # a pointer is followed in 40 cycles: on every GPU these are further away
    doubts = [f.field for f in done.calibration.figures if f.doubt]
    assert doubts == ["lat_dram", "lat_dsmem_load"]
    assert done.path == tmp_path / "here" / "mine.json"
    assert done.device is not None
    assert device(str(done.path)) == done.device
    assert done.device.number("lat_barrier_cta") == 40
    assert done.device.sm_count == 4


@pytest.mark.end_to_end
def test_what_ends_the_process_or_never_ends_costs_one_microbenchmark() -> None:
    names = ["barrier-128", "barrier-256", "barrier-512", "barrier-1024", "mbarrier-round", "fma-latency"]
    base, found = calibrate(chosen(names), replace(QUICK, limit_s=8.0))
    assert base is not None
    assert base.name == "H200-SXM"
    assert {f.benchmark: f.sentence for f in found.failures} == {
        "barrier-256": "its process ended with status 7",
        "barrier-1024": "it did not end within 8 s",
        "mbarrier-round": "cuLaunchKernelEx returned CUDA_ERROR_ILLEGAL_ADDRESS: a kernel touched memory that is "
        "not its own",
    }
    assert {f.benchmark for f in found.figures} == {"barrier-128", "barrier-512", "fma-latency"}


def test_when_the_time_is_up_no_further_microbenchmark_is_begun() -> None:
    _, found = calibrate(chosen(["barrier-128", "fma-latency"]), replace(QUICK, seconds=0.0))
    assert {f.benchmark: f.sentence for f in found.failures} == dict.fromkeys(
        ("barrier-128", "fma-latency"), "the time was up before it began"
    )
    assert (found.figures, len(found.failed)) == ((), 2)


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(GpuUnavailable, match=r"^nothing can be measured here: .*; --emulate runs the microbenchmarks"):
        calibrate_device(["fma-rate"])


def test_a_driver_that_is_none_is_said() -> None:
    sentence = r"^running kernels needs the package cuda-bindings: No module named 'no_such'$"
    with pytest.raises(GpuUnavailable, match=sentence):
        calibrate_device(["fma-rate"], settings=replace(QUICK, driver="no_such"))


# ---- the profile ------------------------------------------------------------------------------------------------


def synthetic(words: list[str], **settings: object) -> Calibration:
    gpu = SyntheticGpu(emulating=False, **settings)  # type: ignore[arg-type]
    outcomes = [measure(replace(b, check=lambda *_: ""), gpu, CHIP) for b in chosen(words)]
    return calibration_of(outcomes, H200, device("h200"), date="2026-11-21 08:10 UTC", command="tinygpu calibrate")


def test_measured_figures_stand_in_the_place_of_the_library_s_and_say_where_from() -> None:
    found = measured_profile(
        device("h200"), calibration(figure("lat_dram", 712.34567, "cycles"), figure("lat_barrier_cta", 44.0, "cycles"))
    )
    assert found.name == "H200-SXM-measured"
    assert found.given("lat_dram") == Figure(
        712.3,
        "cycles",
        "tinygpu calibrate, microbenchmark of-lat_dram, on NVIDIA H200 with driver 13.0, 2026-11-21 08:10 UTC",
        "measured",
        "words of lat_dram: cycles / `x`; middle half of the rounds within 0.4 %; SM clock 1980 MHz",
    )
    assert device("h200").given("lat_barrier_cta").kind == "null"
    assert found.figure("lat_barrier_cta").value == 44.0
    assert found.given("sm_count").source == "driver 13.0 of NVIDIA H200, device attribute"
    same = set(device("h200").figures) - {"lat_dram", "lat_barrier_cta", "sm_count", "l2_size_mb"}
    same -= {"tflops_f16_from_clock", "launch_floor_us"}
    assert all(found.given(field) == device("h200").given(field) for field in same)


def test_figures_that_are_arithmetic_on_others_follow_the_measured_ones() -> None:
    found = measured_profile(
        device("h200"),
        calibration(
            figure("boost_clock_mhz", 1900.0, "MHz"),
            figure("tensor_f16_fp32acc_flop_per_clk_sm", 4000.0, "FLOP/clk/SM"),
            figure("launch_overhead_graph_us", 1.5, "us"), figure("launch_overhead_stream_us", 1.2, "us"),
        ),
    )  # fmt: skip
    assert found.number("tflops_f16_from_clock") == pytest.approx(132 * 4000 * 1900e6 / 1e12, rel=1e-3)
    assert found.number("launch_floor_us") == 1.2


def test_what_is_doubted_replaces_nothing_and_is_kept_beside(tmp_path: Path) -> None:
    given = calibration(
        figure("lat_dram", 1.0, "cycles", doubt="1 cycles is outside"), figure("lat_sfu", 20.0, "cycles"),
        failures=(Failure("barrier-128", "no memory"), Failure("mma-fp8-rate", "no such instruction", skipped=True)),
    )  # fmt: skip
    path = tmp_path / "p.json"
    made = save_profile(path, device("h200"), given)
    assert made.given("lat_dram") == device("h200").given("lat_dram")
    assert device(path) == made
    assert load_calibration(path) == given
    assert [f.field for f in given.used] == ["lat_sfu"]
    assert [f.benchmark for f in given.failed] == ["barrier-128"]
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_a_profile_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.json").mkdir()
    with pytest.raises(FileError, match=r"p\.json cannot be written: Is a directory; give another path$"):
        save_profile(tmp_path / "p.json", device("h200"), calibration(figure("lat_sfu", 20.0, "cycles")))
    assert [p.name for p in tmp_path.iterdir()] == ["p.json"]


def test_another_kind_of_gpu_than_the_base_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"^NVIDIA H200 has compute capability 9, and A100-SXM4-80GB has 8\.0: take a device of the same kind as "
        r"the base$",
    ):
        measured_profile(device("a100"), calibration())


def test_a_figure_that_two_microbenchmarks_give_is_refused() -> None:
    twice = figure("lat_sfu", 20.0, "cycles")
    with pytest.raises(ValueError, match=r"^lat_sfu is given by two microbenchmarks, one of them of-lat_sfu$"):
        measured_profile(device("h200"), calibration(twice, twice))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
        ("{}", "is no measured profile: it has no calibration"),
        ('{"calibration": {"schema": "x/2"}}', "the schema must be 'tinygpu-calibration/1', not 'x/2'"),
    ],
)
def test_what_is_no_measured_profile_is_refused(text: str | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    if text is not None:
        path.write_text(text)
    where = path if text is None else f"[{path}]"
    with pytest.raises(ValueError, match=f"^{re.escape(f'{where} {sentence}')}$"):
        load_calibration(path)


@pytest.mark.parametrize("known", devices(), ids=lambda d: d.name)
def test_a_gpu_that_the_library_does_not_know_stands_nearest_to_one_of_its_compute_capability(known: Device) -> None:
    from tinygpu.ptx.calibration.run import device_of

    gpu = Gpu("NVIDIA X900", "13.0", known.cc, known.sm_count, known.l2_bytes)
    found = device_of(gpu)
    assert found is not None
    assert (found.cc, found.sm_count, found.l2_bytes) == (known.cc, known.sm_count, known.l2_bytes)
    assert device_of(replace(gpu, name=f"NVIDIA {known.name}")) is known
    assert device_of(replace(gpu, cc=999)) is None


@pytest.mark.slow
def test_a_gpu_of_no_known_name_is_measured_in_the_place_of_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_GPU", '{"name": "NVIDIA X900"}')
    done = calibrate_device(["fma-latency"], settings=QUICK, out=tmp_path / "p.json")
    assert done.base is not None
    assert done.base.cc == 90
    assert done.path == tmp_path / "p.json"
    assert done.stand_in == (
        f"the library has no NVIDIA X900: figures that were not measured are those of {done.base.name}, the nearest of "
        "its compute capability; say with --device which one it is like"
    )
    assert calibrate_device(["fma-latency"], settings=QUICK, out=tmp_path / "q.json", like="h200").stand_in == ""


@pytest.mark.end_to_end
def test_a_gpu_of_no_known_kind_is_measured_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPU", '{"name": "NVIDIA X900", "cc": [9, 9]}')
    done = calibrate_device(["fma-latency"], settings=QUICK, out=tmp_path / "p.json")
    assert (done.base, done.path, done.calibration.base) == (None, None, "")
    assert [f.benchmark for f in done.calibration.figures] == ["fma-latency"]
    assert done.stand_in == (
        "the library has no device like NVIDIA X900, of compute capability 9.9: no profile was written; give a device "
        "file with --device"
    )


# ---- what reads it ----------------------------------------------------------------------------------------------

COPY = Demand(
    ctas=4096, threads_per_cta=256, registers_per_thread=32, smem_bytes_per_cta=0,
    iteration=Phase(Work(warp_instructions=1024, sectors_read=8192, sectors_written=8192)),
    bytes_in_flight_per_cta=1 << 16, dram_bytes_read=1 << 30, dram_bytes_written=1 << 30,
)  # fmt: skip
PRODUCT = Demand(
    ctas=132 * 8, threads_per_cta=256, registers_per_thread=128, smem_bytes_per_cta=64 << 10,
    iteration=Phase(Work(tensor_flops=np.array(2**34 / 1056)), Chain(barriers=np.array(64))),
    operand="bf16", accumulator="f32", tensor_path="wgmma",
)  # fmt: skip
SERIAL = Demand(
    ctas=132, threads_per_cta=256, registers_per_thread=32, smem_bytes_per_cta=0,
    iteration=Phase(Work(warp_instructions=1), Chain(barriers=np.array(10_000))),
)  # fmt: skip


def test_a_prediction_follows_the_measured_figures() -> None:
    h200 = device("h200")
    half = measured_profile(h200, calibration(figure("dram_bw_gbs_measured", 2150.0, "GB/s")))
    before, after = (predict(d, COPY) for d in (h200, half))
    assert before.bottleneck() == after.bottleneck() == "dram"
    assert float(after.busy_s["dram"]) == pytest.approx(2 * float(before.busy_s["dram"]))
    assert float(after.seconds) > 1.8 * float(before.seconds)

    slow = measured_profile(h200, calibration(figure("lat_barrier_cta", 450.0, "cycles")))
    before, after = (predict(d, SERIAL) for d in (h200, slow))
    cycles = (float(after.seconds) - float(before.seconds)) * h200.boost_clock_hz
    assert cycles == pytest.approx(10_000 * (450 - h200.number("lat_barrier_cta")), rel=1e-6)

    late = measured_profile(h200, calibration(figure("launch_overhead_graph_us", 3.5, "us")))
    assert float(predict(late, COPY).launch_s) == pytest.approx(3.5e-6)

    clock = measured_profile(h200, calibration(figure("boost_clock_mhz", 990.0, "MHz")))
    assert float(predict(clock, SERIAL).seconds) == pytest.approx(2 * float(predict(h200, SERIAL).seconds), rel=0.02)


def test_the_rate_of_wgmma_that_was_measured_is_the_rate_of_products() -> None:
    h200 = device("h200")
    # 2,048 operations in a cycle of an SM, where the library has 4,096
    found = synthetic(["wgmma-bf16-rate"], cycles={"wgmma-bf16-rate": 2048.0})
    half = measured_profile(h200, found)
    assert half.tensor_flops_per_clk_sm("bf16", "f32") == pytest.approx(2048, rel=1e-3)
    before, after = (float(predict(d, PRODUCT).busy_s["tensor"]) for d in (h200, half))
    assert after == pytest.approx(2 * before, rel=1e-3)


@pytest.mark.end_to_end
def test_all_microbenchmarks_together_replace_what_they_say(tmp_path: Path) -> None:
    """Every figure of an H200, from times of a trip that give the library's own values back."""
    h200 = device("h200")
    cycles: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for b in microbenchmarks():
        if not b.runs_on(CHIP):
            continue
        launch = b.plan(CHIP, b.trips[1])
        for r in b.readings:
            if not r.replaces(CHIP) or r.of in ("launches", "cycles"):
                continue
            amount = r.amount(launch, b.per_trip(launch), CHIP)
            value = h200.number(r.field) if h200.figure(r.field).value else 50.0
            time = r.scale * amount / value if r.as_rate else value * amount / r.scale
            (seconds if r.clock == "seconds" else cycles).setdefault(b.name, time)
    seconds["clock"], cycles["clock"] = 1024 / 1.98e9, 1024.0
    found = synthetic([], cycles=cycles, seconds=seconds, launch_s=2.52e-6)
    assert found.failed == ()
    assert [f for f in found.figures if f.field and f.doubt] == []
    path = tmp_path / "p.json"
    made = save_profile(path, h200, found)
    assert device(path) == made
    for f in found.used:
        known = h200.given(f.field).value
        close = {"lat_l2_hit_far", "issue_interval_mma_m16n8k16", "issue_interval_wgmma_m64n256k16"}
        if known and f.field not in close and not f.field.startswith("launch"):
            assert made.number(f.field) == pytest.approx(float(known), rel=0.02), f.field
    assert len(found.used) >= 35


# ---- the command ------------------------------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["tinygpu", *words])
    monkeypatch.setattr(printing.console, "width", 200)
    try:
        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    out = capsys.readouterr()
    return status, out.out, out.err


def test_the_list_has_every_microbenchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(monkeypatch, capsys, "calibrate", "--list")
    assert status == 0
    assert all(b.name in out for b in microbenchmarks())
    status, out, _ = run(monkeypatch, capsys, "calibrate", "--list", "--json", "--only", "lat_dram")
    (only,) = json.loads(out)
    assert only["name"] == "dram-latency"
    assert only["figures"] == [
        {
            "name": "latency of DRAM", "field": "lat_dram", "unit": "cycles",
            "formula": "cycles / `ld.global.u64` of a warp",
        }
    ]  # fmt: skip


def test_emulating_says_what_a_trip_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(monkeypatch, capsys, "calibrate", "--emulate", "--only", "fma-latency")
    assert (status, " ".join(out.split())) == (0, "right fma-latency a trip is fma.rn.f32 256")
    status, out, _ = run(monkeypatch, capsys, "calibrate", "--emulate", "--json", "--only", "fma-latency")
    assert json.loads(out) == [
        {"name": "fma-latency", "trips": [1, 3], "per_trip": {"fma.rn.f32": 256}, "complaints": [], "holds": True}
    ]


def test_without_a_gpu_the_command_ends_with_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(monkeypatch, capsys, "calibrate", "--only", "fma-rate")
    assert (status, out) == (1, "")
    assert re.fullmatch(
        r"tinygpu: nothing can be measured here: .+; --emulate runs the microbenchmarks without a GPU\n", err
    )


def test_a_measured_profile_works_where_a_device_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    save_profile(path, device("h200"), calibration(figure("lat_dram", 712.0, "cycles")))
    status, out, _ = run(monkeypatch, capsys, "devices", str(path), "--json")
    assert status == 0
    rows = {row["field"]: row for row in json.loads(out)}
    assert rows["lat_dram"]["value"] == 712.0
    assert rows["lat_dram"]["kind"] == "measured"


@pytest.mark.end_to_end
def test_the_module_calibrates_without_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert module_main(["fma-latency", "barrier-128", "-o", str(path)], QUICK) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "fma-latency: latency of FMA, f32 5 cycles (+- 0.0 %) -> lat_fma_dependent",
        "barrier-128: bar.sync of 128 threads 40 cycles (+- 0.0 %)",
        f"wrote {path}",
    ]
    assert load_calibration(path).command == f"python -m tinygpu.ptx.calibration fma-latency barrier-128 -o {path}"
    assert device(path).number("lat_fma_dependent") == 5
    assert module_main(["nothing"], QUICK) == 1
    assert capsys.readouterr().err == (
        "python -m tinygpu.ptx.calibration: there is no microbenchmark, group or figure 'nothing'; "
        "`tinygpu calibrate --list` shows all\n"
    )
    assert module_main(["barrier-128", "-o", str(tmp_path / "none.json")], QUICK) == 1
    assert capsys.readouterr().out.endswith("no figure could be used, so that no profile was written\n")
    assert not (tmp_path / "none.json").exists()


def test_measuring_needs_numpy_and_nothing_else_of_ours() -> None:
    program = (
        "import sys; import tinygpu.ptx.calibration.child, tinygpu.ptx.calibration.__main__; "
        "print([m for m in ('sympy', 'z3', 'ml_dtypes', 'rich', 'typer', 'cuda.bindings') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
