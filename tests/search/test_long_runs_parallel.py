"""Evaluation in processes: whatever a candidate does to its process costs that candidate, and nobody waits for ever."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import TableSpace
from troublesome import Broken, Doing, Endless, Meeting, Vanishing, value_of

from tinygpu.search import Evaluation, Failure, Point, minimize
from tinygpu.search.parallel import CannotStart, ParallelObjective

pytestmark = pytest.mark.end_to_end

LIMIT_SECONDS = 2.0


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Ends the test run of a deadlock; nothing is timed otherwise."""

    def ended(number: int, frame: object) -> None:
        raise TimeoutError("this waits for something that never comes")

    before = signal.signal(signal.SIGALRM, ended)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def crash(how: str) -> Evaluation:
    return Evaluation(failure=Failure("crash", f"the process that evaluated it {how}"))


LATE = Evaluation(failure=Failure("timeout", "it took more than 2 s, and its process was killed"))
EXPECTED = {
    "exit": crash("ended with status 7"),
    "leave": crash("ended with status 3"),
    "kill": crash("was ended by SIGKILL (Killed)"),
    "litter": crash("ended with status 5"),
    "close": crash("ended with status 1"),
    "hang": LATE,
    "stop": LATE,
    "child": LATE,
    "raise": Evaluation(failure=Failure("error", "RuntimeError: no such luck")),
}


def expected(point: Point) -> Evaluation:
    return EXPECTED.get(str(point.get("do", "")), Evaluation(value_of(point)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("do", [*sorted(EXPECTED), "write", "fine"])
def test_trouble_costs_its_candidate_alone(do: str) -> None:
    points: list[Point] = [{"a": 0}, {"a": 1, "do": do}, {"a": 2}, {"a": 3}]
    with within(60), ParallelObjective(Doing, processes=2, seconds=LIMIT_SECONDS) as objective:
        assert objective(points) == [expected(point) for point in points]
        assert objective(points[2:]) == [expected(point) for point in points[2:]]


@given(st.lists(st.sampled_from(["exit", "kill", "raise", "fine", "write"]), max_size=8), st.integers(1, 3))
@settings(max_examples=4, deadline=None)
def test_any_mixture_of_trouble(dos: list[str], processes: int) -> None:
    points: list[Point] = [{"a": number, "do": do} for number, do in enumerate(dos)]
    with within(90), ParallelObjective(Doing, processes=processes, seconds=30.0) as objective:
        assert sorted(objective.stream(points), key=lambda pair: pair[0]) == [
            (number, expected(point)) for number, point in enumerate(points)
        ]


def test_a_process_that_ends_while_nobody_asks_costs_nobody() -> None:
    with within(60), ParallelObjective(Doing, processes=1, seconds=30.0) as objective:
        for a in range(3):
            point: Point = {"a": a, "do": "later"}
            assert objective([point]) == [Evaluation(value_of(point))]
            objective._workers[0].worker.process.wait(30)


def test_a_search_over_troublesome_candidates_ends_and_counts_them_by_kind(tmp_path: Path) -> None:
    dos = ("fine", "exit", "kill", "raise", "hang")
    space = TableSpace({"a": a, "do": do} for a in range(2) for do in dos)
    asked = tmp_path / "asked"
    told = []
    with within(90), ParallelObjective(partial(Doing, str(asked)), processes=2, seconds=LIMIT_SECONDS) as objective:
        result = minimize(
            space,
            objective,
            strategy="random",
            evaluations=10,
            batch=5,
            journal=tmp_path / "j",
            callbacks=[told.append],
        )
    assert result.ended == "every point"
    assert result.failures() == {"crash": 4, "error": 2, "timeout": 2} == told[-1].kinds
    assert result.best == {"a": 0, "do": "fine"}
    # in the strategy's order, whoever was done first; each was tried once
    assert sorted(asked.read_text().splitlines()) == sorted(f"{a} {do}" for a in range(2) for do in dos)
    again = minimize(space, never, strategy="random", evaluations=10, batch=5, journal=tmp_path / "j")
    assert again.history == result.history


def never(points: object) -> list[Evaluation]:
    raise AssertionError("this was evaluated before")


def test_each_evaluation_is_on_disk_before_its_batch_is_done(tmp_path: Path) -> None:
    space = TableSpace({"a": a, "do": "hang" if a == 2 else "fine"} for a in range(3))
    journal = tmp_path / "j"
    lines = []

    class Watching(ParallelObjective):
        def stream(self, points: object, /) -> Iterator[tuple[int, Evaluation]]:
            for pair in super().stream(points):  # type: ignore[arg-type]
                lines.append(journal.read_bytes().count(b"\n") - 1)
                yield pair

    with within(60), Watching(Doing, processes=2, seconds=LIMIT_SECONDS) as objective:
        minimize(space, objective, strategy="random", evaluations=3, batch=3, journal=journal)
    assert lines == [0, 1, 2]


def test_processes_work_at_the_same_time(tmp_path: Path) -> None:
    # each waits until the other has begun too: one after the other they would never end
    with within(60), ParallelObjective(partial(Meeting, str(tmp_path)), processes=2, seconds=30.0) as objective:
        assert objective([{"a": 0}, {"a": 1}]) == [Evaluation(0.0), Evaluation(1.0)]


@pytest.mark.parametrize(
    ("make", "seconds", "sentence"),
    [
        (Broken, 60.0, "the objective cannot be made in a process of its own: OSError: there is no GPU"),
        (Vanishing, 60.0, "3 processes in a row ended before they began; the last one ended with status 11"),
        (Endless, 1.5, "the objective was not made within 1.5 s"),
    ],
)
def test_an_objective_that_cannot_be_made_ends_the_search_with_a_sentence(
    make: type, seconds: float, sentence: str
) -> None:
    with within(90), ParallelObjective(make, processes=2, start_seconds=seconds) as objective:
        with pytest.raises(CannotStart) as refused:
            objective([{"a": 0}, {"a": 1}, {"a": 2}])
        assert str(refused.value) == sentence


def test_ctrl_c_ends_the_search_and_the_processes_with_it(tmp_path: Path) -> None:
    space = TableSpace({"a": a, "do": "child" if a >= 2 else "fine"} for a in range(4))
    asked = tmp_path / "asked"

    def interrupt() -> None:
        child = Path(f"{asked}.child")
        while not child.exists() or not child.read_text():
            time.sleep(0.01)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with within(60), ParallelObjective(partial(Doing, str(asked)), processes=1, seconds=50.0) as objective:
        result = minimize(space, objective, strategy="exhaustive", batch=4, evaluations=4, journal=tmp_path / "j")
        assert result.ended == "interrupted"
        assert [trial.point["a"] for trial in result.history] == [0, 1]
        assert gone(int(Path(f"{asked}.child").read_text()))
        # the processes that were at work are gone, and new ones take over
        assert objective([{"a": 5}]) == [Evaluation(value_of({"a": 5}))]


def gone(process: int) -> bool:
    """Whether a process ends; one that is a child of nobody may stay a zombie for a moment."""
    for _ in range(500):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def test_processes_end_with_a_search_that_is_killed(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = (
        "from functools import partial; from troublesome import Doing; "
        "from tinygpu.search.parallel import ParallelObjective; "
        f"ParallelObjective(partial(Doing, {str(asked)!r}), processes=1, seconds=900)([{{'a': 1, 'do': 'hang'}}])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    search = subprocess.Popen([sys.executable, "-c", program], env=environment)
    with within(60):
        while not asked.exists() or not asked.read_text():
            time.sleep(0.01)
        children = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and parent_of(p) == search.pid]
        assert len(children) == 1
        search.kill()
        search.wait()
        assert gone(children[0])


def parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"processes": 0}, "parallel evaluation needs at least 1 process, not 0"),
        ({"seconds": 0.0}, "a limit is more than 0 seconds, not 0"),
    ],
)
def test_what_is_refused(arguments: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        ParallelObjective(Doing, **arguments)
    assert str(refused.value) == sentence


def test_a_maker_that_no_other_process_finds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the maker of an objective is a function or class at the top of a module, "):
        ParallelObjective(lambda: Doing())
    program = (
        "from tinygpu.search.parallel import ParallelObjective\n"
        "def make(): ...\n"
        "try:\n    ParallelObjective(make)\nexcept ValueError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == (
        "make is part of the script that is run, where another process does not find it; put it into a module and "
        "import it\n"
    )
