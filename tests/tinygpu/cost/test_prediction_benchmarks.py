"""The truth benchmarks on made-up tables: joined candidates are the same as each, and a fit finds what was changed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def benchmarks() -> Any:
    """The modules of tests/benchmarks, by name; they import each other from the root of the checkout."""
    import importlib

    sys.path.insert(0, str(ROOT))
    try:
        yield lambda name: importlib.import_module(f"tests.benchmarks.{name}")
    finally:
        sys.path.remove(str(ROOT))


def problems(module: ModuleType) -> list[Any]:
    sizes = ((512, 512, 512), (1024, 4096, 1024), (4096, 4096, 2048), (777, 3000, 5000))
    return [module.Problem(*size) for size in sizes]


@pytest.mark.parametrize("name", ["a100", "h100"])
def test_joined_candidates_have_the_times_of_each(name: str, benchmarks: Any) -> None:
    error, calibrated = benchmarks("prediction_error"), benchmarks("prediction_calibrated")
    gpu, asked = device(name), problems(error)
    joined = calibrated.launches(asked, gpu)
    alone = np.array([error.seconds(p, gpu).min() for p in asked])
    assert joined.best_seconds(gpu) == pytest.approx(alone, rel=1e-12)
    near = joined.near_the_best(gpu, 1.5)
    assert near.best_seconds(gpu) == pytest.approx(alone, rel=1e-12)
    assert sum(len(owners) for _, owners in near.groups) < sum(len(owners) for _, owners in joined.groups)


@pytest.mark.parametrize(("name", "operand"), [("a100", "bf16"), ("h100", "bf16"), ("b200", "e4m3"), ("l40s", "e4m3")])
def test_problems_predicted_at_once_have_the_times_of_each(name: str, operand: str, benchmarks: Any) -> None:
    error = benchmarks("prediction_error")
    gpu = device(name)
    sizes = ((1, 4096, 4096), (16, 32, 32), (512, 512, 512), (777, 3000, 5000))
    asked = [error.Problem(*size, operand) for size in sizes]
    alone = np.array([error.seconds(p, gpu).min() for p in asked])
    assert error.best_seconds(asked, gpu) == pytest.approx(alone, rel=1e-12)


def test_a_table_of_errors_is_whole(benchmarks: Any, tmp_path: Path, capsys: Any) -> None:
    """Every column, type and range of a file has its row; what sustains the tensor rate is said."""
    error = benchmarks("prediction_error")
    path = tmp_path / "t.csv"
    rows = [("bfloat16", m, 1024, 1024) for m in (1, 64, 256, 1024)] + [("fp8", 16, 512, 512), ("nvfp4", 16, 512, 512)]
    path.write_text("dtype,m,n,k,h200_sxm.x,l40s.y\n" + "".join(f"{d},{m},{n},{k},9.5,\n" for d, m, n, k in rows))
    assert error.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    kinds = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in lines[2:-1]]
    assert kinds == [
        ("H200-SXM, h200_sxm.x, bfloat16", "m <= 16", "1"),
        ("H200-SXM, h200_sxm.x, bfloat16", "16 < m <= 128", "1"),
        ("H200-SXM, h200_sxm.x, bfloat16", "m > 128, one of m, n, k < 512", "1"),
        ("H200-SXM, h200_sxm.x, bfloat16", "m, n, k >= 512", "1"),
        ("H200-SXM, h200_sxm.x, bfloat16", "all", "4"),
        ("H200-SXM, h200_sxm.x, fp8", "m <= 16", "1"),
        ("H200-SXM, h200_sxm.x, fp8", "all", "1"),
    ]
    assert lines[-1] == error.SUSTAINED


def test_a_fit_finds_a_device_that_was_changed(benchmarks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of a device with other figures: the fit leaves an error of a few percent at most, within its bounds."""
    error, calibrated = benchmarks("prediction_error"), benchmarks("prediction_calibrated")
    gpu = device("h100")
    other = calibrated.with_values(
        gpu, {"gemm_f16_bf16_tflops_measured": 720.0, "launch_overhead_graph_us": 3.2, "l2_bw_gbs_measured": 7500.0}
    )
    measured = [(p, float(error.seconds(p, other).min())) for p in problems(error)]
    before = np.abs(calibrated.scored(measured, gpu, gpu)).mean()
    figures = calibrated.fit(measured, gpu)
    after = np.abs(calibrated.scored(measured, gpu, calibrated.with_values(gpu, figures))).mean()
    assert after < 0.02 < before
    for field, value in figures.items():
        low, high = calibrated.FITTED[field]
        began = gpu.number(calibrated.DERIVED_AS.get(field, field))
        assert low * began * (1 - 1e-9) <= value <= high * began * (1 + 1e-9)


def test_halves_are_halves(benchmarks: Any) -> None:
    calibrated, error = benchmarks("prediction_calibrated"), benchmarks("prediction_error")
    sides = [calibrated.half(error.Problem(m, n, 512)) for m in range(512, 1024, 16) for n in range(512, 1024, 16)]
    assert 0.45 < np.mean(sides) < 0.55


def test_benchmarks_say_when_there_is_no_data(benchmarks: Any, tmp_path: Path, capsys: Any) -> None:
    missing = tmp_path / "none"
    assert benchmarks("prediction_calibrated").main([str(missing)]) == 0
    assert capsys.readouterr().out == f"skipped: no table of measured times at {missing}\n"
    assert benchmarks("prediction_ranking").main([str(missing)]) == 0
    assert capsys.readouterr().out == f"skipped: no measured space at {missing}\n"


def test_ranking_reads_a_space_and_refuses_others(benchmarks: Any, tmp_path: Path, capsys: Any) -> None:
    ranking = benchmarks("prediction_ranking")
    rows = {}
    for number, (m, vector) in enumerate((m, v) for m in (16, 32, 64, 128) for v in (1, 2)):
        row = dict.fromkeys(ranking.PARAMETERS, 8) | {"MWG": m, "NWG": 64, "KWG": 32, "VWM": vector, "VWN": 1}
        rows[str(number)] = row | {"SA": 1, "SB": 1, "time": 100.0 / m + vector}
    space = {"device_name": "NVIDIA GeForce RTX 2080 Ti", "kernel_name": "Xgemm", "problem_size": [4096, 4096]}
    path = tmp_path / "space.json"
    path.write_text(json.dumps(space | {"cache": rows}))
    assert ranking.main([str(path)]) == 0
    assert " 8 candidates on RTX-2080-Ti (sm_75, 68 SMs): Spearman 0." in capsys.readouterr().out
    path.write_text(json.dumps(space | {"kernel_name": "convolution", "cache": {}}))
    with pytest.raises(ValueError) as caught:
        ranking.load(path)
    assert str(caught.value) == "[space.json] holds times of convolution; this benchmark knows Xgemm alone"


def test_equal_values_share_their_rank(benchmarks: Any) -> None:
    ranking = benchmarks("prediction_ranking")
    assert ranking.spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([10.0, 20.0, 20.0, 30.0])) == pytest.approx(1.0)
    assert ranking.spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])) == pytest.approx(-1.0)
    measured = np.array([1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    found = ranking.ranking(measured[[1, 0, 2, 3, 4, 5, 6, 7]], measured, (1, 2))
    assert found.regret == {1: 0.5, 2: 0.0}
