"""Shared-memory wavefronts: the count against sets of words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.banks import count_wavefronts, matrix_wavefronts, wavefronts
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


@given(st.lists(st.integers(0, 200), min_size=32, max_size=32), st.sampled_from((8, 16, 32)))
@settings(max_examples=60)
def test_rows_of_matrices_are_served_eight_at_a_time(units: list[int], lanes: int) -> None:
    rows = 16 * np.array(units[:lanes])
    by_sets = 0
    for matrix in rows.reshape(-1, 8):
        groups: dict[int, set[int]] = {}
        for row in matrix.tolist():
            groups.setdefault(row // 16 % 8, set()).add(row)
        by_sets += max(len(members) for members in groups.values())
    assert int(matrix_wavefronts(rows)) == by_sets


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
