"""How the solver comes to its answers: with how much padding, why nothing is better, after how many questions to Z3.

That the layouts are the best ones is shown against listing in test_smem_solver.py; here a search with a detour, or that
asks where the menu has the answer, is noticed. effort.txt lists what is asked about tiles at random, in order, where
Z3's answers are read off a list of all swizzles. A change of the way changes the list, and is looked at:
`python tests/tinygpu/solver/test_effort.py` writes it anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.constraints import query
from tinygpu.constraints.query import Answer
from tinygpu.solver import smem, swizzle_search
from tinygpu.solver.menu import every_xor, menu_totals
from tinygpu.solver.smem import SolverCache, banks_see_xor, solve_smem
from tinygpu.solver.smem_layout import row_bits
from tinygpu.solver.swizzle_search import SwizzleQuestion, Xor
from tinygpu.solver.tile_access import TileAccess

FILE = Path(__file__).parent / "effort.txt"
# The last ones reach the bound with padding, where a shorter pitch was given up.
TILES = (*range(60), 91, 167, 359, 1267)


def access(name: str, rows: int, row_bytes: int, width: int, down: int) -> TileAccess:
    """Warp instructions over a whole tile: lanes go `down` rows at a time, then on along the row."""
    lane = np.arange(32)
    row, across = lane % down, lane // down * width
    found = []
    for first_row in range(0, rows - down + 1, down):
        for first in range(0, row_bytes - int(across.max()) - width + 1, int(across.max()) + width):
            found.append(np.stack([first_row + row, first + across], axis=-1))
    return TileAccess(name, np.array(found[:16]), width)


# (rows, bytes of a row, padding may be added, (bytes of a lane, rows at a time)...) ->
# why nothing is better, wavefronts, bytes of padding, questions to Z3 at most
ANSWERS = {
    (32, 128, True, (4, 32), (4, 1)): ("ideal", 32, 0, 0),
    (32, 128, False, (4, 32), (16, 8), (4, 4)): ("pigeonhole", 112, 0, 4),
    (32, 96, True, (4, 32), (4, 4)): ("ideal", 32, 0, 0),
    (16, 192, True, (4, 16), (8, 8)): ("ideal", 40, 0, 4),
    (32, 64, True, (4, 32), (4, 2)): ("ideal", 32, 0, 0),
    (32, 64, False, (2, 32), (8, 4)): ("pigeonhole", 48, 0, 4),
    (24, 96, False, (4, 8), (8, 4)): ("ideal", 28, 0, 0),
    (32, 256, False, (8, 32), (16, 4), (4, 16)): ("pigeonhole", 160, 0, 4),
    (32, 132, True, (4, 32), (4, 8)): ("ideal", 32, 60, 4),
    (16, 80, True, (16, 16), (4, 4)): ("ideal", 16, 48, 4),
    (32, 32, True, (1, 32), (4, 8)): ("ideal", 24, 0, 3),
    # The menu answers at once.
    (8, 96, True, (4, 8), (8, 4)): ("ideal", 10, 0, 0),
    (8, 160, True, (16, 8), (4, 8)): ("ideal", 18, 0, 0),
    (8, 96, True, (16, 8), (8, 8)): ("ideal", 10, 0, 0),
    (16, 96, True, (8, 16), (16, 8)): ("pigeonhole", 32, 0, 0),
    (8, 224, True, (16, 8), (4, 4), (8, 8)): ("ideal", 40, 0, 0),
    (16, 48, True, (16, 16), (4, 8)): ("ideal", 10, 0, 0),
    (8, 36, True, (4, 8)): ("ideal", 2, 12, 0),
    (4, 288, False, (16, 4), (8, 4)): ("ideal", 16, 0, 0),
    (16, 160, False, (16, 8), (4, 16)): ("pigeonhole", 48, 0, 0),
    (4, 96, False, (4, 4), (8, 4)): ("ideal", 5, 0, 0),
    (8, 96, False, (4, 8), (8, 8)): ("ideal", 12, 0, 0),
}


@pytest.mark.parametrize("case", ANSWERS, ids=str)
def test_an_answer_takes_no_more_padding_and_no_more_questions_than_it_did(case: Any) -> None:
    rows, row_bytes, padding, *ways = case
    accesses = [access(f"{width} by {down}", rows, row_bytes, width, down) for width, down in ways]
    cache = SolverCache()
    found = solve_smem(rows, row_bytes, accesses, allow_padding=padding, cache=cache)
    *expected, most = ANSWERS[case]
    assert [found.proof, found.wavefronts, found.layout.padding_bytes] == expected
    assert found.asked == len(cache.notebook.record) <= most


def test_rows_and_columns_are_joined_by_xor_where_no_address_carries() -> None:
    """For every pitch of less than two rows; where rows are further apart, columns may be too short to show it."""
    seen = set()
    for row_bytes in range(4, 260, 4):
        columns = np.arange(0, row_bytes, 4)
        for pitch in range(row_bytes, min(2 * row_bytes, row_bytes + 132), 4):
            starts = np.arange(32)[:, np.newaxis] * pitch
            joined = bool(((starts + columns) % 128 == (starts ^ columns) % 128).all())
            seen.add(joined)
            assert banks_see_xor(pitch) == joined, (row_bytes, pitch)
    assert seen == {True, False}


@pytest.mark.parametrize("at_once", [1, 7])
def test_listed_swizzles_are_the_best_however_many_are_tried_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes at random, in rows that carry: the menu has no best layout, so all swizzles are tried, without Z3."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        lanes = np.stack([rng.integers(0, 8, (2, 32)), 4 * rng.integers(0, 20, (2, 32))], axis=-1)
        found = []
        for size in (smem.LISTED_AT_ONCE, at_once):
            with monkeypatch.context() as patch:
                patch.setattr(smem, "LISTED_AT_ONCE", size)
                accesses = [TileAccess("random", lanes, 4)]
                found.append(solve_smem(8, 80, accesses, allow_padding=False, cache=SolverCache()))
        assert found[0].layout == found[1].layout
        assert found[0].wavefronts == found[1].wavefronts
        assert [one.asked for one in found] == [0, 0]


def drawn(number: int) -> tuple[int, int, list[TileAccess]]:
    """(rows, bytes of a row, accesses) of a small tile, with lanes in steps or at random."""
    rng = np.random.default_rng(number)
    rows, vector = [(4, 8), (4, 16), (6, 16), (8, 16)][int(rng.integers(4))]  # at most 512 swizzles
    row_bytes = int(rng.choice((32, 48, 64, 96, 128, 160)))
    accesses = []
    for name in ("first", "second", "third")[: int(rng.integers(1, 4))]:
        width = vector if name == "first" else int(rng.choice((4, vector)))
        units = row_bytes // width
        if rng.integers(2):
            step, down = (int(n) for n in rng.integers(1, 5, 2))
            lane = np.arange(32) + int(rng.integers(4))
            row, unit = lane // step * down % rows, lane * (1 + down) // 2 % units
        else:
            row, unit = rng.integers(0, rows, 32), rng.integers(0, units, 32)
        lanes = np.stack([row, width * unit], axis=-1)[None]
        accesses.append(TileAccess(name, lanes, width, "ldst", int(rng.integers(1, 4))))
    return rows, row_bytes, accesses


def said(number: int) -> str:
    """How a question ends, and what is asked on the way: pitch, wavefronts, most flips, and the answer."""
    rows, row_bytes, accesses = drawn(number)
    questions: list[str] = []
    every: dict[tuple[tuple[int, int], ...], list[Xor]] = {}

    def answer(asked: tuple[SwizzleQuestion, int, int | None], notebook: object) -> Answer:
        part, at_most, most = asked
        where = f"{part.name.rpartition(' at a pitch of ')[2].split()[0]}:{at_most}{'' if most is None else f'/{most}'}"
        if part.sources not in every:
            every[part.sources] = every_xor(part.sources)
        swizzles = every[part.sources]
        totals = menu_totals(part.phases, swizzles, row_bits(rows))
        right = [
            xor
            for xor, total in zip(swizzles, totals.tolist(), strict=True)
            if total <= at_most and (most is None or sum(mask.bit_count() for _, mask in xor) <= most)
        ]
        silent = number % 4 == 3 and (not right or len(questions) == 1)  # as a solver that gives up on what is hard
        questions.append(f"{where}{'?' if silent else '+' if right else '-'}")
        if silent:
            return Answer(where, "unknown", reason="canceled")
        if not right:
            return Answer(where, "unsat")
        return Answer(where, "sat", {f"mask!{bit}!0": mask for bit, mask in right[number % len(right)]})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swizzle_search, "swizzle_query", lambda part, at_most, most=None: (part, at_most, most))
        patch.setattr(query, "ask", answer)
        padding, xor = number % 3 > 0, number % 11 > 0
        found = solve_smem(rows, row_bytes, accesses, allow_padding=padding, allow_xor=xor, cache=SolverCache())
    flips = ",".join(f"{bit}^{mask}" for bit, mask in found.layout.xor)
    end = f"{found.proof} {found.wavefronts} {found.layout.pitch_bytes} {flips or '-'} {found.asked}"
    return f"{end}|{' '.join(questions)}"


@pytest.mark.end_to_end
def test_the_solver_takes_the_way_that_it_took() -> None:
    for number, line in zip(TILES, FILE.read_text(encoding="utf-8").splitlines(), strict=True):
        assert said(number) == line, f"tile {number}; to accept it: python tests/tinygpu/solver/test_effort.py"


if __name__ == "__main__":
    FILE.write_text("".join(f"{said(number)}\n" for number in TILES), encoding="utf-8")
