"""Diagrams and the rows that they take, against plain enumeration: empty ones, and with dead ends, included."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import parts, relations, spaces

from tinygpu.constraints.condition import Condition
from tinygpu.spaces import Axis, TooLarge, elimination, solution
from tinygpu.spaces import nearest as nearest_point
from tinygpu.spaces.diagram import Diagram
from tinygpu.spaces.elimination import Step, eliminate, number_rows

NAMES = ("a", "b", "c", "d")


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[Axis], list[list[Step]], list[Callable[[Mapping[str, int]], bool]]]:
    """Axes, the conditions that each of them completes, and what the conditions mean."""
    names = NAMES[: draw(st.integers(1, 4))]
    values = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4).map(tuple)
    axes = [Axis(name, draw(values)) for name in names]
    steps: list[list[Step]] = [[] for _ in axes]
    meanings = []
    for row in range(draw(st.integers(0, 4))):
        condition, meaning = draw(relations(names))
        symbols = Condition(condition.sympy).symbols
        last = max((i for i, name in enumerate(names) if name in symbols), default=0)
        steps[last].append(Step(row, f"rule {row}", Condition(condition.sympy), draw(st.booleans()), True))
        meanings.append(meaning)
    return axes, steps, meanings


@settings(max_examples=120)
@given(groups(), st.data())
def test_a_diagram_holds_the_combinations_that_every_condition_admits(
    group: tuple[list[Axis], list[list[Step]], list[Callable[[Mapping[str, int]], bool]]], data: st.DataObject
) -> None:
    axes, steps, meanings = group
    names = [axis.name for axis in axes]

    def inside(indices: tuple[int, ...]) -> bool:
        values = {axis.name: axis.values[i] for axis, i in zip(axes, indices, strict=True)}
        return all(meaning(values) for meaning in meanings)

    product = list(itertools.product(*(range(len(axis.values)) for axis in axes)))
    left = [indices for indices in product if inside(indices)]
    eliminated = eliminate(axes, steps, {}, 10**6)
    found: Diagram = eliminated.diagram()
    assert (found.axes, found.raw, found.size) == (tuple(names), len(product), len(left))
    assert eliminated.size == len(left) == len(product) - sum(eliminated.removed.values())
    columns = found.columns()
    assert list(zip(*(columns[name].tolist() for name in names), strict=True)) == left
    chosen = found.choices(np.arange(len(left))) if left else columns
    assert list(zip(*(chosen[name].tolist() for name in names), strict=True)) == left
    for indices in product:
        rank = left.index(indices) if indices in left else None
        assert found.rank(dict(zip(names, indices, strict=True))) == rank
    # Every edge lies on a path from the root to the end, of which there is one each.
    nodes = [*(layer.nodes for layer in found.layers), 1]
    assert nodes[0] == (1 if left else 0)
    for layer, after in zip(found.layers, nodes[1:], strict=True):
        assert set(layer.target.tolist()) == (set(range(after)) if left else set())
    masks = {
        axis.name: np.array(data.draw(st.lists(st.booleans(), min_size=len(axis.values), max_size=len(axis.values))))
        for axis in axes
        if data.draw(st.booleans())
    }
    allowed = [
        indices for indices in left if all(masks[n][i] for n, i in zip(names, indices, strict=True) if n in masks)
    ]
    assert found.count(masks) == len(allowed)
    for place, axis in enumerate(axes):
        free = {name: mask for name, mask in masks.items() if name != axis.name}
        possible = {
            indices[place]
            for indices in left
            if all(free[n][i] for n, i in zip(names, indices, strict=True) if n in free)
        }
        assert set(np.flatnonzero(found.legal(axis.name, free)).tolist()) == possible


@settings(max_examples=25)
@given(spaces())
def test_a_space_is_counted_with_as_many_rows_as_it_takes_and_not_with_one_fewer(space: Any) -> None:
    solved = space.solutions
    needed = max(
        sum(len(layer.choice) for layer in group.elimination.layers) for part in solved for group in part.groups
    )
    again = solution.solve(space.parts, needed)
    assert [part.size for part in again] == [part.size for part in solved]
    with pytest.raises(TooLarge, match=f"^counting exactly needs more than the budget of {needed - 1:,} rows"):
        solution.solve(space.parts, needed - 1)


@settings(max_examples=15)
@given(parts({"way": "w"}, 5))
def test_the_nearest_point_is_found_with_as_many_rows_as_it_takes_and_not_with_one_fewer(part: Any) -> None:
    rows = [0]
    extend = nearest_point._extend

    def counting(*given: Any) -> Any:
        found = extend(*given)
        rows[-1] += len(found[0])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest_point, "_extend", counting)
        cheapest = nearest_point._cheapest(part, 99.0, 10**6)
    assert nearest_point._cheapest(part, 99.0, rows[0]) == cheapest
    with pytest.raises(TooLarge) as refused:
        nearest_point._cheapest(part, 99.0, rows[0] - 1)
    assert str(refused.value) == f"finding the nearest point needs more than the budget of {rows[0] - 1:,} rows"


def test_whole_constraints_have_one_row_each_where_that_takes_a_few_times_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from test_large_spaces import chain, rule

    from tinygpu.expressions import all_of, symbol
    from tinygpu.spaces import Part, Space

    monkeypatch.setattr(solution, "_PATIENCE", 3)
    monkeypatch.setattr(solution, "_FREE_ROWS", 5)
    budgets = []
    kept = solution.solve

    def solving(given: Any, row_budget: int, **how: Any) -> Any:
        budgets.append(row_budget)
        return kept(given, row_budget, **how)

    monkeypatch.setattr(solution, "solve", solving)
    part = chain(3, (1, 2, 3), 4).parts[0]
    split = rule("split", all_of([symbol("x0") <= 2, symbol("x1") + symbol("x2") <= 4]))
    space = Space("split", (Part({}, part.axes, (split, *part.constraints)),))
    used = sum(len(layer.choice) for group in space.solutions[0].groups for layer in group.elimination.layers)
    for row_budget in (10**6, 3 * used + 5, 3 * used + 4, 7):
        solution.funnel(space.parts, space.solutions, row_budget, True)
    assert budgets == [3 * used + 5, 3 * used + 5, 3 * used + 4, 7]


@pytest.mark.parametrize("rows", [1, 8_192, 10_000])
def test_rows_are_numbered_by_a_table_only_where_it_is_short(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 65,536 entries, or eight for every row; beyond that they are sorted, and memory goes by the rows."""
    tables = []
    zeros = np.zeros

    def counting(shape: Any, *of: Any, **more: Any) -> Any:
        tables.append(shape)
        return zeros(shape, *of, **more)

    longest = max(1 << 16, 8 * rows)
    for width, by_table in ((longest, True), (longest + 1, False), (2 * longest, False)):
        column = np.arange(rows) * (width // rows)
        with monkeypatch.context() as patch:
            patch.setattr(elimination.np, "zeros", counting)
            numbers, distinct = number_rows([(column, width)], rows)
        assert (distinct, numbers.tolist()) == (rows, list(range(rows)))
        assert tables == ([rows, width] if by_table else [rows])
        tables.clear()
