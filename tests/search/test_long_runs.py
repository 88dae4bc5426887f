"""Long runs: budgets by a bound, Ctrl-C, progress, and kills at any moment."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, RecordingColumns, TableSpace, problems

from tinygpu.search import STRATEGIES, Columns, Evaluation, Failure, Point, Progress, Result, minimize
from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import Trial
from tinygpu.search.journal import Journal

GRID = TableSpace({"a": a, "b": b} for a in range(12) for b in range(12))


def bowl(points: Sequence[Point]) -> list[Evaluation]:
    return [Evaluation(1.0 + (int(p["a"]) - 5) ** 2 + (int(p["b"]) - 7) ** 2) for p in points]


# --- "within x % of the bound" ------------------------------------------------------------------------------------


@given(problems(), st.sampled_from(sorted(STRATEGIES)), st.floats(0, 3), st.integers(0, 3), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_search_ends_with_the_first_value_that_is_within(
    problem: tuple, name: str, within: float, seed: int, columns: bool
) -> None:
    space, table = problem
    lifted = {key: e if e.value is None else Evaluation(abs(e.value) + 0.5) for key, e in table.items()}
    kind = RecordingColumns if columns and name != "exhaustive" else Recording
    result = minimize(
        space, kind(space, lifted), strategy=name, evaluations=space.size, seed=seed, within=within, floor=0.5
    )
    good = [trial.value is not None and trial.value <= (1 + within) * 0.5 for trial in result.history]
    assert not any(good[:-1])
    # the last one may be both good enough and the last of the space
    assert result.ended == ("within" if good[-1] else "every point")


def test_within_is_a_budget_of_its_own() -> None:
    result = minimize(GRID, bowl, strategy="random", within=1.0, floor=1.0)
    assert result.ended == "within"
    assert result.value is not None
    assert result.value <= 2.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"within": 0.1}, "within=0.1 of what? Give floor=..., a value that no point can be below"),
        ({"within": -0.1, "floor": 1.0}, "within is a share of the floor, 0.05 for 5 %, not -0.1"),
        ({"floor": 0.0}, "a floor is a number above 0 that no value is below, not 0"),
        ({"floor": float("inf")}, "a floor is a number above 0 that no value is below, not inf"),
    ],
)
def test_budgets_that_say_nothing_are_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        minimize(GRID, bowl, strategy="random", evaluations=3, **arguments)
    assert str(refused.value) == sentence


# --- progress -----------------------------------------------------------------------------------------------------


def progress(**changed: object) -> Progress:
    fields = {"evaluations": 20, "replayed": 0, "failures": 0, "total": 100, "seconds": 10.0, "rate": 4.0, "best": None}
    return Progress(**(fields | changed))  # type: ignore[arg-type]


def test_time_left_is_that_of_the_budget_that_is_spent_first() -> None:
    assert progress().seconds_left == 20.0
    assert progress(budget=Budget(seconds=15.0)).seconds_left == 5.0
    assert progress(budget=Budget(seconds=90.0)).seconds_left == 20.0
    assert progress(budget=Budget(seconds=9.0)).seconds_left == 0.0
    assert progress(rate=0.0).seconds_left is None
    assert progress(total=None).seconds_left is None


def test_the_share_of_the_floor() -> None:
    best = Trial({}, Evaluation(4.0))
    assert progress(best=best, budget=Budget(floor=3.0)).share_of_floor == 0.75
    assert progress(best=best).share_of_floor is None
    assert progress(budget=Budget(floor=3.0)).share_of_floor is None


def test_failures_are_counted_by_kind() -> None:
    told = []

    def failing(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(failure=Failure("even" if int(p["a"]) % 2 == 0 else "odd", "so")) for p in points]

    space = TableSpace({"a": a} for a in range(5))
    minimize(space, failing, strategy="exhaustive", callbacks=[told.append])
    assert told[-1].kinds == {"even": 3, "odd": 2}
    assert told[-1].failures == 5


# --- Ctrl-C -------------------------------------------------------------------------------------------------------


def test_an_interruption_in_the_objective_leaves_what_was_found(tmp_path: Path) -> None:
    calls = []

    def interrupted(points: Sequence[Point]) -> list[Evaluation]:
        calls.append(points)
        if len(calls) == 8:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        return bowl(points)

    whole = minimize(GRID, bowl, strategy="annealing", evaluations=30, seed=4)
    result = minimize(GRID, interrupted, strategy="annealing", evaluations=30, seed=4, journal=tmp_path / "j")
    assert result.ended == "interrupted"
    assert list(result.history) == whole.history[:7]
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json") == result
    again = minimize(GRID, bowl, strategy="annealing", evaluations=30, seed=4, journal=tmp_path / "j")
    assert again.history == whole.history
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class InterruptedAt:
    """The bowl; Ctrl-C comes some time after a batch began, and at the latest in the last of them."""

    def __init__(self, batch: int, delay_seconds: float, batches: int) -> None:
        self.left, self.delay_seconds, self.batches = batch, delay_seconds, batches
        self.sent = threading.Event()

    def interrupt(self) -> None:
        time.sleep(self.delay_seconds)
        os.kill(os.getpid(), signal.SIGINT)
        self.sent.set()

    def __call__(self, points: Sequence[Point]) -> list[Evaluation]:
        if self.left == 0:
            threading.Thread(target=self.interrupt).start()
        self.left, self.batches = self.left - 1, self.batches - 1
        if self.batches == 0:
            assert self.sent.wait(60)
        return list(bowl(points))


def test_interruptions_at_any_moment_leave_the_books_in_order(tmp_path: Path) -> None:
    draw = random.Random(5)
    whole = minimize(GRID, bowl, strategy="random", evaluations=144, seed=1, batch=3)
    for number in range(30):
        path = tmp_path / f"j{number}"
        objective = InterruptedAt(draw.randrange(48), draw.random() * 0.003, 48)
        result = minimize(GRID, objective, strategy="random", evaluations=144, seed=1, batch=3, journal=path)
        assert result.ended == "interrupted"
        count = len(result.history)
        assert list(result.history) == whole.history[:count]
        on_disk = path.read_bytes()
        assert on_disk.endswith(b"\n")
        resumed = minimize(GRID, bowl, strategy="random", evaluations=144, seed=1, batch=3, journal=path)
        assert resumed.history == whole.history


def test_another_handler_of_the_caller_is_left_alone() -> None:
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:

        def interrupted(points: Sequence[Point]) -> list[Evaluation]:
            os.kill(os.getpid(), signal.SIGINT)
            return bowl(points)

        result = minimize(GRID, interrupted, strategy="random", evaluations=3)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.ended, seen) == ("evaluations", [signal.SIGINT] * 3)


# --- the journal --------------------------------------------------------------------------------------------------


def test_an_objective_of_columns_is_asked_by_columns_with_a_journal_too(tmp_path: Path) -> None:
    space, calls = TableSpace({"a": a} for a in range(3000)), []

    class Counted:
        def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
            calls.append(("points", len(points)))
            return [Evaluation(float(int(p["a"]))) for p in points]

        def score_columns(self, columns: Columns, /) -> np.ndarray:
            calls.append(("columns", len(columns["a"])))
            return columns["a"].astype(float)

    whole = minimize(space, Counted(), strategy="exhaustive", journal=tmp_path / "j")
    assert calls == [("columns", 1024), ("columns", 1024), ("columns", 952)]
    data = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(data[: len(data) // 2])
    assert minimize(space, Counted(), strategy="exhaustive", journal=tmp_path / "j").history == whole.history


def test_a_journal_in_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal(path, {"seed": 1}), pytest.raises(ValueError) as refused:
        Journal(path, {"seed": 1})
    assert str(refused.value) == f"{path} is being written by another process; give another path, or wait for it"
    with Journal(path, {"seed": 1}) as journal:
        assert len(journal) == 0


class Shuffled(Recording):
    """Hands over evaluations in an order of its own, as processes do."""

    def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
        order = list(range(len(points)))
        random.Random(len(points)).shuffle(order)
        for number in order:
            yield number, self([points[number]])[0]


@given(problems(), st.sampled_from(sorted(STRATEGIES)), st.integers(2, 5), st.data())
@settings(max_examples=60, deadline=None)
def test_a_stream_that_is_cut_at_any_byte_goes_on_without_evaluating_twice(
    problem: tuple, name: str, batch: int, data: st.DataObject
) -> None:
    space, table = problem
    budget = data.draw(st.integers(1, space.size))
    plain = minimize(space, Recording(space, table), strategy=name, evaluations=budget, batch=batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        whole = minimize(
            space,
            Shuffled(space, table),
            strategy=name,
            evaluations=budget,
            batch=batch,
            journal=path,
            clock=lambda: 0.0,
        )
        assert whole.history == plain.history
        path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size))])
        on_disk = [json.loads(line)["point"] for line in path.read_bytes().split(b"\n")[1:-1]]
        again = Shuffled(space, table)
        resumed = minimize(space, again, strategy=name, evaluations=budget, batch=batch, journal=path)
    assert resumed.history == whole.history
    assert not {space.key(point) for point in on_disk} & set(again.asked)
    assert len(again.asked) == len(set(again.asked)) == len(whole.history) - len(on_disk)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ([0, 0], "the objective gave two evaluations of {'a': 0, 'b': 0}"),
        ([1], "the objective gave 1 evaluations for 2 points"),
        ([0, 1, 2], "the objective gave an evaluation of a point that it was not asked for"),
    ],
)
def test_a_stream_that_does_not_answer_what_it_was_asked_is_refused(numbers: list[int], sentence: str) -> None:
    class Wrong(Recording):
        def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
            return ((number, Evaluation(1.0)) for number in numbers)

    with pytest.raises(ValueError) as refused:
        minimize(GRID, Wrong(GRID, {}), strategy="exhaustive", evaluations=2, batch=2)
    assert str(refused.value) == sentence


# The search that is killed below, in processes and with a cache; each process notes what it begins and what it ends.
SEARCH = """
import sys
from functools import partial
from table_space import TableSpace
from noting import Noting
from tinygpu.search import minimize
from tinygpu.search.cache import Cache, CachedObjective, Circumstances
from tinygpu.search.parallel import ParallelObjective

space = TableSpace({"a": a, "b": b} for a in range(15) for b in range(14))
folder, strategy = sys.argv[1:3]
with Cache(folder + "/cache") as cache, ParallelObjective(partial(Noting, folder + "/asked"), processes=2) as parallel:
    objective = CachedObjective(parallel, cache, Circumstances("s", "m", "c", "p", "d"))
    journal = folder + "/journal"
    result = minimize(space, objective, strategy=strategy, evaluations=200, batch=4, seed=11, journal=journal)
result.save(folder + "/result")
"""


def kill_again_and_again(folder: Path, name: str, kills: int, seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    draw = random.Random(seed)

    def start(where: Path) -> "subprocess.Popen[bytes]":
        where.mkdir(exist_ok=True)
        return subprocess.Popen([sys.executable, "-c", SEARCH, str(where), name], env=environment)

    assert start(folder / "calm").wait() == 0
    killed, asked = folder / "killed", folder / "killed" / "asked"
    done = 0
    while done < kills:
        process = start(killed)
        goal = count(asked) + draw.randrange(1, max(2, 350 // kills))
        while process.poll() is None and count(asked) < goal:
            time.sleep(0.001)
        time.sleep(draw.random() * 0.005)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        done += 1
    assert done > kills // 2
    on_disk = recorded(killed / "journal")
    before = len(asked.read_text().split("\n"))
    assert start(killed).wait() == 0
    after = asked.read_text().split("\n")[before:]
    assert not on_disk & {line.partition(" ")[2] for line in after if line.startswith("begun")}
    calm, end = (json.loads((folder / run / "result").read_text()) for run in ("calm", "killed"))
    assert end["history"] == calm["history"]
    # whatever a process lived to hand over is on disk: only what was at work when the kill came is tried again
    begun = [line for line in asked.read_text().splitlines() if line.startswith("begun")]
    assert len(begun) - len(set(begun)) <= 2 * done


def count(asked: Path) -> int:
    return asked.read_text().count("\n") if asked.exists() else 0


def recorded(journal: Path) -> set[str]:
    if not journal.exists():
        return set()
    points = [json.loads(line)["point"] for line in journal.read_bytes().split(b"\n")[1:-1]]
    return {f"{point['a']} {point['b']}" for point in points}


@pytest.mark.end_to_end
def test_a_search_in_processes_that_is_killed_ends_as_if_it_never_was(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, "random", 3, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "annealing"])
def test_a_search_that_is_killed_fifty_times_ends_as_if_it_never_was(name: str, tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, name, 50, 2)
