"""Cases in which the swizzle modes of the hardware lose and the solver wins, each counted by definition.

The menu is listed here on addresses (Sw<B,4,3> on byte offsets, B = 0 .. 3, as TMA and wgmma have it), so that it
shares nothing with the solver.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.constraints.query import ask
from tinygpu.solver import SmemLayout, Solution, SolverCache, TileAccess, solve_smem
from tinygpu.solver.smem import _Question
from tinygpu.solver.swizzle_search import swizzle_query

LANE, MATRIX_ROW = np.arange(32), np.arange(8)


def at(row: NDArray[np.int64] | int, column: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """One instance: the coordinates of each lane."""
    return np.stack(np.broadcast_arrays(row, column), axis=-1)


def copy_in(rows: int) -> TileAccess:
    """cp.async of 16 bytes per lane into rows of 128 bytes, four rows a warp."""
    return TileAccess(
        "copy in", np.array([at(first + LANE // 8, 16 * (LANE % 8)) for first in range(0, rows, 4)]), 16, "cp.async"
    )


def transpose_16x32() -> tuple[int, list[TileAccess]]:
    """f32: a warp stores rows of 32, and reads columns of 16, two at a time."""
    store = TileAccess("row store", np.array([at(row, 4 * LANE) for row in range(16)]), 4)
    read = TileAccess("column read", np.array([at(LANE % 16, 4 * (LANE // 16 + 2 * i)) for i in range(16)]), 4)
    return 16, [store, read]


def tf32_two_ways() -> tuple[int, list[TileAccess]]:
    """A 32 x 32 tile of tf32, once as it is (ldmatrix, 16 bytes), once transposed (ld.shared.b32, 4 bytes).

    ldmatrix.trans moves 16-bit elements only, so the transposed fragment of m16n8k8 is read by words: lane l takes
    row l % 4, column l / 4.
    """
    blocks = [(first, group) for first in range(0, 32, 8) for group in range(8)]
    plain = TileAccess(
        "ldmatrix", np.array([at(first + MATRIX_ROW, 16 * group) for first, group in blocks]), 16, "ldmatrix"
    )
    tiles = [(first, n) for first in range(0, 32, 4) for n in range(4)]
    turned = TileAccess(
        "transposed read", np.array([at(first + LANE % 4, 4 * (8 * n + LANE // 4)) for first, n in tiles]), 4
    )
    return 32, [copy_in(32), plain, turned]


def mixed_operand() -> tuple[int, list[TileAccess]]:
    """8-bit weights [k][n], 128 n to a row: an operand of the s8 mma and, after conversion, of the f16 mma.

    Lane l of m16n8k32 (s8) needs rows 4 (l % 4) + 0..3, of m16n8k16 (f16) rows 2 (l % 4) + 0, 1, 8, 9; a load of
    4 bytes at column 4 (l / 4) serves four n-tiles.
    """
    wide = [
        at(first + 2 * (LANE % 4), 4 * (LANE // 4) + 32 * n) for first in (0, 1, 8, 9, 16, 17, 24, 25) for n in range(4)
    ]
    narrow = [
        at(first + 4 * (LANE % 4), 4 * (LANE // 4) + 32 * n) for first in (0, 1, 2, 3, 16, 17, 18, 19) for n in range(4)
    ]
    return 32, [
        copy_in(32),
        TileAccess("as 16-bit operand", np.array(wide), 4),
        TileAccess("as 8-bit operand", np.array(narrow), 4),
    ]


def counted(accesses: list[TileAccess], place: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> list[float]:
    """Wavefronts of each access per instruction, with byte offset 128 * row + column moved by `place`; by sets."""
    found = []
    for access in accesses:
        total = 0
        for phase in access.phase_lanes():
            banks: dict[int, set[int]] = {}
            for address in place(128 * phase[:, 0] + phase[:, 1]).tolist():
                for byte in range(address, address + access.width_bytes):
                    banks.setdefault(byte // 4 % 32, set()).add(byte // 4)
            total += max(len(words) for words in banks.values())
        found.append(total / access.instances)
    return found


def swizzle(count: int, low: int, shift: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
    """Sw<count, low, shift> on byte offsets."""
    mask = (1 << count) - 1
    return lambda offset: offset ^ ((offset >> low + shift & mask) << low)


MENU = {"none": swizzle(0, 4, 3), "32B": swizzle(1, 4, 3), "64B": swizzle(2, 4, 3), "128B": swizzle(3, 4, 3)}

CASES = {
    "transpose": (
        transpose_16x32,
        {"none": [1, 16], "32B": [1, 8], "64B": [1, 4], "128B": [1, 2]},
        [1, 1],
    ),
    "two ways": (
        tf32_two_ways,
        {"none": [4, 8, 4], "32B": [4, 4, 4], "64B": [4, 2, 2], "128B": [4, 1, 2]},
        [4, 1, 1],
    ),
    "mixed": (
        mixed_operand,
        {"none": [4, 4, 4], "32B": [4, 4, 4], "64B": [4, 2, 4], "128B": [4, 1, 2]},
        [4, 1, 1],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_hardware_loses_and_the_solver_wins(case: str) -> None:
    make, menu, best = CASES[case]
    rows, accesses = make()
    assert {name: counted(accesses, place) for name, place in MENU.items()} == menu
    solution = solve_smem(rows, 128, accesses)
    assert solution.conflict_free
    assert solution.layout.padding_bytes == 0
    assert solution.layout.hardware_swizzle() is None
    offsets = {int(128 * row + column): (row, column) for row in range(rows) for column in range(128)}

    def place(offset: NDArray[np.int64]) -> NDArray[np.int64]:
        row, column = np.array([offsets[int(one)] for one in offset]).T
        return solution.layout.address(row, column)

    assert counted(accesses, place) == best
    assert min(sum(counts) for counts in menu.values()) > sum(best)


@pytest.mark.parametrize("case", ["two ways", "mixed"])
def test_no_swizzle_of_the_general_form_wins_these_two(case: str) -> None:
    """Sw<B,M,S> with any B, M and S: one shifted run of bits is not enough, whatever its place."""
    make, _, best = CASES[case]
    _, accesses = make()
    short = [TileAccess(one.name, one.lanes[:8], one.width_bytes, one.kind) for one in accesses]
    for count in (1, 2, 3):
        for low in range(4, 8 - count):
            for shift in range(max(count, 7 - low), 13 - low - count):
                assert sum(counted(short, swizzle(count, low, shift))) > sum(best)


def test_padding_would_cost_space_where_the_swizzle_costs_none() -> None:
    """The two mixed cases have no conflict-free padding either: 16-byte steps, every one tried."""
    for make in (tf32_two_ways, mixed_operand):
        rows, accesses = make()
        solution = solve_smem(rows, 128, accesses, allow_xor=False)
        assert not solution.conflict_free
        assert (solution.verdict, solution.proof) == ("proved", "refuted")
        assert solution.family == "0 to 112 B of row padding"
        totals = [
            sum(one.wavefronts(SmemLayout(rows, 128, 128 + padding)) for one in accesses)
            for padding in range(0, 128, 16)
        ]
        assert solution.wavefronts == min(totals)


def narrow_rows() -> list[TileAccess]:
    """8-bit weights with 64 n to a row, as operand of the f16 mma: rows of 64 bytes, two of them in a line of banks."""
    fill = TileAccess(
        "copy in", np.array([at(f + LANE // 4, 16 * (LANE % 4)) for f in range(0, 64, 8)]), 16, "cp.async"
    )
    read = TileAccess("read", np.array([at(first + 2 * (LANE % 4), 4 * (LANE // 4)) for first in (0, 1)]), 4)
    return [fill, read]


def test_where_nothing_is_free_of_conflicts_z3_refutes_it() -> None:
    cache = SolverCache()
    solution = solve_smem(64, 64, narrow_rows(), allow_padding=False, cache=cache)
    assert [one.wavefronts / one.instances for one in solution.accesses] == [4, 2]
    assert (solution.verdict, solution.proof) == ("proved", "refuted")
    assert solution.sentence == (
        "no layout serves both accesses without bank conflicts: at best read takes 2 wavefronts instead of 1; proved "
        "for every XOR of column bits from 16 B on by row bits, with rows of 64 B"
    )
    # The refutation itself: the wavefronts just below the optimum are asked for, and the answer is no.
    assert cache.notebook.record[-1].verdict == "unsat"
    assert solution.asked == len(cache.notebook.record)
    question = _Question.of(64, 64, narrow_rows(), False, True, 400_000).swizzle_question(64)
    assert ask(swizzle_query(question, solution.wavefronts - 1)).verdict == "unsat"
    assert ask(swizzle_query(question, solution.wavefronts)).verdict == "sat"
    # With padding, and in lines of the banks (where two rows that share one may be swapped), there is a way.
    assert solve_smem(64, 64, narrow_rows()).conflict_free
    lines = [
        TileAccess(one.name, np.stack(np.divmod(64 * one.lanes[..., 0] + one.lanes[..., 1], 128), axis=-1), *rest)
        for one, *rest in ((one, one.width_bytes, one.kind) for one in narrow_rows())
    ]
    assert solve_smem(32, 128, lines, allow_padding=False).conflict_free


def test_where_vectors_alone_forbid_it_no_layout_of_any_kind_helps() -> None:
    _, (store, read) = transpose_16x32()
    wide = TileAccess("row store", copy_in(16).lanes, 16)
    solution: Solution = solve_smem(16, 128, [wide, read])
    assert solution.proof == "pigeonhole"
    assert solution.sentence == (
        "no layout serves both accesses without bank conflicts: at best column read takes 2 wavefronts instead of 1; "
        "proved for every layout that keeps vectors of 16 bytes whole"
    )
    assert solve_smem(16, 128, [store, read]).conflict_free
