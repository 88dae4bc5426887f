"""The algebra of layouts: coalesce, complement, inverses, divide, product, side by side.

Every operation has a law over all coordinates, written in its first lines, and is total or refuses with a
LayoutError that gives the numbers. None returns a shorter domain than it was asked for.
"""

from __future__ import annotations

from tinygpu.layouts import shapes
from tinygpu.layouts.composition import compose
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf, same, times
from tinygpu.layouts.shapes import IntTuple
from tinygpu.layouts.step import Step


def coalesce(layout: Layout) -> Layout:
    """The flat layout with the fewest modes and the same offset or coordinates at every linear index; total.

    Size 1 drops, and s0:d0, s1:(s0 d0) becomes (s0 s1):d0. Two layouts of numbers and of the same size are the same
    function if and only if they coalesce to equal values; expressions are joined where they are the same ones.

    >>> print(coalesce(Layout.parse("(2,(1,6)):(1,(7,2))")), coalesce(Layout.parse("(4,2):(1@0,4@0)")))
    12:1 8:1@0
    """
    out: list[tuple[Leaf, Leaf | Step]] = []
    for size, stride in layout.steps:
        if same(size, 1):
            continue
        if out and _goes_on(out[-1], stride):
            out[-1] = (times(out[-1][0], size), out[-1][1])
        else:
            out.append((size, stride))
    return Layout.regrouped(out)[0]


def _goes_on(mode: tuple[Leaf, Leaf | Step], stride: Leaf | Step) -> bool:
    """Whether `stride` goes on where the mode stops."""
    size, step = mode
    if isinstance(step, Step) or isinstance(stride, Step):
        return isinstance(step, Step) and isinstance(stride, Step) and step * size == stride
    return same(times(step, size), stride)


def coalesce_modes(layout: Layout) -> Layout:
    """Each top-level mode coalesced on its own: the same offset at every coordinate (x_0, ..., x_k); total."""
    return concatenate(*(coalesce(mode) for mode in layout.modes))


def same_function(a: Layout, b: Layout) -> bool:
    """True when both have the same size and the same offset at every linear index."""
    return coalesce(a) == coalesce(b)


def is_tractable(layout: Layout) -> bool:
    """True when, of the modes with stride > 0 and size > 1 in the order of their strides, each s_i d_i divides d_i+1.

    These are the layouts that only permute, drop and repeat the digits of one mixed-radix number. Those that repeat
    nothing are exactly the layouts with a complement.
    """
    period = 1
    for d, s in sorted((d, s) for s, d in layout.leaves if s > 1 and d > 0):
        if d % period:
            return False
        period = s * d
    return True


def complement(layout: Layout, codomain: int) -> Layout:
    """The layout C such that (layout, C) is a bijection onto [0, codomain), with the offsets of C in increasing order.

    Exists if and only if layout does not repeat an offset and, in the order of the strides, each s_i d_i divides
    the next stride, and the last one divides codomain. Size of C: codomain / layout.size.

    >>> print(complement(Layout.parse("4:2"), 24))
    (2,3):(1,8)
    """
    where = f"complement of {layout} in {codomain}"
    if codomain < 1:
        raise LayoutError(f"{where}: a codomain has a size of 1 or more")
    gaps, period = [], 1
    for d, s in sorted((d, s) for s, d in layout.leaves if s > 1):
        if d == 0:
            raise LayoutError(f"{where}: the mode {s}:0 repeats offsets {s} times; a complement needs each offset once")
        if d % period:
            raise LayoutError(
                f"{where}: stride {d} must be a multiple of {period}, the extent of the modes with smaller strides"
            )
        gaps.append((d // period, period))
        period = s * d
    if codomain % period:
        raise LayoutError(f"{where}: {codomain} must be a multiple of {period}, the extent of the layout")
    gaps.append((codomain // period, period))
    return coalesce(_flat(gaps))


def right_inverse(layout: Layout) -> Layout:
    """R with layout(R(i)) == i for every i in [0, layout.cosize).

    Needs a layout that reaches every offset below its cosize; one that may repeat offsets by stride 0. For these the
    refusal is exact. A layout that overlaps in another way, such as (3,5):(1,2), is inverted where its
    strides, in order, each divide the extent that was reached so far, and refused otherwise.

    >>> print(right_inverse(Layout.parse("(4,8):(8,1)")))
    (8,4):(4,1)
    """
    sizes = tuple(s for s, _ in layout.leaves)
    modes = [(d, s, p) for (s, d), p in zip(layout.leaves, shapes.prefix_products(sizes), strict=True) if s > 1 and d]
    chain, reached = [], 1
    for d, s, p in sorted(modes):
        if reached % d == 0:
            # every (reached / d)-th step of this mode goes on where the ones before it stopped
            skip = reached // d
            count = (s - 1) // skip + 1
            chain.append((count, skip * p))
            reached *= count
    if reached < layout.cosize:
        raise LayoutError(
            f"right inverse of {layout}: its strides, in order, reach [0, {reached}); they must reach every offset "
            f"in [0, {layout.cosize})"
        )
    return coalesce(_flat(chain))


def left_inverse(layout: Layout) -> Layout:
    """L with L(layout(x)) == x for every linear index x; its domain holds every offset of layout.

    Padding is welcome: (4,8):(1,5) has the left inverse (5,8):(1,4). Needs, in the order of the strides, each
    stride to be a multiple of the one before, d_i | d_i+1, and large enough that nothing overlaps,
    s_i d_i <= d_i+1. A layout with strides that do not divide one another is refused, though it may be one to one.
    What L gives on offsets that layout does not reach is not specified.

    >>> print(left_inverse(Layout.parse("(4,8):(1,5)")))
    (5,8):(1,4)
    """
    where = f"left inverse of {layout}"
    sizes = tuple(s for s, _ in layout.leaves)
    modes = sorted(
        (d, s, p) for (s, d), p in zip(layout.leaves, shapes.prefix_products(sizes), strict=True) if s > 1
    )
    inverse, last_size, last_stride, last_step = [], 1, 1, 0
    for d, s, p in modes:
        if d == 0:
            raise LayoutError(f"{where}: the mode {s}:0 repeats offsets {s} times; an inverse needs each offset once")
        if d % last_stride:
            raise LayoutError(f"{where}: stride {d} must be a multiple of the next smaller stride, {last_stride}")
        if d < last_size * last_stride:
            raise LayoutError(
                f"{where}: the mode {s}:{d} overlaps {last_size}:{last_stride}; its stride must be "
                f"{last_size * last_stride} or more"
            )
        inverse.append((d // last_stride, last_step))
        last_size, last_stride, last_step = s, d, p
    inverse.append((last_size, last_step))
    return coalesce(_flat(inverse))


def concatenate(*layouts: Layout) -> Layout:
    """(A, B, ...): one mode per layout, into the same codomain; (A, B)(x, y) = A(x) + B(y); total."""
    return Layout(tuple(layout.shape for layout in layouts), tuple(layout.stride for layout in layouts))


def side_by_side(a: Layout, b: Layout, codomain: int) -> Layout:
    """The product of maps: (x, y) -> a(x) + codomain * b(y), where codomain is the size of the space that a maps into.

    A functor: with a' of size `codomain`, (a' o a) x (b' o b) = (a' x b') o (a x b).

    >>> print(side_by_side(Layout.parse("4:2"), Layout.parse("3:1"), codomain=8))
    (4,3):(2,8)
    """
    if a.cosize > codomain:
        raise LayoutError(
            f"{a} side by side with {b}: offset {a.cosize - 1} of {a} is outside [0, {codomain}), its codomain"
        )
    return concatenate(a, _scaled(b, codomain))


def logical_divide(layout: Layout, tile: Layout) -> Layout:
    """(T, R): mode 0 is layout o tile, the elements of the first tile; mode 1 goes from tile to tile.

    The whole is layout o (tile, complement(tile, layout.size)): the same elements in another order. Refuses where that
    complement does not exist, or layout cannot be cut that way.

    >>> print(logical_divide(Layout.column_major(24), Layout.parse("4:2")))
    (4,(2,3)):(2,(1,8))
    """
    try:
        rest = complement(tile, layout.size)
        return compose(layout, concatenate(tile, rest))
    except LayoutError as error:
        raise LayoutError(f"dividing {layout} by {tile}: {error}") from error


def zipped_divide(layout: Layout, tiles: tuple[Layout, ...]) -> Layout:
    """((T_0, T_1, ...), (R_0, R_1, ...)): mode i divided by tiles[i]; modes without a tile stay in the rest."""
    tile, rest = _divided(layout, tiles)
    return concatenate(concatenate(*tile), concatenate(*rest))


def tiled_divide(layout: Layout, tiles: tuple[Layout, ...]) -> Layout:
    """((T_0, T_1, ...), R_0, R_1, ...): as `zipped_divide`, with the rest as modes of their own."""
    tile, rest = _divided(layout, tiles)
    return concatenate(concatenate(*tile), *rest)


def _divided(layout: Layout, tiles: tuple[Layout, ...]) -> tuple[list[Layout], list[Layout]]:
    modes = layout.modes
    if len(tiles) > len(modes):
        raise LayoutError(
            f"dividing {layout} by {len(tiles)} tiles: it has {len(modes)} modes, and each takes one tile at most"
        )
    pairs = [logical_divide(mode, tile) for mode, tile in zip(modes, tiles, strict=False)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs] + list(modes[len(tiles) :])


def logical_product(layout: Layout, tiling: Layout) -> Layout:
    """(A, A* o tiling): mode 0 is layout itself, mode 1 places its copies, which never overlap.

    A* is the complement of layout in the least codomain that holds all copies.

    >>> print(logical_product(Layout.parse("(2,2):(4,1)"), Layout.parse("6:1")))
    ((2,2),(2,3)):((4,1),(2,8))
    """
    try:
        extent = max((s * d for s, d in layout.leaves if s > 1), default=1) or 1
        codomain = -(-layout.size * tiling.cosize // extent) * extent
        return concatenate(layout, compose(complement(layout, codomain), tiling))
    except LayoutError as error:
        raise LayoutError(f"product of {layout} and {tiling}: {error}") from error


def blocked_product(layout: Layout, tiling: Layout) -> Layout:
    """((A_0, T_0), (A_1, T_1), ...): the copies of `logical_product` laid out as blocks, mode by mode."""
    return _zipped_product(layout, tiling, blocked=True)


def raked_product(layout: Layout, tiling: Layout) -> Layout:
    """((T_0, A_0), (T_1, A_1), ...): the copies of `logical_product` interleaved, mode by mode."""
    return _zipped_product(layout, tiling, blocked=False)


def _zipped_product(layout: Layout, tiling: Layout, blocked: bool) -> Layout:
    if layout.rank != tiling.rank:
        raise LayoutError(
            f"product of {layout} and {tiling}, mode by mode: both need the same number of modes, "
            f"not {layout.rank} and {tiling.rank}"
        )
    copies = logical_product(layout, tiling)[1]
    # composition may have cut a tiling of one mode into a group, which stays one mode
    placed = copies.modes if isinstance(tiling.shape, tuple) else (copies,)
    pairs = list(zip(layout.modes, placed, strict=True))
    return concatenate(*(concatenate(a, t) if blocked else concatenate(t, a) for a, t in pairs))


def _flat(modes: list[tuple[int, int]]) -> Layout:
    """A flat layout: an integer shape for one mode, 1:0 for none."""
    if not modes:
        return Layout(1, 0)
    if len(modes) == 1:
        return Layout(*modes[0])
    return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))


def _scaled(layout: Layout, factor: int) -> Layout:
    stride: tuple[IntTuple, ...] = tuple(d * factor for _, d in layout.leaves)
    return Layout(layout.shape, shapes.unflatten(stride, layout.shape))
