"""Linear layouts over F2: agreement with shape:stride on every coordinate, matrix laws, refusals."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts, bijections, is_layout_function, linear_layouts

from tinygpu.layouts import Layout, LayoutError, LinearLayout, coalesce, compose, f2, same_function, shapes

P = Layout.parse


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


@st.composite
def power_layouts(draw):
    sizes = draw(st.lists(st.sampled_from([1, 2, 2, 4, 8]), max_size=4).filter(lambda s: shapes.size(tuple(s)) <= 256))
    strides = [draw(st.one_of(st.sampled_from([0, 1, 2, 4, 8, 16, 32, 64]), st.integers(0, 20))) for _ in sizes]
    return Layout(tuple(sizes), tuple(strides))


@settings(max_examples=300)
@given(st.one_of(power_layouts(), any_layouts(most=64)))
def test_layout_to_matrix_agrees_everywhere_or_is_not_linear(layout):
    values = layout.offsets()
    try:
        linear = LinearLayout.from_layout(layout)
    except LayoutError:
        # not a power of two, or f(x ^ y) != f(x) ^ f(y) for some pair
        n = layout.size
        if n & (n - 1) == 0:
            x = np.arange(n)
            assert (values[x[:, None] ^ x] != values[:, None] ^ values).any()
        return
    assert linear.size == layout.size
    assert linear.offsets().tolist() == values.tolist()
    assert [linear(i) for i in range(linear.size)] == values.tolist()
    assert same_function(linear.to_layout(), layout)


@settings(max_examples=300)
@given(linear_layouts())
def test_matrix_to_layout_agrees_everywhere_or_no_layout_exists(linear):
    values = linear.offsets()
    try:
        layout = linear.to_layout()
    except LayoutError:
        assert not is_layout_function(values, linear.size)
        return
    assert layout.offsets().tolist() == values.tolist()
    assert coalesce(layout) == layout
    back = LinearLayout.from_layout(layout)
    assert back.columns == linear.columns


@given(linear_layouts())
def test_a_matrix_is_additive_and_agrees_with_matrix_arithmetic(linear):
    x = np.arange(linear.size)
    values = linear.offsets()
    assert (values[x[:, None] ^ x] == values[:, None] ^ values).all()
    bits = x[:, None] >> np.arange(linear.in_bits) & 1
    product = bits @ linear.matrix().T.astype(np.int64) % 2
    assert (product @ (1 << np.arange(linear.out_bits)) == values).all()


@given(linear_layouts())
def test_rank_and_kernel_count_the_image(linear):
    values = linear.offsets().tolist()
    assert len(set(values)) == 1 << linear.rank
    zeros = {x for x in range(linear.size) if values[x] == 0}
    span = {0}
    for vector in linear.kernel:
        assert vector not in span
        span |= {v ^ vector for v in span}
    assert span == zeros
    assert len(linear.kernel) == linear.in_bits - linear.rank
    assert linear.is_injective == (len(set(values)) == linear.size)
    assert linear.is_surjective == (len(set(values)) == 1 << linear.out_bits)
    for target in range(1 << linear.out_bits):
        found = linear.solve(target)
        assert (found is None) == (target not in values)
        assert found is None or linear(found) == target


@given(st.data())
def test_matrices_compose_associatively_with_identity(data):
    c = data.draw(linear_layouts())
    b = data.draw(linear_layouts(in_bits=c.out_bits))
    a = data.draw(linear_layouts(in_bits=b.out_bits))
    assert b.compose(c).offsets().tolist() == [b(c(x)) for x in range(c.size)]
    assert a.compose(b).compose(c) == a.compose(b.compose(c))
    assert LinearLayout.identity(c.out_bits).compose(c) == c
    assert c.compose(LinearLayout.identity(c.in_bits)) == c


@given(st.integers(0, 7).flatmap(bijections))
def test_the_inverse_undoes_a_matrix_on_both_sides(linear):
    inverse = linear.inverse()
    identity = LinearLayout.identity(linear.in_bits)
    assert inverse.compose(linear) == identity
    assert linear.compose(inverse) == identity


@given(linear_layouts(most=3))
def test_an_inverse_is_refused_exactly_where_the_map_is_not_a_bijection(linear):
    bijective = sorted(linear.offsets().tolist()) == list(range(1 << linear.out_bits))
    assert linear.is_bijective == bijective
    if not bijective:
        with pytest.raises(LayoutError):
            linear.inverse()


@given(power_layouts(), power_layouts())
def test_composition_agrees_between_the_two_views(outer, inner):
    try:
        a, b = LinearLayout.from_layout(outer), LinearLayout.from_layout(inner)
        assume(inner.cosize <= outer.size)
        result = compose(outer, inner)
    except LayoutError:
        return
    product = a.compose(b.widened(a.in_bits))
    assert product.offsets().tolist() == result.offsets().tolist()
    assert LinearLayout.from_layout(result).columns == product.columns


@st.composite
def named(draw, names):
    widths = tuple((name, draw(st.integers(0, 2))) for name in names)
    n, m = sum(w for _, w in widths), draw(st.integers(0, 3))
    return LinearLayout(tuple(draw(st.integers(0, (1 << m) - 1)) for _ in range(n)), m, widths)


def coordinates(linear):
    for values in itertools.product(*(range(1 << w) for _, w in linear.inputs)):
        yield dict(zip((n for n, _ in linear.inputs), values, strict=True))


@given(named(("register", "lane")), named(("register", "lane", "warp")))
def test_direct_product_acts_side_by_side_and_left_division_undoes_it(tile, rest):
    product = tile.direct_product(rest)
    low = dict(tile.inputs)
    for c in coordinates(product):
        first = {name: c[name] & ((1 << width) - 1) for name, width in tile.inputs}
        second = {name: c[name] >> low.get(name, 0) for name, _ in rest.inputs}
        wanted = tile(tile.index(**first)) | rest(rest.index(**second)) << tile.out_bits
        assert product(product.index(**c)) == wanted
    assert product.left_divide(tile) == rest


@settings(max_examples=200)
@given(named(("register", "lane")), named(("register", "lane")))
def test_left_division_is_refused_exactly_where_no_factor_exists(whole, tile):
    widths = {name: width - dict(tile.inputs)[name] for name, width in whole.inputs}
    bits = whole.out_bits - tile.out_bits
    try:
        rest = whole.left_divide(tile)
    except LayoutError:
        if bits < 0 or min(widths.values()) < 0:
            return
        count = sum(widths.values())
        for columns in itertools.product(range(1 << bits), repeat=count):
            candidate = LinearLayout(columns, bits, tuple(widths.items()))
            assert tile.direct_product(candidate) != whole
        return
    assert tile.direct_product(rest) == whole


@given(named(("register", "lane")), st.data())
def test_groups_restrictions_and_projections_pick_bits(linear, data):
    for c in coordinates(linear):
        parts = [linear.group(name)(value) for name, value in c.items()]
        assert linear(linear.index(**c)) == parts[0] ^ parts[1]
    if linear.in_bits:
        picked = data.draw(st.lists(st.integers(0, linear.in_bits - 1), max_size=3, unique=True))
        part = linear.restrict(picked)
        for x in range(part.size):
            assert part(x) == linear(sum((x >> k & 1) << bit for k, bit in enumerate(picked)))
    rows = data.draw(st.lists(st.integers(0, 4), max_size=4, unique=True))
    projected = linear.project(rows)
    for x in range(linear.size):
        assert projected(x) == sum((linear(x) >> bit & 1) << k for k, bit in enumerate(rows))


@given(named(("register", "lane", "warp")))
def test_repr_and_json_recreate_the_matrix(linear):
    assert eval(repr(linear)) == linear
    assert LinearLayout.from_json(json.loads(json.dumps(linear.to_json()))) == linear


def test_examples_by_hand():
    # one 8 x 8 fragment of mma.sync: lane l holds row l / 4, columns 2 (l % 4) + register
    fragment = LinearLayout.from_layout(P("(2,(4,8)):(1,(2,8))"), ("register", "lane"))
    assert str(fragment) == "F2[register: 1; lane: 2, 4, 8, 16, 32]"
    assert fragment(fragment.index(lane=9, register=1)) == 8 * 2 + 2 * 1 + 1
    assert str(fragment.to_layout()) == "(2,32):(1,2)"
    assert f2.rank([3, 5, 6]) == 2
    assert LinearLayout((), 0).to_layout() == P("1:0")
    assert str(LinearLayout((), 3)) == "F2[x: -]"


def test_every_refusal():
    refuses("a linear layout cannot have -1 output bits", LinearLayout, (), -1)
    refuses("column 1 of a linear layout is 4, which does not fit into 2 output bits", LinearLayout, (1, 4), 2)
    refuses(
        "inputs lane, lane of a linear layout must have different names",
        LinearLayout,
        (1, 2),
        2,
        (("lane", 1), ("lane", 1)),
    )
    refuses(
        "inputs lane:1, warp:2 of a linear layout must add up to its 2 columns",
        LinearLayout,
        (1, 2),
        2,
        (("lane", 1), ("warp", 2)),
    )
    refuses(
        "(4,3):(1,4) is not linear over F2: size 3 is not a power of two", LinearLayout.from_layout, P("(4,3):(1,4)")
    )
    refuses(
        "(4,4):(1,2) is not linear over F2: the image 2 of a coordinate bit shares bits with the images before it, so "
        "that adding them carries",
        LinearLayout.from_layout,
        P("(4,4):(1,2)"),
    )
    refuses(
        "(4,4):(1,4) has 2 modes; 3 names were given", LinearLayout.from_layout, P("(4,4):(1,4)"), ("a", "b", "c")
    )
    linear = LinearLayout((1, 2, 6), 3, (("lane", 2), ("warp", 1)))
    refuses(
        "F2[lane: 1, 2; warp: 6] is not a shape:stride layout: column 2, 6, shares bits with a column before it, so "
        "that XOR and addition differ",
        linear.to_layout,
    )
    refuses("F2[lane: 1, 2; warp: 6]: index 8 is outside [0, 8)", linear, 8)
    refuses("F2[lane: 1, 2; warp: 6]: index 9 is outside [0, 8)", linear.at, np.array([1, 9]))
    refuses("F2[lane: 1, 2; warp: 6]: index -1 is outside [0, 8)", linear.at, np.array([1, -1]))
    wide = LinearLayout((1 << 70,), 71)
    refuses(f"F2[x: {1 << 70}]: 71 output bits do not fit into 62-bit offsets", wide.offsets)
    with pytest.raises(LayoutError, match=r"^F2\[lane: 1, 2; warp: 6\] has no input 'cta'; its inputs are lane, warp$"):
        linear.index(cta=1)
    with pytest.raises(LayoutError, match=r"^F2\[lane: 1, 2; warp: 6\]: lane 4 is outside \[0, 4\)$"):
        linear.index(lane=4)
    refuses("F2[lane: 1, 2; warp: 6] has no input 'cta'; its inputs are lane, warp", linear.group, "cta")
    refuses("F2[lane: 1, 2; warp: 6] has no input bit 3; it has 3", linear.restrict, [3])
    refuses("F2[lane: 1, 2; warp: 6] has no output bit -1; they count from 0", linear.project, [-1])
    refuses(
        "composing F2[x: 1, 2] with F2[lane: 1, 2; warp: 6]: the inner layout gives 3 bits, the outer one takes 2; "
        "widen one of them",
        LinearLayout.identity(2).compose,
        linear,
    )
    refuses(
        "F2[x: 1, 1] has no inverse: 2 input bits, 2 output bits and rank 1 must all be equal",
        LinearLayout((1, 1), 2).inverse,
    )
    refuses(
        "F2[lane: 1, 2; warp: 6] / F2[lane: 1]: the tile gives 4 bits, the layout only 3",
        linear.left_divide,
        LinearLayout((1,), 4, (("lane", 1),)),
    )
    refuses(
        "F2[lane: 1, 2; warp: 6] / F2[cta: 1]: the layout has no input 'cta'",
        linear.left_divide,
        LinearLayout((1,), 1, (("cta", 1),)),
    )
    refuses(
        "F2[lane: 1, 2; warp: 6] / F2[lane: 2, 1]: the low bits of lane map to 1, 2, not to 2, 1",
        linear.left_divide,
        LinearLayout((2, 1), 2, (("lane", 2),)),
    )
    refuses(
        "F2[lane: 1, 2; warp: 6] / F2[lane: 1, 2]: a bit of warp outside the tile maps to 6, which changes the low 2 "
        "bits",
        linear.left_divide,
        LinearLayout((1, 2), 2, (("lane", 2),)),
    )
    refuses(
        "F2[warp: -] / F2[warp: 1]: the low bits of warp map to nothing, not to 1",
        LinearLayout((), 1, (("warp", 0),)).left_divide,
        LinearLayout((1,), 1, (("warp", 1),)),
    )
