"""Where a program names places along an axis, derived problems have edges and a middle there, small as tiles are."""

from __future__ import annotations

from typing import Any

import pytest
from median import NETWORK, Median

import tinygpu as tg


class Unsorted(Median):
    """the median of windows, by a network that errs where nine pixels differ, as those at an edge do not"""

    network = ((1, 2), (4, 6), *NETWORK[2:])


@pytest.mark.parametrize(("machine", "right"), [(Median, True), (Unsorted, False)])
def test_windows_of_which_no_part_is_beyond_an_edge_are_seen(machine: Any, right: bool) -> None:
    space = tg.space(machine, h=13, w=41, device="a100")
    found = tg.verify(tg.emit(space, warps=1, rows=1))
    assert found.problem.dim["h"] == 9
    assert found.passed is right


def test_there_are_no_more_than_the_problem_has() -> None:
    space = tg.space(Median, h=3, w=41, device="a100")
    assert tg.verify(tg.emit(space, warps=1, rows=1)).problem.dim["h"] == 3
