"""Divergence of edge predicates: the closed form against the outcome in every lane."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.divergence import Edge, count_divergence, divergence


@st.composite
def edges(draw: st.DrawFn) -> list[Edge]:
    left = 32
    found = []
    for axis in range(draw(st.integers(1, 3))):
        lanes = left if axis == 2 else draw(st.sampled_from([n for n in (1, 2, 4, 8, 16, 32) if n <= left]))
        left //= lanes
        found.append(_edge(draw, lanes))
    if left > 1:
        found.append(_edge(draw, left))
    return found


def _edge(draw: st.DrawFn, lanes: int) -> Edge:
    step = draw(st.integers(1, 40))
    warps = draw(st.integers(1, 6))
    return Edge(draw(st.integers(0, 120)), warps, step, lanes, draw(st.integers(1, 9)))


@given(edges())
@settings(max_examples=300)
def test_closed_form_equals_the_outcome_in_every_lane(axes: list[Edge]) -> None:
    inside = np.ones((1, 1), dtype=bool)  # (warps, lanes), grown axis by axis
    for edge in axes:
        index = np.arange(edge.warps)[:, None] * edge.step + np.arange(edge.lanes)[None, :] * edge.lane_step
        outer = inside[:, None, :, None] & (index < edge.extent)[None, :, None, :]
        inside = outer.reshape(inside.shape[0] * edge.warps, -1)
    assert divergence(axes) == count_divergence(inside)


def test_a_line_of_warps_diverges_at_most_once() -> None:
    assert [divergence([Edge(n, 8, 32)]).divergent_warps for n in (0, 1, 32, 33, 255, 256, 300)] == [
        0,
        1,
        0,
        1,
        1,
        0,
        0,
    ]


def test_it_prints_as_a_sentence() -> None:
    found = divergence([Edge(100, 4, 32)])
    assert str(found) == "1 of 4 warps diverge (25.00%); 78.12% of the lanes are active"


ONE_ROW = "[divergence] one row of 32 lanes for each warp is needed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: divergence([]), "[divergence] the lanes of all axes must multiply to the 32 of a warp, not none"),
        (
            lambda: divergence([Edge(9, 2, 8, 8), Edge(9, 2, 8, 8)]),
            "[divergence] the lanes of all axes must multiply to the 32 of a warp, not 8 x 8",
        ),
        (lambda: Edge(-1, 2, 8), "[divergence] extent must be at least 0, not -1"),
        (lambda: Edge(9, 0, 8), "[divergence] warps must be at least 1, not 0"),
        (lambda: Edge(9, 2, 0), "[divergence] step must be at least 1, not 0"),
        (lambda: Edge(9, 2, 8, 0), "[divergence] lanes must be at least 1, not 0"),
        (lambda: Edge(9, 2, 8, 32, 0), "[divergence] lane_step must be at least 1, not 0"),
        *(
            (lambda shape=shape: count_divergence(np.ones(shape, dtype=bool)), f"{ONE_ROW}, not the shape {shape}")
            for shape in ((), (0, 32))
        ),
        (
            lambda: count_divergence(np.ones((3, 31), dtype=bool)),
            f"{ONE_ROW}, not the shape (3, 31)",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message
