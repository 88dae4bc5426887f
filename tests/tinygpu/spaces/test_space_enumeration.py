"""Every question to a random space has the answer that plain enumeration gives."""

import itertools
from dataclasses import replace
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_spaces import admitted, as_key, combinations, number_of, parts, spaces, survivors

from tinygpu.constraints import Constraint
from tinygpu.expressions import symbol
from tinygpu.spaces import Axis, Part, Space, elimination, solution
from tinygpu.spaces.analysis import is_vacuous


def summarising():
    """Elimination keeps summaries instead of axes from the first row on."""
    return patch.object(elimination, "_PLAIN_ROWS", 0)


def everything(space):
    return [p for part in space.parts for p in survivors(part)]


@settings(max_examples=40)
@given(space=spaces())
def test_sizes_points_and_membership(space):
    expected = {as_key(p) for p in everything(space)}
    listed = list(space.points())
    assert space.raw_size == sum(1 for part in space.parts for _ in combinations(part))
    assert space.size == len(listed) == len(expected)
    assert {as_key(p) for p in listed} == expected
    for part in space.parts:
        for point in combinations(part):
            assert (point in space) == (as_key(point) in expected)
            assert (space.explain(point) == ()) == (as_key(point) in expected)


@settings(max_examples=40)
@given(space=spaces())
def test_every_removed_point_counts_in_the_first_row_that_rejects_it(space):
    rows = space.funnel
    assert len({(r.name, r.kind, r.source) for r in rows}) == len(rows)
    removed = [0] * len(rows)
    for part in space.parts:
        own = {(c.name, c.kind, c.source): c for c in part.constraints}
        judges = [own.get((r.name, r.kind, r.source)) for r in rows]
        for point in combinations(part):
            rejecting = (i for i, c in enumerate(judges) if c is not None and not admitted(part, point, [c]))
            first = next(rejecting, None)
            if first is not None:
                removed[first] += 1
    assert [r.removed for r in rows] == removed
    assert space.raw_size - space.size == sum(removed)


@settings(max_examples=40)
@given(space=spaces())
def test_rows_of_split_conjunctions_are_exact_as_well(space):
    rows = solution.add_rows(space.solutions)
    removed = [0] * len(rows)
    for part in space.parts:
        judged = rows_of(space, part)
        for point in combinations(part):
            values = number_of(part, point)
            for i, conditions in enumerate(judged):
                if not all(c.holds(values) for c in conditions):
                    removed[i] += 1
                    break
    assert [r.removed for r in rows] == removed
    assert space.raw_size - space.size == sum(removed)


def rows_of(space, part):
    """Per row of the space's funnel: the terms that the part judges there."""
    solution = space.solutions[space.parts.index(part)]
    place = {}
    for level, constraint, conditions, _ in solution.rows:
        place[level, constraint.name, constraint.kind, constraint.source] = conditions
    levels = {}
    for other in space.solutions:
        for level, constraint, _, _ in other.rows:
            levels.setdefault((level, constraint.name, constraint.kind, constraint.source), None)
    order = {}
    for other in space.parts:
        for c in other.constraints:
            order.setdefault((c.name, c.kind, c.source), len(order))
    keys = sorted(levels, key=lambda k: (k[0], order[k[1:]]))
    return [place.get(key, ()) for key in keys]


@settings(max_examples=40)
@given(space=spaces())
def test_ranks_go_through_all_points_and_back(space):
    listed = list(space.points())
    for i, point in list(enumerate(listed))[:: 1 + len(listed) // 40]:
        assert space.at(i) == point
        assert space.index(point) == i
    assert list(space.take(range(len(listed) - 1, -1, -1))) == listed[::-1]


@settings(max_examples=40)
@given(space=spaces())
def test_columns_hold_the_points_in_order(space):
    listed = list(space.points())
    blocks = [
        dict(zip(block, row, strict=True))
        for part, block in space.columns_by_part()
        for row in zip(*(c.tolist() for c in block.values()), strict=True)
    ]
    assert blocks == listed
    if len({frozenset(p.names) for p in space.parts}) == 1:
        columns = space.columns()
        assert all(len(c) == len(listed) for c in columns.values())
        assert [{n: columns[n].tolist()[i] for n in columns} for i in range(len(listed))] == listed


def test_what_is_impossible_in_one_group_masks_every_axis_of_the_others():
    a, b, c, d = (symbol(n) for n in "abcd")
    rules = (Constraint("left", a < b, "a before b"), Constraint("right", c < d, "c before d"))
    space = Space("two groups", (Part({}, tuple(Axis(n, (0, 1, 2)) for n in "abcd"), rules),))
    pairs = [(0, 1), (0, 2), (1, 2)]
    for first, second in itertools.product(range(3), repeat=2):
        for mine, other in (("ab", "cd"), ("cd", "ab")):
            partial = dict(zip(other, (first, second), strict=True))
            possible = (first, second) in pairs
            assert space.count(partial) == 3 * possible
            for place, name in enumerate(mine):
                assert set(space.legal_values(partial, name)) == ({p[place] for p in pairs} if possible else set())


@settings(max_examples=40)
@given(space=spaces(), data=st.data())
def test_masking_and_counting_under_partial_choices(space, data):
    points = everything(space)
    part = data.draw(st.sampled_from(space.parts))
    full = data.draw(st.sampled_from(list(combinations(part))[:50]))
    named = data.draw(st.lists(st.sampled_from(part.names), unique=True))
    partial = {n: full[n] for n in named}
    completions = [p for p in points if all(n in p and p[n] == v for n, v in partial.items())]
    assert space.count(partial) == len(completions)
    for name in part.names:
        others = {n: v for n, v in partial.items() if n != name}
        expected = {p[name] for p in points if name in p and all(n in p and p[n] == v for n, v in others.items())}
        assert set(space.legal_values(partial, name)) == expected
    several = {n: tuple(v for v in (full[n], 3, "row") if type(v) is type(full[n])) for n in named}
    inside = [p for p in points if all(n in p and p[n] in several[n] for n in named)]
    assert space.count(several) == len(inside)
    assert {as_key(p) for p in space.restrict(several).points()} == {as_key(p) for p in inside}


def test_masking_agrees_for_every_partial_choice_of_a_tight_space():
    a, b, c, d, e = (symbol(n) for n in "abcde")
    rules = [(a + b) % 3 == c, c * d % 4 == e, a != e, b + d <= 4]
    values = (0, 1, 2, 3)
    part = Part({}, tuple(Axis(n, values) for n in "abcde"), tuple(Constraint(str(r), r, "tight") for r in rules))
    space = Space("tight", (part,))
    points = [
        dict(zip("abcde", v, strict=True))
        for v in itertools.product(values, repeat=5)
        if (v[0] + v[1]) % 3 == v[2] and v[2] * v[3] % 4 == v[4] and v[0] != v[4] and v[1] + v[3] <= 4
    ]
    assert space.size == len(points) > 20
    for named in itertools.chain.from_iterable(itertools.combinations("abcde", k) for k in range(3)):
        for chosen in itertools.product(values, repeat=len(named)):
            partial = dict(zip(named, chosen, strict=True))
            left = [p for p in points if partial.items() <= p.items()]
            assert space.count(partial) == len(left)
            for name in set("abcde") - set(named):
                assert space.legal_values(partial, name) == tuple(v for v in values if any(p[name] == v for p in left))


@settings(max_examples=40)
@given(space=spaces(), data=st.data())
def test_neighbours_differ_in_one_value_and_are_all_of_them(space, data):
    points = everything(space)
    part = data.draw(st.sampled_from(space.parts))
    point = data.draw(st.sampled_from(list(combinations(part))[:50]))
    expected = [p for p in points if p.keys() == point.keys() and sum(p[n] != point[n] for n in p) == 1]
    found = space.neighbours(point)
    assert {as_key(p) for p in found} == {as_key(p) for p in expected}
    assert len(found) == len(expected)


@settings(max_examples=30)
@given(part=parts({"way": "w0", "depth": 0}), data=st.data())
def test_neighbours_in_other_parts_differ_in_the_one_choice_that_tells_the_parts_apart(part, data):
    fixed = [{"way": "w0", "depth": 0}, {"way": "w1", "depth": 0}, {"way": "w1", "depth": 1}]
    space = Space("parts", tuple(replace(part, fixed=choices) for choices in fixed))
    point = data.draw(st.sampled_from(list(combinations(data.draw(st.sampled_from(space.parts))))))
    expected = [p for p in everything(space) if sum(p[n] != point[n] for n in p) == 1]
    assert {as_key(p) for p in space.neighbours(point)} == {as_key(p) for p in expected}


def test_a_part_that_no_dim_allows_has_no_point_whatever_is_asked():
    rule = Constraint("deep", symbol("k") >= 16, "k has at least one step")
    shut = Part({"way": "shut"}, (Axis("a", (1, 2)), Axis("b", (1, 2))), (rule,), {"k": 8})
    space = Space("half", (shut, replace(shut, fixed={"way": "open"}, environment={"k": 16})))
    assert (space.size, space.raw_size) == (4, 8)
    for way, left in (("shut", 0), ("open", 4)):
        assert [space.count({"way": way} | more) for more in ({}, {"a": 1}, {"a": 1, "b": 2})] == [
            left,
            left // 2,
            left // 4,
        ]
        assert space.legal_values({"way": way}, "a") == (1, 2)[:left]
    assert space.legal_values({"a": 1}, "way") == ("open",)


def test_a_point_is_explained_in_the_structure_that_it_names():
    rules = [Constraint("low", symbol("x") <= 1, "it is low"), Constraint("high", symbol("x") >= 5, "it is high")]
    parts_ = [Part({"way": way}, (Axis("x", (1, 3, 5)),), (rule,)) for way, rule in zip("ab", rules, strict=True)]
    space = Space("ways", tuple(parts_))
    for way, name in (("a", "low"), ("b", "high")):
        assert [v.constraint.name for v in space.explain({"way": way, "x": 3})] == [name]
        assert [v.constraint.name for v in space.explain({"x": 3, "way": way})] == [name]
    assert [v.constraint.name for v in space.explain({"way": "a", "x": 5})] == ["low"]
    assert space.explain({"x": 5}) == space.explain({"way": "b", "x": 5}) == ()


@settings(max_examples=30)
@given(space=spaces(), seed=st.integers(0, 99))
def test_samples_are_survivors_and_repeat_with_the_seed(space, seed):
    if not space.size:
        return
    drawn = space.sample(20, np.random.default_rng(seed))
    assert all(p in space for p in drawn)
    assert drawn == space.sample(20, np.random.default_rng(seed))


@settings(max_examples=30)
@given(space=spaces())
def test_vacuous_constraints_are_those_that_change_no_count(space):
    points = len(everything(space))
    for constraint in space.parts[0].constraints[:3]:
        key = (constraint.name, constraint.kind, constraint.source)
        relaxed = 0
        for part in space.parts:
            others = [c for c in part.constraints if (c.name, c.kind, c.source) != key]
            relaxed += sum(admitted(part, p, others) for p in combinations(part))
        assert is_vacuous(space, constraint) == (relaxed == points)


def test_samples_are_uniform_over_survivors():
    a, b, c, d = (symbol(n) for n in "abcd")
    axes = tuple(Axis(n, tuple(range(1, 7))) for n in "abcd")
    rules = (
        Constraint("whole", a % b == 0, "b divides a"),
        Constraint("chain", b + c <= 7, "small"),
        Constraint("pair", c * d >= 4, "large"),
    )
    apart = Part({"way": "one"}, axes[:1], (Constraint("few", a <= 2, "few"),))
    space = Space("uniform", (Part({"way": "all"}, axes, rules), apart))
    draws = 60 * space.size
    counts = np.zeros(space.size)
    for point in space.sample(draws, np.random.default_rng(5)):
        counts[space.index(point)] += 1
    chi_square = float(((counts - 60) ** 2 / 60).sum())
    freedom = space.size - 1
    assert space.size > 100
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5


@settings(max_examples=50)
@given(space=spaces(most_rules=8))
def test_summaries_change_no_answer(space):
    plain = list(space.points())
    rows = [(r.name, r.removed) for r in space.funnel]
    again = Space(space.name, space.parts)
    with summarising():
        assert again.size == space.size
        assert [(r.name, r.removed) for r in again.funnel] == rows
        assert list(again.points()) == plain
