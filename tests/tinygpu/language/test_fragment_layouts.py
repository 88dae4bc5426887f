"""Fragments as layouts: what becomes of them in the partitions of a tile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Fragment, MatrixMultiply, tiled
from tinygpu.layouts import Layout


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
        held = partition.coordinates()
        assert sorted(map(tuple, held.reshape(-1, 2).tolist())) == list(itertools.product(range(r), range(c)))
    # what one instruction takes comes first: all of its 4 x 8 accumulators before those of the next
    first = made.c.coordinates()[:, : 4 * 8 // 4].reshape(-1, 2)
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
