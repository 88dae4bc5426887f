"""The journal: whatever is on disk is never evaluated again, wherever the search was cut off."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, RecordingColumns, TableSpace, problems

from tinygpu.search import STRATEGIES, Evaluation, Failure, minimize
from tinygpu.search.journal import Journal

names = st.sampled_from(sorted(STRATEGIES))


def small() -> tuple[TableSpace, dict]:
    space = TableSpace({"bm": bm, "load": load} for bm in (16, 32) for load in ("direct", "staged"))
    table = {space.key(p): Evaluation(0.1 * number) for number, p in enumerate(space.listed)}
    table[space.key(space.listed[2])] = Evaluation(failure=Failure("timeout", "it took µs, “too long”\n"))
    return space, table


@pytest.mark.end_to_end
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_search_cut_off_at_any_byte_goes_on_without_evaluating_twice(name: str, tmp_path: Path) -> None:
    space, table = small()
    path = tmp_path / "journal"
    whole = minimize(space, Recording(space, table), strategy=name, evaluations=4, journal=path)
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        recorded = [json.loads(line)["point"] for line in data[:cut].split(b"\n")[1:-1]]
        objective = Recording(space, table)
        resumed = minimize(space, objective, strategy=name, evaluations=4, journal=path)
        assert resumed.history == whole.history
        expected = {space.key(point) for point in space.listed} - {space.key(point) for point in recorded}
        assert sorted(map(str, objective.asked)) == sorted(map(str, expected))
        again = Recording(space, table)
        assert minimize(space, again, strategy=name, evaluations=4, journal=path).history == whole.history
        assert again.asked == []


@given(problems(), names, st.integers(0, 3), st.integers(1, 4), st.booleans(), st.data())
@settings(max_examples=100, deadline=None)
def test_a_resumed_search_is_the_search_that_was_never_cut(
    problem: tuple, name: str, seed: int, batch: int, columns: bool, data: st.DataObject
) -> None:
    space, table = problem
    kind = RecordingColumns if columns else Recording
    budget = data.draw(st.integers(1, space.size))
    whole = minimize(space, kind(space, table), strategy=name, evaluations=budget, seed=seed, batch=batch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        # first a part of the budget, then the file cut anywhere, then the whole budget
        first = data.draw(st.integers(1, budget))
        minimize(
            space,
            kind(space, table),
            strategy=name,
            evaluations=first,
            seed=seed,
            batch=batch,
            journal=path,
            clock=lambda: 0.0,
        )
        path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, path.stat().st_size))])
        recorded = max(path.read_bytes().count(b"\n") - 1, 0)
        objective = kind(space, table)
        resumed = minimize(space, objective, strategy=name, evaluations=budget, seed=seed, batch=batch, journal=path)
    assert resumed.history == whole.history
    assert len(objective.asked) == budget - recorded


# The search that is killed below: every evaluation is written to a second file when it is begun.
SEARCH = """
import sys, time
from table_space import TableSpace
from tinygpu.search import Evaluation, minimize

space = TableSpace({"a": a, "b": b} for a in range(12) for b in range(12))

def objective(points):
    with open(sys.argv[2], "a") as asked:
        for point in points:
            print(point["a"], point["b"], file=asked, flush=True)
    time.sleep(0.004)
    return [Evaluation(float((point["a"] - 5) ** 2 + (point["b"] - 7) ** 2)) for point in points]

result = minimize(space, objective, strategy=sys.argv[3], evaluations=100, seed=11, journal=sys.argv[1])
result.save(sys.argv[1] + ".result")
"""


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["annealing", "random"])
def test_a_search_that_is_killed_again_and_again_ends_as_if_it_never_was(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    draw = random.Random(7)

    def start(journal: Path, asked: Path) -> "subprocess.Popen[bytes]":
        return subprocess.Popen([sys.executable, "-c", SEARCH, str(journal), str(asked), name], env=environment)

    assert start(tmp_path / "calm", tmp_path / "calm_asked").wait() == 0
    journal, asked = tmp_path / "killed", tmp_path / "killed_asked"
    kills = 0
    while kills < 5:
        on_disk = recorded(journal)
        before = asked.read_text().splitlines() if asked.exists() else []
        process = start(journal, asked)
        # a kill after some further evaluations, at no particular moment of one
        goal = len(before) + draw.randrange(1, 10)
        while process.poll() is None and (not asked.exists() or len(asked.read_text().splitlines()) < goal):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert not on_disk & set(asked.read_text().splitlines()[len(before) :])
    on_disk = recorded(journal)
    before = asked.read_text().splitlines()
    assert start(journal, asked).wait() == 0
    assert not on_disk & set(asked.read_text().splitlines()[len(before) :])
    # the same points in the same order with the same values; only the times differ
    killed, calm = (json.loads((tmp_path / f"{run}.result").read_text()) for run in ("killed", "calm"))
    assert killed["history"] == calm["history"]


def recorded(journal: Path) -> set[str]:
    """Points in the whole lines of a journal, as the objective above writes them."""
    if not journal.exists():
        return set()
    points = [json.loads(line)["point"] for line in journal.read_bytes().split(b"\n")[1:-1]]
    return {f"{point['a']} {point['b']}" for point in points}


def test_each_evaluation_is_on_disk_before_the_next_begins(tmp_path: Path) -> None:
    space, table = small()
    path = tmp_path / "journal"
    lines = []

    class Watching(Recording):
        def __call__(self, points: object, /) -> list[Evaluation]:
            lines.append(path.read_bytes().count(b"\n") - 1)
            return super().__call__(points)

    minimize(space, Watching(space, table), strategy="exhaustive", journal=path)
    assert lines == [0, 1, 2, 3]


def test_time_goes_on_where_it_stopped(tmp_path: Path) -> None:
    space = TableSpace({"a": a} for a in range(20))
    now = [0.0]

    def objective(points: object) -> list[Evaluation]:
        now[0] += 3.0
        return [Evaluation(float(point["a"])) for point in points]  # type: ignore[attr-defined]

    def run(seconds: float) -> tuple[int, float, str]:
        result = minimize(
            space, objective, strategy="random", seconds=seconds, journal=tmp_path / "j", clock=lambda: now[0]
        )
        return len(result.history), result.seconds, result.ended

    assert run(7.0) == (3, 9.0, "seconds")
    now[0] = 1000.0  # the time between two runs does not count
    assert run(7.0) == (3, 9.0, "seconds")
    assert run(14.0) == (5, 15.0, "seconds")


def test_progress_counts_what_was_replayed(tmp_path: Path) -> None:
    space, table = small()
    minimize(space, Recording(space, table), strategy="random", evaluations=2, journal=tmp_path / "j")
    told = []
    minimize(
        space,
        Recording(space, table),
        strategy="random",
        evaluations=4,
        journal=tmp_path / "j",
        callbacks=[told.append],
    )
    assert [(p.evaluations, p.replayed) for p in told] == [(1, 1), (2, 2), (3, 2), (4, 2)]


def refusal(path: Path, **arguments: object) -> str:
    space, table = small()
    before = path.read_bytes()
    with pytest.raises(ValueError) as refused:
        minimize(space, Recording(space, table), strategy="random", evaluations=4, journal=path, **arguments)
    assert path.read_bytes() == before
    return str(refused.value)


def test_a_journal_of_another_search_is_refused_and_left_alone(tmp_path: Path) -> None:
    space, table = small()
    path = tmp_path / "journal"
    minimize(space, Recording(space, table), strategy="random", evaluations=2, journal=path, subject="saxpy on a100")
    assert refusal(path, seed=4, subject="saxpy on h100") == (
        f"{path} belongs to another search (subject 'saxpy on a100', now 'saxpy on h100', seed 0, now 4); "
        "give another path"
    )


FOREIGN = "{path} is there and is not a search journal; it is left as it is: give another path"
DAMAGED = "{path}, line %d is damaged, or of another version: "


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hello\n", FOREIGN),
        ("hello", FOREIGN),
        ("x" * 60_000, FOREIGN),
        ('{"tinygpu_run": 1, "title": "no line end"}', FOREIGN),
        ('{"tinygpu_journals": 1}', FOREIGN),
        ("[]\n", FOREIGN),
        ('{"point": {"bm": 16}, "value": 1.0, "seconds": 0}\n', FOREIGN),
        ('{"tinygpu_journal": 1, "search": 5}\n', DAMAGED % 1 + "search is a whole number, and must be an object"),
        ("HEADER\n{}\n", DAMAGED % 2 + "it lacks point"),
        (
            'HEADER\n{"point": {"bm": 16}, "value": NaN, "seconds": 0}\n',
            "{path}, line 2 is not JSON: invalid character (byte 31)",
        ),
        (
            'HEADER\n{"point": {"bm": 16}, "value": 1.0, "seconds": 0}\nnot json\n',
            "{path}, line 3 is not JSON: invalid character (byte 4)",
        ),
        (
            'HEADER\n{"point": {"bm": 16}, "failure": {"kind": ""}, "seconds": 0}\n',
            DAMAGED % 2 + "failure lacks sentence",
        ),
        (
            'HEADER\n{"point": {"bm": 16}, "seconds": 0}\n',
            DAMAGED % 2 + "an evaluation is either a value or a failure",
        ),
    ],
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    header = json.dumps(
        {
            "tinygpu_journal": 1,
            "search": {"subject": "", "strategy": "random", "seed": 0, "batch": 1, "space size": 4},
        }
    )
    path.write_text(text.replace("HEADER", header))
    assert refusal(path) == sentence.format(path=path)


@pytest.mark.parametrize("cut", [1, 10, 19, 40])
def test_a_journal_that_was_cut_in_its_first_line_begins_anew(cut: int, tmp_path: Path) -> None:
    with Journal(tmp_path / "j", {"seed": 1}):
        pass
    whole = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(whole[:cut])
    with Journal(tmp_path / "j", {"seed": 1}) as journal:
        assert len(journal) == 0
    assert (tmp_path / "j").read_bytes() == whole


def test_a_journal_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text('{"tinygpu_journal": 2, "search": {}}\n')
    assert refusal(path) == f"{path} is a journal of version 2, and this is version 1"


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    given = [
        ({"bm": 16, "load": "direct"}, Evaluation(0.1 + 0.2), 0.25),
        ({"bm": 32, "load": "ä\u2028"}, Evaluation(failure=Failure("timeout", "line\nbreak")), 0.5),
    ]
    with Journal(tmp_path / "j", {"seed": 1}) as journal:
        for point, evaluation, seconds in given:
            journal.record(point, evaluation, seconds)
    with Journal(tmp_path / "j", {"seed": 1}) as journal:
        assert [(entry.point, entry.evaluation, entry.seconds) for entry in journal] == given
        assert len(journal) == 2
