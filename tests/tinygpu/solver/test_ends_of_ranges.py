"""What accesses and layouts take and what they refuse, at both ends of every range and one step beyond."""

# ruff: noqa: B023 - what is handed to `taken` is called at once

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.solver import SmemLayout, TileAccess, solve_smem
from tinygpu.solver.smem_layout import hardware_masks, xor_block_bytes
from tinygpu.solver.solution import AccessResult, sentence_of

LANE = np.arange(32)


def one_lane(row: int, column: int, width: int = 1) -> TileAccess:
    lanes = np.full((1, 32, 2), -1)
    lanes[0, 5] = row, column
    return TileAccess("one", lanes, width)


def taken(make: Callable[[], Any], refusal: str) -> bool:
    """Whether it is taken; what is not is refused in words that begin so."""
    said = ""
    try:
        make()
    except ValueError as refused:
        said = str(refused)
    assert said.startswith(refusal) or not said, said
    return not said


@pytest.mark.parametrize("rows", [-1, 0, 1, 2])
@pytest.mark.parametrize("row_bytes", [-1, 0, 1, 2])
def test_a_tile_has_a_row_and_a_byte(rows: int, row_bytes: int) -> None:
    some = rows > 0 and row_bytes > 0
    said = f"a tile has at least one row and one byte, not {rows} x {row_bytes}"
    assert taken(lambda: SmemLayout(rows, row_bytes, 4), f"[smem layout] {said}") == some
    assert taken(lambda: solve_smem(rows, row_bytes, [one_lane(0, 0)]), f"[smem solver] {said}") == some


def test_an_access_reaches_the_last_byte_of_the_last_row_and_no_further() -> None:
    for row, column, width in ((2, 20, 4), (2, 23, 1), (0, 16, 8), (3, 20, 4), (2, 24, 4), (2, 24, 1), (0, 24, 8)):
        inside = row < 3 and column + width <= 24
        said = f"[access 'one'] it reaches row {row} and column byte {column + width - 1}, outside the tile of 3 rows"
        assert taken(lambda: solve_smem(3, 24, [one_lane(row, column, width)]), said) == inside


def test_lanes_are_listed_once_and_stay_as_they_were() -> None:
    with pytest.raises(ValueError, match=r"^\[access 'none'\] coordinates have shape \(instances, 32, 2\), not \(0, 3"):
        TileAccess("none", np.zeros((0, 32, 2), dtype=int), 4)
    lanes = np.stack([LANE, 0 * LANE], axis=-1)[None]
    access = TileAccess("column", lanes, 4)
    lanes[:] = 7
    assert access.lanes[0, :, 0].tolist() == LANE.tolist()
    with pytest.raises(ValueError, match="read-only"):
        access.lanes[0, 0, 0] = 3


@pytest.mark.parametrize(("row", "column"), [(-2, 0), (-2, -2), (0, -1), (3, -8)])
def test_rows_and_columns_are_not_negative(row: int, column: int) -> None:
    assert not taken(lambda: one_lane(row, column), "[access 'one'] rows and columns are non-negative")


def test_lanes_that_stay_out_may_say_any_column() -> None:
    for column in (-5, -1, 0, 3, 10_000):
        lanes = np.stack([np.full(32, -1), np.full(32, column)], axis=-1)[None].repeat(2, axis=0)
        lanes[0, 3] = 0, 8
        access = TileAccess("one", lanes, 8)
        assert (access.ideal(), access.wavefronts(SmemLayout(1, 16, 16))) == (1, 1)
        assert solve_smem(1, 16, [access]).wavefronts == 1
        assert (access.addresses(SmemLayout(1, 16, 16)) >= 0).sum() == 1


def test_lanes_move_as_many_bytes_as_their_instruction_can() -> None:
    widths = {"ldst": (1, 2, 4, 8, 16), "ldmatrix": (16,), "cp.async": (4, 8, 16)}
    for (kind, moved), width in itertools.product(widths.items(), range(-1, 34)):
        lanes = np.zeros((1, 8 if kind == "ldmatrix" else 32, 2), dtype=np.int64)
        said = f"[access 'it'] {kind} moves {' or '.join(map(str, moved))} bytes per lane, not {width}"
        assert taken(lambda: TileAccess("it", lanes, width, kind), said) == (width in moved)  # type: ignore[arg-type]


def test_weights_count_from_one_and_row_bits_rise() -> None:
    for weight in (-1, 0, 1):
        said = f"[access 'it'] the weight must be a positive integer, not {weight}"
        assert taken(lambda: TileAccess("it", np.zeros((1, 32, 2), dtype=int), 4, weight=weight), said) == (weight > 0)
    for xor in (((2, 1), (2, 2)), ((3, 1), (2, 1)), ((2, 1), (3, 1))):
        right = [bit for bit, _ in xor] == [2, 3]
        assert taken(lambda: SmemLayout(16, 8, 8, xor), "[smem layout] row bits are listed once each") == right


def test_masks_stay_in_the_row_and_bits_are_those_of_row_numbers() -> None:
    for bit in range(-1, 5):
        for mask in range(-1, 70):
            right = 0 <= bit < 3 and 1 <= mask < 32
            said = "[smem layout] the numbers of 6 rows have 3 bits" if not 0 <= bit < 3 else "[smem layout] the mask"
            assert taken(lambda: SmemLayout(6, 96, 96, ((bit, mask),)), said) == right
    for row_bytes in range(1, 70):
        for pitch in range(row_bytes, row_bytes + 40):
            # The columns of a row, whole blocks of them, fit into the pitch.
            fitting = [2**i for i in range(8) if -(-row_bytes // 2**i) * 2**i <= pitch]
            assert xor_block_bytes(row_bytes, pitch) == max(fitting)


@pytest.mark.parametrize(
    ("row", "column", "said"),
    [
        ([-1, 5], [0, 0], "row -1 lies outside the tile's 0 to 5"),
        ([-1, -3, 9], [0, 0, 0], "row -3 lies outside the tile's 0 to 5"),
        ([5, 7, 6], [0, 0, 0], "row 7 lies outside the tile's 0 to 5"),
        ([5, 5], [3, -1], "column byte -1 lies outside the tile's 0 to 7"),
        ([5, 5], [3, 8], "column byte 8 lies outside the tile's 0 to 7"),
    ],
)
def test_the_coordinate_that_is_furthest_out_is_named(row: list[int], column: list[int], said: str) -> None:
    with pytest.raises(ValueError) as refused:
        SmemLayout(6, 8, 8).address(np.array(row), np.array(column))
    assert str(refused.value) == f"[smem layout] {said}"


@pytest.mark.parametrize(
    "layout", [SmemLayout(4, 24, 40, ((0, 8), (1, 16))), SmemLayout(3, 6, 8, ((1, 2),)), SmemLayout(2, 3, 3)]
)
def test_a_picture_shows_chunks_that_stay_whole_where_they_lie(layout: SmemLayout) -> None:
    for chunk in range(-1, 20):
        powers = [2**i for i in range(5) if layout.vector_bytes % 2**i == 0 and layout.row_bytes % 2**i == 0]
        assert taken(lambda: layout.picture(chunk), f"[smem layout] chunks of {chunk} B") == (chunk in powers)
        if chunk not in powers:
            continue
        lines = layout.picture(chunk, rows=2).splitlines()
        assert len(lines) == 2
        for row, line in enumerate(lines):
            slots = line.partition(":")[2].split()
            assert len(slots) == layout.pitch_bytes // chunk
            at = {
                (int(layout.address(np.array(row), np.array(first))) - row * layout.pitch_bytes) // chunk: first
                // chunk
                for first in range(0, layout.row_bytes, chunk)
            }
            assert slots == [str(at.get(place, ".")) for place in range(len(slots))]


def test_a_picture_shows_the_first_eight_rows() -> None:
    assert len(SmemLayout(9, 32, 32).picture().splitlines()) == 8
    assert len(SmemLayout(7, 32, 32).picture().splitlines()) == 7


def test_padded_rows_are_no_swizzle_of_the_hardware() -> None:
    xor = ((0, 16), (1, 32))
    assert SmemLayout(8, 48, 64, xor).hardware_swizzle() is None
    assert SmemLayout(8, 48, 64).hardware_swizzle() is None
    assert SmemLayout(8, 96, 96).hardware_swizzle() == "none"
    assert SmemLayout(8, 96, 96, ((0, 16),)).hardware_swizzle() is None
    assert SmemLayout(8, 256, 256, ((0, 16),)).hardware_swizzle() is None
    assert not list(hardware_masks(8, 256))


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (AccessResult("read", 2, 1, 2), "read takes 1 wavefront instead of 0.5"),
        (AccessResult("read", 4, 2, 2), "read takes 2 wavefronts instead of 1"),
        (AccessResult("read", 1, 0, 2), "read takes 0.5 wavefronts instead of 0"),
        (AccessResult("read", 0, 0, 1), "read takes 0 wavefronts instead of 0"),
    ],
)
def test_what_an_access_takes_is_said_by_instruction(result: AccessResult, said: str) -> None:
    assert str(result) == said


def test_a_sentence_names_one_access_both_or_how_many_there_are() -> None:
    results = [AccessResult(name, 2, 1, 1) for name in "abc"]
    for count, whom in ((1, "a"), (2, "both accesses"), (3, "all 3 accesses")):
        said = sentence_of(results[:count], "refuted", "rows of 8 B", 4, "")
        at_best = " and ".join(f"{name} takes 2 wavefronts instead of 1" for name in "abc"[:count])
        assert said == (f"no layout serves {whom} without bank conflicts: at best {at_best}; proved for rows of 8 B")
