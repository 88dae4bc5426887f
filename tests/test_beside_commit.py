"""The benchmark that times this checkout beside another commit: what it runs, what it compares, what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import beside_commit as beside
from tests.benchmarks.beside_commit import Row, Side, alternately, rows_of, sameness, together
from tests.benchmarks.timed_parts import timed

PARTS = (
    "import tinygpu", "front door", "rest of it", "declare", "space", "count, draw", "fill", "lower", "predict",
)  # fmt: skip


def found(seconds: dict[str, float], kernels: str = "one") -> dict[str, Any]:
    return {"seconds": seconds, "made": {"candidates": "some", "kernels": kernels}}


@pytest.mark.end_to_end
def test_every_part_is_timed_and_the_same_is_made_again() -> None:
    asked = {"machine": "axpby", "device": "a100", "dims": {"n": 1000}, "candidates": 2, "predicted": 5}
    first, second = timed(asked), timed(asked)
    assert tuple(first["seconds"]) == PARTS
    assert all(seconds >= 0 for seconds in first["seconds"].values())
    assert first["made"] == second["made"]
    other = timed(asked | {"candidates": 3})["made"]
    assert [what for what, hashed in first["made"].items() if other[what] != hashed] == ["candidates", "kernels"]


def test_sides_take_turns_at_being_first_and_one_round_is_not_counted() -> None:
    sides, order = [Side(name, Path()) for name in ("ours", "theirs")], []

    def once(side: Side) -> dict[str, Any]:
        order.append(side.name)
        return {"number": len(order)}

    rounds = alternately(*sides, 3, once)
    assert order == ["theirs", "ours", "ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert rounds == [({"number": 3}, {"number": 4}), ({"number": 6}, {"number": 5}), ({"number": 7}, {"number": 8})]


def test_ratios_are_those_of_each_round() -> None:
    rounds = [(found({"fill": 3.0, "new": 1.0}), found({"fill": 2.0})), (found({"fill": 1.0}), found({"fill": 2.0}))]
    rows = rows_of("axpby", rounds)
    assert [(row.part, row.ratios) for row in rows] == [("fill", (1.5, 0.5))]
    assert rows[0].cells() == ("axpby", "fill", "2,000.0", "2,000.0", "1.00", "0.50 to 1.50")
    (both,) = together([*rows, Row("bias_relu", "fill", (1.0, 1.0), (2.0, 6.0))])
    assert (both.machine, both.ours, both.theirs) == ("together", (4.0, 2.0), (4.0, 8.0))


def test_what_differs_is_named() -> None:
    same, other = found({}), found({}, "two")
    assert sameness([(same, same)]) == "the same candidates, kernels and predictions"
    assert sameness([(same, same), (same, other)]) == "other kernels than the commit's"


def test_a_commit_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^git has no sources of 'nowhere': \S"):
        beside.of_commit("nowhere", tmp_path)


def test_nothing_is_counted_of_no_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        beside.main(["--rounds", "0"])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "beside_commit: error: there is at least one round, one candidate and one prediction"


@pytest.mark.end_to_end
def test_a_checkout_is_timed_beside_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert beside.main(["HEAD", "--rounds", "1", "--tune", "0", "--machines", "axpby"]) == 0
    first, head, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"axpby: (the same|other) .*", first)
    assert head.split("  ")[0] == "machine"
    assert [line.split("  ")[0] for line in rows] == ["axpby"] * 10 + ["together"] * 10


def test_all_is_what_the_parts_take_together(tmp_path: Path) -> None:
    class Answer(Side):
        def run(self, command: Any) -> tuple[str, float]:
            assert json.loads(command[1])["machine"] == "axpby"
            return json.dumps(found({"space": 1.0, "fill": 2.0})), 9.0

    assert beside.timed(Answer("ours", tmp_path), "axpby", 1, 1)["seconds"] == {"space": 1.0, "fill": 2.0, "all": 3.0}
