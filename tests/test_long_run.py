"""The long run: draws are the same again, a journal goes on where it ended, and a failure comes with its command."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tinygpu.testing.judges import Judgement

sys.path.append(str(Path(__file__).parents[1]))
long_run: Any = importlib.import_module("tests.benchmarks.long_run")


@pytest.fixture(autouse=True)
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "pairs", lambda: (("axpby", "a100"), ("softmax", "h100-sxm5")))


def test_a_run_goes_on_where_its_journal_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "journal"
    assert long_run.main([str(journal), "--cpu-seconds", "0.4", "--seed", "3"]) == 0
    first = list(long_run.read(journal))
    journal.write_text(journal.read_text() + '{"number": ', encoding="utf-8")  # cut off in the middle of a line
    assert long_run.main([str(journal), "--cpu-seconds", str(sum(d.cpu for d in first) + 0.2), "--seed", "3"]) == 0
    both = list(long_run.read(journal))
    assert both[: len(first)] == first
    assert len(both) > len(first)
    assert [d.number for d in both] == list(range(len(both)))
    assert all(d.stage == "right" for d in both), both
    assert f"{len(both)} candidates in " in capsys.readouterr().out
    again = long_run.tried(0, "axpby", "a100", 3, long_run.Workbench())
    assert (again.case, again.types, again.structure) == (first[0].case, first[0].types, first[0].structure)


def test_a_failure_is_printed_with_the_command_that_tries_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_run, "judge", lambda *_, **__: Judgement("wrong", "y[3] is 7 and should be 8"))
    journal = tmp_path / "journal"
    assert long_run.main([str(journal), "--cpu-seconds", "0.05", "--seed", "5"]) == 1
    said = capsys.readouterr().out
    command = "python -m tests.benchmarks.long_run --again 0 axpby a100 --seed 5"
    assert f"wrong: y[3] is 7 and should be 8\n    {command}" in said
    assert "failed**" in said
    assert long_run.main(["--again", "0", "axpby", "a100", "--seed", "5"]) == 1
    assert capsys.readouterr().out.endswith("wrong y[3] is 7 and should be 8\n")
    assert json.loads(journal.read_text().splitlines()[0])["stage"] == "wrong"


def test_what_breaks_is_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(long_run, "judge", breaks)
    found = long_run.tried(1, "softmax", "a100", 0, long_run.Workbench())
    assert found.failed
    assert found.stage == "crash"
    assert found.sentence.endswith("ArithmeticError: no such number\n")
