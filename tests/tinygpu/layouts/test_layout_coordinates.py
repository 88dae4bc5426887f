"""Layouts into coordinates: products of maps, notation, linearising, accesses."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts, layouts

from tinygpu.layouts import CoordLayout, Layout, LayoutError, compose, compose_coordinates, shapes

P = Layout.parse
NAMES = ("row", "column", "cta")


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


@st.composite
def coord_layouts(draw, most=60):
    shape = draw(layouts(most)).shape
    count = len(shapes.flatten(shape))
    axes = draw(st.integers(1, 3))
    components = tuple(
        Layout(shape, shapes.unflatten(tuple(draw(st.integers(0, 5)) for _ in range(count)), shape))
        for _ in range(axes)
    )
    return CoordLayout(components, NAMES[:axes])


@given(coord_layouts())
def test_text_repr_and_json_recreate_the_layout(layout):
    assert CoordLayout.parse(str(layout), layout.names) == layout
    assert CoordLayout.parse(str(layout).replace(",", " , "), layout.names) == layout
    assert eval(repr(layout)) == layout
    assert CoordLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout


@given(coord_layouts())
def test_a_map_into_a_product_is_a_map_into_each_axis(layout):
    table = layout.offsets()
    assert table.shape == (layout.size, len(layout.names))
    for i in range(layout.size):
        c = shapes.coordinate_of(i, layout.shape)
        assert layout(i) == layout(c) == tuple(layout.axis(name)(c) for name in layout.names) == tuple(table[i])
    assert layout.coextents == tuple(table.max(axis=0) + 1)
    for k in range(layout.rank if not isinstance(layout.shape, int) else 0):
        assert layout[k].components == tuple(c[k] for c in layout.components)


@given(any_layouts(most=12, modes=2), any_layouts(most=12, modes=2))
def test_product_applies_each_layout_to_its_own_mode(a, b):
    product = CoordLayout.product((a, b), ("row", "column"))
    for x in range(a.size):
        for y in range(b.size):
            assert product(x, y) == (a(x), b(y))


@settings(max_examples=150)
@given(coord_layouts(), st.data())
def test_linearised_is_the_index_of_the_coordinate(layout, data):
    extents = tuple(e + data.draw(st.integers(0, 2)) for e in layout.coextents)
    flat = layout.linearised(extents)
    assert flat.shape == layout.shape
    for i in range(layout.size):
        assert flat(i) == shapes.index_of(layout(i), extents)
    # and back: the identity on coordinates, composed with the index
    back = CoordLayout.identity(extents, layout.names)
    try:
        again = compose_coordinates(back, flat)
    except LayoutError:
        return
    assert (again.offsets() == layout.offsets()).all()


def test_an_access_is_memory_layout_after_partition():
    """mma.sync m16n8 accumulators: (lane, value) -> (row, column), in a row-major tile with a pitch of 12."""
    partition = CoordLayout.parse("((4,8),(2,2)):((2@column,1@row),(1@column,8@row))", ("row", "column"))
    memory = P("(16,8):(12,1)")
    access = compose(memory, partition.linearised((16, 8)))
    assert str(access) == "((4,8),(2,2)):((2,12),(1,96))"
    for lane in range(32):
        for value in range(4):
            row, column = lane // 4 + 8 * (value // 2), 2 * (lane % 4) + value % 2
            assert partition(lane, value) == (row, column)
            assert access(lane, value) == 12 * row + column


def test_codomains_by_hand():
    tmem = CoordLayout.parse("(128,512):(1@lane,1@column)", ("lane", "column"))
    assert tmem(77, 300) == (77, 300)
    shared = CoordLayout.product((P("2:1"), P("(8,4):(4,1)")), ("cta", "offset"))
    assert str(shared) == "(2,(8,4)):(1@cta,(4@offset,1@offset))"
    assert shared(1, (3, 2)) == (1, 14)
    assert str(CoordLayout.identity((4, 8), ("row", "column"))) == "(4,8):(1@row,1@column)"
    assert str(CoordLayout.parse("(4,3):(1@row+2@column,0)", ("row", "column"))) == "(4,3):(1@row+2@column,0)"
    assert CoordLayout.parse("4:2@row", ("row",)).rank == 1


def test_every_refusal():
    refuses("a layout into coordinates needs at least one axis", CoordLayout, (), ())
    refuses("axes row: 2 components need 2 different names", CoordLayout, (P("4:1"), P("4:1")), ("row",))
    refuses("axes row, row: 2 components need 2 different names", CoordLayout, (P("4:1"), P("4:1")), ("row", "row"))
    refuses("axis name 'r@w' must be an identifier, such as 'row'", CoordLayout, (P("4:1"),), ("r@w",))
    refuses(
        "axis column: 8:1 must have the shape of axis row, 4", CoordLayout, (P("4:1"), P("8:1")), ("row", "column")
    )
    names = ("row", "column")
    refuses("'(4,8)': expected shape:stride, as in (4,8):(1@row,1@column)", CoordLayout.parse, "(4,8)", names)
    refuses(
        "'(4,8):(1@row)': shape and stride must be nested alike, with one stride per size",
        CoordLayout.parse,
        "(4,8):(1@row)",
        names,
    )
    for stride in ("1", "x@row", "1@lane"):
        refuses(
            f"'4:{stride}': stride {stride!r} must be 0 or a sum of terms such as 1@row; the axes are row, column",
            CoordLayout.parse,
            f"4:{stride}",
            names,
        )
    layout = CoordLayout.identity((4, 8), names)
    refuses(
        "(4,8):(1@row,1@column) has no axis 'lane'; its axes are row, column",
        layout.axis,
        "lane",
    )
    refuses("(4,8):(1@row,1@column) has 2 axes, not the 1 of (4)", layout.linearised, (4,))
    refuses(
        "(4,8):(1@row,1@column): axis column reaches 7, outside [0, 7) of the tensor (4,7)", layout.linearised, (4, 7)
    )
