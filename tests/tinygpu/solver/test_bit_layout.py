"""The general swizzle x ^ S * high(x): invertible, and the best of all that listing finds; nothing linear beats it."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tinygpu.constraints.query import Notebook
from tinygpu.cost.banks import count_wavefronts, matrix_wavefronts
from tinygpu.layouts.f2 import images, rank
from tinygpu.solver import BitAccess, TileAccess, XorLayout, solve_bits, solve_smem


@st.composite
def bit_accesses(draw: st.DrawFn, name: str, bits: int, widest: int) -> BitAccess:
    kind = draw(st.sampled_from(("ldst", "ldst", "ldmatrix"))) if widest == 16 else "ldst"
    width = 16 if kind == "ldmatrix" else draw(st.sampled_from([w for w in (2, 4, 8, 16) if w <= widest]))
    low = width.bit_length() - 1
    one_bit = st.integers(low, bits - 1).map(lambda bit: 1 << bit)
    several = st.integers(0, (1 << (bits - low)) - 1).map(lambda value: value << low)
    count = 3 if kind == "ldmatrix" else 5
    columns = draw(st.lists(st.one_of(one_bit, one_bit, several), min_size=count, max_size=count))
    return BitAccess(name, tuple(columns), width, kind, draw(st.integers(1, 3)))  # type: ignore[arg-type]


def total(accesses: list[BitAccess], addresses: list[np.ndarray]) -> int:  # type: ignore[type-arg]
    found = 0
    for access, lanes in zip(accesses, addresses, strict=True):
        matrix = access.kind == "ldmatrix"
        found += access.weight * int(
            matrix_wavefronts(lanes) if matrix else count_wavefronts(lanes, access.width_bytes)
        )
    return found


def least_of_any_placement(access: BitAccess, vector: int) -> int:
    """Units with the same place inside their vector share the starts of vectors that the banks have; linear maps crowd
    every start that they reach alike, by a power of two.
    """
    unit = max(access.width_bytes, 4)
    (first, *_) = access.offsets().reshape(access.phase_count, -1)
    places = Counter(offset % vector for offset in {int(o) // unit * unit for o in first})
    share = -(-max(places.values()) // (128 // vector))
    return access.weight * access.phase_count * (1 << (share - 1).bit_length())


@given(st.integers(8, 12), st.data())
@settings(max_examples=100)
def test_a_layout_is_a_bijection_that_its_inverse_undoes(bits: int, data: st.DataObject) -> None:
    sources = data.draw(st.lists(st.integers(1, bits - 1), unique=True, max_size=5))
    layout = XorLayout(bits, tuple((bit, data.draw(st.integers(1, (1 << bit) - 1))) for bit in sorted(sources)))
    offsets = np.arange(1 << bits)
    addresses = layout.address(offsets)
    assert np.array_equal(np.sort(addresses), offsets)
    assert np.array_equal(layout.offset(addresses), offsets)
    assert eval(repr(layout)) == layout


@given(st.sampled_from((8, 16)), st.integers(8, 10), st.integers(1, 3), st.data())
@settings(max_examples=50)
def test_the_solution_is_the_best_of_all_swizzles_that_listing_finds(
    widest: int, bits: int, count: int, data: st.DataObject
) -> None:
    accesses = [data.draw(bit_accesses(name, bits, widest)) for name in ("a", "b", "c")[:count]]
    vector = max(4, *(access.width_bytes for access in accesses))
    masks = range(0, 128, vector)
    assume(len(masks) ** (bits - 7) <= 600)
    best = min(
        total(accesses, [layout.address(access.offsets()) for access in accesses])
        for chosen in itertools.product(masks, repeat=bits - 7)
        for layout in [XorLayout(bits, tuple((7 + place, mask) for place, mask in enumerate(chosen) if mask))]
    )
    notebook = Notebook()
    solution = solve_bits(bits, accesses, notebook=notebook)
    found = total(accesses, [solution.layout.address(access.offsets()) for access in accesses])
    assert solution.verdict == "proved"
    assert found == best
    assert [one.wavefronts for one in solution.accesses] == [one.wavefronts(solution.layout) for one in accesses]
    ideal = sum(access.weight * access.phase_count for access in accesses)
    fewest = sum(least_of_any_placement(access, vector) for access in accesses)
    assert solution.proof == ("ideal" if found == ideal else "pigeonhole" if found == fewest else "refuted")
    assert solution.conflict_free == (solution.proof == "ideal")
    assert solution.asked == len(notebook.record)


@given(st.integers(9, 11), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
def test_no_linear_placement_of_whole_vectors_beats_it_once_a_line_is_read(bits: int, data: st.DataObject) -> None:
    """An access that reads 128 bytes in a row forces the bank kernel to be one that this form reaches."""
    line = BitAccess("line", (16, 32, 64, 128, 256), 16, weight=1000)
    accesses = [line, data.draw(bit_accesses("other", bits, 16))]
    columns = [16 * data.draw(st.integers(1, (1 << (bits - 4)) - 1)) for _ in range(bits - 4)]
    assume(rank(columns) == bits - 4)
    placement = images([1, 2, 4, 8, *columns])
    solution = solve_bits(bits, accesses)
    found = total(accesses, [solution.layout.address(access.offsets()) for access in accesses])
    assert found <= total(accesses, [placement[access.offsets()] for access in accesses])


def test_short_rows_share_a_line_where_a_swizzle_of_columns_alone_cannot_help() -> None:
    """Rows of 64 bytes: here an even and an odd row may change places, which no XOR of columns does."""
    copy = BitAccess("copy in", (16, 32, 64, 128, 256), 16, "cp.async")
    read = BitAccess("read", (128, 256, 4, 8, 16), 4)
    solution = solve_bits(12, [copy, read])
    assert solution.conflict_free
    assert sorted(mask for _, mask in solution.layout.xor) == [32, 64]
    # The same tile by its columns, with no padding: two wavefronts at best.
    lane = np.arange(32)
    rows = TileAccess("copy in", np.stack([lane // 4, 16 * (lane % 4)], axis=-1)[None], 16, "cp.async")
    pairs = TileAccess("read", np.stack([2 * (lane % 4), 4 * (lane // 4)], axis=-1)[None], 4)
    tile = solve_smem(64, 64, [rows, pairs], allow_padding=False)
    assert ([one.wavefronts for one in tile.accesses], tile.proof) == ([4, 2], "refuted")


def test_where_z3_gives_up_the_answer_is_unknown() -> None:
    accesses = [BitAccess("walk", (128, 256, 512, 1024, 2048), 4), BitAccess("line", (4, 8, 16, 32, 64), 4)]
    solution = solve_bits(12, accesses, rlimit=1)
    assert (solution.verdict, solution.proof, solution.layout.xor) == ("unknown", "none", ())
    assert solution.sentence == (
        "no layout is known that serves both accesses without bank conflicts: the best found: walk takes 32 wavefronts "
        "instead of 1; not proved: Z3 gave up on a better one (resource limit of 1)"
    )
    assert solve_bits(12, accesses).conflict_free


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BitAccess("a", (4, 8), 4), "[access 'a'] ldst has 5 lane bits, not 2"),
        (lambda: BitAccess("a", (16, 32, 64), 8, "ldmatrix"), "[access 'a'] ldmatrix moves rows of 16 bytes, not 8"),
        (
            lambda: BitAccess("a", (4, 8, 16, 32, 64), 8),
            "[access 'a'] lane bit 0 moves the offset by 4, which is not a multiple of the 8 bytes that a lane moves",
        ),
        (
            lambda: BitAccess("a", (4, 8, 16, 32, 64), 4, "tma"),  # type: ignore[arg-type]
            "[access 'a'] the kind is one of ldst, ldmatrix, cp.async, not 'tma'",
        ),
        (
            lambda: BitAccess("a", (4, 8, 16, 32, 64), 4, weight=0),
            "[access 'a'] the weight must be a positive integer, not 0",
        ),
        (
            lambda: XorLayout(8, ((7, 128),)),
            "[xor layout] the mask 128 of bit 7 must flip bits below bit 7, and offsets have 8 bits",
        ),
        (
            lambda: XorLayout(8, ((7, 0),)),
            "[xor layout] the mask 0 of bit 7 must flip bits below bit 7, and offsets have 8 bits",
        ),
        (
            lambda: XorLayout(9, ((8, 16), (7, 16))),
            "[xor layout] source bits are listed once each, in rising order",
        ),
        (lambda: XorLayout(8).address(np.array([256])), "[xor layout] offsets lie in 0 to 255"),
        (lambda: solve_bits(8, []), "[xor solver] a layout is chosen for its accesses, but none was given"),
        (
            lambda: solve_bits(8, [BitAccess("a", (4, 8, 16, 32, 256), 4)]),
            "[access 'a'] it leaves the 256 bytes of the layout",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message


def test_a_solution_says_how_long_it_took() -> None:
    start = time.perf_counter()
    found = solve_bits(10, [BitAccess("row", tuple(4 << i for i in range(5)), 4)])
    assert 0 < found.seconds <= time.perf_counter() - start
