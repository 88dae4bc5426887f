"""docs/figures.md: its tables are what the benchmark prints, and say where a goal is missed."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from tinygpu.api.machines import SHIPPED

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))
figures = importlib.import_module("tests.benchmarks.memory_figures")

PAGE = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def rows_of(name: str) -> list[str]:
    return [row for row in ROWS if row.startswith(f"| `{name}` ")]


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "axpby" else pytest.mark.slow) for n in SHIPPED])
def test_the_page_is_what_the_benchmark_prints(name: str) -> None:
    printed = "\n".join(figures.Tables.of([name]).lines()).splitlines()
    assert rows_of(name) == [line for line in printed if line.startswith("| `")]
    left_out = any(line.startswith("Bound by arithmetic") for line in printed)
    assert left_out == (f"`{name}`" in PAGE.rpartition("Bound by arithmetic")[2])


def test_what_misses_its_goal_is_in_bold_and_explained() -> None:
    goals = {
        "DRAM bytes": lambda x: x <= figures.MOST_DRAM,
        "emulated": lambda x: x <= figures.MOST_DRAM,
        "under way": lambda x: x >= figures.LEAST_UNDER_WAY,
        "bandwidth": lambda x: x >= 100 * figures.LEAST_BANDWIDTH,
        "times the least": lambda x: x <= figures.MOST_SMALL,
    }
    missed = PAGE.partition("### Goals that are missed")[2]
    head: list[str] = []
    seen = 0
    for line in PAGE.partition(figures.BEGINS)[2].splitlines():
        if line.startswith("| machine"):
            head = cells(line)
        if not line.startswith("| `"):
            continue
        row = dict(zip(head, cells(line), strict=True))
        for name, met in goals.items():
            if found := re.search(r"[\d.]+", row.get(name, "")):
                seen += 1
                assert row[name].startswith("**") != met(float(found[0])), line
                if row[name].startswith("**"):
                    assert f"{row['machine'].strip('`')}, {row['sizes']}, {row['device']}" in missed
    assert seen > 100


def test_rows_of_one_machine_take_the_place_of_its_own() -> None:
    whole = figures.Tables.read(figures.generated(PAGE)[1])
    assert "\n".join(whole.lines()) in PAGE
    softmax = [f"| `softmax` | {size} |" for size in ("here", "there")]
    mended = figures.Tables((softmax[0],), (softmax[1],), (), ()).with_others(whole, ["softmax"])
    for rows, before, mine in ((mended.filling, whole.filling, softmax[0]), (mended.small, whole.small, softmax[1])):
        others = [row for row in before if not row.startswith("| `softmax` ")]
        assert [row for row in rows if row != mine] == others
        assert len(others) < len(before)
        assert rows[rows.index(mine) + 1].startswith("| `rms_norm` ")
    assert not [row for row in mended.missed if row.startswith("| softmax, ")]
    assert mended.bound == whole.bound


def test_marks_that_are_not_there_are_told() -> None:
    with pytest.raises(ValueError) as refused:
        figures.written("no marks", iter(()))
    assert str(refused.value) == f"the page has no {figures.BEGINS} with {figures.ENDS} behind it"
