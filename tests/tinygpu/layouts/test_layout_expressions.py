"""Layouts whose sizes and strides are expressions: filled in, they are the layouts of the numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.expressions import Expr, symbol
from tinygpu.layouts import E, Layout, LayoutError, Step, coalesce

Leaf = tuple[Any, Any]
VALUES = st.fixed_dictionaries({"a": st.integers(1, 4), "b": st.integers(1, 4), "c": st.integers(1, 9)})
A, B, C = symbol("a"), symbol("b"), symbol("c")
SIZES = (1, 2, 3, A, B, A * B)
NUMBERS = (1, 2, A, C, A * C, B * 4)


@st.composite
def symbolic(draw: st.DrawFn) -> Layout:
    """Two modes of up to three leaves, into two axes."""

    def stride() -> Any:
        kind = draw(st.sampled_from(["repeat", "along", "along", "diagonal"]))
        if kind == "repeat":
            return 0
        step = draw(st.sampled_from(NUMBERS)) * E(draw(st.sampled_from([0, 1])))
        return step + draw(st.sampled_from(NUMBERS)) * E(0) if kind == "diagonal" else step

    def mode() -> list[Leaf]:
        out: list[Leaf] = []
        for _ in range(draw(st.integers(0, 3))):
            goes_on = out and isinstance(out[-1][1], Step) and draw(st.booleans())
            out.append((draw(st.sampled_from(SIZES)), out[-1][1] * out[-1][0] if goes_on else stride()))
        return out

    return Layout.of(mode(), mode())


def number(leaf: Any, values: dict[str, int]) -> Any:
    if isinstance(leaf, Step):
        return Step(tuple((axis, number(count, values)) for axis, count in leaf.terms))
    return int(leaf.substitute(values)) if isinstance(leaf, Expr) else leaf


@given(symbolic(), VALUES)
def test_filled_in_it_is_the_layout_of_the_numbers(layout: Layout, values: dict[str, int]) -> None:
    wanted = Layout.of(*([(number(s, values), number(d, values)) for s, d in mode.steps] for mode in layout.modes))
    assert layout.fill(values) == wanted
    assert hash(layout.fill(values)) == hash(wanted)


@given(symbolic(), VALUES)
def test_what_is_asked_of_expressions_may_be_asked_before_or_after_they_are_filled(
    layout: Layout, values: dict[str, int]
) -> None:
    filled = layout.fill(values)
    changes: tuple[Callable[[Layout], Layout], ...] = (
        lambda one: one.project({0: 1, 1: 0}),
        lambda one: one.project({1: 1}),
        coalesce,
    )
    for change in changes:
        assert np.array_equal(change(layout).fill(values).coordinates((0, 1)), change(filled).coordinates((0, 1)))
    assert np.array_equal(layout.along(1).fill(values).offsets(), filled.along(1).offsets())


def test_expressions_are_compared_by_what_they_are() -> None:
    assert Layout((A * B, 2), (1, A)) == Layout((B * A, 2), (1, A + 0))
    assert Layout((A, 2), (1, A)) != Layout((A, 2), (1, B))
    assert Layout(A, 2 * E(0)) != Layout(A, C * E(0))
    assert Layout(A, 2 * E(0)) != Layout(A, 2)
    assert coalesce(Layout((A, B), (1, A))) == Layout(A * B, 1)
    assert coalesce(Layout((A, B), (E(1), A * E(1)))) == Layout(A * B, E(1))
    assert str(Layout((A, 2), (C * E(0) + E(1), 0))) == "(a,2):(c@0+1@1,0)"


@pytest.mark.parametrize("what", ["size", "cosize", "extents", "leaves"])
def test_what_needs_numbers_says_so(what: str) -> None:
    with pytest.raises(LayoutError) as refused:
        getattr(Layout((A, 2), (1, A)), what)
    said = "its sizes are expressions" if what in ("size", "extents") else "its sizes and strides are expressions"
    assert str(refused.value) == f"(a,2):(1,a): {said}; fill in their numbers first"


def test_a_symbol_without_a_value_is_named() -> None:
    with pytest.raises(ValueError) as refused:
        Layout(A, 1).fill({"b": 3})
    assert str(refused.value) == "a needs a value for a"
