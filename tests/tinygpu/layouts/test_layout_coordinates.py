"""Layouts into coordinates: steps, notation, products of maps, projections, linearising, accesses."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts, layouts

from tinygpu.layouts import E, Layout, LayoutError, Step, compose, right_inverse, shapes

P = Layout.parse
AXES = (0, 1, 2, "cta", "column", "lane")


def refuses(text, function, *args, **named):
    with pytest.raises(LayoutError) as error:
        function(*args, **named)
    assert str(error.value) == text


def steps(axes=AXES):
    return st.lists(st.tuples(st.sampled_from(axes), st.integers(0, 5)), max_size=3).map(lambda t: Step(tuple(t)))


@st.composite
def coordinate_layouts(draw, most=60, axes=AXES):
    shape = draw(layouts(most)).shape
    leaves = tuple(draw(steps(axes)) for _ in shapes.flatten(shape))
    return Layout(shape, shapes.unflatten(leaves, shape))


def values(layout, coordinate):
    """By definition: digits of a coordinate times the steps."""
    total = Step(())
    for digit, (_, step) in zip(shapes.flatten(coordinate), layout.steps, strict=True):
        total += digit * (Step(()) if step == 0 else step)
    return total


# --- steps --------------------------------------------------------------------------------------------------------


@given(steps(), steps(), st.integers(0, 4), st.sampled_from(AXES))
def test_steps_add_and_scale_axis_by_axis(a, b, count, axis):
    assert (a + b).along(axis) == a.along(axis) + b.along(axis)
    assert (count * a).along(axis) == (a * count).along(axis) == count * a.along(axis)
    assert E(axis).along(axis) == 1
    assert all(E(axis).along(other) == 0 for other in AXES if other != axis)
    assert a + b == b + a


@given(steps())
def test_a_step_is_its_text(step):
    assert str(Step(())) == "0"
    if step.terms:
        assert Step.parse(str(step)) == step
    numbers = [axis for axis, _ in step.terms if isinstance(axis, int)]
    words = [axis for axis, _ in step.terms if isinstance(axis, str)]
    assert [axis for axis, _ in step.terms] == sorted(numbers) + sorted(words)
    assert all(count > 0 for _, count in step.terms)


# --- layouts ------------------------------------------------------------------------------------------------------


@given(coordinate_layouts())
def test_text_repr_and_json_recreate_the_layout(layout):
    assert P(str(layout)) == layout
    assert P(str(layout).replace(",", " , ")) == layout
    assert eval(repr(layout)) == layout
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@given(coordinate_layouts())
def test_a_map_into_a_product_is_a_map_into_each_axis(layout):
    table = layout.coordinates(AXES)
    assert table.shape == (layout.size, len(AXES))
    for i in range(layout.size):
        c = shapes.coordinate_of(i, layout.shape)
        wanted = values(layout, c)
        found = layout.coordinate(c, axes=AXES)
        assert found == layout.coordinate(i, axes=AXES) == tuple(wanted.along(axis) for axis in AXES)
        assert tuple(table[i]) == found
        assert found == tuple(layout.along(axis)(c) for axis in AXES)
    moved = {axis for axis in AXES if layout.along(axis).cosize > 1 or any(d for _, d in layout.along(axis).leaves)}
    assert set(layout.axes) == moved
    assert np.array_equal(layout.coordinates(), layout.coordinates(layout.axes))
    for k in range(layout.rank if not isinstance(layout.shape, int) else 0):
        for axis in AXES:
            assert layout[k].along(axis) == layout.along(axis)[k]


@given(any_layouts(most=12, modes=2), any_layouts(most=12, modes=2))
def test_product_applies_each_layout_to_its_own_mode(a, b):
    product = Layout.product({0: a, "column": b})
    for x in range(a.size):
        for y in range(b.size):
            assert product.coordinate(x, y, axes=(0, "column")) == (a(x), b(y))


@given(coordinate_layouts(), st.dictionaries(st.sampled_from(AXES), st.sampled_from((*AXES, None))))
def test_a_projection_adds_up_what_falls_on_an_axis(layout, renamed):
    found = layout.project(renamed)
    assert found.shape == layout.shape
    for axis in AXES:
        sources = [old for old, new in renamed.items() if new == axis]
        wanted = sum((layout.along(old).offsets() for old in sources), np.zeros(layout.size, dtype=np.int64))
        assert np.array_equal(found.along(axis).offsets(), wanted)


@settings(max_examples=150)
@given(coordinate_layouts(axes=(0, 1, 2)), st.data())
def test_linearised_is_the_index_of_the_coordinate(layout, data):
    extents = tuple(layout.along(axis).cosize + data.draw(st.integers(0, 2)) for axis in range(3))
    flat = layout.linearised(extents)
    assert flat.shape == layout.shape
    for i in range(layout.size):
        assert flat(i) == shapes.index_of(layout.coordinate(i, axes=(0, 1, 2)), extents)
    # and back: the identity on coordinates, composed with the index
    try:
        again = compose(Layout.identity(extents), flat)
    except LayoutError:
        return
    assert np.array_equal(again.coordinates((0, 1, 2)), layout.coordinates((0, 1, 2)))


@given(coordinate_layouts(most=40, axes=(0, 1)), any_layouts(most=40, modes=2), any_layouts(most=40, modes=2))
def test_composing_with_a_map_into_coordinates_takes_each_mode_along_its_axis(inner, first, second):
    outer = Layout((first.shape, second.shape), (first.stride, second.stride))
    if any(inner.along(axis).cosize > outer[axis].size for axis in (0, 1)):
        with pytest.raises(LayoutError, match="outside"):
            compose(outer, inner)
        return
    try:
        found = compose(outer, inner)
    except LayoutError:
        return
    for i in range(inner.size):
        assert found(i) == outer(*inner.coordinate(i, axes=(0, 1)))


def test_an_access_is_memory_layout_after_partition():
    """mma.sync m16n8 accumulators: (lane, value) -> (row, column), in a row-major tile with a pitch of 12."""
    partition = P("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))")
    memory = P("(16,8):(12,1)")
    access = compose(memory, partition)
    assert str(access) == "((4,8),(2,2)):((2,12),(1,96))"
    assert access == compose(memory, partition.linearised((16, 8)))
    for lane in range(32):
        for value in range(4):
            row, column = lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2
            assert partition.coordinate(lane, value) == (row, column)
            assert access(lane, value) == 12 * row + column


def test_codomains_by_hand():
    tmem = P("(128,512):(1@lane,1@column)")
    assert tmem.coordinate(77, 300, axes=("lane", "column")) == (77, 300)
    assert tmem.axes == ("column", "lane")
    shared = Layout.product({"cta": P("2:1"), "offset": P("(8,4):(4,1)")})
    assert str(shared) == "(2,(8,4)):(1@cta,(4@offset,1@offset))"
    assert shared.coordinate(1, (3, 2)) == (1, 14)
    assert str(Layout.identity((4, 8))) == "(4,8):(1@0,1@1)"
    assert str(P("(4,3):(2@1+1@0,0)")) == "(4,3):(1@0+2@1,0)"
    assert P("(4,3):(1@0,0)") == Layout((4, 3), (E(0), Step(())))
    assert P("4:2@lane").rank == 1
    assert P("(4,3):(0,0)").coordinates((0,)).tolist() == [[0]] * 12
    assert P("(4,3):(0,0)").coordinates().shape == (12, 0)


def test_every_refusal():
    refuses("an axis is a number from 0 on or a word such as 'lane', not 'r@w'", E, "r@w")
    refuses("an axis is a number from 0 on or a word such as 'lane', not -1", E, -1)
    refuses("an axis is a number from 0 on or a word such as 'lane', not True", E, True)
    refuses("-2 steps along axis 1: coordinates count up from 0", lambda: -2 * E(1))
    refuses("(4,8):(1@0): shape and stride must be nested alike, with one stride per size", P, "(4,8):(1@0)")
    for stride in ("x@0", "1@", "1@0+2", "1@0+@1"):
        refuses(
            f"the stride {stride!r} is no number and no sum of steps such as 2@1+1@0 or 1@lane", P, f"4:{stride}"
        )
    refuses("(4,8):(1@0,2): strides count offsets, or they are steps along axes, not some of each", P, "(4,8):(1@0,2)")
    layout = Layout.identity((4, 8))
    coordinates = "(4,8):(1@0,1@1) is a map into coordinates; take it along one of its axes, 0, 1"
    refuses(coordinates, layout, 3)
    refuses(coordinates, layout.offsets)
    refuses(coordinates, lambda: layout.cosize)
    refuses(coordinates, right_inverse, layout)
    refuses("(4,8):(8,1) is a map into offsets and has no axes", P("(4,8):(8,1)").along, 0)
    refuses("(4,8):(1@0,1@1): (4) has 1 axes from 0 on, and no 1", layout.linearised, (4,))
    refuses("4:1@lane: (4) has 1 axes from 0 on, and no 'lane'", P("4:1@lane").linearised, (4,))
    refuses(
        "(4,8):(1@0,1@1): axis 1 reaches 7, outside [0, 7) of the tensor (4,7)", layout.linearised, (4, 7)
    )
    refuses(
        "(4,8):(1@0,1@1): axis 1 reaches 7, outside [0, 7) of the tensor (4,7)", compose, P("(4,7):(7,1)"), layout
    )
