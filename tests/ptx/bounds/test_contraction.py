"""Sums of products by matrices are those of np.einsum, whatever the formula; infinities and NaNs stay what they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.bounds.contraction import contracted, summed_terms

LABELS = "abcde"


@st.composite
def formulas(draw: st.DrawFn) -> str:
    """Of two arrays: axes in any order, some in both, some summed, some of one alone."""
    first = draw(st.permutations(LABELS).map(lambda p: "".join(p)))[: draw(st.integers(0, 4))]
    second = draw(st.permutations(LABELS).map(lambda p: "".join(p)))[: draw(st.integers(0, 4))]
    named = sorted({*first, *second})
    out = "".join(draw(st.permutations(named)))[: draw(st.integers(0, len(named)))]
    return f"{first},{second}->{out}"


@settings(max_examples=300)
@given(formulas(), st.lists(st.integers(1, 4), min_size=5, max_size=5), st.integers(0, 2**32), st.booleans())
def test_products_are_those_of_einsum(formula: str, sizes: list[int], seed: int, special: bool) -> None:
    """Small whole numbers, whose sums are exact: bit for bit."""
    rng = np.random.default_rng(seed)
    size = dict(zip(LABELS, sizes, strict=True))
    a, b = (
        rng.integers(-3, 4, [size[x] for x in term]).astype(np.float64) for term in formula.split("->")[0].split(",")
    )
    for of in (a, b) if special else ():
        mask = rng.random(of.shape) < 0.1
        np.copyto(of, rng.choice([np.nan, np.inf, -np.inf], of.shape), where=mask)
    with np.errstate(invalid="ignore"):
        wanted = np.einsum(formula, a, b)
        np.testing.assert_array_equal(contracted(formula, a, b), wanted)


@pytest.mark.parametrize(
    ("formula", "shapes"),
    [("ij,jk->ik", ((2, 1), (5, 3))), ("ii,ij->j", ((3, 3), (3, 2))), ("ij,jk", ((2, 3), (3, 4)))],
    ids=["one element for all", "a diagonal", "no arrow"],
)
def test_what_is_no_plain_product_is_left_to_einsum(formula: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    a, b = (np.random.default_rng(0).integers(-3, 4, shape).astype(np.float64) for shape in shapes)
    np.testing.assert_array_equal(contracted(formula, a, b), np.einsum(formula, a, b))


def test_whole_numbers_of_64_bits_stay_exact() -> None:
    a, b = np.full((2, 3), 2**40 + 1), np.full((3, 2), 2**20 + 1)
    found = contracted("ij,jk->ik", a, b)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.einsum("ij,jk->ik", a, b))


ELLIPSES = ("", "...")


@settings(max_examples=300)
@given(formulas(), st.lists(st.integers(1, 4), min_size=7, max_size=7), st.sampled_from(ELLIPSES), st.data())
def test_terms_of_a_sum_are_what_ones_sum_up_to(formula: str, sizes: list[int], more: str, data: st.DataObject) -> None:
    """With axes that "..." stands for, at any place of a term; with axes of one element that serve for all."""
    size = dict(zip(LABELS, sizes, strict=False))
    terms, out = formula.split("->")
    arrays, named = [], []
    for term in terms.split(","):
        at = data.draw(st.integers(0, len(term)))
        shape = [size[x] if data.draw(st.booleans()) else 1 for x in term]
        arrays.append(np.ones((*shape[:at], *(sizes[5:] if more else ()), *shape[at:])))
        named.append(f"{term[:at]}{more}{term[at:]}")
    whole = f"{','.join(named)}->{more}{out}"
    assert (np.einsum(whole, *arrays) == summed_terms(whole, [a.shape for a in arrays])).all()


@pytest.mark.parametrize(("formula", "terms"), [("ij,jk", 3), ("i,i", 2), ("ii", 1), ("...i,i...", 2)])
def test_without_an_arrow_axes_named_twice_are_summed(formula: str, terms: int) -> None:
    shapes = {"ij,jk": [(2, 3), (3, 4)], "i,i": [(2,), (2,)], "ii": [(1, 1)], "...i,i...": [(5, 2), (2, 5)]}[formula]
    assert summed_terms(formula, shapes) == terms
    assert (np.einsum(formula, *[np.ones(shape) for shape in shapes]) == terms).all()
