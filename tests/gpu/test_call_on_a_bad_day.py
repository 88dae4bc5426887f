"""The call on a driver that fails as real ones do: names that nobody knows, refused machine code, faults that surface
late and stay, tensor maps in aligned memory alone, a management library that says little."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import stub_cuda
from gpu_call.assembling import NVJITLINK
from gpu_call.cases import Case, Plan
from gpu_call.kit import Kit, write_kit
from gpu_call.prepare import prepare
from gpu_call.records import StepRecord
from gpu_call.run import call, main

from tinygpu.devices import device
from tinygpu.ptx.measuring.bundle import read_bundle, write_bundle

pytest.importorskip("cuda.bindings.driver")
HERE = Path(__file__).parent
FAKES = (HERE / "fake", HERE.parent / "ptx" / "fake", HERE.parent / "ptx" / "calibration")
BAD = {
    "name": "NVIDIA X900", "late": True, "aligned_maps": True, "refusal": "CUDA_ERROR_INVALID_IMAGE",
}  # fmt: skip
FAULT = "error CUDA_ERROR_ILLEGAL_ADDRESS"


def kit_of(plan: Plan, folder: Path, fates: Mapping[str, Mapping[str, str]]) -> tuple[Path, Kit]:
    """A kit in which some kernels meet their fate: per case, name of the kernel -> what its PTX says."""
    path = folder / "kit.zip"
    kit = prepare(
        plan, device("h200"), path, folder / "bundles", assembler=NVJITLINK, keep=False, say=lambda line: None
    )
    for job in kit.jobs:
        told = fates.get(job.name, {})
        bundle = read_bundle(folder / "bundles" / job.file)
        kernels = []
        for entry in bundle.entries:
            ptx, cubin = bundle.ptx(entry), bundle.cubin(entry)
            if entry.name in told:
                ptx, cubin = f"// fake: {told[entry.name]}\n".encode() + ptx, None
            kernels.append((replace(entry, cubin=cubin is not None), [(ptx, cubin)]))
        write_bundle(
            bundle.path, title=bundle.title, device=bundle.device, made=bundle.made, questions=bundle.questions,
            kernels=kernels,
        )  # fmt: skip
    write_kit(path, kit, folder / "bundles")
    return path, kit


@pytest.fixture
def bad_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, and a management library that knows one clock and nothing else."""
    monkeypatch.setenv("FAKE_GPU", json.dumps(BAD))
    if stub_cuda.COMPILER is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "lib" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    source = HERE / "fake" / "stub_nvml.c"
    subprocess.run([stub_cuda.COMPILER, "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]))


def rehearsed(kit: Path, out: Path, *only: str) -> dict[str, StepRecord]:
    records = call(out, kit, only=only, driver="rehearsal_cuda", extra=FAKES, say=lambda line: None)
    return {r.step: r for r in records}


def failures(record: StepRecord, case: str) -> dict[str, str]:
    return {f["kernel"]: f["kind"] for f in record.result["cases"][case]["failures"]}


@pytest.mark.slow
def test_every_kernel_costs_itself_alone_and_every_figure_that_is_missing_is_left_out(
    bad_day: None, tmp_path: Path
) -> None:
    axpby = Case("axpby", "axpby", {"n": 3001}, kernels=5)
    hopper = Case("hopper", "matmul_hopper", {"m": 130, "n": 72, "k": 136}, {"*": "bf16"}, kernels=1)
    table = Case("axpby f32", "axpby", {"n": 4096}, kernels=5)
    fates = {
        "axpby": {"k0001": FAULT, "k0003": "exit 7"},
        "axpby f32": {"k0000": f"us=60\n// fake: {FAULT} timed", "k0001": "us=70", "k0002": FAULT},
    }  # fmt: skip
    kit, _ = kit_of(Plan((axpby, hopper), (), (table,), (), ()), tmp_path, fates)
    out = tmp_path / "out"
    steps = rehearsed(kit, out, "environment", "correctness", "side_by_side", "calibration")
    assert {n: (s.status, s.reason) for n, s in steps.items()} == dict.fromkeys(steps, ("done", ""))

    correct = steps["correctness"]
    assert failures(correct, "axpby") == {"k0001": "fault", "k0003": "crash"}
    assert failures(correct, "hopper") == {}
    assert (correct.result["right"], correct.result["tried"]) == (4, 6)
    assert correct.result["cases"]["axpby"]["refused_cubins"] == ["CUDA_ERROR_INVALID_IMAGE"]

    found = steps["side_by_side"].result
    (row,) = found["rows"]
    # the fastest but for those that fault when they are tried, and when they are timed
    assert (row["ours"]["kernel"], row["tried"]["ours"]) == ("k0001", 3)
    assert set(row["contenders"]) == {"PyTorch", "copy", "tinyGPU"}
    assert found["skipped_kernels"] == {"axpby f32": ["k0000", "k0002"]}
    for name in ("k0000", "k0002"):
        assert row["tried"]["failed"][name] == (
            "it brought its process down, or made it useless: CUDA error: an illegal memory access was encountered"
        )
    assert (found["failed"], found["left"]) == ({}, [])

    measured = steps["calibration"].result
    assert len(measured["figures"]) == 3
    assert measured["stand_in"].startswith("the library has no NVIDIA X900: figures that were not measured are those ")
    page = (out / "report.md").read_text()
    assert "cannot be shown" not in page
    assert "| clocks at the start | SM 1980 MHz |" in page
    assert "| kernels made for | H200-SXM |" in page
    assert (
        "| another GPU | kernels were chosen for H200-SXM, and this is NVIDIA X900, which the library does not know |"
    ) in page
    assert "Machine code that the driver refused, so that it compiled the PTX: CUDA_ERROR_INVALID_IMAGE." in page


@pytest.mark.end_to_end
def test_where_no_kernel_is_right_nothing_further_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every load is refused, as where a driver is of another architecture, or older than all that the kit holds."""
    monkeypatch.setenv("FAKE_GPU", json.dumps({"cc": [8, 0], "name": "NVIDIA A100-SXM4-80GB"}))
    hopper = Case("hopper", "matmul_hopper", {"m": 130, "n": 72, "k": 136}, {"*": "bf16"}, kernels=2)
    kit, _ = kit_of(Plan((hopper,), (), (), (), ()), tmp_path, {})
    steps = rehearsed(kit, tmp_path / "out", "environment", "correctness", "side_by_side", "calibration")
    why = (
        "not one of 2 kernels is right here; the first one: this kernel runs on sm_90a alone, and GPU 0, NVIDIA "
        "A100-SXM4-80GB, is sm_80; compile for this GPU"
    )
    assert {n: (s.status, s.reason) for n, s in steps.items()} == {
        "environment": ("done", ""),
        "correctness": ("failed", why),
        "side_by_side": ("skipped", "correctness says why nothing more is measured"),
        "calibration": ("skipped", "correctness says why nothing more is measured"),
    }
    monkeypatch.setattr("gpu_call.run.call", lambda *asked, **how: list(steps.values()))
    assert main([str(tmp_path / "out"), "--kit", str(kit)]) == 1
    assert why in capsys.readouterr().out
