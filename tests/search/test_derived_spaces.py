"""Searching the spaces that machines derive: every strategy agrees with filtering the raw product by hand."""

import itertools
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import symbol
from tinygpu.search import STRATEGIES, Columns, Evaluation, Point, Searchable, minimize
from tinygpu.spaces.part import Axis, Part
from tinygpu.spaces.space import Space

SMEM_BYTES = 101_376


def tiles(values: Sequence[int], stages: Sequence[int]) -> Space:
    bm, bn, depth = symbol("bm"), symbol("bn"), symbol("stages")
    axes = (Axis("bm", tuple(values)), Axis("bn", tuple(values)))
    fits = Constraint("smem capacity", depth * (bm + bn) * 64 * 2 <= SMEM_BYTES, "the stages must fit")
    even = Constraint("whole tiles", bm * bn % 512 == 0, "a CTA needs whole warps of work")
    return Space(
        "tiles",
        (
            Part({"load": "direct"}, axes, (even,)),
            Part({"load": "staged"}, (*axes, Axis("stages", tuple(stages))), (fits, even)),
        ),
    )


def admitted(values: Sequence[int], stages: Sequence[int]) -> list[Point]:
    """The same points, one after the other and without the library."""
    pairs = [(bm, bn) for bm, bn in itertools.product(values, values) if bm * bn % 512 == 0]
    direct: list[Point] = [{"load": "direct", "bm": bm, "bn": bn} for bm, bn in pairs]
    staged: list[Point] = [
        {"load": "staged", "bm": bm, "bn": bn, "stages": depth}
        for (bm, bn), depth in itertools.product(pairs, stages)
        if depth * (bm + bn) * 64 * 2 <= SMEM_BYTES
    ]
    return direct + staged


def seconds(point: Point) -> float:
    """A made-up time with its optimum inside the space."""
    traffic = 4096.0 / int(point["bm"]) + 4096.0 / int(point["bn"])
    return traffic * (2.0 if point["load"] == "direct" else 1.0 + 1.0 / int(point["stages"]))


class Predicted:
    """The made-up time, for points and for columns."""

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        return [Evaluation(seconds(point)) for point in points]

    def score_columns(self, columns: Columns, /) -> np.ndarray:
        traffic = 4096.0 / columns["bm"] + 4096.0 / columns["bn"]
        return traffic * (1.0 + 1.0 / columns["stages"] if "stages" in columns else 2.0)


tile_values = st.lists(st.sampled_from([8, 16, 24, 32, 48, 64, 96, 128, 256]), min_size=1, max_size=5, unique=True)
stage_values = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True)


@given(tile_values, stage_values, st.sampled_from(sorted(STRATEGIES)), st.booleans(), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_every_strategy_finds_what_filtering_by_hand_finds(
    values: list[int], stages: list[int], name: str, columns: bool, seed: int
) -> None:
    expected = admitted(values, stages)
    space: Searchable = tiles(values, stages)
    if not expected:
        with pytest.raises(ValueError) as refused:
            minimize(space, Predicted(), strategy=name, evaluations=1)
        assert str(refused.value) == ("the space is empty: there is nothing to search, and its explanation says why")
        return
    objective = Predicted() if columns else Predicted().__call__
    result = minimize(space, objective, strategy=name, evaluations=len(expected), seed=seed)
    assert result.value == min(seconds(point) for point in expected)
    tried = [frozenset(trial.point.items()) for trial in result.history]
    assert len(tried) == len(set(tried)) == len(expected)
    assert set(tried) == {frozenset(point.items()) for point in expected}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_space_of_one_point_without_parameters_is_searched(name: str) -> None:
    def objective(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(5.0) for _ in points]

    result = minimize(Space("fixed", (Part(),)), objective, strategy=name, evaluations=10)
    assert (result.best, result.value, len(result.history), result.ended) == ({}, 5.0, 1, "every point")


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted({*STRATEGIES, "auto"} - {"exhaustive"}))
def test_a_space_that_is_too_large_to_list_is_searched_by_samples_and_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"p{i}" for i in range(12)]
    pairs = tuple(
        Constraint(f"{a} and {b}", symbol(a) + symbol(b) <= 20, "neighbours are at most 20 together")
        for a, b in itertools.pairwise(names)
    )
    space = Space("huge", (Part({}, tuple(Axis(name, tuple(range(1, 17))) for name in names), pairs),))
    assert space.size > 10**12

    def refuse(_: Space) -> Iterator[object]:
        raise AssertionError("the space was listed")

    def objective(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(float(-sum(int(value) for value in point.values()))) for point in points]

    monkeypatch.setattr(Space, "columns_by_part", refuse)
    tracemalloc.start()
    try:
        result = minimize(space, objective, strategy=name, evaluations=60, seed=1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(result.history) == 60
    assert most < 100e6
    for trial in result.history:
        assert all(a + b <= 20 for a, b in itertools.pairwise(map(int, trial.point.values())))
