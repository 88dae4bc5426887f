"""Index spaces and the Layout value: notation, evaluation, refusals."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layout_strategies import layouts, nestings

from tinygpu.layouts import Layout, LayoutError, shapes

P = Layout.parse


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


@st.composite
def trees(draw):
    leaves = draw(st.lists(st.integers(1, 4), max_size=4))
    return shapes.unflatten(tuple(leaves), draw(nestings(len(leaves))))


@given(trees())
def test_coordinates_and_indices_are_inverse_in_colexicographic_order(shape):
    seen = [shapes.coordinate_of(i, shape) for i in range(shapes.size(shape))]
    assert [shapes.index_of(c, shape) for c in seen] == list(range(len(seen)))
    assert sorted(seen, key=lambda c: shapes.flatten(c)[::-1]) == seen
    assert all(shapes.congruent(c, shape) for c in seen)


@given(trees())
def test_text_of_a_tuple_parses_back(tree):
    assert shapes.parse(shapes.text(tree)) == tree
    assert shapes.parse(shapes.text(tree).replace(",", " , ")) == tree


@given(trees(), trees())
def test_refines_means_that_the_coarse_coordinates_index_the_fine_shape(fine, coarse):
    def accepts():
        if shapes.size(fine) != shapes.size(coarse):
            return False
        for i in range(shapes.size(coarse)):
            try:
                if shapes.index_of(shapes.coordinate_of(i, coarse), fine) != i:
                    return False
            except LayoutError:
                return False
        return True

    assert shapes.refines(fine, coarse) == accepts()


@given(layouts())
def test_text_repr_and_json_recreate_the_layout(layout):
    assert Layout.parse(str(layout)) == layout
    assert eval(repr(layout)) == layout
    assert Layout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert hash(Layout.parse(str(layout))) == hash(layout)


@given(layouts())
def test_a_layout_is_the_sum_of_coordinate_times_stride(layout):
    table = []
    for i in range(layout.size):
        c = shapes.coordinate_of(i, layout.shape)
        value = sum(x * d for x, d in zip(shapes.flatten(c), shapes.flatten(layout.stride), strict=True))
        assert layout(c) == layout(i) == value
        table.append(value)
    assert layout.offsets().tolist() == table
    assert layout.offsets().dtype == np.int64
    assert layout.cosize == max(table) + 1
    assert layout.size == len(table)


@given(layouts())
def test_modes_add_up_to_the_layout(layout):
    if isinstance(layout.shape, int):
        assert layout.modes == (layout,)
        return
    assert len(layout) == layout.rank == len(layout.shape)
    assert [layout[k] for k in range(len(layout))] == list(layout)
    for i in range(layout.size):
        c = shapes.coordinate_of(i, layout.shape)
        assert layout(i) == sum(mode(x) for mode, x in zip(layout, c, strict=True))
        by_mode = tuple(shapes.index_of(x, mode.shape) for mode, x in zip(layout, c, strict=True))
        assert layout(by_mode) == layout(i)


@given(trees())
def test_column_and_row_major_are_compact(shape):
    column, row = Layout.column_major(shape), Layout.row_major(shape)
    assert column.offsets().tolist() == list(range(column.size))
    assert sorted(row.offsets().tolist()) == list(range(row.size))
    leaves = shapes.flatten(shape)
    if leaves:
        # NumPy's own C order is the oracle for row-major
        expected = np.arange(row.size).reshape(leaves).flatten(order="F")
        assert row.offsets().tolist() == expected.tolist()
    assert P(shapes.text(shape)) == column


def test_examples_by_hand():
    assert str(Layout.row_major((4, 8))) == "(4,8):(8,1)"
    assert repr(Layout((4, [2, np.int64(4)]), (8, (4, 1)))) == "Layout((4, (2, 4)), (8, (4, 1)))"
    assert P("(4,8):(8,1)")(1, 2) == P("(4,8):(8,1)")((1, 2)) == P("(4,8):(8,1)")(9) == 10
    assert P("(4,(2,4)):(8,(4,1))")(1, 3) == P("(4,(2,4)):(8,(4,1))")(1, (1, 1)) == 13
    assert P("():()").size == P("():()").cosize == 1
    assert P("(4)")[-1] == P("4:1")
    assert P("(2, (3)) : (1, (2))") == Layout((2, (3,)), (1, (2,)))


def test_every_refusal_of_shapes():
    refuses("shape (4,0): 0 is not a size; each mode needs a size of 1 or more", Layout, (4, 0), (1, 1))
    refuses("shape -4: -4 is not a size; each mode needs a size of 1 or more", Layout, -4, 1)
    refuses("a shape must be an integer or a tuple of them, not 'x'", Layout, (4, "x"), (1, 1))
    refuses("a shape must be an integer or a tuple of them, not True", Layout, True, 1)
    refuses("a stride must be an integer or a tuple of them, not 1.5", Layout, 4, 1.5)
    refuses("3 leaves do not fit into (2,2), which has 2", shapes.unflatten, (1, 2, 3), (2, 2))
    refuses("1 leaves do not fit into (2,2), which has 2", shapes.unflatten, (1,), (2, 2))
    refuses("index 4 is outside [0, 4), the domain of (2,2)", shapes.coordinate_of, 4, (2, 2))
    refuses("'(4,': expected a number or '(' at position 3, as in (4,(2,4))", shapes.parse, "(4,")
    refuses("'(4 8)': expected ',' or ')' at position 3, as in (4,(2,4))", shapes.parse, "(4 8)")
    refuses("'(4,8))': unexpected ')' after (4,8)", shapes.parse, "(4,8))")


def test_every_refusal_of_layouts():
    refuses("(4,8):(1): shape and stride must be nested alike, with one stride per size", Layout, (4, 8), (1,))
    refuses("4:(1): shape and stride must be nested alike, with one stride per size", Layout, 4, (1,))
    refuses("(4,8):(1,-4): stride -4 is negative; offsets count up from 0", Layout, (4, 8), (1, -4))
    refuses("'(4,x)': expected a number or '(' at position 3, as in (4,(2,4))", P, "(4,x):(1,2)")
    layout = P("(4,8):(1,4)")
    refuses("coordinate 32 is outside [0, 32), the domain of (4,8)", layout, 32)
    refuses("coordinate -1 is outside [0, 32), the domain of (4,8)", layout, -1)
    refuses("coordinate 8 is outside [0, 8), the domain of 8", layout, 0, 8)
    refuses("coordinate (1,2,3) does not fit the shape (4,8)", layout, 1, 2, 3)
    refuses("coordinate (1,2) does not fit the shape 8", layout, 0, (1, 2))
    refuses("a coordinate must be an integer or a tuple of them, not 'x'", layout, "x")
    refuses("(4,8):(1,4): index 40 is outside [0, 32)", layout.at, np.array([0, 40]))
    refuses("(4,8):(1,4): index -2 is outside [0, 32)", layout.at, np.array([-2, 40]))
    refuses("(4,8):(1,4) has no mode 2; its 2 modes count from 0", layout.__getitem__, 2)
    huge = Layout((2, 2), (1, 1 << 63))
    refuses(f"(2,2):(1,{1 << 63}): offsets up to {(1 << 63) + 1} do not fit into 64 bits", huge.offsets)
    assert huge(1, 1) == (1 << 63) + 1


@pytest.mark.end_to_end
def test_importing_layouts_loads_no_solver():
    code = "import sys, tinygpu.layouts; print([m for m in ('z3', 'cuda') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
