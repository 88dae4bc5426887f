"""The laws of a search: it finds what is there, stays in the space, keeps to budget and seed, and hides nothing."""

import itertools
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, RecordingColumns, TableSpace, least, problems

from tinygpu.search import STRATEGIES, Evaluation, Failure, Point, Progress, Result, minimize
from tinygpu.search.annealing import spread_of
from tinygpu.search.evaluation import Trial
from tinygpu.search.history import History
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals

names = st.sampled_from(sorted(STRATEGIES))
seeds = st.integers(0, 5)
batches = st.integers(1, 4)


def grid(*counts: int) -> TableSpace:
    axes = [range(count) for count in counts]
    return TableSpace({f"p{i}": value for i, value in enumerate(row)} for row in itertools.product(*axes))


def bowl(points: Sequence[Point]) -> list[Evaluation]:
    """Smallest where every parameter is 3."""
    return [Evaluation(float(sum((int(value) - 3) ** 2 for value in point.values()))) for point in points]


# --- what is found ------------------------------------------------------------------------------------------------


@given(problems(), names, seeds, batches, st.booleans())
@settings(max_examples=150, deadline=None)
def test_with_budget_for_every_point_every_strategy_finds_the_optimum(
    problem: tuple[TableSpace, dict], name: str, seed: int, batch: int, columns: bool
) -> None:
    space, table = problem
    objective = (RecordingColumns if columns else Recording)(space, table)
    result = minimize(space, objective, strategy=name, evaluations=space.size, seed=seed, batch=batch)
    assert result.value == least(table)
    assert result.best is None or table[space.key(result.best)].value == result.value
    assert result.ended == "every point"
    # every point once, and asked for once
    assert sorted(map(str, (space.key(t.point) for t in result.history))) == sorted(map(str, space.keys))
    assert len(objective.asked) == len(set(objective.asked)) == space.size


@given(problems(), names, seeds, batches, st.integers(1, 12), st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_budget_is_kept_failures_count_and_points_are_admitted_and_different(
    problem: tuple[TableSpace, dict], name: str, seed: int, batch: int, budget: int, columns: bool
) -> None:
    space, table = problem
    objective = (RecordingColumns if columns else Recording)(space, table)
    result = minimize(space, objective, strategy=name, evaluations=budget, seed=seed, batch=batch)
    assert len(result.history) == len(objective.asked) == len(set(objective.asked)) == min(budget, space.size)
    assert result.ended == ("every point" if budget >= space.size else "evaluations")
    for trial in result.history:
        assert trial.point in space
        assert trial.evaluation == table[space.key(trial.point)]
    assert sum(result.failures().values()) == sum(t.failure is not None for t in result.history)


@given(problems(), names, seeds, batches, st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=100, deadline=None)
def test_the_same_seed_gives_the_same_history_and_a_longer_run_begins_with_a_shorter_one(
    problem: tuple[TableSpace, dict], name: str, seed: int, batch: int, one: int, other: int
) -> None:
    space, table = problem
    short, long = (
        minimize(space, Recording(space, table), strategy=name, evaluations=budget, seed=seed, batch=batch).history
        for budget in sorted((one, other))
    )
    assert list(short) == long[: len(short)]


@given(problems(), seeds)
@settings(max_examples=60, deadline=None)
def test_columns_and_points_give_the_same_exhaustive_history(problem: tuple[TableSpace, dict], seed: int) -> None:
    space, table = problem
    by_points = minimize(space, Recording(space, table), strategy="exhaustive", seed=seed)
    by_columns = minimize(space, RecordingColumns(space, table), strategy="exhaustive", seed=seed)
    assert by_points.history == by_columns.history
    assert [trial.point for trial in by_points.history] == space.listed


def test_what_fails_among_columns_is_asked_for_together() -> None:
    calls: list[int] = []

    class Failing:
        def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
            calls.append(len(points))
            return [Evaluation(failure=Failure("launch", f"{point['x']} is too many")) for point in points]

        def score_columns(self, columns: dict[str, np.ndarray], /) -> np.ndarray:
            return np.where(columns["x"] % 3 == 0, math.inf, columns["x"])

    space = TableSpace([{"x": x} for x in range(10_000)])
    result = minimize(space, Failing(), strategy="exhaustive")
    assert sum(calls) == 3334
    assert len(calls) < 10
    said = [(t.point["x"], t.evaluation.failure.sentence) for t in result.history if t.evaluation.failure]
    assert said == [(x, f"{x} is too many") for x in range(0, 10_000, 3)]


@given(problems(), names, seeds, st.data())
@settings(max_examples=80, deadline=None)
def test_a_warm_start_comes_first_and_is_never_tried_again(
    problem: tuple[TableSpace, dict], name: str, seed: int, data: st.DataObject
) -> None:
    space, table = problem
    warm = data.draw(st.lists(st.sampled_from(space.listed), max_size=5))
    objective = RecordingColumns(space, table)
    result = minimize(space, objective, strategy=name, evaluations=space.size, seed=seed, warm_start=warm)
    first = list(dict.fromkeys(space.key(point) for point in warm))
    assert [space.key(trial.point) for trial in result.history][: len(first)] == first
    assert len(objective.asked) == len(set(objective.asked)) == space.size


def test_seeds_differ() -> None:
    space = grid(10, 10)
    histories = {
        tuple(space.key(t.point) for t in minimize(space, bowl, strategy="random", evaluations=10, seed=seed).history)
        for seed in range(5)
    }
    assert len(histories) == 5


@pytest.mark.parametrize("size", [20, 400])
def test_random_points_are_uniform(size: int) -> None:
    # A fifth of the points is drawn without replacement, by listing or by rejection, for 500 seeds: each point is
    # expected 100 times. The variance of a count is 500 * 0.2 * 0.8 = 80, so a deviation of 54 is six standard
    # deviations.
    space = grid(size)
    counts = np.zeros(size)
    for seed in range(500):
        for point in UnseenPoints(space, Seen(), np.random.default_rng(seed)).draw(size // 5):
            counts[int(point["p0"])] += 1
    assert np.all(np.abs(counts - 100) < 54)


def test_the_last_points_of_a_space_are_found() -> None:
    space, seen = grid(20, 20), Seen()
    unseen = UnseenPoints(space, seen, np.random.default_rng(0))
    drawn = []
    while points := unseen.draw(7):
        for point in points:
            seen.add(point, Evaluation(0.0))
        drawn += [space.key(point) for point in points]
    assert drawn != sorted(drawn)
    assert sorted(drawn) == sorted(space.keys)


def test_annealing_beats_random_search_where_neighbours_are_alike() -> None:
    space = grid(8, 8, 8)
    found = {
        name: [minimize(space, bowl, strategy=name, evaluations=90, seed=seed).value or 0.0 for seed in range(20)]
        for name in ("annealing", "random")
    }
    assert sum(found["annealing"]) < sum(found["random"]) / 2


def test_annealing_leaves_a_local_optimum() -> None:
    # one parameter: a hill of failures-free worse values between the start's valley and the better one
    def valleys(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(float(min((int(p["p0"]) - 2) ** 2 + 1, (int(p["p0"]) - 35) ** 2))) for p in points]

    class Line(TableSpace):
        def neighbours(self, point: Point) -> list[Point]:
            return [{"p0": int(point["p0"]) + d} for d in (-1, 1) if {"p0": int(point["p0"]) + d} in self]

    space = Line({"p0": i} for i in range(40))
    for seed in range(10):
        assert minimize(space, valleys, strategy="annealing", evaluations=40, seed=seed).value == 0


def test_the_spread_ignores_hopeless_points_and_failures() -> None:
    def trial(value: float | None) -> Trial:
        return Trial({}, Evaluation(value) if value is not None else Evaluation(failure=Failure("timeout", "slow")))

    assert spread_of([trial(v) for v in (1.0, 2.0, 3.0, 1e9, None)]) == 1.5
    assert spread_of([trial(None)]) == 0.0


@given(names, seeds)
@settings(max_examples=20, deadline=None)
def test_where_every_point_fails_the_result_has_no_best(name: str, seed: int) -> None:
    space = grid(5, 4)

    def fails(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(failure=Failure("assembler", "no such instruction"))] * len(points)

    result = minimize(space, fails, strategy=name, evaluations=20, seed=seed)
    assert (result.best, result.value, result.top(3)) == (None, None, [])
    assert result.failures() == {"assembler": 20}
    assert len(result.history) == 20


def test_auto_is_exhaustive_where_every_point_fits_into_the_budget() -> None:
    space = grid(5, 5)
    table = {space.key(p): Evaluation(1.0) for p in space.listed}
    points, columns = Recording(space, table), RecordingColumns(space, table)
    assert minimize(space, points).strategy == "exhaustive"
    assert minimize(space, points, evaluations=25).strategy == "exhaustive"
    assert minimize(space, points, evaluations=24).strategy == "surrogate"
    assert minimize(space, points, seconds=60).strategy == "surrogate"
    assert minimize(space, columns, seconds=60).strategy == "exhaustive"


# --- time ---------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_no_evaluation_begins_after_the_time_is_spent(name: str) -> None:
    space, clock, begun = grid(10, 10), Clock(), []

    def slow(points: Sequence[Point]) -> list[Evaluation]:
        begun.append(clock.now)
        clock.now += 3.0
        return bowl(points)

    result = minimize(space, slow, strategy=name, seconds=10.0, clock=clock)
    assert begun == [0.0, 3.0, 6.0, 9.0]
    assert (result.ended, result.seconds, len(result.history)) == ("seconds", 12.0, 4)


# --- a strategy of one's own --------------------------------------------------------------------------------------


def backwards(space: TableSpace, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    for point in reversed(space.listed[3:]):
        yield [point]


def test_a_strategy_of_ones_own_runs_and_may_stop_early() -> None:
    space = grid(6)
    result = minimize(space, bowl, strategy=backwards)
    assert [t.point["p0"] for t in result.history] == [5, 4, 3]
    assert (result.strategy, result.ended, result.best) == ("backwards", "strategy", {"p0": 3})


def test_a_point_outside_the_space_is_refused() -> None:
    def stray(space: TableSpace, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
        yield [{"p0": 99}]

    with pytest.raises(ValueError) as refused:
        minimize(grid(6), bowl, strategy=stray)
    assert str(refused.value) == "the strategy proposed {'p0': 99}, which is not in the space"


# --- progress -----------------------------------------------------------------------------------------------------


def test_progress_is_told_after_each_batch() -> None:
    clock, told = Clock(), []

    def slow(points: Sequence[Point]) -> list[Evaluation]:
        clock.now += len(points) * 0.5
        return [
            Evaluation(failure=Failure("timeout", "slow")) if p["p0"] == 0 else Evaluation(10.0 - int(p["p0"]))
            for p in points
        ]

    minimize(grid(5), slow, strategy="exhaustive", batch=2, callbacks=[told.append], clock=clock)
    best = [None if p.best is None else (p.best.point["p0"], p.best.value) for p in told]
    assert best == [(1, 9.0), (3, 7.0), (4, 6.0)]
    assert told[-1] == Progress(
        evaluations=5,
        replayed=0,
        failures=1,
        total=5,
        seconds=2.5,
        rate=2.0,
        best=Trial({"p0": 4}, Evaluation(6.0)),
        kinds={"timeout": 1},
    )
    assert [p.evaluations for p in told] == [2, 4, 5]


# --- the result ---------------------------------------------------------------------------------------------------


@given(problems(), names, seeds, st.integers(1, 10))
@settings(max_examples=60, deadline=None)
def test_a_result_saves_and_loads(problem: tuple[TableSpace, dict], name: str, seed: int, budget: int) -> None:
    space, table = problem
    result = minimize(space, Recording(space, table), strategy=name, evaluations=budget, seed=seed, subject="saxpy")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        result.save(path)
        loaded = Result.load(path)
        assert list(Path(folder).iterdir()) == [path]
    assert loaded == result
    assert list(loaded.history) == list(result.history)
    assert [type(v) for t in loaded.history for v in t.point.values()] == [
        type(v) for t in result.history for v in t.point.values()
    ]


@given(problems(), st.integers(0, 10))
@settings(max_examples=60, deadline=None)
def test_the_top_is_a_stable_sort_of_the_successes(problem: tuple[TableSpace, dict], count: int) -> None:
    space, table = problem
    result = minimize(space, RecordingColumns(space, table), strategy="exhaustive")
    succeeded = [trial for trial in result.history if trial.value is not None]
    assert result.top(count) == sorted(succeeded, key=lambda trial: trial.evaluation.cost)[:count]
    running = [math.inf if t.value is None else t.value for t in result.history]
    assert result.history.best_so_far().tolist() == list(itertools.accumulate(running, min))


def test_a_result_prints_one_sentence() -> None:
    def objective(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(failure=Failure("timeout", "slow")) if p["p0"] == 0 else Evaluation(0.5) for p in points]

    clock = Clock()
    result = minimize(grid(4), objective, strategy="exhaustive", subject="saxpy on a100", clock=clock)
    assert str(result) == (
        "saxpy on a100: exhaustive, seed 0: 4 of 4 points tried in 0.0 s, 1 failed; best 0.5 at {'p0': 1}"
    )
    nothing = minimize(grid(1), objective, strategy="random", evaluations=1, seed=3, clock=clock)
    assert str(nothing) == "random, seed 3: 1 of 1 points tried in 0.0 s, 1 failed; none has a value"
    assert repr(result.history) == "<History of 4 trials, 1 of them failures>"


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"tinygpu_search": 99}))
    with pytest.raises(ValueError) as refused:
        Result.load(path)
    assert str(refused.value) == f"{path} is no search result of version 1: its version is 99"


def test_histories_are_sequences() -> None:
    history = minimize(grid(5), bowl, strategy="exhaustive").history
    assert history[-1] == history[4] == Trial({"p0": 4}, Evaluation(1.0))
    assert history[1:3] == [history[1], history[2]]
    with pytest.raises(IndexError):
        history[5]
    assert History.of_columns(**json.loads(json.dumps(history.to_json()))) == history
    assert history != minimize(grid(4), bowl, strategy="exhaustive").history


# --- refusals -----------------------------------------------------------------------------------------------------


class Endless(TableSpace):
    """A space that says it is too large to list."""

    @property
    def size(self) -> int:
        return 3_400_000_000


@pytest.mark.parametrize(
    ("space", "arguments", "text"),
    [
        (TableSpace([]), {}, "the space is empty: there is nothing to search, and its explanation says why"),
        (grid(3), {"evaluations": 0}, "a search needs at least 1 evaluation, not 0"),
        (grid(3), {"seconds": 0}, "a search needs more than 0 seconds, not 0"),
        (grid(3), {"seconds": math.nan}, "a search needs more than 0 seconds, not nan"),
        (grid(3), {"batch": 0}, "a batch has at least 1 point, not 0"),
        (grid(3), {"warm_start": [{"p0": 3}]}, "the warm start {'p0': 3} is not in the space; leave it out"),
        (
            grid(3),
            {"strategy": "genetic"},
            "there is no strategy 'genetic'; there are exhaustive, random, annealing, evolutionary, local, surrogate, "
            "rl, branch_and_bound, factored and auto",
        ),
        (
            grid(3),
            {"strategy": "random"},
            "strategy='random' needs a budget for a space of 3 points: evaluations=... or seconds=...",
        ),
        (
            Endless([{"p0": 0}]),
            {"strategy": "exhaustive", "evaluations": 5},
            "the space has 3,400,000,000 points and exhaustive search lists 10,000,000 at most; "
            "use strategy='annealing' or strategy='random' with a budget",
        ),
        (
            Endless([{"p0": 0}]),
            {},
            "strategy='surrogate' needs a budget for a space of 3,400,000,000 points: evaluations=... or seconds=...",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_sentence(space: TableSpace, arguments: dict, text: str) -> None:
    with pytest.raises(ValueError) as refused:
        minimize(space, bowl, **arguments)
    assert str(refused.value) == text


def test_an_objective_that_miscounts_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        minimize(grid(3), lambda points: [], strategy="exhaustive")
    assert str(refused.value) == "the objective gave 0 evaluations for 1 points"

    class Short(RecordingColumns):
        def score_columns(self, columns: object, /) -> np.ndarray:
            return np.zeros(2)

    with pytest.raises(ValueError) as refused:
        minimize(grid(3), Short(grid(3), {}), strategy="exhaustive")
    assert str(refused.value) == "the objective gave values of shape (2,) for 3 rows"


def test_what_the_objective_raises_passes_through() -> None:
    for raised in (RuntimeError, StopIteration):

        def broken(points: Sequence[Point], raised: type[BaseException] = raised) -> list[Evaluation]:
            raise raised("broken")

        with pytest.raises(raised, match=r"^broken$"):
            minimize(grid(3), broken, strategy="exhaustive")


def test_evaluations_and_failures_check_themselves() -> None:
    with pytest.raises(ValueError) as refused:
        Evaluation(math.nan)
    assert str(refused.value) == (
        "an evaluation's value is a finite number, not nan; what has none is a failure with its reason"
    )
    for arguments in ({}, {"value": 1.0, "failure": Failure("timeout", "slow")}):
        with pytest.raises(ValueError) as refused:
            Evaluation(**arguments)
        assert str(refused.value) == "an evaluation is either a value or a failure"
    with pytest.raises(ValueError) as refused:
        Failure("timeout", "")
    assert str(refused.value) == "a failure needs a kind and a sentence, not 'timeout' and ''"
    assert str(Failure("timeout", "it took too long")) == "timeout: it took too long"
