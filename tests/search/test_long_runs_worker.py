"""Measuring in batches: handed over kernel by kernel, on one scale for ever, and never with another batch's results."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from table_space import TableSpace

from tinygpu.search import Evaluation, Failure, Point, minimize
from tinygpu.search.worker_time import WorkerFailed, WorkerTime

pytestmark = pytest.mark.end_to_end

SPACE = TableSpace({"a": a} for a in range(12))
FAILS = {3: "wrong", 7: "timeout"}


def write(points: Sequence[Point], path: Path) -> list[str | Failure]:
    """A bundle of `line_worker`; the point 5 has no kernel. Names say nothing of points: k0 is in every bundle."""
    names: list[str | Failure] = []
    kernels: dict[str, float | str] = {}
    for number, point in enumerate(points):
        a = int(point["a"])
        if a == 5:
            names.append(Failure("lowering", "it cannot be said in PTX"))
            continue
        names.append(f"k{number}")
        kernels[f"k{number}"] = FAILS.get(a, 1.0 + a)
    path.write_text(json.dumps(kernels))
    return names


def command(behaviour: str) -> tuple[str, ...]:
    return (sys.executable, str(Path(__file__).parent / "line_worker.py"), behaviour)


def expected(point: Point, scale: float) -> Evaluation:
    a = int(point["a"])
    if a == 5:
        return Evaluation(failure=Failure("lowering", "it cannot be said in PTX"))
    if a in FAILS:
        return Evaluation(failure=Failure(FAILS[a], "so it was"))
    return Evaluation((1.0 + a) * scale)


def close(found: Sequence[Evaluation], wanted: Sequence[Evaluation]) -> bool:
    return [e.failure for e in found] == [e.failure for e in wanted] and [e.cost for e in found] == pytest.approx(
        [e.cost for e in wanted]
    )


@pytest.mark.parametrize("behaviour", ["well", "ends after two"])
def test_batches_are_on_the_scale_of_the_first(behaviour: str, tmp_path: Path) -> None:
    objective = WorkerTime(write, tmp_path, command(behaviour))
    points = SPACE.listed
    # two kernels in the first batch, on a clock of 1.2; later batches have other clocks, and nobody sees them
    assert close(objective(points[:2]), [expected(p, 1.2) for p in points[:2]])
    assert close(objective(points[2:6]), [expected(p, 1.2) for p in points[2:6]])
    again = WorkerTime(write, tmp_path, command(behaviour))  # as after a kill
    assert close(again(points[6:10]), [expected(p, 1.2) for p in points[6:10]])
    assert again(points[5:6]) == [expected(points[5], 1.2)]


def test_results_that_an_earlier_search_left_are_not_taken_for_new_ones(tmp_path: Path) -> None:
    first = WorkerTime(write, tmp_path, command("well"))(SPACE.listed[:2])
    other = WorkerTime(write, tmp_path, command("well"))(SPACE.listed[8:10])
    assert close(first, [expected(p, 1.2) for p in SPACE.listed[:2]])
    assert close(other, [expected(p, 1.2) for p in SPACE.listed[8:10]])
    assert sorted(p.name for p in tmp_path.glob("*.bundle")) == ["batch00000.bundle", "batch00001.bundle"]


@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("no gpu", "worker: there is no GPU here"),
        (
            "ends at once",
            "the worker ended 3 times before it was done with {}/batch00000.bundle: worker: cannot go on",
        ),
    ],
)
def test_a_worker_that_cannot_go_on_ends_the_search_with_its_sentence(
    behaviour: str, sentence: str, tmp_path: Path
) -> None:
    objective = WorkerTime(write, tmp_path, command(behaviour))
    with pytest.raises(WorkerFailed) as refused:
        minimize(SPACE, objective, strategy="exhaustive", batch=5, journal=tmp_path / "j")
    assert str(refused.value) == sentence.format(tmp_path)
    # what it did measure is on disk: the three kernels that it began with
    on_disk = (tmp_path / "j").read_bytes().count(b"\n") - 1
    assert on_disk == (0 if behaviour == "no gpu" else 3)


SEARCH = """
import sys
from pathlib import Path
from test_long_runs_worker import SPACE, command, write
from tinygpu.search import minimize
from tinygpu.search.worker_time import WorkerTime

folder = Path(sys.argv[1])
objective = WorkerTime(write, folder / "runs", command("well"))
result = minimize(SPACE, objective, strategy="random", evaluations=12, batch=4, seed=5, journal=folder / "j")
result.save(folder / "result")
"""


def start(folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    return subprocess.Popen([sys.executable, "-c", SEARCH, str(folder)], env=environment)


@pytest.mark.slow
def test_a_search_that_is_killed_while_it_measures_goes_on_within_its_batch(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    kills = 0
    while kills < 3:
        process = start(folder)
        goal = lines(folder / "j") + 3
        while process.poll() is None and lines(folder / "j") < goal:
            time.sleep(0.002)
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert kills
    assert start(folder).wait() == 0
    assert start(tmp_path / "calm").wait() == 0
    killed, calm = (json.loads((tmp_path / run / "result").read_text()) for run in ("killed", "calm"))
    assert killed["history"]["columns"] == calm["history"]["columns"]
    assert killed["history"]["failures"] == calm["history"]["failures"]
    # both on a scale of their own, which is that of their first batch
    ratios = {
        round(a / b, 6)
        for a, b in zip(killed["history"]["values"], calm["history"]["values"], strict=True)
        if a is not None and b is not None
    }
    assert len(ratios) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_worker_ends_with_its_search(how: signal.Signals, tmp_path: Path) -> None:
    program = SEARCH.replace('"well"', '"hangs"')
    restored = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    process = subprocess.Popen([sys.executable, "-c", restored + program, str(tmp_path)], env=environment)
    hanging = tmp_path / "runs" / "hanging"
    while not hanging.exists() or not hanging.read_text():
        time.sleep(0.01)
    process.send_signal(how)
    assert process.wait() == (0 if how is signal.SIGINT else -how)
    worker = Path("/proc") / hanging.read_text()
    while worker.exists() and "Z" not in (worker / "stat").read_text().rpartition(")")[2].split()[:1]:
        time.sleep(0.01)
    if how is signal.SIGINT:
        assert json.loads((tmp_path / "result").read_text())["ended"] == "interrupted"


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
