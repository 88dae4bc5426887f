"""L2 locality: the closed forms against enumeration of every CTA of a run."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinygpu.cost.locality
from tinygpu.cost.locality import dram_read_bytes, panels, raster, resident_window

grids = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 14))


def walk(tiles_m: int, tiles_n: int, group: int) -> list[tuple[int, int]]:
    """The tiles in the order of their CTAs, by loops."""
    order = []
    for start in range(0, tiles_m, group):
        for n in range(tiles_n):
            for m in range(start, min(start + group, tiles_m)):
                order.append((m, n))
    return order


def distinct(order: list[tuple[int, int]], first: int, last: int) -> tuple[int, int]:
    run = order[first:last]
    return len({m for m, _ in run}), len({n for _, n in run})


@settings(max_examples=200)
@given(grids)
def test_raster_walks_groups_column_by_column(grid: tuple[int, int, int]) -> None:
    tiles_m, tiles_n, group = grid
    rows, columns = raster(np.arange(tiles_m * tiles_n), tiles_m, tiles_n, group)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == walk(*grid)


@settings(max_examples=200)
@given(grids, st.data())
def test_panels_of_a_run_are_what_enumeration_counts(grid: tuple[int, int, int], data: st.DataObject) -> None:
    order = walk(*grid)
    first = data.draw(st.integers(0, len(order) - 1))
    last = data.draw(st.integers(first + 1, len(order)))
    rows, columns = panels(first, last, *grid)
    assert (int(rows), int(columns)) == distinct(order, first, last)


def test_panels_of_every_run_of_many_grids_at_once() -> None:
    cases, expected = [], []
    for grid in ((5, 4, 2), (7, 3, 3), (4, 6, 8), (6, 6, 1), (9, 2, 4)):
        order = walk(*grid)
        for first in range(len(order)):
            for last in range(first + 1, len(order) + 1):
                cases.append((first, last, *grid))
                expected.append(distinct(order, first, last))
    rows, columns = panels(*np.array(cases).T)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == expected


sizes = st.integers(1, 50)


@settings(max_examples=200)
@given(grids, st.integers(1, 200), sizes, sizes, st.integers(0, 5), st.integers(0, 3000))
def test_the_resident_window_is_the_longest_that_fits(
    grid: tuple[int, int, int], wave: int, row: int, column: int, tile: int, capacity: int
) -> None:
    order = walk(*grid)

    def footprint(length: int) -> int:
        rows, columns = distinct(order, 0, length)
        return rows * row + columns * column + length * tile

    fitting = [length for length in range(1, len(order) + 1) if footprint(length) <= capacity]
    expected = max([min(wave, len(order)), *fitting])
    assert int(resident_window(capacity, row, column, tile, *grid, wave)) == expected


@settings(max_examples=150)
@given(grids, st.integers(1, 40), sizes, sizes, st.integers(0, 3000))
def test_dram_reads_are_the_panels_of_each_window(
    grid: tuple[int, int, int], wave: int, row: int, column: int, capacity: int
) -> None:
    order = walk(*grid)
    window = int(resident_window(capacity, row, column, 0, *grid, wave))
    total = 0
    starts = range(0, len(order), window)
    for start in starts:
        rows, columns = distinct(order, start, min(start + window, len(order)))
        total += rows * row + columns * column
    found = float(dram_read_bytes(capacity, row, column, 0, *grid, wave))
    compulsory = grid[0] * row + grid[1] * column
    assert found >= compulsory
    if len(starts) <= 8:
        assert found == max(total, compulsory)
    else:
        # Eight of the windows, evenly spaced, stand for all.
        sampled = [starts[place * len(starts) // 8] for place in range(8)]
        counted = [distinct(order, start, min(start + window, len(order))) for start in sampled]
        mean = sum(rows * row + columns * column for rows, columns in counted) / 8
        assert found == pytest.approx(max(mean * len(order) / window, compulsory), rel=1e-12)


def test_no_grid_at_all_reads_nothing() -> None:
    none = np.zeros(0, dtype=np.int64)
    assert dram_read_bytes(100, 8, 8, 0, none, none, none, none).shape == (0,)
    assert resident_window(100, 8, 8, 0, none, none, none, none).shape == (0,)


def test_enough_l2_reads_everything_once() -> None:
    everything = 40 * 1000 + 30 * 500
    assert float(dram_read_bytes(everything, 1000, 500, 0, 40, 30, 4, 8)) == everything


def test_grouping_rows_reads_less_than_row_by_row() -> None:
    read = [float(dram_read_bytes(0, 1, 1, 0, 64, 64, group, 64)) for group in (1, 2, 4, 8)]
    assert read == [64 * 65, 64 * 34, 64 * 20, 64 * 16]


@settings(max_examples=30)
@given(st.lists(st.tuples(grids, st.integers(1, 40), sizes, sizes, st.integers(0, 3000)), min_size=1, max_size=8))
def test_arrays_agree_with_scalars(
    points: list[tuple[tuple[int, int, int], int, int, int, int]],
) -> None:
    tiles_m, tiles_n, group = np.array([grid for grid, *_ in points]).T
    wave, row, column, capacity = np.array([rest for _, *rest in points]).T
    many = dram_read_bytes(capacity, row, column, 2, tiles_m, tiles_n, group, wave)
    for index, (grid, w, r, c, size) in enumerate(points):
        assert many[index] == dram_read_bytes(size, r, c, 2, *grid, w)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: raster(12, 4, 3, 2), ValueError, "a CTA number must lie between 0 and tiles_m * tiles_n - 1"),
        (lambda: raster(0, 0, 3, 2), ValueError, "tiles_m must be at least 1, not 0"),
        (lambda: raster(0, 4, 3, 0), ValueError, "group must be at least 1, not 0"),
        (lambda: raster(np.array(0.5), 4, 3, 1), TypeError, "tile and CTA counts must be whole numbers, not float64"),
        (
            lambda: panels(3, 3, 4, 3, 1),
            ValueError,
            "a run of CTAs must satisfy 0 <= first < last <= tiles_m * tiles_n",
        ),
        (lambda: resident_window(1, 1, 1, 1, 4, 3, 1, 0), ValueError, "ctas_per_wave must be at least 1, not 0"),
    ],
)
def test_impossible_runs_are_refused(call: object, error: type[Exception], sentence: str) -> None:
    assert callable(call)
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == sentence


def test_doctests() -> None:
    result = doctest.testmod(tinygpu.cost.locality)
    assert result.attempted > 0
    assert result.failed == 0
