"""`tinygpu check` calls planted machines wrong, and names what was planted; their right twins pass."""

from pathlib import Path

import pytest
from planted import PLANTS, Plant, right, wrong

from tinygpu.language import DeclarationError
from tinygpu.testing import CheckReport, Row, run_check

BASES = sorted({p.base for p in PLANTS})


def report_of(planted: Plant, folder: Path, tiers: tuple[int, ...]) -> str:
    """What is said of a wrong machine: the report, or the sentence that refuses its declaration."""
    try:
        machine = wrong(planted, folder)
    except DeclarationError as refused:
        return str(refused)
    report = run_check(machine, tiers=tiers)
    assert any(r.failures for r in report.rows if r.tier in tiers), str(report)
    assert not report.upstream, str(report)
    return str(report)


@pytest.mark.end_to_end
@pytest.mark.sampled(12)
@pytest.mark.parametrize("planted", PLANTS, ids=str)
def test_the_tier_that_looks_for_it_finds_and_names_what_is_planted(planted: Plant, tmp_path: Path) -> None:
    said = report_of(planted, tmp_path, (planted.tier,))
    assert [name for name in planted.names if name not in said] == [], said


@pytest.mark.end_to_end
def test_a_constraint_is_named_where_dominance_hides_what_would_be_right(tmp_path: Path) -> None:
    """Wider tiles want wider vectors: with one parameter changed, all that is right is never the best."""
    (planted,) = [p for p in PLANTS if str(p) == "Softmax: a row need not fit"]
    said = report_of(planted, tmp_path, (5,))
    assert "one is too loose" in said
    assert "'whole row'" in said


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTS, ids=str)
def test_a_check_with_default_options_finds_and_names_what_is_planted(planted: Plant, tmp_path: Path) -> None:
    said = report_of(planted, tmp_path, (1, 2, 3, 4, 5, 6))
    assert [name for name in planted.names if name not in said] == [], said


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", BASES)
@pytest.mark.end_to_end
def test_the_right_twin_passes_with_default_options(name: str) -> None:
    report = run_check(right(name))
    assert report.ok, str(report)
    assert not report.upstream, str(report)


def test_there_are_enough_planted_machines_of_every_kind() -> None:
    assert len(PLANTS) >= 30
    assert {p.tier for p in PLANTS} == {1, 2, 3, 4, 5, 6}
    assert len({str(p) for p in PLANTS}) == len(PLANTS)


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", ["Softmax", "Staged"])
def test_every_row_tries_something_when_there_is_no_time_at_all(name: str) -> None:
    report = run_check(right(name), seconds=0.0)
    assert report.untried == (), str(report)
    assert report.ok, str(report)


def test_a_row_on_which_nothing_was_tried_does_not_pass() -> None:
    row = Row(5, "kernels are right", 0, "candidates")
    assert (row.verdict, row.passed) == ("NOT TRIED", False)
    report = CheckReport("Softmax", (), (), 0, (row,))
    assert not report.ok
    assert report.conclusion == "nothing is wrong in what was tried; not tried: kernels are right"
    assert Row(2, "layouts", 0, "candidates", absent="buffers in shared memory").passed
