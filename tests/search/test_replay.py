"""Measured spaces: what a file holds is served as it is, and what is written is read back the same."""

import gzip
import itertools
import json
import lzma
import string
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import TableSpace

from tinygpu.files import FileError
from tinygpu.search import STRATEGIES, Evaluation, Failure, Trial, minimize
from tinygpu.search.replay.files import load_replay, save_cache, save_t4
from tinygpu.search.replay.space import ReplaySpace

# Kinds that both formats have a name for.
KINDS = {
    "compile": "it did not compile",
    "runtime": "it failed when it ran",
    "constraints": "it breaks a constraint of its kernel",
}
WORDS = st.text(string.ascii_lowercase, min_size=1, max_size=4)


def evaluations() -> st.SearchStrategy[Evaluation]:
    failures = st.sampled_from(sorted(KINDS)).map(lambda kind: Evaluation(failure=Failure(kind, KINDS[kind])))
    return st.one_of(st.floats(1e-6, 1e6).map(Evaluation), failures)


@st.composite
def replays(draw: st.DrawFn) -> ReplaySpace:
    names = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True).filter(lambda n: "time" not in n))
    values = st.one_of(
        st.lists(st.integers(-5, 300), min_size=1, max_size=4, unique=True),
        st.lists(WORDS, min_size=1, max_size=3, unique=True),
    )
    parameters = {name: draw(values) for name in names}
    points = [dict(zip(names, row, strict=True)) for row in itertools.product(*parameters.values())]
    kept = draw(st.lists(st.sampled_from(range(len(points))), min_size=1, unique=True))
    trials = [Trial(points[i], draw(evaluations())) for i in kept]
    return ReplaySpace(trials, parameters=parameters, kernel="gemm", device="A100", problem=(4096, 2048))


def same(one: ReplaySpace, other: ReplaySpace) -> bool:
    return (one.trials, one.kernel, one.device, one.problem, one.objective) == (
        other.trials, other.kernel, other.device, other.problem, other.objective,
    )  # fmt: skip


# --- files --------------------------------------------------------------------------------------------------------


@given(replays(), st.sampled_from(["space.json", "space.json.xz", "space.json.gz"]))
@settings(max_examples=100, deadline=None)
def test_a_cache_file_is_read_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, space: ReplaySpace, name: str
) -> None:
    path = tmp_path_factory.mktemp("cache") / name
    save_cache(space, path)
    read = load_replay(path)
    assert same(read, space)
    assert read.parameters == space.parameters
    assert (read.unit, list(path.parent.iterdir())) == ("ms", [path])


@given(replays(), st.sampled_from(["space.json", "space.json.xz"]))
@settings(max_examples=100, deadline=None)
def test_t4_results_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, space: ReplaySpace, name: str
) -> None:
    path = tmp_path_factory.mktemp("t4") / name
    save_t4(space, path)
    read = load_replay(path)
    assert same(read, space)
    # a format without domains: only values that were measured are known
    assert all(set(read.parameters[name]) <= set(values) for name, values in space.parameters.items())


def cache_text(**changes: object) -> str:
    data: dict[str, object] = {
        "device_name": "A100",
        "kernel_name": "convolution",
        "problem_size": [4096, 4096],
        "tune_params_keys": ["bx", "by"],
        "tune_params": {"bx": [16, 32], "by": [1, 2]},
        "cache": {
            "16,1": {"bx": 16, "by": 1, "time": 2.5, "times": [2.4, 2.6]},
            "32,1": {"bx": 32, "by": 1, "time": "CompilationFailedConfig"},
            "32,2": {"bx": 32, "by": 2, "time": 0.0, "__error__": "RuntimeFailedConfig"},
            "16,2": {"bx": 16, "by": 2, "time": "SomethingElse"},
        },
    }
    return json.dumps(data | changes, indent="")


def test_a_cache_file_of_kernel_tuner_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(cache_text())
    space = load_replay(path)
    assert [(dict(t.point), t.value, t.failure and str(t.failure)) for t in space.trials] == [
        ({"bx": 16, "by": 1}, 2.5, None),
        ({"bx": 32, "by": 1}, None, "compile: it did not compile"),
        ({"bx": 32, "by": 2}, None, "runtime: it failed when it ran"),
        ({"bx": 16, "by": 2}, None, "SomethingElse: it failed: SomethingElse"),
    ]
    assert (space.optimum, space.failures, space.title) == (2.5, 3, "convolution on A100")
    assert repr(space) == "<ReplaySpace convolution on A100: 4 points, 3 of them failures>"


def test_a_cache_file_to_which_entries_are_still_appended_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    whole = cache_text()
    path.write_text(whole.rstrip().removesuffix("}").rstrip().removesuffix("}").rstrip() + ",\n")
    assert load_replay(path).size == 4


def test_entries_without_parameters_are_read_from_their_key_and_fractions_are_words(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(
        cache_text(
            tune_params={"bx": [16, 32], "by": [0.5, True]}, cache={"16,0.5": {"time": 1.0}, "32,True": {"time": 2.0}}
        )
    )
    assert [dict(trial.point) for trial in load_replay(path).trials] == [
        {"bx": 16, "by": "0.5"},
        {"bx": 32, "by": "True"},
    ]


def test_another_figure_can_be_the_value(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(cache_text(cache={"16,1": {"bx": 16, "by": 1, "time": 1.0, "energy": 7.0}}))
    assert (load_replay(path).optimum, load_replay(path, "energy").optimum) == (1.0, 7.0)


def test_a_cache_file_names_its_objective_as_a_word_or_as_a_list_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    entry = {"16,1": {"bx": 16, "by": 1, "time": 1.0, "energy": 7.0}}
    for changes, objective, value in (
        ({}, "time", 1.0),
        ({"objective": "energy"}, "energy", 7.0),
        ({"objective": ["energy"]}, "energy", 7.0),
        ({"objective": ["energy", "time"]}, "energy", 7.0),
        ({"objective": ["GFLOP/s", "energy"]}, "energy", 7.0),
    ):
        path.write_text(cache_text(cache=entry, **changes))
        space = load_replay(path)
        assert (space.objective, space.optimum) == (objective, value), changes


def test_of_a_tuning_for_a_rate_the_best_is_the_fastest(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    rates = {
        "16,1": {"bx": 16, "by": 1, "GFLOP/s": 100.0, "time": 2.0},
        "32,1": {"bx": 32, "by": 1, "GFLOP/s": 200.0, "time": 1.0},
        "32,2": {"bx": 32, "by": 2, "GFLOP/s": "CompilationFailedConfig", "__error__": "CompilationFailedConfig"},
        "16,2": {"bx": 16, "by": 2, "GFLOP/s": 0.0, "time": "RuntimeFailedConfig"},
    }
    path.write_text(cache_text(cache=rates, objective=["GFLOP/s"]))
    space = load_replay(path)
    assert [(space.objective, space.unit), [t.value for t in space.trials]] == [("time", "ms"), [2.0, 1.0, None, None]]
    space = load_replay(path, "GFLOP/s")
    assert (space.objective, space.unit) == ("1 / (GFLOP/s)", "")
    assert [t.value or str(t.failure) for t in space.trials] == [
        0.01,
        0.005,
        "compile: it did not compile",
        "runtime: it failed when it ran",
    ]
    save_cache(space, path)
    assert same(load_replay(path), space)

    scores = {"16,1": {"bx": 16, "by": 1, "score": 0.5}, "32,1": {"bx": 32, "by": 1, "score": -0.5}}
    path.write_text(cache_text(cache=scores, objective="score"))
    space = load_replay(path)
    assert [(space.objective, space.unit), [t.value for t in space.trials]] == [("-score", ""), [-0.5, 0.5]]


def test_the_time_that_stood_for_a_failure_is_one(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(cache_text(cache={"16,1": {"time": 1e20}, "16,2": {"time": float("inf")}, "32,1": {"time": 3.0}}))
    assert [t.value or str(t.failure) for t in load_replay(path).trials] == [
        "runtime: its time was not measured",
        "runtime: its time was not measured",
        3.0,
    ]


def test_t4_results_of_another_tool_are_read(tmp_path: Path) -> None:
    results = [
        {
            "configuration": {"bx": 16},
            "times": {"runtimes": [2.0, 4.0]},
            "invalidity": "correct",
            "objectives": ["time"],
        },
        {"configuration": {"bx": 32}, "invalidity": "timeout"},
        {"configuration": {"bx": 64}, "invalidity": "correct", "measurements": []},
    ]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": results, "schema_version": "1.0.0"}))
    assert [(t.value, t.failure and str(t.failure)) for t in load_replay(path).trials] == [
        (3.0, None),
        (None, "timeout: it took too long"),
        (None, "runtime: its time was not measured"),
    ]


def test_t4_results_of_a_rate_and_their_units_are_read(tmp_path: Path) -> None:
    def result(bx: int, rate: float, time: float | None) -> dict[str, object]:
        figures = [{"name": "GFLOP/s", "value": rate, "unit": "GFLOP/s"}]
        if time:
            figures.append({"name": "time", "value": time, "unit": "miliseconds"})
        return {
            "configuration": {"bx": bx},
            "invalidity": "correct",
            "objectives": ["GFLOP/s"],
            "measurements": figures,
        }

    path = tmp_path / "t4.json"
    for time, read in (
        (2.0, (["time", "ms"], [2.0, 1.0])),
        (None, (["1 / (GFLOP/s)", ""], [0.01, 0.005])),
    ):
        results = [result(16, 100.0, time), result(32, 200.0, time and time / 2)]
        path.write_text(json.dumps({"results": results, "schema_version": "1.0.0"}))
        space = load_replay(path)
        assert ([space.objective, space.unit], [t.value for t in space.trials]) == read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", "{path} is no JSON object, as a cache file of Kernel Tuner and a T4 file are"),
        ('{"rows": []}', "{path} is neither a cache file of Kernel Tuner (a 'cache') nor T4 (a list 'results')"),
        (cache_text(cache={}), "{path} holds no measurement"),
        (
            cache_text(tune_params_keys=[], tune_params={}),
            "{path} does not say what its parameters are ('tune_params_keys')",
        ),
        (cache_text(cache={"16": {"time": 1.0}}), "{path}: the entry '16' has no value for bx"),
        (
            cache_text(cache={"8,1": {"bx": 8, "by": 1, "time": 1.0}}),
            "{path}: [convolution on A100] {{'bx': 8, 'by': 1}} is not made of the values on offer",
        ),
        ('{"results": [{"times": {}}]}', "{path}: result 0 has no 'configuration' or no 'invalidity'"),
    ],
)
def test_what_holds_no_measurements_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(FileError) as refused:
        load_replay(path)
    assert str(refused.value) == message.format(path=path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    with pytest.raises(FileError) as refused:
        load_replay(missing)
    assert str(refused.value) == f"{missing} cannot be read: No such file or directory"
    for suffix, compress in ((".xz", lzma.compress), (".gz", gzip.compress)):
        cut = tmp_path / f"cut.json{suffix}"
        cut.write_bytes(compress(cache_text().encode())[:-20])
        with pytest.raises(FileError, match="cannot be read"):
            load_replay(cut)


# --- the space ----------------------------------------------------------------------------------------------------


@given(replays(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_replayed_space_agrees_with_its_list(space: ReplaySpace, data: st.DataObject) -> None:
    table = TableSpace(trial.point for trial in space.trials)
    assert (space.size, space.names) == (table.size, tuple(space.parameters))
    point = data.draw(st.sampled_from(table.listed))
    key = table.key
    assert sorted(map(key, space.neighbours(point)), key=str) == sorted(map(key, table.neighbours(point)), key=str)
    given_names = data.draw(st.sets(st.sampled_from(space.names)))
    partial = {name: data.draw(st.sampled_from(space.parameters[name])) for name in given_names}
    name = data.draw(st.sampled_from(space.names))
    assert set(space.legal_values(partial, name)) == set(table.legal_values(partial, name))
    listed = [
        dict(zip(columns, row, strict=True))
        for _, columns in space.columns_by_part()
        for row in zip(*(column.tolist() for column in columns.values()), strict=True)
    ]
    assert listed == table.listed
    assert all(point in space for point in listed)
    assert space.sample(3, np.random.default_rng(0))[0] in table
    for outside in ({}, {**point, "more": 1}, {**point, space.names[0]: "nowhere"}):
        assert outside not in space
    assert space([point])[0] == next(t.evaluation for t in space.trials if dict(t.point) == point)


def test_what_was_not_measured_is_refused() -> None:
    trial = Trial({"bx": 16}, Evaluation(1.0))
    space = ReplaySpace([trial], kernel="gemm")
    for wrong in ({"bx": 17}, {}):
        with pytest.raises(ValueError) as refused:
            space([wrong])
        assert str(refused.value) == f"[gemm] {wrong} was not measured"
    with pytest.raises(ValueError) as refused:
        space.legal_values({}, "by")
    assert str(refused.value) == "[gemm] there is no parameter 'by'; there are bx"
    with pytest.raises(ValueError) as refused:
        ReplaySpace([trial, trial])
    assert str(refused.value) == "[replay] {'bx': 16} was measured twice; keep one of the two"
    failed = Trial({"bx": 16}, Evaluation(failure=Failure("compile", "no")))
    with pytest.raises(ValueError) as refused:
        _ = ReplaySpace([failed], device="A100").optimum
    assert str(refused.value) == "[A100] every point failed, so that there is no best one"


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_every_strategy_searches_a_replayed_space_and_failures_cost_an_evaluation(name: str) -> None:
    points = [{"bx": bx, "by": by} for bx, by in itertools.product((8, 16, 32, 64), (1, 2, 4))]
    failure = Evaluation(failure=Failure("compile", "it did not compile"))
    space = ReplaySpace(
        Trial(p, failure if p["bx"] * p["by"] > 100 else Evaluation(1e3 / p["bx"] + p["by"])) for p in points
    )
    result = minimize(space, space, strategy=name, evaluations=12)
    assert (result.value, result.failures()) == (space.optimum, {"compile": space.failures})
    kinds = Counter(trial.failure.kind for trial in result.history if trial.failure)
    assert kinds == {"compile": 3}
