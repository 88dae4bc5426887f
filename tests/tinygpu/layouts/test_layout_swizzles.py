"""Swizzles and composed layouts: bijective, involutive, linear; units; refusals."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layout_strategies import bijections, digit_layouts, inner_layouts, layouts

from tinygpu.layouts import ComposedLayout, Layout, LayoutError, LinearLayout, Swizzle, compose, shapes

P = Layout.parse


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


@st.composite
def swizzles(draw):
    bits = draw(st.integers(0, 3))
    return Swizzle(bits, draw(st.integers(0, 4)), bits + draw(st.integers(0, 2)))


@given(swizzles(), st.integers(1, 3))
def test_a_swizzle_is_its_own_inverse_and_permutes_blocks(swizzle, blocks):
    x = np.arange(blocks << swizzle.period_bits)
    y = swizzle.at(x)
    assert (swizzle.at(y) == x).all()
    assert (y >> swizzle.period_bits == x >> swizzle.period_bits).all()
    assert [swizzle(int(i)) for i in x] == y.tolist()
    assert (y & ((1 << swizzle.base) - 1) == x & ((1 << swizzle.base) - 1)).all()


@given(swizzles())
def test_a_swizzle_moves_exactly_the_bits_it_says(swizzle):
    """Bit by bit, written out: bit base+k changes by bit base+shift+k, for k below bits."""
    for x in range(1 << min(swizzle.period_bits + 1, 10)):
        bits = [x >> k & 1 for k in range(swizzle.period_bits + 12)]
        out = list(bits)
        for k in range(swizzle.bits):
            out[swizzle.base + k] ^= bits[swizzle.base + swizzle.shift + k]
        assert swizzle(x) == sum(bit << k for k, bit in enumerate(out))


@given(swizzles(), st.integers(0, 2))
def test_the_matrix_of_a_swizzle_agrees_on_every_offset(swizzle, more):
    linear = swizzle.to_linear(swizzle.period_bits + more)
    assert linear.offsets().tolist() == swizzle.at(np.arange(linear.size)).tolist()
    assert linear.is_bijective
    assert linear.inverse() == linear


@given(swizzles(), st.sampled_from([4, 8, 16, 32, 64, 128]))
def test_swizzles_in_bytes_and_in_elements_do_the_same(swizzle, element_bits):
    # the element swizzle scaled to bytes moves the same bytes
    if element_bits >= 8 or swizzle.base >= 1 or not swizzle.bits:
        in_bytes = swizzle.in_bytes(element_bits)
        for element in range(0, 1 << swizzle.period_bits, max(1, 8 // element_bits)):
            assert in_bytes(element * element_bits // 8) * 8 == swizzle(element) * element_bits
        if swizzle.bits:
            assert in_bytes.in_elements(element_bits) == swizzle


@given(swizzles())
def test_text_repr_and_json_recreate_the_swizzle(swizzle):
    assert Swizzle.parse(str(swizzle)) == swizzle
    assert eval(repr(swizzle)) == swizzle
    assert Swizzle.from_json(json.loads(json.dumps(swizzle.to_json()))) == swizzle


@settings(max_examples=150)
@given(swizzles(), layouts(), st.data())
def test_a_composed_layout_is_the_swizzle_after_the_layout(swizzle, layout, data):
    composed = ComposedLayout(swizzle, layout)
    wanted = [swizzle(layout(i)) for i in range(layout.size)]
    assert composed.offsets().tolist() == wanted
    assert [composed(shapes.coordinate_of(i, layout.shape)) for i in range(layout.size)] == wanted
    assert composed.cosize == max(wanted) + 1
    assert (composed.size, composed.shape) == (layout.size, layout.shape)
    assert ComposedLayout.from_json(json.loads(json.dumps(composed.to_json()))) == composed
    assert eval(repr(composed)) == composed
    inner = data.draw(inner_layouts(layout.size))
    try:
        result = composed.compose(inner)
    except LayoutError as error:
        refuses(str(error), compose, layout, inner)
        return
    assert result.offsets().tolist() == [composed(inner(i)) for i in range(inner.size)]


@given(st.data())
def test_a_solved_swizzle_is_a_matrix_that_permutes(data):
    layout = data.draw(digit_layouts(most=64))
    bits = (layout.cosize - 1).bit_length() + data.draw(st.integers(0, 1))
    matrix = data.draw(bijections(bits))
    composed = ComposedLayout(matrix, layout)
    assert composed.offsets().tolist() == [matrix(layout(i)) for i in range(layout.size)]
    assert len(set(composed.offsets().tolist())) == len(set(layout.offsets().tolist()))
    assert ComposedLayout.from_json(json.loads(json.dumps(composed.to_json()))) == composed


@given(swizzles(), st.permutations(range(3)))
def test_the_matrix_of_a_composed_layout_agrees_on_every_coordinate(swizzle, order):
    layout = Layout((4, 2, 8), tuple((1, 16, 256)[k] for k in order))
    composed = ComposedLayout(swizzle, layout)
    assert composed.to_linear().offsets().tolist() == composed.offsets().tolist()
    outer = swizzle.to_linear(12)
    assert ComposedLayout(outer, layout).to_linear().offsets().tolist() == composed.offsets().tolist()


def test_examples_by_hand():
    # 8 rows of 128 bytes: 16-byte chunk c of row r goes to chunk c ^ r
    tile = ComposedLayout(Swizzle(3, 4, 3), Layout.row_major((8, 128)))
    for r in range(8):
        for c in range(8):
            assert tile(r, 16 * c + 5) == 128 * r + 16 * (c ^ r) + 5
    assert str(Swizzle(3, 4, 3).in_elements(16)) == "Sw<3,3,3>"
    assert str(Swizzle(3, 4, 3).in_elements(4)) == "Sw<3,5,3>"
    assert str(tile) == "Sw<3,4,3> o (8,128):(128,1)"
    assert Swizzle(0, 4, 3).in_elements(256) == Swizzle(0, 0, 3)


def test_every_refusal():
    refuses("Sw<-1,4,3>: bits must be an integer of 0 or more, not -1", Swizzle, -1, 4, 3)
    refuses("Sw<3,4,x>: shift must be an integer of 0 or more, not 'x'", Swizzle, 3, 4, "x")
    refuses(
        "Sw<3,4,2>: shift must be at least bits, not 2 < 3; else it would read bits that it changes", Swizzle, 3, 4, 2
    )
    refuses("Sw<3,60,3>: bits up to 66 do not fit into 62-bit offsets", Swizzle, 3, 60, 3)
    refuses("'3,4,3' is not a swizzle; expected bits, base and shift as in Sw<3,4,3>", Swizzle.parse, "3,4,3")
    swizzle = Swizzle(3, 4, 3)
    refuses("Sw<3,4,3>: offset -1 is negative", swizzle, -1)
    refuses("Sw<3,4,3>: offset -2 is negative", swizzle.at, np.array([4, -2]))
    refuses("Sw<3,4,3> reads bit 9; 9 offset bits are too few", swizzle.to_linear, 9)
    refuses("elements of 6 bits: a swizzle needs a width that is a power of two", swizzle.in_elements, 6)
    refuses(
        "Sw<3,4,3> on bytes moves blocks of 16 B, smaller than one element of 256 bits", swizzle.in_elements, 256
    )
    refuses("Sw<1,0,1> on elements of 4 bits moves less than one byte", Swizzle(1, 0, 1).in_bytes, 4)
    refuses(
        "8:4 reaches offset 28, which does not fit into the 3 bits that its swizzle permutes",
        ComposedLayout,
        LinearLayout.identity(3),
        P("8:4"),
    )
    refuses(
        "the swizzle of 4:1 must be a permutation, but its matrix of 2 x 2 bits has rank 1",
        ComposedLayout,
        LinearLayout((1, 1), 2),
        P("4:1"),
    )
    refuses(
        "3:1 is not linear over F2: size 3 is not a power of two", ComposedLayout(swizzle, P("3:1")).to_linear
    )
