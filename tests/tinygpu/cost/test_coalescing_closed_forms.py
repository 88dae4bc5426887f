"""Global-memory sectors: the closed forms against a count by definition, and that count against sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.coalescing import (
    count_sectors,
    ideal_sectors,
    least_sectors,
    linear_sectors,
    sectors,
    strided_sectors,
)
from tinygpu.layouts.f2 import images

WIDTHS = (1, 2, 4, 8, 16, 32)


@given(st.sampled_from(WIDTHS), st.lists(st.integers(-1, 400), min_size=32, max_size=32))
@settings(max_examples=150)
def test_the_count_agrees_with_sets_of_bytes(width: int, units: list[int]) -> None:
    addresses = [unit * width if unit >= 0 else -1 for unit in units]
    touched = {byte for address in addresses if address >= 0 for byte in range(address, address + width)}
    assert sectors(np.array(addresses), width) == len({byte // 32 for byte in touched})
    assert ideal_sectors(np.array(addresses), width) == -(-len(touched) // 32)


def test_many_instructions_are_counted_one_by_one_whatever_their_arrangement() -> None:
    lanes = 4 * np.random.default_rng(5).integers(0, 200, (2, 3, 32))
    lanes[1, :, ::5] = -1
    for counted in (count_sectors, ideal_sectors):
        one_by_one = [[int(counted(lane, 4)) for lane in row] for row in lanes]
        assert counted(lanes, 4).tolist() == one_by_one
        assert len({count for row in one_by_one for count in row}) > 1


def test_linear_closed_form_equals_the_count_on_thousands_of_random_maps() -> None:
    generator = np.random.default_rng(21)
    for width in WIDTHS:
        low, maps = width.bit_length() - 1, 1000
        bits = generator.integers(low + 1, 14, size=(maps, 1))
        columns = generator.integers(0, 1 << 30, size=(maps, 5)) % (1 << (bits - low)) << low
        addresses = np.zeros((maps, 32), dtype=np.int64)
        for bit in range(5):
            addresses[:, np.arange(32) >> bit & 1 == 1] ^= columns[:, bit : bit + 1]
        bases = generator.integers(0, 1000, size=(maps, 1)) * 32
        closed = [linear_sectors([int(c) for c in row], width) for row in columns]
        assert np.array_equal(count_sectors(addresses + bases, width), closed)
        assert len(set(closed)) > 3


def test_a_constant_xor_changes_no_sector_count() -> None:
    columns = [4, 8, 64, 32, 1024]
    assert {sectors(images(columns, constant), 4) for constant in range(0, 4096, 4)} == {linear_sectors(columns, 4)}


@given(st.sampled_from(WIDTHS), st.integers(-80, 80), st.integers(0, 40), st.integers(0, 32))
@settings(max_examples=400)
def test_strided_closed_form_equals_the_count(width: int, steps: int, offset: int, lanes: int) -> None:
    stride, start = steps * width, 80 * 32 * width + offset * width
    addresses = np.where(np.arange(32) < lanes, start + np.arange(32) * stride, -1)
    assert strided_sectors(stride, width, start, lanes) == sectors(addresses, width)


@pytest.mark.parametrize("width", WIDTHS)
def test_strides_within_a_sector_either_way_from_anywhere_in_it(width: int) -> None:
    for stride, lanes in itertools.product(range(-32 + width, 32, width), (1, 3, 32)):
        offsets = np.arange(0, 32, width)
        addresses = 1024 + offsets[:, None] + np.where(np.arange(32) < lanes, np.arange(32) * stride, -2000)
        counted = count_sectors(np.maximum(addresses, -1), width).tolist()
        assert [strided_sectors(stride, width, 1024 + offset, lanes) for offset in offsets.tolist()] == counted


def test_a_stream_that_starts_inside_a_sector_touches_one_more() -> None:
    assert strided_sectors(16, 16) == least_sectors(16) == 16
    assert strided_sectors(16, 16, offset_bytes=16) == 17


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: sectors(np.arange(32) * 4, 64),
            "[coalescing] a lane moves 1, 2, 4, 8, 16 or 32 bytes in one instruction, not 64",
        ),
        (
            lambda: sectors(np.arange(32) * 4 + 2, 4),
            "[coalescing] address 2 is not a multiple of the 4 bytes that a lane moves",
        ),
        (
            lambda: sectors(np.arange(16) * 4, 4),
            "[coalescing] the last axis lists 32 lanes, but the addresses have shape (1, 16)",
        ),
        (
            lambda: sectors(np.arange(32) - 5, 1),
            "[coalescing] an address is a byte number or -1 for an inactive lane, not -5",
        ),
        (lambda: linear_sectors([4, 8, 16], 4), "[coalescing] a warp has five lane bits, but 3 columns were given"),
        (
            lambda: linear_sectors([4, 8, 16, 32, 66], 4),
            "[coalescing] lane bit 4 moves the address by 66, which is not a multiple of the 4 bytes that a lane moves",
        ),
        (
            lambda: strided_sectors(6, 4, 1),
            "[coalescing] lanes of 4 bytes need a stride and an offset that are multiples of it, not 6 and 1",
        ),
        (lambda: strided_sectors(4, 4, 0, 33), "[coalescing] a warp has 0 to 32 active lanes, not 33"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message


def test_fractional_addresses_are_refused() -> None:
    with pytest.raises(TypeError) as refused:
        sectors(np.linspace(0, 1, 32), 4)
    assert str(refused.value) == "[coalescing] addresses are whole bytes, not float64"
