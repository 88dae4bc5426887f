"""Bugs planted in pipelines are caught under every order, with their sentence; the kernels without them run clean."""

from __future__ import annotations

from typing import Any

import pytest
from seeded_pipelines import BUGS, Bug

from tinygpu.ptx.emulator import EmulationFault, emulate

ORDERS = ("late", "early", "random")
TWINS = {bug.kernel: bug for bug in BUGS}


def found(bug: Bug, text: str, order: Any) -> tuple[str, str]:
    """(kind, sentence) of what a run shows; ("", "") where it is right and nothing is said."""
    options, result, want = bug.options()
    try:
        report = emulate(text, order=order, seed=3, **options)
    except EmulationFault as fault:
        return fault.kind, fault.sentence
    if report.advisories:
        return "advisory", report.advisories[0].sentence
    return ("", "") if (result == want).all() else ("wrong result", "")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("bug", TWINS.values(), ids=[f"twin of {bug.name}" for bug in TWINS.values()])
def test_the_fixed_twin_runs_clean(bug: Bug, order: str) -> None:
    assert found(bug, bug.kernel, order) == ("", "")


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_caught_with_its_sentence(bug: Bug) -> None:
    assert found(bug, bug.text, "late") == (bug.kind, bug.sentence)


@pytest.mark.parametrize("order", ["early", "random"])
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_a_planted_bug_is_caught_under_every_order(bug: Bug, order: str) -> None:
    # A lost wait may show first as a race or as a count that overflows, depending on who is first.
    kind, _ = found(bug, bug.text, order)
    assert kind
    assert (kind in ("advisory", "wrong result")) == (bug.kind in ("advisory", "wrong result"))


def test_an_edit_that_changes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^x: there is no 'no such text' in the kernel$"):
        _ = Bug("x", BUGS[0].kernel, "no such text", "", "race").text
