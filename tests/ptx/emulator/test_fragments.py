"""Fragments and sparsity: the index formulas of the manual, lane by lane and element by element."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.fragments import (
    Fragment,
    accumulator_fragment,
    byte_matrix_fragment,
    left_fragment,
    make_fragment,
    quad_pair_accumulator,
    quad_pair_operand,
    right_fragment,
)
from tinygpu.ptx.emulator.units.sparsity import chunk_indices, illegal_chunks, sparsity_layout, stored_columns


def places(fragment: Fragment) -> dict[tuple[int, int], tuple[int, int]]:
    """(lane, element) -> (row, column), after checking that gather and scatter are inverse."""
    np.testing.assert_array_equal(fragment.gather[fragment.scatter], np.arange(fragment.scatter.size))
    assert fragment.rows * fragment.columns == fragment.lanes * fragment.elements
    flat = fragment.scatter.reshape(fragment.lanes, fragment.elements)
    return {
        (lane, i): divmod(int(flat[lane, i]), fragment.columns)
        for lane in range(fragment.lanes)
        for i in range(fragment.elements)
    }


# The manual's formulas, each as it is written there: row and k of a_i.
LEFT = {
    (16, 16, 2): lambda g, t, i: (g + 8 * (i >> 1 & 1), 2 * t + (i & 1) + 8 * (i >> 2)),
    (16, 8, 2): lambda g, t, i: (g + 8 * (i >> 1), 2 * t + (i & 1)),
    (16, 8, 1): lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)),
    (16, 4, 1): lambda g, t, i: (g + 8 * i, t),
    (16, 16, 1): lambda g, t, i: (g + 8 * (i & 1), t + 4 * (i >> 1)),
    (16, 32, 4): lambda g, t, i: (g + 8 * (i >> 2 & 1), 4 * t + (i & 3) + 16 * (i >> 3)),
    (16, 16, 4): lambda g, t, i: (g + 8 * (i >> 2), 4 * t + (i & 3)),
    (16, 64, 8): lambda g, t, i: (g + 8 * (i >> 3 & 1), 8 * t + (i & 7) + 32 * (i >> 4)),
    (16, 128, 32): lambda g, t, i: (g if i < 32 else g + 8, 32 * t + (i & 31)),
    (16, 256, 32): lambda g, t, i: (
        g if i < 32 or 64 <= i < 96 else g + 8, 32 * t + (i & 31) + (128 if i >= 64 else 0)
    ),
    (8, 4, 1): lambda g, t, i: (g, t),
    (8, 16, 4): lambda g, t, i: (g, 4 * t + i),
    (8, 32, 8): lambda g, t, i: (g, 8 * t + i),
    (8, 128, 32): lambda g, t, i: (g, 32 * t + i),
}  # fmt: skip
RIGHT = {
    (16, 2): lambda g, t, i: (2 * t + (i & 1) + 8 * (i >> 1), g),
    (32, 2): lambda g, t, i: (2 * t + (i & 1) + 8 * (i >> 1), g),
    (8, 1): lambda g, t, i: (t + 4 * i, g),
    (32, 4): lambda g, t, i: (4 * t + (i & 3) + 16 * (i >> 2), g),
    (64, 8): lambda g, t, i: (8 * t + (i & 7) + 32 * (i >> 3), g),
    (256, 32): lambda g, t, i: (32 * t + (i & 31) + (128 if i >= 32 else 0), g),
}


@pytest.mark.parametrize(("m", "k", "per"), LEFT)
def test_a_is_held_as_the_manual_says(m: int, k: int, per: int) -> None:
    for (lane, i), at in places(left_fragment(m, k, per)).items():
        assert at == LEFT[m, k, per](lane >> 2, lane & 3, i)


@pytest.mark.parametrize(("k", "per"), RIGHT)
def test_b_is_held_as_the_manual_says(k: int, per: int) -> None:
    for (lane, i), at in places(right_fragment(k, per)).items():
        assert at == RIGHT[k, per](lane >> 2, lane & 3, i)


@pytest.mark.parametrize("m", [8, 16])
def test_accumulators_of_a_warp_are_held_as_the_manual_says(m: int) -> None:
    for (lane, i), at in places(accumulator_fragment(m, 8)).items():
        assert at == ((lane >> 2) + (8 * (i >> 1) if m == 16 else 0), 2 * (lane & 3) + (i & 1))


@pytest.mark.parametrize("n", range(8, 257, 8))
def test_accumulators_of_a_warpgroup_are_held_as_the_manual_says(n: int) -> None:
    for (thread, i), at in places(accumulator_fragment(64, n)).items():
        w, g, t = thread // 32, thread % 32 >> 2, thread & 3
        assert at == (16 * w + g + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * t + (i & 1))


@pytest.mark.parametrize(("k", "per"), [(16, 2), (8, 1), (32, 4), (256, 32)])
def test_a_of_a_warpgroup_is_that_of_four_warps(k: int, per: int) -> None:
    for (thread, i), (row, column) in places(left_fragment(64, k, per)).items():
        inner = LEFT[16, k, per](thread % 32 >> 2, thread & 3, i)
        assert (row, column) == (16 * (thread // 32) + inner[0], inner[1])


def test_the_quad_pairs_of_m8n8k4_hold_four_products() -> None:
    for (lane, i), (row, column) in places(quad_pair_operand(True)).items():
        inner = lane % 4 if lane < 16 else lane % 4 + 4
        assert (row, column) == (8 * (lane % 16 // 4) + inner, i)
    for (lane, i), (row, column) in places(quad_pair_operand(False)).items():
        inner = i if lane < 16 else i + 4
        assert (row, column) == (8 * (lane % 16 // 4) + inner, lane % 4)
    for (lane, i), (row, column) in places(quad_pair_accumulator(False)).items():
        inner = lane % 4 if lane < 16 else lane % 4 + 4
        assert (row, column) == (8 * (lane % 16 // 4) + inner, i)
    for (lane, i), (row, column) in places(quad_pair_accumulator(True)).items():
        inner = (lane & 1) + (i & 2) + (0 if lane < 16 else 4)
        assert (row, column) == (8 * (lane % 16 // 4) + inner, (i & 4) + (lane & 2) + (i & 1))


def test_byte_matrices_are_held_as_the_manual_says() -> None:
    for (lane, i), at in places(byte_matrix_fragment(8, False)).items():
        assert at == (lane >> 2, 4 * (lane & 3) + i)
    for (lane, i), at in places(byte_matrix_fragment(16, True)).items():
        assert at == (4 * (lane & 3) + i % 4, (lane >> 2) + (8 if i >= 4 else 0))
    for (lane, i), at in places(byte_matrix_fragment(8, True)).items():
        assert at == (2 * (lane & 3) + i % 2, (lane >> 2) + (8 if i >= 2 else 0))


def test_a_map_that_misses_an_element_is_refused() -> None:
    row = np.zeros((32, 4), np.int64)
    with pytest.raises(
        ValueError, match=r"^this fragment does not hold each element of a 16x8 matrix exactly once$"
    ):
        make_fragment(8, row, row)
    with pytest.raises(ValueError, match=r"^16 rows of bytes are held transposed only$"):
        byte_matrix_fragment(16, False)


# (k, element bits, lanes of a quad that give metadata) of every mma.sp and wgmma.sp shape.
SPARSE = [(16, 16, 1), (32, 16, 2), (8, 32, 1), (16, 32, 2), (32, 8, 2), (64, 8, 4), (64, 4, 2), (128, 4, 4)]


@pytest.mark.parametrize(("k", "bits", "lanes"), SPARSE)
def test_metadata_of_every_row_lies_in_its_quad_and_in_bits_of_its_own(k: int, bits: int, lanes: int) -> None:
    layout = sparsity_layout(k, bits)
    assert (layout.lanes_used, layout.selectors) == (lanes, 4 // lanes)
    seen = set()
    for row in range(16):
        for chunk in range(layout.lane.shape[1]):
            lane, shift = int(layout.lane[row, chunk]), int(layout.shift[row, chunk])
            assert (lane // 4, lane % 4 < lanes, shift % 4) == (row % 8, True, 0)
            seen.add((lane, shift))
            if bits >= 16:
                assert (lane % 4, shift) == (chunk // 4, 4 * (chunk % 4) + (16 if row >= 8 else 0))
            else:
                assert (lane % 4, shift) == (2 * (chunk // 8) + row // 8, 4 * (chunk % 8))
    assert len(seen) == 16 * layout.lane.shape[1] == 8 * lanes * 8


@settings(max_examples=60, deadline=None)
@given(shape=st.sampled_from(SPARSE), seed=st.integers(0, 2**32 - 1))
def test_stored_columns_are_those_that_the_indices_name(shape: tuple[int, int, int], seed: int) -> None:
    k, bits, lanes = shape
    rng = np.random.default_rng(seed)
    layout = sparsity_layout(k, bits)
    selector = int(rng.integers(0, layout.selectors))
    chunk = {32: 2, 16: 4, 8: 4, 4: 8}[bits]
    legal = [0b0100, 0b1110] if bits == 32 else [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]
    chosen = rng.choice(legal, (16, k // chunk))
    words = [0] * 32
    want = []
    for row in range(16):
        columns = []
        for c in range(k // chunk):
            value = int(chosen[row, c])
            lane, shift = int(layout.lane[row, c]) + selector * lanes, int(layout.shift[row, c])
            words[lane] |= value << shift
            for index in (value & 3, value >> 2):
                if bits == 32:
                    columns += [2 * c + index // 2] if index % 2 == 0 else []
                elif bits == 4:
                    columns += [8 * c + 2 * index, 8 * c + 2 * index + 1]
                else:
                    columns += [4 * c + index]
        want.append(columns)
    indices = chunk_indices(layout, np.array(words, np.uint32), selector)
    np.testing.assert_array_equal(indices, chosen)
    assert stored_columns(layout, indices).tolist() == want
    assert not illegal_chunks(layout, indices, ordered=True).any()
    assert not illegal_chunks(layout, indices, ordered=False).any()


def test_indices_without_meaning_are_known() -> None:
    every = np.arange(16)
    two_of_four = sparsity_layout(32, 16)
    assert np.flatnonzero(~illegal_chunks(two_of_four, every, True)).tolist() == [4, 8, 9, 12, 13, 14]
    assert np.flatnonzero(illegal_chunks(two_of_four, every, False)).tolist() == [0, 5, 10, 15]
    assert np.flatnonzero(~illegal_chunks(sparsity_layout(16, 32), every, True)).tolist() == [4, 14]
    with pytest.raises(ValueError, match=r"^no sparse matrix has 48 columns of 16-bit elements$"):
        sparsity_layout(48, 16)
