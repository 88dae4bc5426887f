"""The pieces of elimination: numbering of distinct rows, the order of axes, groups of connected axes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.constraints.condition import SAFE_PEAK, Condition
from tinygpu.constraints.intervals import Interval
from tinygpu.expressions import symbol, where
from tinygpu.spaces.elimination import number_rows
from tinygpu.spaces.order import Estimate, connected, plan_order
from tinygpu.spaces.summaries import summarise

A, B, C, D, K = (symbol(name) for name in "abcdk")


@settings(max_examples=100)
@given(
    rows=st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=40),
    widths=st.sampled_from([(4, 4, 4, 4), (1 << 20, 1 << 20, 1 << 20, 1 << 20), (1 << 31, 1 << 30, 4, 1 << 31)]),
)
def test_equal_rows_and_only_those_get_the_same_number(rows, widths):
    # Far apart, so that the columns use all of their width.
    spread = [np.array([r[i] * (w // 4) for r in rows]) for i, w in enumerate(widths)]
    numbers, distinct = number_rows(list(zip(spread, widths, strict=True)), len(rows))
    assert distinct == len(set(rows)) == len(set(numbers.tolist()))
    assert sorted(set(numbers.tolist())) == list(range(distinct))
    assert len({(r, n) for r, n in zip(rows, numbers.tolist(), strict=True)}) == distinct


def test_rows_without_columns_are_all_equal():
    numbers, distinct = number_rows([], 5)
    assert numbers.tolist() == [0] * 5
    assert distinct == 1


def test_groups_are_what_edges_connect():
    edges = [frozenset("ab"), frozenset("d"), frozenset("bc"), frozenset("xe")]
    assert connected("abcdef", edges) == [("a", "b", "c"), ("d",), ("e",), ("f",)]


@settings(max_examples=60)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    edges=st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1, max_size=3), st.floats(0.01, 1)), max_size=8),
)
def test_a_plan_names_every_axis_once_and_keeps_groups_together(widths, edges):
    names = [f"x{i}" for i in range(len(widths))]
    rules = [Estimate(frozenset(f"x{i}" for i in e if i < len(names)), share) for e, share in edges]
    order = plan_order(dict(zip(names, widths, strict=True)), rules)
    assert sorted(order) == sorted(names)
    for group in connected(names, [r.axes for r in rules]):
        places = sorted(order.index(n) for n in group)
        assert places == list(range(places[0], places[0] + len(group)))


def test_a_selective_pair_is_chosen_before_a_wide_axis():
    widths = {"wide": 100, "a": 10, "b": 10}
    rules = [Estimate(frozenset("ab"), 0.05), Estimate(frozenset({"b", "wide"}), 0.9)]
    assert set(plan_order(widths, rules)[:2]) == {"a", "b"}


@pytest.mark.parametrize(
    ("term", "made"),
    [
        (where(A + B > 2, A + B, A) + C, 1),
        (where(C > 2, A + B, A * B) + D, 3),
        (where(A + B > C, A, B) + D, 2),
        (where(A > 1, 7 // (A - B), A) + C, 0),
        (where(7 // (A - B) > 1, A, B) + C, 0),
        (where(C > 1, 7 // (A - B), A + B) + D, 0),
        (A * B + (K // 3) * C, 1),
        (A * K + C, 1),
    ],
)
def test_cases_are_summarised_where_all_of_them_can_be(term, made):
    """A division by what may be zero keeps the axes; with summaries or without, the same points are left."""
    axes, ranges = ("a", "b", "c", "d"), {n: Interval(1, 6) for n in "abcdk"}
    condition = Condition((term <= 7).sympy)
    last = max(axes.index(n) for n in condition.symbols if n in axes)
    plan = summarise(axes, [(last, condition, False)], ranges)
    assert len({s.name for depth in plan.made for s in depth}) == made
    assert all(names for names in plan.kept[:last])
    assert not any(plan.kept[last:])  # nobody reads them any more


@pytest.mark.parametrize(("peak", "made"), [(SAFE_PEAK - 1, True), (SAFE_PEAK, False)])
@pytest.mark.parametrize("where_it_is", ["summary", "whole"])
def test_what_may_reach_the_end_of_64_bits_keeps_its_axes(where_it_is, peak, made):
    """In a summary, a + b; or in the whole condition alone, where the sum of a and b is as small as can be."""
    large = ("a", "b") if where_it_is == "summary" else ("c",)
    share = peak // len(large)
    ranges = {n: Interval(0, share + (n == large[0]) * (peak % len(large)) if n in large else 0) for n in "abcd"}
    condition = Condition((A + B + C <= 7).sympy)
    plan = summarise(("a", "b", "c", "d"), [(2, condition, False)], ranges)
    assert plan.summarises == made


@pytest.mark.parametrize(("above", "made"), [(1, True), (0, False)])
def test_a_summary_may_not_reach_the_end_of_64_bits_on_the_way_to_a_small_value(above, made):
    root = math.isqrt(SAFE_PEAK)
    ranges = {n: Interval(0, end) for n, end in (("a", root - above), ("b", root + above), ("c", 5), ("d", 5))}
    condition = Condition((A * B // 2**60 + C <= 7).sympy)
    assert root * root == SAFE_PEAK
    assert summarise(("a", "b", "c", "d"), [(2, condition, False)], ranges).summarises == made
