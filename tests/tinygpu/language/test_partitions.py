"""Who holds what: blocked partitions against rows and columns counted by hand, and what is made of a partition."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.expressions import symbol
from tinygpu.language import E, Layout, Partition, blocked, register_blocked
from tinygpu.language.partition import expr
from tinygpu.layouts.step import Step

few = st.sampled_from([1, 2, 3, 4])


def spelled(number: int, mode: Layout, rank: int) -> list[int]:
    out = [0] * rank
    for size, stride in mode.steps:
        number, digit = divmod(number, int(size))
        for axis, count in stride.terms if isinstance(stride, Step) else ():
            out[int(axis)] += digit * int(count)
    return out


def held(who: Partition) -> list[list[tuple[int, ...]]]:
    """Per thread, the coordinates of its values in order."""
    rank, threads = len(who.shape), range(int(who.thread_count))
    return [
        [
            tuple(map(sum, zip(spelled(t, who.threads, rank), spelled(v, who.values, rank), strict=True)))
            for v in range(int(who.value_count))
        ]
        for t in threads
    ]


def holds(who: Partition) -> dict[str, bool]:
    return {c.name: bool(c.condition.sympy) for c in who.conditions}


@settings(max_examples=40)
@given(few, few, few, few, few, st.sampled_from([0, 1, -1]))
def test_blocked_threads_stand_side_by_side_then_below_each_other(
    vector: int, across: int, tall: int, wide: int, deep: int, axis: int
) -> None:
    """Value v of a thread: neighbours of its vector first, then passes along the axis, then passes down."""
    size = {axis % 2: vector * across * wide, 1 - axis % 2: tall * deep}
    who = blocked((size[0], size[1]), threads=across * tall, vector=vector, axis=axis, across=across, name="x")
    assert holds(who) == {"x vectors": True, "x columns": True, "x rows": True}
    assert int(expr(who.made_for if who.made_for is not None else 0)) == across * tall
    for thread, values in enumerate(held(who)):
        expected = []
        for down, along, e in itertools.product(range(deep), range(wide), range(vector)):
            column = (along * across + thread % across) * vector + e
            row = down * tall + thread // across
            expected.append((column, row) if axis % 2 == 0 else (row, column))
        assert values == expected


@settings(max_examples=40)
@given(few, few, few)
def test_a_line_is_dealt_to_threads_vector_by_vector(vector: int, threads: int, passes: int) -> None:
    who = blocked((vector * threads * passes,), threads=threads, vector=vector, across=threads, name="x")
    assert holds(who) == {"x vectors": True, "x columns": True, "x threads": True}
    for thread, values in enumerate(held(who)):
        passed = itertools.product(range(passes), range(vector))
        assert values == [((p * threads + thread) * vector + e,) for p, e in passed]


@settings(max_examples=60)
@given(*[st.integers(1, 12)] * 5, st.sampled_from([None, 1, 2, 3, 4, 6, 8]))
def test_what_blocked_refuses_is_what_does_not_cover_the_tile_once(
    rows: int, columns: int, threads: int, vector: int, extra: int, across: int | None
) -> None:
    who = blocked((rows, columns), threads=threads, vector=vector, across=across, name="x")
    wide = across if across is not None else min(columns // vector, threads)
    chunks = columns // vector
    expected = {
        "x vectors": columns % vector == 0,
        "x columns": bool(wide) and chunks % wide == 0 and threads % wide == 0,
        "x rows": rows % max(threads // max(wide, 1), 1) == 0,
    }
    if wide:
        assert holds(who) == expected
        if all(expected.values()):
            tile = list(itertools.product(range(rows), range(columns)))
            assert sorted(c for values in held(who) for c in values) == tile


@settings(max_examples=40)
@given(*[few] * 6)
def test_register_blocks_are_dealt_row_by_row(
    wide: int, tall: int, across: int, down: int, right: int, below: int
) -> None:
    size = (tall * down * below, wide * across * right)
    who = register_blocked(size, threads=(tall, wide), block=(down, across), name="x")
    assert holds(who) == {"x rows": True, "x columns": True}
    assert int(expr(who.made_for if who.made_for is not None else 0)) == tall * wide
    for thread, values in enumerate(held(who)):
        x, y = thread % wide, thread // wide
        expected = [
            ((b * tall + y) * down + r, (a * wide + x) * across + c)
            for b, r, a, c in itertools.product(range(below), range(down), range(right), range(across))
        ]
        assert values == expected
    refused = register_blocked((size[0] + 1, size[1] + 1), threads=(tall, wide), block=(down, across), name="x")
    assert holds(refused) == {"x rows": tall * down == 1, "x columns": wide * across == 1}


@settings(max_examples=30)
@given(few, few, few, few)
def test_parts_and_transposes_of_a_partition(vector: int, across: int, tall: int, wide: int) -> None:
    who = blocked((tall * 2, vector * across * wide), threads=across * tall, vector=vector, across=across)
    turned = [[(b, a) for a, b in values] for values in held(who)]
    assert held(who.T) == turned
    assert (who.T.shape, who.T.conditions, who.T.made_for) == (who.shape[::-1], who.conditions, who.made_for)
    for axis in (0, 1):
        less = who.reduced(axis)
        assert int(less.shape[axis]) == 1
        assert less.shape[1 - axis] is who.shape[1 - axis]
        assert held(who.along(1 - axis)) == held(less)
        for values, all_of in zip(held(less), held(who), strict=True):
            assert all(c[axis] == 0 for c in values)
            assert list(dict.fromkeys(c[1 - axis] for c in all_of)) == [c[1 - axis] for c in values]
        assert less.made_for is who.made_for


@given(st.lists(few, min_size=3, max_size=3), st.permutations((0, 1, 2)), st.integers(0, 2))
def test_parts_know_their_whole_however_their_axes_are_turned(shape: list[int], order: list[int], dropped: int) -> None:
    who = blocked([2 * extent for extent in shape], threads=4)
    whole = who.permute(*order)
    parts = [who.along(axis).permute(*order) for axis in range(3)]
    place = order.index(dropped)
    others = [part.squeeze(place).unsqueeze(place) for axis, part in enumerate(parts) if axis != dropped]
    for found in (
        parts[0].whole_of(parts[1:]),
        parts[dropped].whole_of(others),
        whole.along(0).whole_of([whole.along(1), whole.along(2)]),
    ):
        assert found is not None
        assert held(found) == held(whole)
        assert [int(extent) for extent in found.shape] == [int(extent) for extent in whole.shape]
    pair = others[0].whole_of(others[1:])
    assert pair is None or held(pair) == held(whole.reduced(place))


def test_parts_of_two_wholes_and_of_one_axis_have_none() -> None:
    who, other = (blocked((4, 8), threads=8) for _ in range(2))
    assert who.along(0).whole_of([other.along(1)]) is None
    assert who.along(0).whole_of([who.along(1).T]) is None
    assert who.along(0).unsqueeze(2).whole_of([who.along(1).unsqueeze(0)]) is None


def test_a_partition_prints_as_its_shape_and_its_layout() -> None:
    who = Partition((expr(8), expr(8)), Layout.of([(4, 2 * E(1)), (8, E(0))], [(2, E(1))]))
    assert str(who) == "[8x8] ((4,8),2):((2@1,1@0),1@1)"


@pytest.mark.parametrize("layout", ["(4,8):(1@lane,1@0)", "(4,8):(1@0,1@2)", "(4,8,2):(1@0,1@1,0)", "32:1@0"])
def test_a_layout_that_is_no_partition_of_a_tile_is_refused(layout: str) -> None:
    with pytest.raises(ValueError) as refused:
        Partition((expr(8), expr(8)), Layout.parse(layout))
    assert str(refused.value) == (
        f"{layout}: a partition has two modes, threads and values, that step along the axes of its tile, 0, 1"
    )


def test_a_line_has_no_transpose() -> None:
    with pytest.raises(ValueError) as refused:
        _: Any = blocked((8,), threads=8).T
    assert str(refused.value) == "a partition of a tile with 1 axes has no transpose; it takes two"


@settings(max_examples=60)
@given(shape=st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=4))
def test_pictures_and_notebooks_show_tiles_with_up_to_two_axes_that_are_longer_than_one(shape: list[int]) -> None:
    """Each thread holds one element; rows are the first of the long axes."""
    digits = [(extent, E(axis)) for axis, extent in enumerate(shape) if extent > 1]
    who = Partition(tuple(map(expr, shape)), Layout.of(digits, []))
    long = [extent for extent in shape if extent > 1]
    page = who._repr_html_()
    assert page.startswith(f"<div><code>{who}</code>")
    assert page.count("<svg") == (len(long) < 3)
    if len(long) > 2:
        listed = " x ".join(map(str, shape))
        sentence = f"a tile of {listed} has {len(long)} axes longer than 1; a picture shows two"
        with pytest.raises(ValueError, match=f"^{sentence}$"):
            who.picture()
        return
    rows, columns = [1, 1, *long][-2:]
    cells = tuple(tuple(f"T{row + rows * column}:V0" for column in range(columns)) for row in range(rows))
    assert who.picture().cells == cells
    assert all(page.count(f">{cell}</text>") == 1 for line in cells for cell in line)
    assert page.count("<rect") == rows * columns


def test_a_symbolic_partition_is_shown_as_its_notation() -> None:
    who = Partition((symbol("m"), expr(8)), Layout.of([(8, E(1))], [(symbol("m"), E(0))]))
    assert who._repr_html_() == "<div><code>[mx8] (8,m):(1@1,1@0)</code></div>"
