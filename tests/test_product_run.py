"""The run by kinds and groups of tcgen05.mma: each comes as often, of all that has it, and draws are the same again."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tinygpu.testing.judges import Judgement

sys.path.append(str(Path(__file__).parents[1]))
product_run: Any = importlib.import_module("tests.benchmarks.product_run")
draw_journal: Any = importlib.import_module("tests.benchmarks.draw_journal")
MACHINES = ("softmax", "matmul_basic_blackwell", "matmul_blackwell_nvfp4")


@pytest.fixture(autouse=True)
def few_machines(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(product_run, "names", lambda: MACHINES)
    product_run.ways.cache_clear()
    product_run.posed.cache_clear()
    yield
    product_run.ways.cache_clear()
    product_run.posed.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, int | None]]:
    """What judges are asked, who find everything right: (case, the number of the only run)."""
    found: list[tuple[Any, int | None]] = []

    def judge(case: Any, _bench: Any, *, seed: int, only: int | None) -> Judgement:
        found.append((case, only))
        return Judgement("right")

    monkeypatch.setattr(product_run, "judge", judge)
    return found


def test_products_come_by_turns_and_of_each_all_that_has_it() -> None:
    ways = product_run.ways()
    assert tuple(ways) == ("f16 1", "mxf4nvf4 1", "mxf4nvf4 2")
    assert {way.machine for way in ways["f16 1"]} == {"matmul_basic_blackwell"}
    assert {str(way.kind) for way in ways["f16 1"]} == {"f16", "bf16"}
    together = product_run.TOGETHER
    turns = [product_run.Turn.of(number) for number in range(12 * len(ways) * together)]
    assert set(Counter(turn.product for turn in turns).values()) == {12 * together}
    for product, those in ways.items():
        mine = [turn for turn in turns if turn.product == product]
        assert [turn.candidates for turn in mine] == list(range(12 * together))
        first = Counter(turn.ways(7)[0] for turn in mine)
        assert len(set(first.values())) == 1
        assert set(first) == set(those)
        assert all(set(turn.ways(7)) == set(those) for turn in mine)


def test_a_draw_has_the_product_whose_turn_it_is_and_draws_of_one_problem_have_all_its_structures(
    asked: list[tuple[Any, int | None]],
) -> None:
    bench, together = product_run.Workbench(), product_run.TOGETHER
    for number in (*range(together), together, 2 * together):
        drawn = product_run.tried(number, 3, bench)
        case, _ = asked[-1]
        program = case.space(bench).program(case.point)
        assert drawn.stage == "right"
        assert {drawn.products} == set(product_run.tensor_products(program)) == {product_run.Turn.of(number).product}
    assert len({case.problem for case, _ in asked[:together]}) == 1
    assert len({str(case) for case, _ in asked}) == len(asked)
    pairs = {dict(case.point)["ctas"] for case, _ in asked if "ctas" in case.point}
    assert pairs == {"one", "pairs"}
    again = product_run.tried(2 * together, 3, product_run.Workbench())
    assert again.case == drawn.case
    assert asked[-1][1] == asked[-2][1]


def test_one_of_so_many_candidates_goes_the_whole_way(asked: list[tuple[Any, int | None]]) -> None:
    block, whole = product_run.TOGETHER * len(product_run.ways()), product_run.WHOLE
    bench = product_run.Workbench()
    numbers = [k for k in range(2 * block) if product_run.Turn.of(k).product == "f16 1"][: whole + 1]
    for number in numbers:
        product_run.tried(number, 0, bench)
    assert [n for n, (_, only) in enumerate(asked) if only is None] == [whole - 1]
    assert len({only for _, only in asked}) > whole // 2


@pytest.mark.end_to_end
def test_a_run_goes_on_where_its_journal_ended_and_tells_failures_with_their_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "journal"
    assert product_run.main([str(journal), "--cpu-seconds", "0.1"]) == 0
    first = list(draw_journal.read(journal))
    assert [d.stage for d in first] == ["right"] * len(first) != []
    assert "| f16 | 1 | " in capsys.readouterr().out
    monkeypatch.setattr(product_run, "judge", lambda *_, **__: Judgement("wrong", "c[3] is 7 and should be 8"))
    more = sum(d.cpu for d in first) + 0.01
    assert product_run.main([str(journal), "--cpu-seconds", str(more)]) == 1
    both = list(draw_journal.read(journal))
    assert both[: len(first)] == first
    assert [d.number for d in both] == list(range(len(both)))
    command = f"python -m tests.benchmarks.product_run --again {len(first)} --seed 0"
    assert f"wrong: c[3] is 7 and should be 8\n    {command}" in capsys.readouterr().out
    assert product_run.main(["--again", str(len(first))]) == 1
    assert capsys.readouterr().out.endswith("wrong c[3] is 7 and should be 8\n")


def test_what_breaks_is_a_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any, **__: Any) -> None:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(product_run, "judge", breaks)
    found = product_run.tried(0, 0, product_run.Workbench())
    assert (found.failed, found.stage) == (True, "crash")
    assert found.sentence.endswith("ArithmeticError: no such number\n")
