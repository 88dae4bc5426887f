"""Which of the best candidates are assembled: the best kernel is never missed, and what is far behind is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.api.finalist import finalists
from tinygpu.search.preference import FAR

# Ways to divide the work, each with candidates as (score, whether it spills), best first; the best way first.
ways = st.lists(
    st.lists(st.tuples(st.floats(1.0, 1.5), st.booleans()), min_size=1, max_size=5).map(sorted), min_size=1, max_size=4
).map(sorted)


def assembling(groups: list[list[tuple[float, bool]]], keep: int) -> tuple[list[Any], list[Any]]:
    """What is kept of candidates that are as fast as kernels as they were predicted, and what was assembled."""
    best = [[SimpleNamespace(score=score, spills=spills, way=way) for score, spills in group]
            for way, group in enumerate(groups)]  # fmt: skip
    asked: list[Any] = []

    def made(space: Any, objective: Any, r: Any) -> Any:
        asked.append(r)
        return r

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tinygpu.api.finalist.assembled", made)
        found = finalists(None, None, best, keep)  # type: ignore[arg-type]
    return list(found), asked


@settings(max_examples=200)
@given(ways)
def test_the_best_kernel_is_found_whatever_spills(groups: list[list[tuple[float, bool]]]) -> None:
    found, asked = assembling(groups, len(groups))
    right = [score for group in groups for score, spills in group if not spills]
    kept = [f for f in found if not f.spills]
    assert [f.score for f in kept[:1]] == sorted(right)[:1]
    assert len({f.way for f in kept}) == len(kept)
    assert [f.score for f in kept] == sorted(f.score for f in kept)
    assert len(asked) == len({id(r) for r in asked})


@settings(max_examples=200)
@given(ways, st.integers(1, 3))
def test_what_is_far_behind_its_way_and_the_best_kernel_is_not_assembled(
    groups: list[list[tuple[float, bool]]], keep: int
) -> None:
    found, asked = assembling(groups, keep)
    assert len([f for f in found if not f.spills]) <= keep
    for number, r in enumerate(asked):
        before = [other.score for other in asked[:number] if not other.spills]
        assert r.score <= FAR * max(groups[r.way][0][0], min(before, default=2.0))
