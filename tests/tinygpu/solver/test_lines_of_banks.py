"""A tile in lines of the banks, whose swizzles are all x ^ S * high(x): the best is found; nothing linear beats it."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinygpu.layouts.f2 import images, rank
from tinygpu.solver import Solution, TileAccess, solve_smem
from tinygpu.solver.solution import AccessResult

LINE = 128


def linear(name: str, columns: tuple[int, ...], width: int, kind: str = "ldst", weight: int = 1) -> TileAccess:
    """Lanes whose offsets are linear over F2: a column is what a lane bit XORs to the offset."""
    return listed(name, images(columns), width, kind, weight)


def listed(name: str, offsets: NDArray[np.int64], width: int, kind: str = "ldst", weight: int = 1) -> TileAccess:
    lanes = np.stack(np.divmod(offsets, LINE), axis=-1)[None]
    return TileAccess(name, lanes, width, kind, weight)  # type: ignore[arg-type]


def offsets(access: TileAccess) -> NDArray[np.int64]:
    found: NDArray[np.int64] = (access.lanes * np.array([LINE, 1])).sum(axis=-1)
    return found


def in_lines(bits: int, accesses: list[TileAccess], rlimit: int = 400_000) -> Solution:
    return solve_smem(1 << bits - 7, LINE, accesses, allow_padding=False, rlimit=rlimit)


@st.composite
def accesses_of(draw: st.DrawFn, name: str, bits: int, widest: int) -> TileAccess:
    kind = draw(st.sampled_from(("ldst", "ldst", "ldmatrix"))) if widest == 16 else "ldst"
    width = 16 if kind == "ldmatrix" else draw(st.sampled_from([w for w in (2, 4, 8, 16) if w <= widest]))
    low = width.bit_length() - 1
    one_bit = st.integers(low, bits - 1).map(lambda bit: 1 << bit)
    several = st.integers(0, (1 << (bits - low)) - 1).map(lambda value: value << low)
    count = 3 if kind == "ldmatrix" else 5
    columns = draw(st.lists(st.one_of(one_bit, one_bit, several), min_size=count, max_size=count))
    return linear(name, tuple(columns), width, kind, draw(st.integers(1, 3)))


def total(accesses: list[TileAccess], addresses: list[NDArray[np.int64]]) -> int:
    return sum(one.weight * one.count(lanes) for one, lanes in zip(accesses, addresses, strict=True))


def weighted(solution: Solution, accesses: list[TileAccess]) -> int:
    return sum(found.wavefronts * one.weight for found, one in zip(solution.accesses, accesses, strict=True))


def least_of_any_placement(access: TileAccess, vector: int) -> int:
    """Units with the same place inside their vector share the starts of vectors that the banks have; linear maps crowd
    every start that they reach alike, by a power of two.
    """
    phases = access.ideal()
    (first, *_) = offsets(access).reshape(phases, -1)
    places = Counter(offset % vector for offset in {int(o) // access.unit_bytes * access.unit_bytes for o in first})
    share = -(-max(places.values()) // (LINE // vector))
    return access.weight * phases * (1 << (share - 1).bit_length())


@given(st.sampled_from((8, 16)), st.integers(8, 10), st.integers(1, 3), st.data())
@settings(max_examples=50)
def test_the_solution_is_the_best_of_all_swizzles_that_listing_finds(
    widest: int, bits: int, count: int, data: st.DataObject
) -> None:
    accesses = [data.draw(accesses_of(name, bits, widest)) for name in ("a", "b", "c")[:count]]
    vector = max(4, *(access.width_bytes for access in accesses))
    masks = range(0, LINE, vector)
    assume(len(masks) ** (bits - 7) <= 600)
    best = min(
        total(accesses, [x ^ images(chosen)[x >> 7] for x in map(offsets, accesses)])
        for chosen in itertools.product(masks, repeat=bits - 7)
    )
    solution = in_lines(bits, accesses)
    found = weighted(solution, accesses)
    assert (solution.verdict, found) == ("proved", best)
    expected = [AccessResult(one.name, one.wavefronts(solution.layout), one.ideal(), 1) for one in accesses]
    assert list(solution.accesses) == expected
    ideal = sum(access.weight * access.ideal() for access in accesses)
    fewest = sum(least_of_any_placement(access, vector) for access in accesses)
    assert solution.proof == ("ideal" if found == ideal else "pigeonhole" if found == fewest else "refuted")
    assert solution.conflict_free == (solution.proof == "ideal")


@given(st.integers(9, 11), st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
def test_no_linear_placement_of_whole_vectors_beats_it_once_a_line_is_read(bits: int, data: st.DataObject) -> None:
    """An access that reads 128 bytes in a row forces the bank kernel to be one that this form reaches."""
    line = linear("line", (16, 32, 64, 128, 256), 16, weight=1000)
    accesses = [line, data.draw(accesses_of("other", bits, 16))]
    columns = [16 * data.draw(st.integers(1, (1 << (bits - 4)) - 1)) for _ in range(bits - 4)]
    assume(rank(columns) == bits - 4)
    placement = images([1, 2, 4, 8, *columns])
    found = weighted(in_lines(bits, accesses), accesses)
    assert found <= total(accesses, [placement[offsets(access)] for access in accesses])


def test_short_rows_share_a_line_where_a_swizzle_of_columns_alone_cannot_help() -> None:
    """Rows of 64 bytes: here an even and an odd row may change places, which no XOR of columns does."""
    lane = np.arange(32)
    copy = (lane // 4, 16 * (lane % 4))
    read = (2 * (lane % 4), 4 * (lane // 4))
    solution = in_lines(
        12, [listed("copy in", 64 * copy[0] + copy[1], 16, "cp.async"), listed("read", 64 * read[0] + read[1], 4)]
    )
    assert solution.conflict_free
    assert sorted(mask for _, mask in solution.layout.xor) == [32, 64]
    # The same tile by its rows, with no padding: two wavefronts at best.
    rows = TileAccess("copy in", np.stack(copy, axis=-1)[None], 16, "cp.async")
    pairs = TileAccess("read", np.stack(read, axis=-1)[None], 4)
    tile = solve_smem(64, 64, [rows, pairs], allow_padding=False)
    assert ([one.wavefronts for one in tile.accesses], tile.proof) == ([4, 2], "refuted")
