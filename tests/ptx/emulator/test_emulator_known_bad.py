"""Every planted bug is caught with its sentence, and its fixed twin runs without a fault, under every order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from known_bad import CORPUS, Bug

from tinygpu.ptx.emulator import EmulationFault, SparseBuffer, emulate


@pytest.mark.parametrize("bug", CORPUS, ids=[bug.name for bug in CORPUS])
@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_a_planted_bug_is_caught_with_its_sentence(bug: Bug, order: Any) -> None:
    with pytest.raises(EmulationFault) as caught:
        emulate(bug.text(True), grid=bug.grid, block=bug.block, args=bug.arguments(), order=order, **bug.options)
    assert (caught.value.kind, caught.value.sentence) == (bug.kind, bug.sentence)
    fault = caught.value.fault
    assert fault.kernel == "k"
    assert fault.line_text == bug.text(True).split("\n")[fault.line - 1].strip()


@pytest.mark.parametrize("bug", CORPUS, ids=[bug.name for bug in CORPUS])
@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_the_fixed_twin_runs_without_a_fault(bug: Bug, order: Any) -> None:
    report = emulate(bug.text(False), grid=bug.grid, block=bug.block, args=bug.arguments(), order=order, **bug.options)
    assert report.faults == ()
    assert report.advisories == ()


def test_collecting_goes_on_and_counts_the_threads() -> None:
    (bug,) = [b for b in CORPUS if b.name == "the edge is not guarded"]
    report = emulate(bug.text(True), grid=1, block=64, args=bug.arguments(), check="collect")
    assert [(f.kind, f.count) for f in report.faults] == [("out of bounds", 14), ("out of bounds", 14)]
    assert "FAULT (out of bounds, 14 threads)" in str(report)


def test_a_store_outside_the_backed_windows_is_a_fault_of_its_own() -> None:
    (bug,) = [b for b in CORPUS if b.name == "the last element is read one past the end"]
    window = np.arange(48, dtype=np.uint32)
    a = SparseBuffer(1 << 40, {0: window})
    with pytest.raises(EmulationFault) as caught:
        emulate(bug.text(False), grid=1, block=64, args=[a, np.zeros(64, np.uint32)])
    assert caught.value.kind == "outside backed windows"
    assert caught.value.sentence == (
        "load of 4 bytes at global address 0x1000000000c0 is byte 192 of a, which is inside the buffer but in none of "
        "its backed windows: back these bytes with an array, or do not run this CTA"
    )
