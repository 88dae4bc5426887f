"""The algebra against pycute, another implementation of it: every difference falls under a rule that is written down.

pycute comes with the PyPI package nvidia-cutlass (the extra `pycute`). It imports nothing outside the standard library,
so `pip install --no-deps nvidia-cutlass` does for these tests too.
"""

from pathlib import Path

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts, digit_layouts, inner_layouts, layouts

pytest.importorskip("pycute", reason="pycute is not installed: pip install --no-deps nvidia-cutlass")

from pycute_laws import extent
from pycute_operations import OPERATIONS
from pycute_rules import Operation, Rule, read, table

from tinygpu.layouts import Layout

PAGE = Path(__file__).parents[3] / "docs" / "math.md"
SMALL = layouts(most=64)
TILES = st.one_of(digit_layouts(most=12, zeros=False), any_layouts(most=12, modes=2))
ONE_MODE = st.builds(Layout, st.integers(1, 12), st.integers(0, 8))
COMPOSITIONS = SMALL.flatmap(
    lambda outer: st.tuples(st.just(outer), st.one_of(TILES, ONE_MODE, inner_layouts(outer.size)))
)
DIVISIONS = SMALL.flatmap(lambda layout: st.tuples(st.just(layout), st.one_of(TILES, inner_layouts(layout.size))))
BY_MODES = st.tuples(SMALL, st.lists(TILES, max_size=3).map(tuple))
PRODUCTS = st.tuples(layouts(most=32), any_layouts(most=12, modes=2))
CODOMAINS = layouts(most=32).flatmap(
    lambda layout: st.tuples(
        st.just(layout), st.builds(lambda k, more: k * extent(layout) + more, st.integers(1, 3), st.integers(0, 1))
    )
)
ARGUMENTS = {
    "A(i)": SMALL.flatmap(lambda layout: st.tuples(st.just(layout), st.integers(-3, layout.size + 4))),
    "concatenate": st.tuples(st.lists(layouts(most=16), max_size=3).map(tuple)),
    "compose": COMPOSITIONS,
    "complement": CODOMAINS,
    "logical_divide": DIVISIONS,
    "zipped_divide": BY_MODES,
    "tiled_divide": BY_MODES,
    "logical_product": PRODUCTS,
    "blocked_product": PRODUCTS,
    "raked_product": PRODUCTS,
    "Swizzle": st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-4, 4), st.integers(0, 500)),
}
RULES = [pytest.param(op, rule, id=f"{op.name}: {rule.name}") for op in OPERATIONS for rule in op.rules]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
@settings(max_examples=120)
@given(data=st.data())
def test_every_outcome_meets_exactly_one_rule(operation: Operation, data: st.DataObject) -> None:
    operation.rule(*data.draw(ARGUMENTS.get(operation.name, st.tuples(SMALL))))


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: op.name)
@settings(max_examples=800)
@given(data=st.data())
def test_every_outcome_meets_exactly_one_rule_on_many_layouts(operation: Operation, data: st.DataObject) -> None:
    operation.rule(*data.draw(ARGUMENTS.get(operation.name, st.tuples(SMALL))))


@pytest.mark.parametrize(("operation", "rule"), RULES)
def test_every_rule_has_an_example_that_meets_it(operation: Operation, rule: Rule) -> None:
    assert operation.rule(*map(read, rule.example)) is rule


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "rule"), RULES)
def test_every_rule_is_met_by_random_layouts(operation: Operation, rule: Rule) -> None:
    arguments = ARGUMENTS.get(operation.name, st.tuples(SMALL))
    drawn = settings(max_examples=20_000, phases=[Phase.generate], database=None)
    find(arguments, lambda found: operation.rule(*found) is rule, settings=drawn)


def test_the_page_shows_every_rule_with_what_both_libraries_give() -> None:
    wanted = table(OPERATIONS)
    assert wanted in PAGE.read_text(encoding="utf-8"), (
        "docs/math.md differs; python tests/tinygpu/layouts/pycute_operations.py prints its table"
    )
