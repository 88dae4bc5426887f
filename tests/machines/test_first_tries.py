"""Operations that were written from the pages alone, and what a slip in each of them is: found, or no machine."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import Any

import pytest
from compaction import Compaction
from many_axes import GroupNorm
from welford import ColumnMoments
from windowed_attention import WindowedAttention

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.testing import Case, examine

CASES: tuple[tuple[type[Machine], dict[str, int], str], ...] = (
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "a100"),
    (GroupNorm, {"n": 1, "g": 1, "k": 1, "s": 1}, "h100"),
    (GroupNorm, {"n": 2, "g": 2, "k": 5, "s": 1009}, "h100"),
    (ColumnMoments, {"m": 1, "n": 1}, "a100"),
    (ColumnMoments, {"m": 37, "n": 35}, "h100"),
    (Compaction, {"n": 1}, "a100"),
    (Compaction, {"n": 3001}, "h100"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "a100"),
    (WindowedAttention, {"h": 1, "s": 1, "window": 1, "d": 64}, "h100"),
)
SLIPS: tuple[tuple[type[Machine], dict[str, int], str, str], ...] = (
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "(self.k * self.s)", "self.s"),
    (GroupNorm, {"n": 3, "g": 5, "k": 3, "s": 49}, "t.at(g).tile(c", "t.at(g).tile(0"),
    (ColumnMoments, {"m": 37, "n": 35}, "squares / self.m", "squares / (self.m - 1)"),
    (ColumnMoments, {"m": 37, "n": 35}, "(x - mean) * there", "(x - mean)"),
    (Compaction, {"n": 3001}, "exclusive=True, ", ""),
    (Compaction, {"n": 3001}, "place, -1)", "place, 0)"),
    (Compaction, {"n": 3001}, "fill=-1.0", "fill=1.0"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "(apart < self.window)", "(apart <= self.window)"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 34, "d": 64}, "i - self.window + 1", "i - self.window + 2"),
    (WindowedAttention, {"h": 2, "s": 131, "window": 17, "d": 64}, "out *= keep", "pass"),
)


def slipped(machine: type[Machine], right: str, wrong: str) -> type[Machine]:
    """The machine whose program has another text in one place."""
    text = textwrap.dedent(inspect.getsource(machine.program))
    assert text.count(right) == 1, text
    made: dict[str, Any] = {}
    exec(text.replace(right, wrong), vars(sys.modules[machine.__module__]), made)
    return type(machine.__name__, (machine,), {"program": made["program"]})


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "dims", "on"), CASES, ids=str)
def test_it_is_right_for_odd_sizes(machine: type[Machine], dims: dict[str, int], on: str) -> None:
    found = tg.verify(tg.emit(tg.space(machine, **dims, device=on)))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("machine", "dims", "right", "wrong"), SLIPS, ids=str)
def test_a_slip_is_found(machine: type[Machine], dims: dict[str, int], right: str, wrong: str) -> None:
    found = tg.verify(tg.emit(tg.space(slipped(machine, right, wrong), **dims, device="a100")))
    assert not found.passed


def test_what_a_merge_makes_may_be_larger_than_what_it_is_made_of() -> None:
    """Squares of differences of means: rounding is of their size, where the squares within parts are small."""
    point = {"exchange": "shuffles", "warps": 4, "vector": 2, "rows": 2}
    case = Case(ColumnMoments, ColumnMoments.problem(m=37, n=128, aligns={"x": 256}), device("a100"), point)
    found = examine("meanings", case)
    assert not found.fault, found.fault
