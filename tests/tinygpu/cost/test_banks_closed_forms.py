"""Shared-memory wavefronts: the closed forms against a count by definition, and that count against sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.banks import (
    count_wavefronts,
    least_padding,
    linear_matrix_wavefronts,
    linear_wavefronts,
    matrix_wavefronts,
    phases,
    strided_wavefronts,
    wavefronts,
)
from tinygpu.layouts.f2 import images, linear_form, rank

WIDTHS = (1, 2, 4, 8, 16)


def wavefronts_by_sets(addresses: list[int], width: int) -> int:
    """The definition with Python sets: an oracle that shares nothing with the NumPy count."""
    lanes_per_phase = min(32, 128 // width)
    total = 0
    for start in range(0, 32, lanes_per_phase):
        banks: dict[int, set[int]] = {}
        for address in addresses[start : start + lanes_per_phase]:
            if address >= 0:
                for byte in range(address, address + width):
                    banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
        total += max((len(words) for words in banks.values()), default=0)
    return total


def columns_of(width: int, bits: int = 14, lane_bits: int = 5) -> st.SearchStrategy[list[int]]:
    low = width.bit_length() - 1
    column = st.one_of(
        st.integers(0, (1 << (bits - low)) - 1).map(lambda value: value << low),
        st.integers(low, bits - 1).map(lambda bit: 1 << bit),
    )
    return st.lists(column, min_size=lane_bits, max_size=lane_bits)


@given(
    st.sampled_from(WIDTHS).flatmap(
        lambda w: st.tuples(st.just(w), st.lists(st.integers(-1, 300), min_size=32, max_size=32))
    )
)
@settings(max_examples=150)
def test_the_count_agrees_with_sets_of_words_for_any_lanes(case: tuple[int, list[int]]) -> None:
    width, units = case
    addresses = [unit * width if unit >= 0 else -1 for unit in units]
    assert wavefronts(np.array(addresses), width) == wavefronts_by_sets(addresses, width)


@given(st.data())
@settings(max_examples=150)
def test_linear_closed_form_equals_the_count(data: st.DataObject) -> None:
    width = data.draw(st.sampled_from(WIDTHS))
    columns = data.draw(columns_of(width))
    unit = max(4, width)
    constant = data.draw(st.integers(0, 1 << 12)) * width
    base = data.draw(st.integers(0, 1 << 12)) * unit
    addresses = base + images(columns, constant)
    assert linear_wavefronts(columns, width) == wavefronts(addresses, width)


def test_linear_closed_form_equals_the_count_on_thousands_of_random_maps() -> None:
    generator = np.random.default_rng(20)
    for width in WIDTHS:
        low, maps = width.bit_length() - 1, 1500
        # Few bits make conflicts and broadcasts frequent; many bits make them rare.
        bits = generator.integers(low + 2, 15, size=(maps, 1))
        columns = generator.integers(0, 1 << 30, size=(maps, 5)) % (1 << (bits - low)) << low
        addresses = np.zeros((maps, 32), dtype=np.int64)
        for bit in range(5):
            addresses[:, np.arange(32) >> bit & 1 == 1] ^= columns[:, bit : bit + 1]
        closed = [linear_wavefronts([int(c) for c in row], width) for row in columns]
        assert np.array_equal(count_wavefronts(addresses, width), closed)
        assert len(set(closed)) >= 3


@pytest.mark.parametrize("width", WIDTHS)
def test_strided_closed_form_equals_the_count_or_declines(width: int) -> None:
    declined = 0
    for stride in range(-140 * width, 141 * width, width):
        for offset in (0, width, 5 * width):
            addresses = 141 * 32 * width + offset + np.arange(32) * stride
            closed = strided_wavefronts(stride, width)
            declined += closed is None
            if closed is None:
                assert width < 4
                assert abs(stride) > 4
                assert stride % 4
            else:
                assert closed == wavefronts(addresses, width)
    assert (declined > 0) == (width < 4)


@given(st.data())
@settings(max_examples=100)
def test_matrix_closed_form_equals_the_count(data: st.DataObject) -> None:
    lane_bits = data.draw(st.sampled_from((3, 4, 5)))
    columns = data.draw(columns_of(16, 13, lane_bits))
    rows = images(columns, 16 * data.draw(st.integers(0, 100)))
    by_sets = 0
    for matrix in rows.reshape(-1, 8):
        groups: dict[int, set[int]] = {}
        for row in matrix.tolist():
            groups.setdefault(row // 16 % 8, set()).add(row)
        by_sets += max(len(members) for members in groups.values())
    assert linear_matrix_wavefronts(columns) == matrix_wavefronts(rows) == by_sets


def test_ldmatrix_known_pitches() -> None:
    """128-byte rows fold eightfold, 64-byte rows fourfold, 144-byte rows not at all; the XOR of 8 rows repairs it."""
    rows = np.arange(8)
    found = [int(matrix_wavefronts(rows * pitch)) for pitch in (128, 64, 144)]
    assert found == [8, 4, 1]
    assert int(matrix_wavefronts(rows * 128 + (rows << 4))) == 1
    assert int(matrix_wavefronts(rows * 64 + ((rows >> 1 & 3) << 4))) == 1


def test_inactive_phases_need_no_wavefront_and_many_instructions_count_at_once() -> None:
    lanes = np.arange(32) * 16
    half = np.where(np.arange(32) < 16, lanes, -1)
    addresses = np.stack([[lanes, half], [half, np.full(32, -1)]])
    assert count_wavefronts(addresses, 16).tolist() == [[4, 2], [2, 0]]


@given(st.integers(1, 64), st.sampled_from((4, 8, 16)), st.integers(0, 2))
@settings(max_examples=100)
def test_least_padding_is_the_least(units: int, width: int, coarser: int) -> None:
    row, step = units * width, width << coarser
    found = least_padding(row, width, step)
    free = [
        padding
        for padding in range(0, 256, step)
        if wavefronts(np.arange(32) * (row + padding), width) == phases(width)
    ]
    assert found == (free[0] if free else None)


@given(st.lists(st.integers(0, 255), max_size=6), st.integers(0, 255))
@settings(max_examples=100)
def test_rank_counts_images_and_linear_form_finds_the_columns(columns: list[int], constant: int) -> None:
    values = images(columns, constant)
    assert len(set(values.tolist())) == 2 ** rank(columns)
    assert linear_form(values) == (tuple(columns), constant)
    if len(values) > 3:
        values[-1] ^= 1
        assert linear_form(values) is None


def test_only_images_of_all_bit_vectors_have_a_linear_form() -> None:
    for length in range(1, 18):
        assert (linear_form(np.arange(length)) is not None) == (length in (1, 2, 4, 8, 16))
    assert linear_form(np.arange(0)) is None
    assert linear_form(-1 - np.arange(4)) is None  # two's complement is linear over F2, but no address


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: wavefronts(np.arange(32) * 4, 12),
            "[bank conflicts] a lane moves 1, 2, 4, 8 or 16 bytes in one instruction, not 12",
        ),
        (
            lambda: wavefronts(np.arange(32) * 4, 8),
            "[bank conflicts] address 4 is not a multiple of the 8 bytes that a lane moves",
        ),
        (
            lambda: wavefronts(np.arange(31) * 4, 4),
            "[bank conflicts] the last axis lists 32 lanes, but the addresses have shape (1, 31)",
        ),
        (
            lambda: wavefronts(np.arange(32) * -4, 4),
            "[bank conflicts] an address is a byte number or -1 for an inactive lane, not -124",
        ),
        (
            lambda: matrix_wavefronts(np.arange(12) * 16),
            "[ldmatrix bank conflicts] the last axis lists 8 or 16 or 32 lanes, but the addresses have shape (12,)",
        ),
        (
            lambda: linear_wavefronts([4, 8], 4),
            "[bank conflicts] a warp has five lane bits, but 2 columns were given",
        ),
        (
            lambda: linear_wavefronts([4, 8, 16, 32, 64], 16),
            "[bank conflicts] lane bit 0 moves the address by 4, which is not a multiple of the 16 bytes that a lane "
            "moves",
        ),
        (
            lambda: linear_wavefronts([1, 2, -1, 8, 16], 1),
            "[bank conflicts] lane bit 2 moves the address by -1, which is not a multiple of the 1 bytes that a lane "
            "moves",
        ),
        (
            lambda: strided_wavefronts(6, 4),
            "[bank conflicts] lanes of 4 bytes need a stride that is a multiple of 4 bytes, not 6",
        ),
        (
            lambda: linear_matrix_wavefronts([16]),
            "[ldmatrix bank conflicts] 3, 4 or 5 lane bits give row addresses, not 1",
        ),
        (
            lambda: least_padding(128, 8, 4),
            "[padding] the step must be a positive multiple of the access width 8, not 4",
        ),
        (
            lambda: least_padding(128, 4, 0),
            "[padding] the step must be a positive multiple of the access width 4, not 0",
        ),
        (lambda: rank([-1]), "[F2 rank] columns are bit vectors, so none may be negative, not -1"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message


def test_fractional_addresses_are_refused() -> None:
    with pytest.raises(TypeError) as refused:
        wavefronts(np.linspace(0, 1, 32), 4)
    assert str(refused.value) == "[bank conflicts] addresses are whole bytes, not float64"
