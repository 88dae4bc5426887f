"""The call from the kit to the page over the emulated driver: every step's program runs, and finds what is there."""

import json
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_call.assembling import NVJITLINK
from gpu_call.cases import SMALL, Case, Plan
from gpu_call.collect import NotResults, collect
from gpu_call.kit import Kit
from gpu_call.prepare import join, near_best, prepare, spread_points
from gpu_call.records import StepRecord, read_lines
from gpu_call.run import call
from gpu_call.side_by_side import side_by_side
from gpu_call.step import Call, Skip

from tinygpu.api.bundle import bundle_points
from tinygpu.devices import device
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.measuring.bundle import read_bundle, write_bundle
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import build_space

pytest.importorskip("cuda.bindings.driver")
TESTS = Path(__file__).parents[1]
H200 = device("h200")


def prepared(plan: Plan, folder: Path) -> tuple[Path, Kit, list[str]]:
    said: list[str] = []
    path = folder / "kit.zip"
    kit = prepare(plan, H200, path, folder / "bundles", assembler=NVJITLINK, keep=False, say=said.append)
    return path, kit, said


def rehearse(
    kit: Path, out: Path, monkeypatch: pytest.MonkeyPatch, only: tuple[str, ...] = ()
) -> dict[str, StepRecord]:
    monkeypatch.setenv("PATH", os.pathsep.join([str(TESTS / "gpu" / "fake" / "bin"), os.environ["PATH"]]))
    stand_ins = (TESTS / "gpu" / "fake", TESTS / "ptx" / "fake", TESTS / "ptx" / "calibration")
    records = call(out, kit, minutes=9, only=only, driver="rehearsal_cuda", extra=stand_ins, say=lambda line: None)
    for record in records:
        assert record.status != "failed", (record.step, record.reason)
    return {r.step: r for r in records}


@pytest.mark.end_to_end
def test_a_stream_is_timed_beside_a_copy_and_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("axpby f32", "axpby", {"n": 4096}, kernels=2)
    kit, made, _ = prepared(Plan((), (), (case,), (), (Case("axpby", "axpby", {"n": 4096}, kernels=1),)), tmp_path)
    assert [(j.role, j.name, j.kernels) for j in made.jobs] == [("streams", "axpby f32", 2), ("counted", "axpby", 1)]
    out = tmp_path / "out"
    steps = rehearse(kit, out, monkeypatch, ("environment", "side_by_side", "counters"))
    (row,) = steps["side_by_side"].result["rows"]
    assert list(row["contenders"]) == ["PyTorch", "copy", "tinyGPU"]
    assert row["contenders"]["tinyGPU"]["cold"]["median"] == pytest.approx(100e-6, rel=0.02)
    assert row["contenders"]["copy"]["cold"]["median"] == pytest.approx(50e-6, rel=0.02)
    assert row["ratios"]["copy"]["verdict"] == "slower"
    assert row["ratios"]["PyTorch"]["verdict"] == "tie"
    assert (row["tried"]["ours"], row["tried"]["failed"], row["torch_right"]) == (2, {}, True)
    assert row["bytes"] == 3 * 4 * 4096
    # the stand-in for the profiler does not know some metrics, and gives 1,024 for all others
    found = steps["counters"].result
    assert all("ldgsts" in metric for metric in found["unknown_metrics"])
    counters = {c["counter"]: c for c in found["cases"]["axpby"]["counters"]}
    assert counters["ctas"]["measured"] == 1024
    (entry,) = read_bundle(tmp_path / "bundles" / "counted-00.bundle").entries
    assert counters["ctas"]["emulated"] == entry.launch.ctas
    assert "# Results without a GPU: a rehearsal" in (out / "report.md").read_text()
    with pytest.raises(NotResults, match=r"holds a rehearsal: nothing in it was measured$"):
        collect(out, tmp_path)


@pytest.mark.end_to_end
def test_a_kernel_that_faults_or_is_wrong_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("axpby f32", "axpby", {"n": 4096}, kernels=5)
    _, made, _ = prepared(Plan((), (), (case,), (), ()), tmp_path)
    bundle = read_bundle(tmp_path / "bundles" / made.jobs[0].file)
    ptx = {e.name: bundle.ptx(e).decode() for e in bundle.entries}
    ptx["k0001"] = "// fake: error CUDA_ERROR_ILLEGAL_ADDRESS\n" + ptx["k0001"]
    ptx["k0002"] = ptx["k0002"].replace("\n  add.rn.f32", "\n  sub.rn.f32")
    ptx["k0003"] = "// fake: us=80\n" + ptx["k0003"]
    # stores where it loads: over its input
    loads = re.findall(r"ld\.global\.nc\S* .*\[(%d\d+)", ptx["k0004"])
    ptx["k0004"] = re.sub(r"(st\.global\S* )\[%d\d+", rf"\1[{loads[0]}", ptx["k0004"])
    unpacked = tmp_path / "unpacked"
    write_bundle(
        unpacked / made.jobs[0].file, title="t", device="H200-SXM", made="by hand", questions=bundle.questions,
        kernels=[(replace(e, cubin=False), [(ptx[e.name].encode(), None)]) for e in bundle.entries],
    )  # fmt: skip
    (unpacked / "kit.json").write_text(json.dumps(made.to_json()))
    folders = [TESTS / "gpu", TESTS / "gpu" / "fake", TESTS / "ptx" / "fake", TESTS / "ptx" / "calibration"]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*map(str, folders), *[p for p in sys.path if p]]))
    # a fault surfaces as PyTorch's own error, at whatever it is asked next, and stays
    monkeypatch.setenv("FAKE_GPU", '{"late": true}')
    work = tmp_path / "work"
    work.mkdir()
    step = Call(unpacked, work, tmp_path / "told.json", 120.0, time.monotonic(), "rehearsal_cuda")
    with monkeypatch.context() as without:
        without.setattr("gpu_call.side_by_side.find_spec", lambda name: None)
        with pytest.raises(Skip, match=r"^PyTorch is not installed here$"):
            side_by_side(step)
    monkeypatch.syspath_prepend(TESTS / "gpu" / "fake")
    found = side_by_side(step)
    (row,) = found["rows"]
    assert row["ours"]["kernel"] == "k0003"
    assert row["tried"]["ours"] == 2
    assert found["skipped_kernels"] == {"axpby f32": ["k0001", "k0004"]}
    failed = row["tried"]["failed"]
    assert failed["k0001"] == (
        "it brought its process down, or made it useless: CUDA error: an illegal memory access was encountered"
    )
    assert failed["k0004"].startswith("it brought its process down, or made it useless: its result is wrong, by ")
    assert failed["k0004"].endswith("; and it wrote over other memory")
    assert failed["k0002"].startswith("its result is wrong, by ")
    assert len(read_lines(work / "lines-0.jsonl")) > 2
    assert (work / "lines-1.jsonl").exists()
    assert json.loads((tmp_path / "told.json").read_text())["problems"] == 1


def test_random_candidates_of_every_structure_are_taken_in_turn() -> None:
    problem = MatmulHopper.problem(m=128, n=264, k=2048, dtypes={"a": "bf16"})
    space = build_space(MatmulHopper, problem, H200)
    points = spread_points(space, 27, 0)
    assert len(points) == 27
    assert all(p in space.space for p in points)
    assert {space.structure_index(p) for p in points} == set(range(len(space.structures)))
    for shared in ([int(p["split_k"]) > 1 for p in points], [int(p["stream_k"]) == 1 for p in points]):
        assert any(shared)
        assert not all(shared)
    assert all(points.count(p) == 1 for p in points)


@pytest.mark.end_to_end
def test_candidates_near_the_best_predicted_are_drawn_from_all_of_them() -> None:
    problem = MatmulHopper.problem(m=1024, n=1024, k=512, dtypes={"a": "bf16"})
    space = build_space(MatmulHopper, problem, H200)
    seconds, points = near_best(space, 40, 0)
    assert len(points) == 40
    assert all(points.count(p) == 1 for p in points)
    predicted = [e.value for e in PredictedTime(space)(points)]
    assert predicted[0] == seconds == min(p for p in predicted if p is not None)
    assert all(p is not None and p <= 1.03 * seconds for p in predicted)
    # many are within the share, and they are not just the neighbours of the best in the listing
    assert len({(p["bm"], p["bn"], p["stages"], p["raster"]) for p in points}) > 3


@pytest.mark.end_to_end
def test_points_that_are_asked_for_are_in_the_bundle_beside_the_best(tmp_path: Path) -> None:
    points = ({"bm": 64, "bn": 32, "schedule": "pingpong"}, {"bm": 64, "bn": 48})
    case = Case("m", "matmul_hopper", {"m": 128, "n": 128, "k": 128}, {"*": "bf16"}, kernels=2, points=points)
    _, made, _ = prepared(Plan((), (case,), (), (), ()), tmp_path)
    bundle = read_bundle(tmp_path / "bundles" / made.jobs[0].file)
    assert [e.name for e in bundle.entries] == ["k0000", "k0001", "k0002"]
    last = bundle.entries[2].point
    assert (last["bm"], last["bn"], last["schedule"]) == (64, 32, "pingpong")
    assert [name for name, _ in made.missing if name.startswith("m: ")] == ["m: bm=64 bn=48"]
    assert sorted(p.name for p in (tmp_path / "bundles").iterdir()) == ["matmuls-00.bundle", "matmuls-00.json"]


def test_bundles_are_joined_with_their_questions(tmp_path: Path) -> None:
    paths = []
    for n in (64, 96):
        space = build_space(Axpby, Axpby.problem(n=n), H200)
        paths.append(tmp_path / f"{n}")
        assert bundle_points(space, spread_points(space, 2, n), paths[-1]) == ["k0000", "k0001"]
    assert join([*paths, paths[0]], tmp_path / "both") == 4
    both = read_bundle(tmp_path / "both")
    assert [(e.name, e.question) for e in both.entries] == [("k0000", 0), ("k0001", 0), ("k0002", 1), ("k0003", 1)]
    for entry in both.entries:
        part = read_bundle(paths[entry.question])
        twin = next(e for e in part.entries if e.digest == entry.digest)
        assert both.ptx(entry) == part.ptx(twin)
        assert both.cubin(entry) == part.cubin(twin)
        assert entry.launch.tensor("x").shape == (64 if entry.question == 0 else 96,)


def test_a_case_that_no_machine_takes_is_told_and_costs_itself_alone(tmp_path: Path) -> None:
    no = Case("no", "matmul_simt", {"m": 8, "n": 8, "k": 8}, {"*": "bf16"})
    _, made, said = prepared(Plan((no, Case("yes", "axpby", {"n": 64}, kernels=1)), (), (), (), ()), tmp_path)
    assert [j.name for j in made.jobs] == ["yes"]
    assert ("correct: no", "MatmulSimt works on f32, not on bf16") in made.missing
    # and machines that ship, but are timed beside nothing
    assert any(name == "matmul_ampere" for name, _ in made.missing)
    assert any(line.startswith("correct: no: MatmulSimt works on f32") for line in said)


@pytest.mark.slow
def test_every_step_of_the_call_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kit, _, _ = prepared(SMALL, tmp_path)
    out = tmp_path / "out"
    steps = rehearse(kit, out, monkeypatch)
    assert {n: s.status for n, s in steps.items()} == {
        **dict.fromkeys(steps, "done"), "dense_1": "skipped", "gpu_tests": "skipped",
    }  # fmt: skip
    correct = steps["correctness"].result
    assert (correct["right"], correct["kernels"]) == (4, 4)
    rows = steps["side_by_side"].result["rows"]
    assert {r["case"] for r in rows} == {c.name for c in (*SMALL.matmuls, *SMALL.streams)}
    assert steps["side_by_side"].result["left"] == []
    assert steps["dense_0"].result["measured"] == 3
    assert len(steps["calibration"].result["figures"]) == 3
    assert device(str(out / "profile.json")).number("lat_barrier_cta") == 40
    assert all(r["found"] == 0 for r in steps["sanitizer"].result["runs"].values())
    assert sorted(p.name for p in out.iterdir()) == [
        "dense-0.results.jsonl", "logs.zip", "profile.json", "report.md", "results.json"
    ]  # fmt: skip
    assert json.loads((out / "results.json").read_text())["schema"] == "tinygpu-gpu-call/1"
