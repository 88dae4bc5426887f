"""The cache: one entry per candidate and circumstances, shared by runs and processes, whole after any kill."""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, TableSpace, problems

from tinygpu.files import FileError
from tinygpu.search import Evaluation, Failure, Point, minimize
from tinygpu.search.cache import Cache, CachedObjective, Circumstances

pytestmark = pytest.mark.end_to_end

HERE = Circumstances("seconds", "machine", "code", "problem", "device", "driver", "assembler")


@given(problems(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None)
def test_searches_that_share_a_cache_evaluate_each_candidate_once(problem: tuple, runs: list[tuple[int, int]]) -> None:
    space, table = problem
    objective = Recording(space, table)
    with Cache(":memory:") as cache:
        cached = CachedObjective(objective, cache, HERE, passing=())
        for seed, batch in runs:
            budget = max(1, space.size // 2)
            plain = minimize(
                space, Recording(space, table), strategy="annealing", evaluations=budget, seed=seed, batch=batch
            )
            found = minimize(space, cached, strategy="annealing", evaluations=budget, seed=seed, batch=batch)
            assert found.history == plain.history
        assert len(objective.asked) == len(set(objective.asked)) == len(cache)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Circumstances)])
def test_nothing_is_taken_for_another_circumstance(field: str, tmp_path: Path) -> None:
    other = dataclasses.replace(HERE, **{field: "another"})
    with Cache(tmp_path / "cache") as cache:
        cache.keep(HERE, {"bm": 64, "load": "direct"}, Evaluation(1.0))
        assert cache.known(HERE, [{"load": "direct", "bm": 64}]) == [Evaluation(1.0)]
        assert cache.known(other, [{"load": "direct", "bm": 64}]) == [None]
        others: list[Point] = [{"load": "direct", "bm": 32}, {"bm": 64}, {"bm": "64", "load": "direct"}]
        assert cache.known(HERE, others) == [None] * 3


@given(st.integers(-(2**60), 2**60).map(float) | st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=60, deadline=None)
def test_values_come_back_to_the_last_bit(value: float) -> None:
    with Cache(":memory:") as cache:
        cache.keep(HERE, {}, Evaluation(value))
        assert cache.known(HERE, [{}]) == [Evaluation(value)]


def test_failures_of_the_candidate_are_kept_and_those_of_the_day_are_not(tmp_path: Path) -> None:
    points: list[Point] = [{"a": a} for a in range(6)]
    kinds = ("assembler", "wrong", "crash", "timeout", "unmeasured", "error")
    asked = []

    def failing(points: Sequence[Point]) -> list[Evaluation]:
        asked.extend(int(point["a"]) for point in points)
        return [Evaluation(failure=Failure(kinds[int(point["a"])], "so it was")) for point in points]

    for _ in range(2):
        with Cache(tmp_path / "cache") as cache:
            cached = CachedObjective(failing, cache, HERE)
            assert [e.failure.kind for e in cached(points) if e.failure] == list(kinds)
    assert asked == [0, 1, 2, 3, 4, 5, 2, 3, 4, 5]
    assert cached.hits == 2


def test_many_points_are_looked_up_at_once(tmp_path: Path) -> None:
    points: list[Point] = [{"a": a} for a in range(1700)]
    with Cache(tmp_path / "cache") as cache:
        for point in points[::3]:
            cache.keep(HERE, point, Evaluation(float(int(point["a"]))))
        known = cache.known(HERE, points)
    assert known == [Evaluation(float(a)) if a % 3 == 0 else None for a in range(1700)]


# Fills a cache with points in an order of its own, and says which it evaluated.
FILL = """
import random, sys, time
from tinygpu.search import Evaluation
from tinygpu.search.cache import Cache, CachedObjective, Circumstances

def objective(points):
    with open(sys.argv[2], "a") as asked:
        for point in points:
            print(point["a"], file=asked, flush=True)
    return [Evaluation(point["a"] * 0.5) for point in points]

order = list(range(120))
random.Random(int(sys.argv[3])).shuffle(order)
with Cache(sys.argv[1]) as cache:
    cached = CachedObjective(objective, cache, Circumstances("s", "m", "c", "p", "d"))
    for a in order:
        assert cached([{"a": a}]) == [Evaluation(a * 0.5)]
"""


def fill(cache: Path, asked: Path, seed: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", FILL, str(cache), str(asked), str(seed)], env=dict(os.environ))


def test_processes_share_a_cache(tmp_path: Path) -> None:
    processes = [fill(tmp_path / "cache", tmp_path / f"asked{seed}", seed) for seed in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    with Cache(tmp_path / "cache") as cache:
        assert len(cache) == 120
    # what all had found, a fourth one does not ask for again
    assert fill(tmp_path / "cache", tmp_path / "again", 9).wait() == 0
    assert not (tmp_path / "again").exists()


def test_a_cache_survives_kills(tmp_path: Path) -> None:
    draw = random.Random(3)
    asked = tmp_path / "asked"
    for number in range(4):
        before = asked.read_text().count("\n") if asked.exists() else 0
        process = fill(tmp_path / "cache", asked, number)
        while process.poll() is None and (not asked.exists() or asked.read_text().count("\n") < before + 6):
            time.sleep(0.001)
        time.sleep(draw.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert fill(tmp_path / "cache", asked, 9).wait() == 0
    with Cache(tmp_path / "cache") as cache:
        assert len(cache) == 120
    # a kill between an evaluation and its entry costs that one
    counts = [asked.read_text().split().count(str(a)) for a in range(120)]
    assert sum(counts) <= 120 + 4
    assert min(counts) == 1


def test_another_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a cache, but something longer than the header of a data base " * 20)
    before = path.read_bytes()
    with pytest.raises(FileError) as refused:
        Cache(path)
    sentence = "is there and is no cache of evaluations; it is left as it is: give another path"
    assert str(refused.value) == f"{path} {sentence}"
    assert path.read_bytes() == before


def test_another_programs_data_base_is_refused_and_left_alone(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "notes.db"
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE notes (text TEXT)")
    base.commit()
    base.close()
    before = path.read_bytes()
    with pytest.raises(FileError) as refused:
        Cache(path)
    sentence = "is there and is no cache of evaluations; it is left as it is: give another path"
    assert str(refused.value) == f"{path} {sentence}"
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["notes.db"]


def test_a_cache_of_another_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    base = sqlite3.connect(tmp_path / "cache")
    base.execute(f"PRAGMA application_id={0x74475055}")
    base.execute("PRAGMA user_version=7")
    base.close()
    with pytest.raises(FileError) as refused:
        Cache(tmp_path / "cache")
    assert str(refused.value) == f"{tmp_path / 'cache'} is a cache of version 7, and this is version 1"


def test_the_cache_streams_what_it_knows_first(tmp_path: Path) -> None:
    space = TableSpace({"a": a} for a in range(4))
    table = {space.key(point): Evaluation(float(a)) for a, point in enumerate(space.listed)}
    with Cache(tmp_path / "cache") as cache:
        cached = CachedObjective(Recording(space, table), cache, HERE)
        cached(space.listed[2:])
        assert [number for number, _ in cached.stream(space.listed)] == [2, 3, 0, 1]
