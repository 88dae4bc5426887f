"""Values that are put into an expression, and the largest and least of many large terms."""

from __future__ import annotations

import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_expressions import Tree, build, integers, meaning

from tinygpu.expressions import Expr, evaluate, expr, maximum, minimum, symbol
from tinygpu.expressions.terms import COMPARED_PARTS

NAMES = ("a", "b", "c")
numbers = st.integers(0, 20)
points = st.fixed_dictionaries(dict.fromkeys(NAMES, numbers))
# What is put in: a condition may have no choice inside it, so none of these is one.
values = st.one_of(
    numbers.map(lambda value: ("number", value)),
    st.tuples(
        st.sampled_from(["+", "*", "max", "min", "-"]),
        st.sampled_from(("a", "d")).map(lambda name: ("symbol", name)),
        numbers.map(lambda value: ("number", value)),
    ),
)


@settings(max_examples=60)
@given(integers(NAMES), st.dictionaries(st.sampled_from(NAMES), values, max_size=2), points, numbers)
def test_substituting_is_putting_values_in(tree: Tree, given_: dict[str, Tree], at: dict[str, int], d: int) -> None:
    at = at | {"d": d}
    put = build(tree).substitute({name: build(inner) for name, inner in given_.items()})
    inner = {name: int(meaning(value, at)) for name, value in given_.items()}
    assert evaluate(put, at) == meaning(tree, at | inner)


@given(st.lists(st.tuples(st.integers(1, 9), points), min_size=2, max_size=4), points, st.booleans())
@settings(max_examples=12)
def test_extremes_of_large_terms_are_those_of_their_values(
    terms: list[tuple[int, dict[str, int]]], at: dict[str, int], nested: bool
) -> None:
    """Too large for sympy to compare, nested ones and equal ones among them."""
    large = [_large(factor, offsets) for factor, offsets in terms]
    values = [evaluate(term, at) for term in large]
    inner = [maximum(*large[:2]), *large[2:], large[0]] if nested else large
    assert evaluate(maximum(*inner, 1), at) == max(*values, 1)
    assert evaluate(minimum(*large, large[0]), at) == min(values)
    assert maximum(*inner, 1).same(maximum(*large, 1))


def _large(factor: int, offsets: dict[str, int]) -> Expr:
    term = expr(factor)
    for number in range(COMPARED_PARTS // 4):
        for name, offset in offsets.items():
            term = (term * 3 + symbol(name) + offset + number) // (offset + 2)
    assert len(list(sympy.preorder_traversal(term.sympy))) > COMPARED_PARTS
    return term
