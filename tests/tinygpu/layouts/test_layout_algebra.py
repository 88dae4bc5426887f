"""The algebra of layouts: every law over all coordinates, and every refusal."""

import itertools

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from layout_strategies import any_layouts, digit_layouts, inner_layouts, layouts

from tinygpu.layouts import (
    Layout,
    LayoutError,
    blocked_product,
    coalesce,
    coalesce_modes,
    complement,
    compose,
    concatenate,
    is_tractable,
    left_inverse,
    logical_divide,
    logical_product,
    raked_product,
    right_inverse,
    same_function,
    shapes,
    side_by_side,
    tiled_divide,
    zipped_divide,
)

P = Layout.parse


def refuses(text, function, *args):
    with pytest.raises(LayoutError) as error:
        function(*args)
    assert str(error.value) == text


@settings(max_examples=200)
@given(layouts())
def test_coalesce_keeps_the_function_and_the_size(layout):
    flat = coalesce(layout)
    assert flat.size == layout.size
    assert flat.offsets().tolist() == layout.offsets().tolist()
    assert coalesce(flat) == flat
    assert isinstance(flat.shape, int) or all(isinstance(s, int) and s > 1 for s in flat.shape)


@settings(max_examples=200)
@given(any_layouts(most=24), st.data())
def test_equal_functions_coalesce_to_equal_layouts(layout, data):
    """Cut every mode of the coalesced layout at random: the same function, so the same coalesced layout."""
    pieces = []
    for s, d in coalesce(layout).leaves:
        cut = data.draw(st.sampled_from([c for c in range(1, s + 1) if s % c == 0]))
        pieces += [(cut, d), (1, 77), (s // cut, cut * d)]
    other = Layout(tuple(s for s, _ in pieces), tuple(d for _, d in pieces))
    assert other.offsets().tolist() == layout.offsets().tolist()
    assert coalesce(other) == coalesce(layout)
    assert same_function(other, layout)


@given(any_layouts(most=24, modes=3), any_layouts(most=24, modes=3))
def test_same_function_is_equality_of_all_offsets(a, b):
    assert same_function(a, b) == (a.offsets().tolist() == b.offsets().tolist())


@given(layouts())
def test_coalescing_the_modes_keeps_the_coordinates_of_the_modes(layout):
    flat = coalesce_modes(layout)
    assert flat.rank == layout.rank
    for mode, coalesced in zip(layout, flat, strict=True):
        assert coalesced == coalesce(mode)
    assert flat.offsets().tolist() == layout.offsets().tolist()


def tiles(offsets, codomain):
    """The set C with offsets + C = [0, codomain) and nothing twice, or None; forced step by step, so exact."""
    free, starts = set(range(codomain)), []
    while free:
        start = min(free)  # 0 is an offset, so the least free place must be a start
        copy = {start + o for o in offsets}
        if len(copy) < len(offsets) or not copy <= free:
            return None
        free -= copy
        starts.append(start)
    return starts


@settings(max_examples=400)
@given(layouts(most=48), st.integers(1, 6), st.integers(0, 3))
@example(P("(2,2):(1,3)"), 1, 2)
@example(P("4:2"), 3, 0)
@example(P("(2,2):(0,1)"), 2, 0)
def test_complement_tiles_the_codomain_in_order_or_nothing_does(layout, factor, extra):
    assume(layout.cosize <= 300)
    codomain = factor * max(s * d for s, d in [(1, 1), *layout.leaves]) + extra
    starts = tiles(layout.offsets().tolist(), codomain)
    try:
        rest = complement(layout, codomain)
    except LayoutError:
        assert starts is None
        return
    assert rest.offsets().tolist() == starts  # in order, and the same set as the brute force
    assert sorted(concatenate(layout, rest).offsets().tolist()) == list(range(codomain))
    assert rest.size * layout.size == codomain


@settings(max_examples=200)
@given(digit_layouts(zeros=False), st.integers(1, 3))
def test_layouts_of_digits_have_a_complement(layout, factor):
    extent = max([1, *(s * d for s, d in layout.leaves if s > 1)])
    rest = complement(layout, factor * extent)
    assert sorted(concatenate(layout, rest).offsets().tolist()) == list(range(factor * extent))
    assert same_function(complement(rest, factor * extent), coalesce(_sorted(layout)))


def _sorted(layout):
    modes = sorted((d, s) for s, d in layout.leaves if s > 1)
    return Layout(tuple(s for _, s in modes), tuple(d for d, _ in modes))


@given(layouts())
def test_tractable_without_repetition_means_that_some_complement_exists(layout):
    extent = max([1, *(s * d for s, d in layout.leaves if s > 1)])
    repeats = any(d == 0 for s, d in layout.leaves if s > 1)
    try:
        complement(layout, extent)
    except LayoutError:
        assert repeats or not is_tractable(layout)
    else:
        assert not repeats
        assert is_tractable(layout)


@settings(max_examples=400)
@given(layouts())
@example(P("(4,3):(1,2)"))
@example(P("(3,2):(1,1)"))
def test_right_inverse_is_exact_where_offsets_repeat_by_stride_zero_only(layout):
    offsets = layout.offsets().tolist()
    reaches_all = set(offsets) == set(range(layout.cosize))
    try:
        inverse = right_inverse(layout)
    except LayoutError:
        distinct = shapes.size(tuple(s for s, d in layout.leaves if d))
        assert not reaches_all or len(set(offsets)) < distinct
        return
    assert reaches_all
    assert inverse.size == layout.cosize
    assert [layout(inverse(i)) for i in range(layout.cosize)] == list(range(layout.cosize))


@settings(max_examples=200)
@given(digit_layouts(gaps=False, zeros=False))
def test_a_bijection_has_one_inverse_on_both_sides(layout):
    right, left = right_inverse(layout), left_inverse(layout)
    assert same_function(left, right)
    assert same_function(compose(layout, right), Layout(layout.size, 1))
    assert same_function(compose(left, layout), Layout(layout.size, 1))
    assert same_function(right_inverse(right), layout)


@settings(max_examples=300)
@given(layouts())
@example(P("(32,32):(1,33)"))
@example(P("4:2"))
def test_left_inverse_undoes_every_offset_or_refuses(layout):
    try:
        inverse = left_inverse(layout)
    except LayoutError:
        strides = sorted(d for s, d in layout.leaves if s > 1)
        divide = 0 not in strides and all(b % a == 0 for a, b in itertools.pairwise(strides))
        # where the strides divide one another, the refusal is exact
        assert not divide or len(set(layout.offsets().tolist())) < layout.size
        return
    assert inverse.size >= layout.cosize
    assert [inverse(layout(x)) for x in range(layout.size)] == list(range(layout.size))


@given(digit_layouts(zeros=False), st.integers(0, 5))
def test_padded_layouts_have_a_left_inverse(layout, pad):
    extent = layout.cosize + pad
    padded = concatenate(layout, Layout(3, extent * max([1, *(d for _, d in layout.leaves)])))
    inverse = left_inverse(padded)
    assert [inverse(padded(x)) for x in range(padded.size)] == list(range(padded.size))


@st.composite
def divisions(draw):
    layout = draw(layouts())
    tile = draw(st.one_of(inner_layouts(layout.size, modes=2), digit_layouts(most=24, zeros=False)))
    assume(tile.cosize <= layout.size)
    return layout, tile


@settings(max_examples=300)
@given(divisions())
@example((Layout.column_major(24), P("4:2")))
@example((P("(4,(2,4)):(8,(4,1))"), P("(2,4):(4,8)")))
def test_logical_divide_holds_the_tile_and_permutes_the_elements(pair):
    layout, tile = pair
    try:
        divided = logical_divide(layout, tile)
    except LayoutError:
        try:
            rest = complement(tile, layout.size)
        except LayoutError:
            assert tiles(tile.offsets().tolist(), layout.size) is None
            return
        with pytest.raises(LayoutError):
            compose(layout, concatenate(tile, rest))
        return
    rest = complement(tile, layout.size)
    assert divided.rank == 2
    assert divided.size == layout.size
    assert shapes.refines(divided[0].shape, tile.shape)
    assert divided[0].offsets().tolist() == [layout(tile(i)) for i in range(tile.size)]
    assert divided.offsets().tolist() == [layout(tile(i) + rest(j)) for j in range(rest.size) for i in range(tile.size)]
    assert sorted(divided.offsets().tolist()) == sorted(layout.offsets().tolist())


@settings(max_examples=300)
@given(layouts(most=32), layouts(most=16))
@example(P("(2,2):(4,1)"), P("6:1"))
@example(P("4:2"), P("3:2"))
def test_logical_product_places_copies_that_never_overlap(layout, tiling):
    try:
        product = logical_product(layout, tiling)
    except LayoutError:
        # no complement in any codomain, or its modes cannot be cut as the tiling asks
        if is_tractable(layout) and 0 not in [d for s, d in layout.leaves if s > 1]:
            extent = max([1, *(s * d for s, d in layout.leaves if s > 1)])
            rest = complement(layout, -(-layout.size * tiling.cosize // extent) * extent)
            with pytest.raises(LayoutError):
                compose(rest, tiling)
        return
    assert product[0] == layout
    assert shapes.refines(product[1].shape, tiling.shape)
    starts = product[1].offsets().tolist()
    # copies coincide where the tiling repeats itself, and are disjoint elsewhere
    copies = {}
    for y, start in enumerate(starts):
        copy = frozenset(start + o for o in layout.offsets().tolist())
        assert len(copy) == layout.size
        assert copies.setdefault(tiling(y), copy) == copy
    assert len(set().union(*copies.values())) == layout.size * len(copies)
    wanted = [layout(x) + starts[y] for y in range(tiling.size) for x in range(layout.size)]
    assert product.offsets().tolist() == wanted
    # the copies stand in the order of the tiling
    order = [start for _, start in sorted({(tiling(y), start) for y, start in enumerate(starts)})]
    assert order == sorted(order)


def test_zipped_and_tiled_divide_gather_the_tiles():
    layout = Layout.row_major((8, 12, 3))
    tiles_ = (P("4:1"), P("3:2"))
    zipped, tiled = zipped_divide(layout, tiles_), tiled_divide(layout, tiles_)
    assert str(zipped) == "((4,3),(2,(2,2),3)):((36,6),(144,(3,18),1))"
    assert str(tiled) == "((4,3),2,(2,2),3):((36,6),144,(3,18),1)"
    table = layout.offsets().reshape(3, 12, 8).T
    for i in range(4):
        for j in range(3):
            assert zipped((i, j), 0) == tiled((i, j), 0, 0, 0) == table[i, 2 * j, 0]
    assert sorted(zipped.offsets()) == sorted(tiled.offsets()) == list(range(layout.size))


@settings(max_examples=200)
@given(layouts(most=16), layouts(most=8))
@example(P("3:4"), P("4:6"))  # the tiling's one mode is cut into two
@example(P("(4,2):(1,8)"), P("(2,3):(1,2)"))
def test_products_by_modes_pair_each_mode_with_its_copies(layout, tiling):
    assume(layout.rank == tiling.rank)
    try:
        copies = logical_product(layout, tiling)[1]
    except LayoutError:
        for product in (blocked_product, raked_product):
            with pytest.raises(LayoutError):
                product(layout, tiling)
        return
    blocked, raked = blocked_product(layout, tiling), raked_product(layout, tiling)
    assert blocked.rank == raked.rank == layout.rank
    for x in range(layout.size):
        for y in range(tiling.size):
            inner, outer = _by_modes(x, layout), _by_modes(y, tiling)
            assert blocked(tuple(zip(inner, outer, strict=True))) == layout(x) + copies(y)
            assert raked(tuple(zip(outer, inner, strict=True))) == layout(x) + copies(y)


def _by_modes(index, layout):
    """The linear index into each mode."""
    return shapes.coordinate_of(index, tuple(mode.size for mode in layout.modes))


@given(layouts(most=20), layouts(most=20), st.integers(0, 4))
def test_side_by_side_and_concatenate_by_coordinates(a, b, room):
    codomain = a.cosize + room
    product, joined = side_by_side(a, b, codomain), concatenate(a, b)
    for x in range(a.size):
        for y in range(b.size):
            assert product(x, y) == a(x) + codomain * b(y)
            assert joined(x, y) == a(x) + b(y)
    assert concatenate(a) == Layout((a.shape,), (a.stride,))
    assert concatenate().size == 1


@settings(max_examples=100)
@given(layouts(most=12), layouts(most=12), layouts(most=6))
def test_side_by_side_is_associative_with_a_unit(a, b, c):
    m, n = a.cosize, b.cosize
    left = side_by_side(side_by_side(a, b, m), c, m * n)
    right = side_by_side(a, side_by_side(b, c, n), m)
    assert same_function(left, right)
    unit = Layout((), ())
    assert same_function(side_by_side(unit, a, 1), a)
    assert same_function(side_by_side(a, unit, m), a)


def test_results_of_the_papers():
    assert str(coalesce(P("(2,(1,6)):(1,(6,2))"))) == "12:1"
    assert str(complement(P("4:1"), 24)) == "6:4"
    assert str(complement(P("6:4"), 24)) == "4:1"
    assert str(complement(P("(4,6):(1,4)"), 24)) == "1:0"
    assert str(complement(P("4:2"), 24)) == "(2,3):(1,8)"
    assert str(complement(P("(2,4):(1,6)"), 24)) == "3:2"
    assert str(complement(P("(2,2):(1,6)"), 24)) == "(3,2):(2,12)"
    assert str(logical_divide(P("(4,2,3):(2,1,8)"), P("4:2"))) == "((2,2),(2,3)):((4,1),(2,8))"
    assert str(logical_product(P("(2,2):(4,1)"), P("(4,2):(2,1)"))) == "((2,2),(4,2)):((4,1),(8,2))"
    assert str(right_inverse(P("(4,8):(8,1)"))) == "(8,4):(4,1)"
    assert str(left_inverse(P("(4,8):(1,5)"))) == "(5,8):(1,4)"


def test_large_layouts_need_no_listing():
    big = 1 << 40
    assert str(complement(Layout(big, 2), 4 * big)) == f"(2,2):(1,{2 * big})"
    assert str(right_inverse(Layout((big, 8), (8, 1)))) == f"(8,{big}):({big},1)"
    assert str(logical_divide(Layout(big, 1), Layout(64, 1))) == f"(64,{big // 64}):(1,64)"


def test_every_refusal():
    refuses("complement of 4:2 in 0: a codomain has a size of 1 or more", complement, P("4:2"), 0)
    refuses(
        "complement of (4,2):(1,0) in 8: the mode 2:0 repeats offsets 2 times; a complement needs each offset once",
        complement,
        P("(4,2):(1,0)"),
        8,
    )
    refuses(
        "complement of (2,2):(1,3) in 12: stride 3 must be a multiple of 2, the extent of the modes with smaller "
        "strides",
        complement,
        P("(2,2):(1,3)"),
        12,
    )
    refuses(
        "complement of 4:2 in 12: 12 must be a multiple of 8, the extent of the layout", complement, P("4:2"), 12
    )
    refuses(
        "right inverse of (4,2):(1,8): its strides, in order, reach [0, 4); they must reach every offset in [0, 12)",
        right_inverse,
        P("(4,2):(1,8)"),
    )
    refuses(
        "left inverse of (2,4):(0,1): the mode 2:0 repeats offsets 2 times; an inverse needs each offset once",
        left_inverse,
        P("(2,4):(0,1)"),
    )
    refuses(
        "left inverse of (2,2):(2,3): stride 3 must be a multiple of the next smaller stride, 2",
        left_inverse,
        P("(2,2):(2,3)"),
    )
    refuses(
        "left inverse of (4,4):(1,2): the mode 4:2 overlaps 4:1; its stride must be 4 or more",
        left_inverse,
        P("(4,4):(1,2)"),
    )
    refuses(
        "4:2 side by side with 3:1: offset 6 of 4:2 is outside [0, 6), its codomain",
        side_by_side,
        P("4:2"),
        P("3:1"),
        6,
    )
    refuses(
        "dividing 12:1 by 8:1: complement of 8:1 in 12: 12 must be a multiple of 8, the extent of the layout",
        logical_divide,
        P("12:1"),
        P("8:1"),
    )
    refuses(
        "dividing (4,3):(1,10) by 3:1: composing (4,3):(1,10) with (3,4):(1,3): at (1,1) the offset is 10, and its "
        "modes one by one give 4, so no shape:stride with these modes gives these offsets",
        logical_divide,
        P("(4,3):(1,10)"),
        P("3:1"),
    )
    refuses(
        "dividing (4,3):(1,10) by 3 tiles: it has 2 modes, and each takes one tile at most",
        zipped_divide,
        P("(4,3):(1,10)"),
        (P("2:1"), P("3:1"), P("1:1")),
    )
    refuses(
        "product of (4,2):(1,0) and 3:1: complement of (4,2):(1,0) in 24: the mode 2:0 repeats offsets 2 times; a "
        "complement needs each offset once",
        logical_product,
        P("(4,2):(1,0)"),
        P("3:1"),
    )
    refuses(
        "product of 4:1 and (2,2):(1,2), mode by mode: both need the same number of modes, not 1 and 2",
        blocked_product,
        P("4:1"),
        P("(2,2):(1,2)"),
    )
