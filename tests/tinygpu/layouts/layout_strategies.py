"""Random layouts for the property tests, and the brute force that judges them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from hypothesis import strategies as st

from tinygpu.layouts import Layout, LinearLayout
from tinygpu.layouts.shapes import IntTuple, flatten, prefix_products, size

SIZES = st.sampled_from([1, 2, 2, 3, 4, 4, 5, 6, 8])


@st.composite
def nestings(draw: st.DrawFn, leaves: int) -> IntTuple:
    """A random profile with that many leaves."""
    profile: list[IntTuple] = [0] * leaves
    while len(profile) > 1 and draw(st.booleans()):
        at = draw(st.integers(0, len(profile) - 1))
        width = draw(st.integers(1, len(profile) - at))
        profile[at : at + width] = [tuple(profile[at : at + width])]
    return profile[0] if len(profile) == 1 and draw(st.booleans()) else tuple(profile)


@st.composite
def any_layouts(draw: st.DrawFn, most: int = 200, modes: int = 4) -> Layout:
    """Any sizes, any strides: zeros, overlaps, gaps, nested modes, modes of size 1, no modes at all."""
    sizes = draw(st.lists(SIZES, max_size=modes).filter(lambda s: size(tuple(s)) <= most))
    strides = [draw(st.one_of(st.sampled_from([0, 1, 2, 4]), st.integers(0, 40))) for _ in sizes]
    profile = draw(nestings(len(sizes)))
    return Layout.from_leaves(profile, tuple(sizes), tuple(strides))


@st.composite
def digit_layouts(draw: st.DrawFn, most: int = 200, gaps: bool = True, zeros: bool = True) -> Layout:
    """Permuted digits of one mixed-radix number, some left out (gaps) or repeated by stride 0 (zeros)."""
    radices = draw(st.lists(SIZES, max_size=5).filter(lambda s: size(tuple(s)) <= most))
    modes = list(zip(radices, prefix_products(tuple(radices)), strict=True))
    if gaps:
        modes = [mode for mode in modes if draw(st.integers(0, 3))]
    if zeros:
        modes = [(s, d if draw(st.integers(0, 4)) else 0) for s, d in modes]
    modes = list(draw(st.permutations(modes)))
    profile = draw(nestings(len(modes)))
    return Layout.from_leaves(profile, tuple(s for s, _ in modes), tuple(d for _, d in modes))


def layouts(most: int = 200) -> st.SearchStrategy[Layout]:
    return st.one_of(any_layouts(most), digit_layouts(most))


@st.composite
def inner_layouts(draw: st.DrawFn, extent: int, modes: int = 3) -> Layout:
    """A layout whose offsets lie in [0, extent), most often along divisors of it."""
    sizes: list[int] = []
    strides: list[int] = []
    room = extent - 1
    steps = [d for d in range(1, extent + 1) if extent % d == 0]
    for _ in range(draw(st.integers(0, modes))):
        stride = draw(st.one_of(st.sampled_from([0, *steps]), st.integers(0, max(1, extent // 2))))
        s = draw(SIZES)
        if stride and (s - 1) * stride > room:
            s = room // stride + 1
        if s * size(tuple(sizes)) > 256:
            continue
        room -= (s - 1) * stride
        sizes.append(s)
        strides.append(stride)
    order = draw(st.permutations(range(len(sizes))))
    return Layout.from_leaves(
        draw(nestings(len(sizes))), tuple(sizes[k] for k in order), tuple(strides[k] for k in order)
    )


@st.composite
def linear_layouts(draw: st.DrawFn, in_bits: int | None = None, most: int = 6) -> LinearLayout:
    """Any 0/1 matrix."""
    n = draw(st.integers(0, most)) if in_bits is None else in_bits
    m = draw(st.integers(0, most))
    return LinearLayout(tuple(draw(st.integers(0, (1 << m) - 1)) for _ in range(n)), m)


@st.composite
def bijections(draw: st.DrawFn, bits: int) -> LinearLayout:
    """An invertible matrix: a product of elementary ones."""
    columns = [1 << k for k in draw(st.permutations(range(bits)))]
    for _ in range(draw(st.integers(0, 2 * bits)) if bits > 1 else 0):
        a, b = draw(st.permutations(range(bits)))[:2]
        columns[a] ^= columns[b]
    return LinearLayout(tuple(columns), bits)


def ordered_factors(n: int) -> Iterator[tuple[int, ...]]:
    """All ways to write n as an ordered product of factors of 2 or more."""
    if n == 1:
        yield ()
    for first in range(2, n + 1):
        if n % first == 0:
            for rest in ordered_factors(n // first):
                yield (first, *rest)


def is_layout_function(values: np.ndarray, shape: IntTuple) -> bool:
    """True when some layout whose shape refines `shape` has these offsets; by trying every refinement.

    values   (size,) or (size, axes) the offsets in colexicographic order
    The strides of a refinement are forced: they are the values one step along each of its modes.
    """
    for cut in itertools.product(*(list(ordered_factors(leaf)) for leaf in flatten(shape))):
        sizes = tuple(s for group in cut for s in group)
        total = np.zeros_like(values)
        rest = np.arange(len(values))
        for s, step in zip(sizes, prefix_products(sizes), strict=True):
            total = total + np.multiply.outer(rest % s, values[step])
            rest = rest // s
        if (total == values).all():
            return True
    return False


