"""Fragments as layouts: what becomes of them in the partitions of a tile."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language.instruction import Fragment, MatrixMultiply, tiled
from tinygpu.language.partition import Partition, modes_of
from tinygpu.layouts import E, Layout, Step
from tinygpu.program.spread import spread


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([None, 0, 1]), st.integers(1, 9)), max_size=4))
def test_modes_of_a_layout_are_at_its_coordinates(digits: list[tuple[int, int | None, int]]) -> None:
    strides = tuple(Step(()) if axis is None else stride * E(axis) for _, axis, stride in digits)
    layout = Layout(tuple(extent for extent, _, _ in digits), strides)
    partition = Partition((expr(99), expr(99)), (), modes_of(layout))
    assert np.array_equal(spread(partition).value_coordinates(), layout.coordinates((0, 1)))


class Piece(MatrixMultiply):
    """Multiplies 4 x 6 by 6 x 8 with fragments of 2 x 3, 3 x 4 and 4 x 2."""

    label = "piece"

    def shape(self, a: Any, b: Any) -> tuple[int, int, int]:
        return 4, 8, 6

    def fragments(self, a: Any, b: Any) -> tuple[Fragment, Fragment, Fragment]:
        return Layout.parse("(2,3):(1@0,1@1)"), Layout.parse("(3,4):(1@0,1@1)"), Layout.parse("(4,2):(1@0,1@1)")


@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (8, 24)])
def test_a_fragment_repeats_over_its_operand_and_over_the_tile(rows: int, columns: int) -> None:
    made = tiled(Piece(), dtype("f16"), dtype("f16"), (rows, columns), (1, 1))
    for partition, (r, c) in ((made.a, (rows, 6)), (made.b, (6, columns)), (made.c, (rows, columns))):
        held = spread(partition).coordinates()
        assert sorted(map(tuple, held.reshape(-1, 2).tolist())) == list(itertools.product(range(r), range(c)))
    # what one instruction takes comes first: all of its 4 x 8 accumulators before those of the next
    first = spread(made.c).coordinates()[:, : 4 * 8 // 4].reshape(-1, 2)
    assert {(int(r), int(c)) for r, c in first} == set(itertools.product(range(4), range(8)))


class Uneven(Piece):
    """Multiplies 4 x 5, which fragments of 2 x 3 do not cover."""

    def shape(self, a: Any, b: Any) -> tuple[int, int, int]:
        return 4, 8, 5


def test_a_fragment_that_does_not_cover_its_operand_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        tiled(Uneven(), dtype("f16"), dtype("f16"), (4, 8), (1, 1))
    assert str(refused.value) == (
        "the fragment (2,3):(1@0,1@1) has an extent of 3 along axis 1, and its operand has 5, which is no multiple of "
        "it"
    )


@pytest.mark.parametrize(
    ("layout", "sentence"),
    [
        ("4:1@0+1@1", "4:1@0+1@1: a mode of a partition steps along one axis, not along 1@0+1@1"),
        ("4:1@lane", "4:1@lane: the axes of a partition are those of its tile, 0, 1 and so on, not 'lane'"),
    ],
)
def test_what_is_no_mode_of_a_partition_is_refused(layout: str, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        modes_of(Layout.parse(layout))
    assert str(refused.value) == sentence
