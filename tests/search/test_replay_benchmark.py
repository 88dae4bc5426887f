"""The benchmark of search over measured spaces: what it counts, how it compares, what it prints."""

import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tinygpu.search import Evaluation, Failure, Trial
from tinygpu.search.replay.files import save_cache
from tinygpu.search.replay.space import ReplaySpace


def load() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "replay_search.py"
    spec = importlib.util.spec_from_file_location("replay_search", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["replay_search"] = module
    spec.loader.exec_module(module)
    return module


benchmark = load()


def small() -> ReplaySpace:
    failure = Evaluation(failure=Failure("compile", "it did not compile"))
    points = [{"bx": bx, "by": by} for bx, by in itertools.product((8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16, 32))]
    return ReplaySpace(
        (
            Trial(p, failure if p["bx"] * p["by"] > 1024 else Evaluation(2.0 + abs(p["bx"] - 64) + p["by"]))
            for p in points
        ),
        kernel="made up",
        device="no device",
    )


def test_ratios_count_failures_as_evaluations_and_hold_after_an_early_end() -> None:
    space = small()

    def method(space: ReplaySpace, seed: int, evaluations: int) -> list[float]:
        return [math.inf] * 10 + [2 * space.optimum] * 10 + [space.optimum * (1 + seed)]

    ratios = benchmark.run(method, space, 3).ratios
    assert ratios.tolist() == [[math.inf, 2, 1, 1, 1], [math.inf, 2, 2, 2, 2], [math.inf, 2, 2, 2, 2]]


def test_intervals_hold_the_median_and_verdicts_need_distance() -> None:
    rng = np.random.default_rng(0)
    near = 1.1 + 0.01 * rng.random((25, 5))
    far = 1.5 + 0.01 * rng.random((25, 5))
    draws = benchmark.medians(near, np.random.default_rng(0))
    for interval, column in zip(benchmark.intervals(draws), near.T, strict=True):
        assert interval.value == np.median(column)
        assert interval.low <= interval.value <= interval.high
    others = benchmark.medians(far, np.random.default_rng(1))
    assert benchmark.compare(draws, others) == ["ahead"] * 5
    assert benchmark.compare(others, draws) == ["behind"] * 5
    assert benchmark.compare(draws, draws) == ["level"] * 5
    nothing = benchmark.medians(np.full((25, 5), math.inf), np.random.default_rng(0))
    assert benchmark.compare(nothing, nothing) == ["level"] * 5


def test_our_side_runs_alone_and_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_cache(small(), tmp_path / "small.json.xz")
    out = tmp_path / "out"
    arguments = [str(tmp_path), "--peers", "none", "--seeds", "3", "--strategies", "random,local", "-o", str(out)]
    assert benchmark.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "made up on no device (small.json.xz): 36 points, 6 failures" in printed
    data = json.loads(out.read_text())
    ((_, by_method),) = data["spaces"].items()
    assert set(by_method) == set(data["geometric mean"]) == {"random", "local"}
    # 36 points: with a budget of 50 every one of them was tried
    assert by_method["random"]["median"][2:] == [1.0, 1.0, 1.0]
    assert data["seeds"] == 3


def test_without_spaces_it_is_skipped_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([str(tmp_path / "nowhere")]) == 0
    assert capsys.readouterr().out == (
        f"skipped: there are no measured spaces (*.json, *.json.xz) in {tmp_path / 'nowhere'}\n"
    )


def test_kernel_tuner_gets_the_same_space() -> None:
    pytest.importorskip("kernel_tuner", reason="the peers need the extra bench-search")
    space = small()
    for name in ("random_sample", "adaptive_tabu_greywolf"):
        tried = benchmark.KernelTuner(name)(space, 0, 20)
        assert len(tried) == 20
        assert set(tried) <= {trial.evaluation.cost for trial in space.trials}


def test_kernel_tuner_gets_each_space_of_two_with_one_title() -> None:
    pytest.importorskip("kernel_tuner", reason="the peers need the extra bench-search")
    slower = ReplaySpace(
        [Trial(t.point, t.evaluation if t.value is None else Evaluation(t.value + 1000.0)) for t in small().trials],
        kernel="made up",
        device="no device",
    )
    method = benchmark.KernelTuner("random_sample")
    for space in (small(), slower, small()):
        assert set(method(space, 0, 20)) <= {trial.evaluation.cost for trial in space.trials}
