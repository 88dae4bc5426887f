"""The long run: draws are the same again, a journal goes on where it ended, and a failure comes with its command."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.api.machines import PLANS, SHIPPED, family, machines_of
from tinygpu.testing.judges import Judgement

sys.path.append(str(Path(__file__).parents[1]))
long_run: Any = importlib.import_module("tests.benchmarks.long_run")
draw_journal: Any = importlib.import_module("tests.benchmarks.draw_journal")


machines_that_ship, places = long_run.names, long_run.places


@pytest.fixture(autouse=True)
def two_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_run, "names", lambda: ("axpby", "softmax"))
    monkeypatch.setattr(long_run, "places", {"axpby": ("a100",), "softmax": ("h100-sxm5",)}.__getitem__)


@pytest.mark.end_to_end
def test_a_run_goes_on_where_its_journal_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = tmp_path / "journal"
    assert long_run.main([str(journal), "--cpu-seconds", "0.4", "--seed", "3"]) == 0
    first = list(draw_journal.read(journal))
    journal.write_text(journal.read_text() + '{"number": ', encoding="utf-8")  # cut off in the middle of a line
    assert long_run.main([str(journal), "--cpu-seconds", str(sum(d.cpu for d in first) + 0.2), "--seed", "3"]) == 0
    both = list(draw_journal.read(journal))
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


def test_every_machine_has_its_turn_and_those_of_plans_too() -> None:
    drawn = {long_run.shipped(name) for name in machines_that_ship()}
    assert drawn == {m for name in (*SHIPPED, *PLANS) for m in machines_of(family(name).machines[0])}
    assert len(drawn) == len(machines_that_ship()) > len(SHIPPED)


def test_every_machine_of_blackwell_has_a_device() -> None:
    own = {"blackwell": "b200", "blackwell_mx": "b200", "blackwell_nvfp4": "b200"}
    own |= dict.fromkeys(("blackwell_consumer", "matmul_mx", "matmul_nvfp4"), "rtx-5090")
    found = {name: places(name) for name in machines_that_ship() if name.endswith(tuple(own))}
    assert len(found) >= 9
    assert found == {name: (next(on for end, on in own.items() if name.endswith(end)),) for name in found}


@pytest.mark.end_to_end
def test_draws_of_other_machines_are_passed_over(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    assert long_run.main([str(journal), "--cpu-seconds", "0.4", "--only", "softmax"]) == 0
    drawn = list(draw_journal.read(journal))
    assert drawn
    assert [(d.number, d.machine) for d in drawn] == [(2 * k + 1, "softmax") for k in range(len(drawn))]


@pytest.mark.parametrize(
    "name", ["softmax", "matmul_skinny", "gated_matmul", "attention_hopper", "transpose", "matmul_blackwell"]
)
def test_turns_meet_every_structure_type_and_device_and_all_their_pairs(name: str) -> None:
    machine = long_run.shipped(name)
    structures, kinds = len(list(machine.structures())), len(long_run.deciding(machine)[1])
    turns = [(long_run.Turn.of(k, machine), k % len(long_run.DEVICES)) for k in range(structures * kinds * 6)]
    first = turns[: max(structures, kinds, 6)]
    assert len({t.structure for t, _ in first}) == structures
    assert len({t.kind for t, _ in first}) == kinds
    assert len({on for _, on in first}) == 6
    assert len({(t.structure, t.kind) for t, _ in turns}) == structures * kinds
    assert len({(t.structure, on) for t, on in turns}) == structures * 6


def test_a_draw_is_of_the_structure_and_type_whose_turn_they_are() -> None:
    machine, bench = long_run.shipped("softmax"), long_run.Workbench()
    (_, kinds), structures = long_run.deciding(machine), [dict(s) for s in machine.structures()]
    for structure in range(len(structures)):
        for kind in range(len(kinds)):
            turn = long_run.Turn(structure, kind)
            case, space, met = long_run.drawn_space(machine, "h100-sxm5", turn, np.random.default_rng(1), bench)
            assert met == structures[structure]
            assert case.problem.operand("x").dtype == kinds[kind]
            assert space.space.restrict(met).size


def test_a_table_says_what_was_met_of_what_there_is() -> None:
    one = draw_journal.Drawn(0, "softmax", "a100", "x:f16 y:f32", "rows=lanes", "case", "right", "", 2.0, 40, 41, True)
    two = replace(one, structure="rows=warps", on="a10", spills=False)
    rows = list(long_run.table([one, two], 0))
    assert rows[0].endswith("| h100-sxm5 | rtx-5090 | b200 | structures | types | spill | s of CPU |")
    assert "| `softmax` | 1 right | 1 right |  |  |  |  | 2 of 4 | 2 of 6 | 1 | 4 |" in rows


def test_kinds_and_groups_of_tensor_products_are_counted() -> None:
    machine = long_run.shipped("matmul_blackwell")
    space = long_run.build_space(machine, machine.problem(m=64, n=64, k=64), long_run.device("b200"))
    one, two = (
        next(iter(space.space.restrict({"ctas": ctas, "launch_control": 0}).sample(1, np.random.default_rng(0))))
        for ctas in ("one", "pairs")
    )
    assert [set(long_run.tensor_products(space.program(p))) for p in (one, two)] == [{"f16 1"}, {"f16 2"}]
    drawn = draw_journal.Drawn(
        0, "matmul_blackwell", "b200", "", "", "", "right", "", 2.0, products="f16 1", orders="late early late"
    )
    draws = [drawn, replace(drawn, stage="wrong", cpu=3.0), replace(drawn, products="i8 2", cpu=1.4, orders="spurious")]
    assert list(long_run.table_of_products([*draws, replace(drawn, products="")])) == [
        "\n| kind | group | right | failed | late | early | random | spurious | s of CPU |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| f16 | 1 | 1 | 1 | 4 | 2 | 0 | 0 | 5 |", "| i8 | 2 | 1 | 0 | 0 | 0 | 0 | 1 | 1 |",
    ]  # fmt: skip
    assert not list(long_run.table_of_products([replace(drawn, products="")]))


@pytest.mark.end_to_end
def test_a_type_that_a_device_cannot_convert_gives_way() -> None:
    machine, bench = long_run.shipped("dequantise"), long_run.Workbench()
    kind = [str(k) for k in long_run.deciding(machine)[1]].index("e4m3")
    turn = long_run.Turn(0, kind)
    for on, has in (("a100", False), ("h100-sxm5", True)):
        case, _, _ = long_run.drawn_space(machine, on, turn, np.random.default_rng(1), bench)
        assert (case.problem.operand("q").dtype.name == "e4m3") == has
