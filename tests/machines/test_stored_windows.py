"""Windows of tensor memory that warps store: in any order of a loop, from whole cells on."""

from __future__ import annotations

import pytest
from stored_cells import Backwards, NegatedInPieces

import tinygpu as tg
from tinygpu.language import DeclarationError


@pytest.mark.parametrize("piece", [8, 16])
def test_columns_are_stored_from_the_last_to_the_first(piece: int) -> None:
    space = tg.space(Backwards, m=300, device="b200")
    found = tg.verify(tg.emit(space, piece=piece, slots=2))
    assert found.passed, str(found)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_a_left_operand_is_stored_in_pieces(kind: str) -> None:
    space = tg.space(NegatedInPieces, m=200, n=72, k=136, device="b200", dtypes={"a": kind})
    found = tg.verify(tg.emit(space, bn=32, stages=2, slots=2))
    assert found.passed, str(found)


def test_windows_of_halves_begin_at_whole_cells() -> None:
    with pytest.raises(DeclarationError) as refused:

        class Askew(NegatedInPieces):
            """the same, a column further on"""

            begins = 1

    assert str(refused.value).splitlines()[0] == (
        "Askew.program: it can never work, whatever the parameters: the windows of left.a begin at whole cells of 32 "
        "bits"
    )
