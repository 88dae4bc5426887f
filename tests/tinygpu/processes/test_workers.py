"""Processes that answer requests: whatever one does costs its answer and nothing else, and none outlives its asker."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parent))
from serving_badly import serve

from tinygpu.processes.command import tied
from tinygpu.processes.ending import Ended, Ending, Late
from tinygpu.processes.messages import Outcome, packed
from tinygpu.processes.worker import Worker, copied, started

HERE = Path(__file__).parent
LATE = "it did not end within 1 s"
# what is asked of a process, and what whoever asks is told; None: an answer, which is what was asked
DOES: list[tuple[str, Any, str | None]] = [
    ("answer", {"a": [1, None, "x"]}, None),
    ("answer", bytes(range(256)) * 2000, None),
    ("print", '{"value": -1.0}', None),
    ("raise", "no such luck", "its process ended with status 1"),
    ("exit", 0, "its process ended with status 0"),
    ("exit", 139, "its process ended with status 139"),
    ("signal", 11, "its process was ended by SIGSEGV (Segmentation fault)"),
    ("signal", 9, "its process was ended by SIGKILL (Killed)"),
    ("signal", 19, LATE),  # stopped
    ("hang", 0, LATE),
    ("litter", 5, "its process ended with status 5"),
    ("close", 0, "its process closed its output and was killed"),
]
WAYS = ["started", "copied"]


def new(way: str) -> Worker:
    return started("serving_badly:serve") if way == "started" else copied(serve)


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


def nobody_is_left(note: Path, do: str = "") -> None:
    """No process of ours is there, nor any that one of ours started; but for one that left its session."""
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    if not note.exists():
        return
    child = int(note.read_text())
    note.unlink()
    if do == "litter":
        os.kill(child, signal.SIGKILL)
    assert gone(child)


def tried(worker: Worker, asked: tuple[str, Any, str | None], note: Path) -> Worker | None:
    """Asks, and checks what comes; the worker if it is there."""
    do, what, sentence = asked
    if sentence is None:
        assert worker.ask((do, what, str(note)), 60.0) == what
        return worker
    with pytest.raises((Ended, Late)) as refused:
        worker.ask((do, what, str(note)), 1.0 if sentence == LATE else 20.0)
    assert str(refused.value) == sentence
    assert worker.ended
    nobody_is_left(note, do)
    return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", DOES, ids=lambda a: f"{a[0]}-{a[1] if isinstance(a[1], int) else ''}")
def test_whatever_a_process_does_costs_its_answer_alone(
    way: str, asked: tuple[str, Any, str | None], tmp_path: Path
) -> None:
    note = tmp_path / "child"
    worker = tried(new(way), DOES[0], note)
    assert worker is not None
    worker = tried(worker, asked, note)
    if worker is not None:
        tried(worker, DOES[0], note)
        worker.end()
        assert worker.ended
    nobody_is_left(note)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(WAYS), st.sampled_from(DOES)), max_size=8))
@settings(max_examples=15)
def test_any_mixture_of_workers(tmp_path_factory: pytest.TempPathFactory, mixture: list[Any]) -> None:
    note = tmp_path_factory.mktemp("mixture") / "child"
    for way, asked in mixture:
        worker = tried(new(way), asked, note)
        if worker is not None:
            worker.end()
    nobody_is_left(note)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("do", ["", "hang"])
def test_a_process_ends_with_its_asker_and_takes_its_own_along(way: str, do: str, tmp_path: Path) -> None:
    """Where it waits for a request, and in the middle of one."""
    note = tmp_path / "child"
    asker = subprocess.Popen(
        [sys.executable, str(HERE / "serving_badly.py"), way, do, str(note)], stdout=subprocess.PIPE, text=True
    )
    assert asker.stdout is not None
    worker = int(asker.stdout.readline())
    while do and not note.exists():
        time.sleep(0.01)
    asker.kill()
    asker.wait()
    asker.stdout.close()
    assert gone(worker)
    if do:
        assert gone(int(note.read_text()))


def test_a_request_that_nobody_reads_stops_nobody() -> None:
    worker = started("serving_badly:serve")
    os.kill(worker.process.pid, signal.SIGSTOP)
    for _ in range(3):
        worker.send(("answer", bytes(1 << 20), ""))
    worker.end()
    assert worker.ended


def test_a_request_that_cannot_be_sent_is_an_error_of_the_asker() -> None:
    worker = copied(serve)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        worker.send(("answer", lambda: 0, ""))
    assert worker.ask(("answer", 1, ""), 60.0) == 1
    worker.end()


def test_ctrl_c_is_for_the_asker() -> None:
    """A signal for the whole group, as a terminal sends it, reaches no worker."""
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in the background
        "from tinygpu.processes.worker import started\n"
        "worker = started('serving_badly:serve')\n"
        "assert worker.ask(('answer', 1, ''), 60.0) == 1\n"
        "try:\n    os.killpg(0, signal.SIGINT)\n    signal.pause()\nexcept KeyboardInterrupt:\n"
        "    print(worker.ask(('answer', 'here', ''), 60.0))\n"
        "worker.end()"
    )
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=300,
    )
    assert (done.stdout, done.stderr) == ("here\n", "")


def test_a_command_ends_with_its_status_and_says_in_its_file_what_it_says(tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = tied([sys.executable, "-c", "import sys; print('said'); sys.exit(3)"], log)
    assert worker.answer(60.0) == 3
    worker.end()
    worker = tied([str(tmp_path / "nothing")], log)
    assert worker.answer(60.0) == 1
    worker.end()
    assert log.read_text() == f"said\n{tmp_path / 'nothing'} cannot be run: No such file or directory\n"


class Odd(Exception):
    """An exception that cannot be copied: it takes two arguments, and keeps one."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one + two)


def raises(error: Exception) -> None:
    raise error


@given(st.one_of(st.builds(ValueError, st.text()), st.builds(OSError, st.integers(1, 99), st.text())))
def test_an_outcome_is_the_call_s_own(error: Exception) -> None:
    outcome = pickle.loads(packed(Outcome.of(lambda: raises(error)))[8:])
    with pytest.raises(type(error)) as raised:
        outcome.result()
    assert str(raised.value) == str(error)


def test_an_exception_that_cannot_be_sent_is_told_in_words() -> None:
    with pytest.raises(RuntimeError, match=r"^Odd: 3$"):
        Outcome.of(lambda: raises(Odd(1, 2))).result()


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (0, "ended with status 0"),
        (-6, "was ended by SIGABRT (Aborted)"),
        (-250, "was ended by signal 250"),
        (None, "closed its output and was killed"),
    ],
)
def test_endings_in_words(status: int | None, sentence: str) -> None:
    assert str(Ending(status)) == sentence
