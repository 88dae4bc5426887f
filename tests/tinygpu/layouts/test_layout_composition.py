"""Composition: R(c) == A(B(c)) on every coordinate, and refusal exactly where no such layout exists."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layout_strategies import digit_layouts, inner_layouts, is_layout_function, layouts

from tinygpu.layouts import (
    E,
    Layout,
    LayoutError,
    Step,
    coalesce,
    compose,
    same_function,
    shapes,
    side_by_side,
)

P = Layout.parse


@st.composite
def pairs(draw):
    outer = draw(layouts())
    return outer, draw(inner_layouts(outer.size))


@st.composite
def chains(draw):
    """A, B, C such that C reaches into B and B into A; from digits, so that composition is often admitted."""
    a = draw(digit_layouts(gaps=draw(st.booleans())))
    b = draw(inner_layouts(a.size))
    return a, b, draw(inner_layouts(b.size))


def check(outer, inner):
    """compose agrees with enumeration, or refuses and brute force finds nothing either; True when admitted."""
    wanted = outer.at(inner.offsets())
    try:
        result = compose(outer, inner)
    except LayoutError:
        assert not is_layout_function(wanted, inner.shape)
        return False
    assert shapes.refines(result.shape, inner.shape)
    assert result.offsets().tolist() == wanted.tolist()
    for i in range(inner.size):
        c = shapes.coordinate_of(i, inner.shape)
        assert result(c) == outer(inner(c))
    return True


@settings(max_examples=400)
@given(pairs())
@example((P("(2,2):(1,1)"), P("3:1")))
@example((P("(2,2,2):(1,0,2)"), P("3:3")))  # carries that cancel
@example((P("(4,2):(1,10)"), P("2:3")))  # neither of 3 and 4 divides the other
@example((P("(4,4):(6,0)"), P("(6,2):(1,2)")))  # a layout exists, but cuts across the modes of B
def test_composition_agrees_on_every_coordinate_or_no_layout_exists(pair):
    check(*pair)


def test_composition_is_exact_on_all_small_layouts():
    sizes, strides = (2, 3, 4), (0, 1, 2, 3, 5)
    admitted = refused = 0
    for s0, s1, d0, d1 in itertools.product(sizes, sizes, strides, strides):
        outer = Layout((s0, s1), (d0, d1))
        for s, d in itertools.product((2, 3, 4, 6), range(6)):
            inner = Layout(s, d)
            if inner.cosize <= outer.size:
                good = check(outer, inner)
                admitted, refused = admitted + good, refused + (not good)
    assert admitted > 500
    assert refused > 500


@settings(max_examples=300)
@given(chains())
def test_composition_is_associative_where_both_sides_are_admitted(chain):
    a, b, c = chain
    try:
        left, right = compose(compose(a, b), c), compose(a, compose(b, c))
    except LayoutError:
        return
    assert same_function(left, right)


@pytest.mark.parametrize("text", ["(4,8):(8,1)", "(4,(2,4)):(8,(4,1))", "(8,4):(4,1)"])
def test_associativity_is_not_vacuous(text):
    a, b, c = P(text), P("(4,3):(1,8)"), P("(2,2):(2,4)")
    assert same_function(compose(compose(a, b), c), compose(a, compose(b, c)))


@given(layouts())
def test_identities_of_composition(layout):
    assert same_function(compose(layout, Layout.column_major(layout.shape)), layout)
    assert compose(layout, Layout.column_major(layout.shape)).offsets().tolist() == layout.offsets().tolist()
    assert same_function(compose(Layout.column_major(layout.cosize + 3), layout), layout)
    # an identity with modes of its own is still the identity
    assert compose(Layout.column_major((layout.cosize, 2)), layout).offsets().tolist() == layout.offsets().tolist()


@settings(max_examples=200)
@given(st.data())
def test_side_by_side_is_a_functor(data):
    a2, b2 = data.draw(digit_layouts(most=24)), data.draw(digit_layouts(most=24))
    a1, b1 = data.draw(inner_layouts(a2.size, modes=2)), data.draw(inner_layouts(b2.size, modes=2))
    codomain = a2.cosize + data.draw(st.integers(0, 3))
    product = side_by_side(a1, b1, a2.size)
    wanted = [a2(a1(x)) + codomain * b2(b1(y)) for y in range(b1.size) for x in range(a1.size)]
    assert side_by_side(a2, b2, codomain).at(product.offsets()).tolist() == wanted
    try:
        parts = side_by_side(compose(a2, a1), compose(b2, b1), codomain)
    except LayoutError:
        return
    # where the parts compose, so does the product, to the same function
    assert same_function(compose(side_by_side(a2, b2, codomain), product), parts)
    assert parts.offsets().tolist() == wanted


@settings(max_examples=150)
@given(st.data())
def test_composition_into_coordinates_agrees_on_every_coordinate(data):
    shape = data.draw(layouts(most=60)).shape
    leaves = shapes.flatten(shape)
    steps = tuple(
        data.draw(st.integers(0, 6)) * E(0) + data.draw(st.integers(0, 6)) * E("column") + Step(()) for _ in leaves
    )
    outer = Layout(shape, shapes.unflatten(steps, shape))
    inner = data.draw(inner_layouts(outer.size))
    axes = (0, "column")
    wanted = outer.coordinates(axes)[inner.offsets()]
    try:
        result = compose(outer, inner)
    except LayoutError:
        assert not is_layout_function(wanted, inner.shape)
        return
    assert shapes.refines(result.shape, inner.shape)
    assert (result.coordinates(axes) == wanted).all()


def test_large_layouts_compose_without_listing():
    matrix = Layout.row_major((1 << 20, 1 << 20))
    tile = compose(matrix, P("(1024,4096):(3,1048576)"))
    assert str(tile) == "(1024,4096):(3145728,1)"
    assert str(compose(P(f"(4,{1 << 30}):(1,8)"), P(f"({1 << 21},2):(4,3)"))) == f"({1 << 21},2):(8,3)"
    column = compose(matrix, Layout(1 << 40, 1))
    assert str(column) == f"({1 << 20},{1 << 20}):({1 << 20},1)"


def test_composition_by_hand():
    assert str(compose(P("(4,8):(8,1)"), P("(8,2):(2,16)"))) == "((2,4),2):((16,1),4)"
    assert str(compose(P("(6,2):(8,2)"), P("(4,3):(3,1)"))) == "((2,2),3):((24,2),8)"
    assert str(compose(P("(4,2):(1,10)"), P("2:3"))) == "2:3"
    assert str(compose(P("(2,2,2):(1,0,2)"), P("3:3"))) == "3:1"
    assert str(compose(P("8:3"), P("(1,4):(99999,0)"))) == "(1,4):(0,0)"
    assert str(coalesce(compose(P("(4,4):(4,1)"), P("(4,4):(4,1)")))) == "16:1"


@pytest.mark.parametrize(
    ("outer", "inner", "text"),
    [
        (
            "(2,2):(1,1)",
            "3:1",
            "composing (2,2):(1,1) with 3:1: the mode 3:1 is evenly spaced for 2 steps only, and 3 is not a multiple "
            "of 2, so no shape:stride gives these offsets",
        ),
        (
            "(4,4):(1,10)",
            "(2,2):(3,1)",
            "composing (4,4):(1,10) with (2,2):(3,1): at (1,1) the offset is 10, and its modes one by one give 4, so "
            "no shape:stride with these modes gives these offsets",
        ),
        (
            "4:1",
            "5:1",
            "composing 4:1 with 5:1: offset 4 of the inner layout is outside [0, 4), the domain of the outer",
        ),
        (
            f"(3,{1 << 30}):({1 << 30},1)",
            f"{1 << 21}:1",
            f"composing (3,{1 << 30}):({1 << 30},1) with {1 << 21}:1: the mode {1 << 21}:1 must be cut after 3 steps, "
            f"and {1 << 21} is not a multiple of 3 ({1 << 21} coordinates are too many to list and look further)",
        ),
        (
            f"(4,{1 << 30}):(1,8)",
            f"(2,{1 << 21},2):(2,4,2)",
            f"composing (4,{1 << 30}):(1,8) with (2,{1 << 21},2):(2,4,2): its modes carry into each other: together "
            f"they count to 4 in a mode of size 4 ({1 << 23} coordinates are too many to list and look further)",
        ),
    ],
)
def test_every_refusal(outer, inner, text):
    with pytest.raises(LayoutError) as error:
        compose(P(outer), P(inner))
    assert str(error.value) == text


def test_refusals_of_coordinates_name_them():
    grid = Layout.identity((2, 3))
    with pytest.raises(LayoutError) as error:
        compose(grid, P("(2,2):(1,1)"))
    assert str(error.value) == (
        "composing (2,3):(1@0,1@1) with (2,2):(1,1): at (1,1) the offset is (0,1), and its modes one by one "
        "give (2,0), so no shape:stride with these modes gives these offsets"
    )
    assert np.array_equal(grid.coordinates()[2], [0, 1])
