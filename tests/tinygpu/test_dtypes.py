"""A type is equal to its name, and to no other type's; beside a word that names none it is refused."""

from __future__ import annotations

import pytest

from tinygpu.dtypes import DTYPES, VALUES, DType, dtype


@pytest.mark.parametrize("one", VALUES, ids=str)
def test_a_type_is_equal_to_its_own_name_and_to_no_other(one: DType) -> None:
    for other in VALUES:
        alike = one is other
        assert (one == other, one == other.name, other.name == one) == (alike,) * 3
        assert (one != other, one != other.name) == (not alike,) * 2
        assert (other.name in {one}, one in {other.name: 0}) == (alike,) * 2
    assert one != 32
    assert one != None  # noqa: E711


@pytest.mark.parametrize("word", ["int32", "F16", "f33", "", "row"])
def test_a_word_that_names_no_type_is_refused(word: str) -> None:
    with pytest.raises(ValueError) as refused:
        assert dtype("s32") == word
    assert str(refused.value) == f"unknown dtype {word!r}; known: {', '.join(t.name for t in DTYPES)}"
