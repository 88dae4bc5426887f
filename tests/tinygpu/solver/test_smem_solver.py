"""The solver against listing: its counts, its bounds, its optimum, its refutations, and its third answer."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinygpu.cost.banks import count_wavefronts, matrix_wavefronts
from tinygpu.solver import SmemLayout, Solution, SolverCache, TileAccess, phases, smem, solve_smem
from tinygpu.solver.menu import menu, menu_totals
from tinygpu.solver.phases import Carrying, Phase, PhaseKind, least_imaginable, tile_phases, total_wavefronts
from tinygpu.solver.smem import SolverDisagreement, banks_see_xor
from tinygpu.solver.smem_layout import hardware_masks, row_bits, xor_block_bytes
from tinygpu.solver.swizzle_search import SwizzleQuestion, find_swizzle


@st.composite
def tile_accesses(draw: st.DrawFn, name: str, rows: int, row_bytes: int, vector: int) -> TileAccess:
    """An access whose lanes walk columns, rows or blocks of the tile, or touch it at random; some lanes inactive."""
    kind = draw(st.sampled_from(("ldst", "ldst", "ldmatrix"))) if vector == 16 else "ldst"
    width = 16 if kind == "ldmatrix" else draw(st.sampled_from([w for w in (2, 4, 8, 16) if w <= vector]))
    lanes = 8 if kind == "ldmatrix" else 32
    units = row_bytes // width
    instances = draw(st.integers(1, 2))
    lane = np.arange(lanes)
    listed = []
    for _ in range(instances):
        form = draw(st.sampled_from(("column", "row", "block", "step", "random")))
        start = draw(st.integers(0, rows * units - 1))
        if form == "column":
            row, unit = (lane + start) % rows, lane // rows + start // rows
        elif form == "row":
            row, unit = (lane + start) // units, (lane + start) % units
        elif form == "block":
            tall = draw(st.sampled_from((2, 4, 8, 16)))
            row, unit = lane % tall, lane // tall + start
        elif form == "step":
            row, unit = lane * draw(st.integers(1, 9)) + start, lane * draw(st.integers(0, 3))
        else:
            picked = np.array(draw(st.lists(st.integers(0, rows * units - 1), min_size=lanes, max_size=lanes)))
            row, unit = picked // units, picked % units
        row = row % rows
        if draw(st.integers(0, 3)) == 0:
            row = np.where(lane < draw(st.integers(0, lanes)), row, -1)
        listed.append(np.stack([row, unit % units * width], axis=-1))
    return TileAccess(name, np.array(listed), width, kind, draw(st.integers(1, 3)))  # type: ignore[arg-type]


@st.composite
def tiles(draw: st.DrawFn, max_rows: int = 40) -> tuple[int, int, list[TileAccess]]:
    """(rows, bytes of a row, accesses)."""
    rows = draw(st.integers(1, max_rows))
    vector = draw(st.sampled_from((4, 8, 16)))
    row_bytes = vector * draw(st.sampled_from([n for n in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 32) if n * vector <= 256]))
    names = ["first", "second", "third"][: draw(st.integers(1, 3))]
    return rows, row_bytes, [draw(tile_accesses(name, rows, row_bytes, vector)) for name in names]


def weighted(layout: SmemLayout, accesses: Sequence[TileAccess]) -> int:
    """Wavefronts, each access as often as it runs, counted lane by lane."""
    total = 0
    for access in accesses:
        addresses = access.addresses(layout)
        matrix = access.kind == "ldmatrix"
        counted = matrix_wavefronts(addresses) if matrix else count_wavefronts(addresses, access.width_bytes)
        total += access.weight * int(counted.sum())
    return total


def every_xor(rows: int, row_bytes: int, pitch: int, vector: int) -> NDArray[np.int64]:
    """The masks of every layout of the family at one pitch, shape (layouts, row bits)."""
    masks = range(0, min(128, xor_block_bytes(row_bytes, pitch)), vector)
    listed = list(itertools.product(masks, repeat=row_bits(rows)))
    return np.array(listed, dtype=np.int64).reshape(len(listed), row_bits(rows))


def weighted_each(masks: NDArray[np.int64], pitch: int, accesses: Sequence[TileAccess]) -> NDArray[np.int64]:
    """`weighted` for many swizzles at one pitch, without a `SmemLayout`: shape (layouts,)."""
    totals = np.zeros(len(masks), dtype=np.int64)
    for access in accesses:
        row, column = np.maximum(access.lanes[..., 0], 0), access.lanes[..., 1]
        flips = np.zeros((len(masks), *row.shape), dtype=np.int64)
        for bit in range(masks.shape[1]):
            flips ^= (row >> bit & 1) * masks[:, bit, None, None]
        addresses = np.where(access.lanes[..., 0] < 0, -1, row * pitch + (column ^ flips))
        matrix = access.kind == "ldmatrix"
        counted = matrix_wavefronts(addresses) if matrix else count_wavefronts(addresses, access.width_bytes)
        totals += access.weight * counted.sum(axis=1)
    return totals


def phases_of(accesses: list[TileAccess], vector: int, row_bytes: int, pitch: int, linear: bool) -> tuple[Phase, ...]:
    block = min(128, xor_block_bytes(row_bytes, pitch))
    merged: Counter[PhaseKind] = Counter()
    for access in accesses:
        for kind, count in tile_phases(access.phase_lanes(), access.unit_bytes, vector, pitch, block, linear).items():
            merged[kind] += count * access.weight
    return tuple(Phase(rows, levels, times) for (rows, levels), times in sorted(merged.items()))


def widest(accesses: list[TileAccess]) -> int:
    return max(4, *(access.width_bytes for access in accesses))


@given(tiles(), st.integers(0, 8), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_phases_count_what_lanes_count_under_any_swizzle_and_pitch(
    tile: tuple[int, int, list[TileAccess]], steps: int, random: object
) -> None:
    rows, row_bytes, accesses = tile
    vector = widest(accesses)
    pitch = row_bytes + -row_bytes % vector + steps * vector
    block = min(128, xor_block_bytes(row_bytes, pitch))
    candidates = list(menu(rows, pitch, vector, block))
    for _ in range(3):
        masks = [random.randrange(0, block, vector) for _ in range(row_bits(rows))]  # type: ignore[attr-defined]
        candidates.append(tuple((bit, mask) for bit, mask in enumerate(masks) if mask))
    counted = [weighted(SmemLayout(rows, row_bytes, pitch, xor), accesses) for xor in candidates[-8:]]
    # What holds for additions holds where they never carry, so both forms must count alike there.
    for linear in {False, banks_see_xor(pitch)}:
        phases = phases_of(accesses, vector, row_bytes, pitch, linear)
        assume(phases)
        assert [total_wavefronts(phases, dict(xor)) for xor in candidates[-8:]] == counted
        assert menu_totals(phases, candidates, row_bits(rows)).tolist()[-8:] == counted
        assert least_imaginable(phases) <= min(counted)
        for phase in phases:
            assert all(phase.wavefronts(dict(xor)) in phase.levels for xor in candidates)
        pairs = {pair for phase in phases for row in phase.rows for pair in row if isinstance(pair, Carrying)}
        for pair in list(pairs)[:20]:  # what no swizzle of two rows makes conflict is not kept
            flips = range(0, block, vector)
            ends = [
                (pair.shift + (pair.place ^ one) - (pair.other_place ^ two)) % 128 for one in flips for two in flips
            ]
            assert 0 in ends


@given(tiles(max_rows=16), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_the_pigeonhole_bound_holds_for_any_placement_of_whole_vectors(
    tile: tuple[int, int, list[TileAccess]], random: object
) -> None:
    rows, row_bytes, accesses = tile
    vector = widest(accesses)
    vectors = -(-row_bytes // vector)
    places = list(range(rows * vectors))
    random.shuffle(places)  # type: ignore[attr-defined]
    total = 0
    for access in accesses:
        row, column = access.lanes[..., 0], access.lanes[..., 1]
        slot = np.array(places)[np.maximum(row, 0) * vectors + column // vector]
        total += access.weight * access.count(np.where(row < 0, -1, slot * vector + column % vector))
    phases = phases_of(accesses, vector, row_bytes, vectors * vector, False)
    assert least_imaginable(phases) <= total


def check_optimum(tile: tuple[int, int, list[TileAccess]], allow_padding: bool, allow_xor: bool) -> None:
    rows, row_bytes, accesses = tile
    vector = widest(accesses)
    least = row_bytes + -row_bytes % vector
    pitches = list(range(least, least + 128, vector)) if allow_padding else [least]
    # XOR is mixed with padding only where rows do not carry into columns; keep the listing short.
    mixed = {pitch: allow_xor and (pitch == least or banks_see_xor(pitch)) for pitch in pitches}
    choices = [
        (min(128, xor_block_bytes(row_bytes, pitch)) // vector) ** row_bits(rows) for pitch in pitches if mixed[pitch]
    ]
    assume(max(choices, default=0) <= 4096)
    # Lanes at random places make hard questions; here they may take the time that they need.
    cache, counted = SolverCache(), list[SmemLayout]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smem, "SmemLayout", lambda *fields: counted.append(SmemLayout(*fields)) or counted[-1])
        solution = solve_smem(
            rows,
            row_bytes,
            accesses,
            allow_padding=allow_padding,
            allow_xor=allow_xor,
            cache=cache,
            rlimit=50_000_000,
        )
    queries = cache.notebook.record
    assert solution.asked == len(queries) * allow_xor
    if solution.proof in ("ideal", "pigeonhole"):  # nothing undercuts it, so the search goes no further
        assert max(layout.pitch_bytes for layout in counted) == solution.layout.pitch_bytes
        for pitch in {int(query.name.partition(" at a pitch of ")[2].split()[0]) for query in queries}:
            assert pitch <= solution.layout.pitch_bytes
            listed = menu(rows, pitch, vector, min(128, xor_block_bytes(row_bytes, pitch)))
            # Z3 is asked where the menu falls short
            assert all(
                weighted(SmemLayout(rows, row_bytes, pitch, xor), accesses) > solution.wavefronts for xor in listed
            )
    found = []
    for pitch in pitches:
        masks = every_xor(rows, row_bytes, pitch, vector) if mixed[pitch] else np.zeros((1, 0), dtype=np.int64)
        found.append((int(weighted_each(masks, pitch, accesses).min()), pitch))
    assert solution.verdict == "proved"
    assert (weighted(solution.layout, accesses), solution.layout.pitch_bytes) == min(found)
    assert [one.wavefronts for one in solution.accesses] == [one.wavefronts(solution.layout) for one in accesses]
    assert [one.ideal for one in solution.accesses] == [one.ideal() for one in accesses]
    assert solution.conflict_free == (solution.proof == "ideal") == (solution.wavefronts == solution.ideal)
    assert Solution.from_json(json.loads(json.dumps(solution.to_json()))) == solution


@given(tiles(max_rows=16), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_the_solution_is_the_best_of_all_layouts_that_listing_finds(
    tile: tuple[int, int, list[TileAccess]], allow_padding: bool, allow_xor: bool
) -> None:
    check_optimum(tile, allow_padding, allow_xor)


@pytest.mark.slow
@given(tiles(max_rows=64), st.booleans(), st.booleans())
@settings(max_examples=1500)
def test_the_solution_is_the_best_of_all_layouts_for_many_tiles(
    tile: tuple[int, int, list[TileAccess]], allow_padding: bool, allow_xor: bool
) -> None:
    check_optimum(tile, allow_padding, allow_xor)


@given(tiles(max_rows=32))
@settings(max_examples=30)
def test_the_same_question_has_the_same_answer_and_a_cache_keeps_it(tile: tuple[int, int, list[TileAccess]]) -> None:
    rows, row_bytes, accesses = tile
    cache = SolverCache()
    first = solve_smem(rows, row_bytes, accesses, allow_padding=False, cache=cache, rlimit=20_000)
    turned = [TileAccess(one.name, one.lanes[::-1], one.width_bytes, one.kind, one.weight) for one in accesses]
    assert solve_smem(rows, row_bytes, turned, allow_padding=False, cache=cache, rlimit=20_000) is first
    assert solve_smem(rows, row_bytes, accesses, allow_padding=False, rlimit=20_000) == first
    solve_smem(rows, row_bytes, accesses, allow_padding=False, allow_xor=False, cache=cache)
    assert len(cache.solutions) == 2


def two_ways(rows: int = 32) -> list[TileAccess]:
    """A tile of f32 read by ldmatrix and, transposed, by single words."""
    lane, row = np.arange(32), np.arange(8)
    return [
        TileAccess("ldmatrix", np.stack([row, row * 0], axis=-1)[None], 16, "ldmatrix"),
        TileAccess("transposed read", np.stack([lane % 4, 4 * (lane // 4)], axis=-1)[None], 4),
    ]


def test_every_query_is_recorded_and_a_cached_solution_asks_nothing() -> None:
    cache = SolverCache()
    first = solve_smem(32, 128, two_ways(), cache=cache)
    assert first.conflict_free
    assert first.asked == len(cache.notebook.record) > 0
    assert first.seconds >= sum(answer.seconds for answer in cache.notebook.record)
    assert all(
        answer.verdict in ("sat", "unsat") and "(check-sat)" in answer.smtlib for answer in cache.notebook.record
    )
    solve_smem(32, 128, two_ways(), cache=cache)
    assert first.asked == len(cache.notebook.record)


def test_where_z3_gives_up_the_best_known_layout_is_returned_and_called_unknown() -> None:
    solution = solve_smem(32, 128, two_ways(), allow_padding=False, rlimit=1)
    assert solution.verdict == "unknown"
    assert solution.proof == "none"
    # The menu's best: 8-byte steps would split vectors, so one of the two reads takes twice as long as it should.
    assert solution.wavefronts == 3
    assert solution.sentence == (
        "no layout is known that serves both accesses without bank conflicts: the best found: transposed read takes 2 "
        "wavefronts instead of 1; not proved: Z3 gave up on a better one (resource limit of 1)"
    )


def test_a_swizzle_that_is_asked_for_below_its_optimum_is_refuted() -> None:
    accesses = two_ways()
    phases = phases_of(accesses, 16, 128, 128, True)
    # Only bits 4 and 5 may be flipped: eight rows of 16 bytes then share four places.
    narrow = SwizzleQuestion("narrow", tuple((bit, 48) for bit in range(5)), phases, 16)
    finding = find_swizzle(narrow, narrow.floor, 100)
    assert (finding.total, finding.verdict) == (4, "proved")
    refuted = find_swizzle(narrow, narrow.floor, 4)
    assert (refuted.xor, refuted.verdict) == (None, "proved")
    in_vain = SwizzleQuestion("narrow", narrow.sources, phases, 16, rlimit=1)
    assert find_swizzle(in_vain, in_vain.floor, 100).verdict == "unknown"


def test_swizzles_are_listed_where_they_and_the_pairs_to_compare_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smem, "LISTED_PAIRS", 40)
    question = smem._Question.of(8, 128, two_ways()[:1], True, True, 1)
    for flips in range(12):
        for pairs in range(1, 6):
            row = tuple(Carrying(0, 0, 1, 0, shift) for shift in range(pairs))
            masks = tuple((bit, 1 << 4 + bit % 3) for bit in range(flips))
            asked = SwizzleQuestion("few", masks, (Phase((row,), (1, 2), 1),), 16)
            assert question.listable(asked) == (1 <= flips <= 8 and pairs * 2**flips <= 40)
    monkeypatch.setattr(smem, "LISTED_PAIRS", 10_000)
    many = tuple((bit, 16) for bit in range(9))
    phases = (Phase(((Carrying(0, 0, 1, 0, 0),),), (1, 2), 1),)
    assert [question.listable(SwizzleQuestion("few", many[:count], phases, 16)) for count in (8, 9)] == [True, False]


class Forgetful(TileAccess):
    """Counts one wavefront too few, so that lanes and phases disagree."""

    def wavefronts(self, layout: SmemLayout) -> int:
        return TileAccess.wavefronts(self, layout) - 1


def test_a_count_by_lanes_that_differs_from_the_solvers_is_a_fault_that_asks_for_a_report() -> None:
    lane = np.arange(32)
    read = Forgetful("read", np.stack([lane * 0, 4 * lane], axis=-1)[None], 4)
    with pytest.raises(SolverDisagreement) as caught:
        solve_smem(1, 128, [read], allow_padding=False, rlimit=77)
    said, _, question = str(caught.value).partition("; please report this question: ")
    assert said == "[smem solver] the solver expects 1 wavefronts, the count by lanes is 0"
    assert json.loads(question)[:5] == [1, 128, [0], True, 77]


@pytest.mark.parametrize("vector", [4, 16])
@pytest.mark.parametrize(("rows", "pitch"), [(1, 128), (2, 64), (8, 128), (16, 32), (12, 96), (64, 256)])
def test_the_menu_has_every_run_of_bits_once_beside_hardwares_swizzles_which_come_first(
    rows: int, pitch: int, vector: int
) -> None:
    for block in (vector, 2 * vector, 64, 128):
        listed = list(menu(rows, pitch, vector, block))
        runs = [
            tuple((row + place, 1 << column + place) for place in range(count))
            for count in range(1, 7)
            for column in range(7)
            for row in range(row_bits(rows) - count + 1)
            if vector <= 1 << column and 1 << column + count <= block
        ]
        legal = [xor for _, xor in hardware_masks(rows, pitch) if xor and max(mask for _, mask in xor) < block]
        assert listed[0] == ()
        assert listed[1 : 1 + len(legal)] == legal
        assert listed[1 + len(legal) :] == runs


def test_sentences() -> None:
    lane = np.arange(32)
    store = TileAccess("row store", np.array([np.stack([lane // 8, 16 * (lane % 8)], axis=-1)]), 16)
    read = TileAccess("column read", np.array([np.stack([lane, lane * 0], axis=-1)]), 4)
    assert solve_smem(32, 128, [store]).sentence == "every access is free of bank conflicts; counted lane by lane"
    assert solve_smem(32, 128, [store, read]).sentence == (
        "no layout serves both accesses without bank conflicts: at best column read takes 4 wavefronts instead of 1; "
        "proved for every layout that keeps vectors of 16 bytes whole"
    )
    assert solve_smem(32, 128, [read], allow_padding=False, allow_xor=False).sentence == (
        "no layout serves column read without bank conflicts: at best column read takes 32 wavefronts instead of 1; "
        "proved for rows of 128 B"
    )


def test_rows_that_do_not_hold_whole_vectors_are_padded_to_do_so() -> None:
    lane = np.arange(32)
    read = TileAccess("read", np.array([np.stack([lane, lane % 4 * 0], axis=-1)]), 8)
    solution = solve_smem(32, 36, [read], allow_padding=False)
    assert solution.layout.pitch_bytes == 40
    assert solution.layout.vector_bytes % 8 == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solve_smem(0, 64, two_ways()), "[smem solver] a tile has at least one row and one byte, not 0 x 64"),
        (lambda: solve_smem(8, 64, []), "[smem solver] a layout is chosen for its accesses, but none was given"),
        (
            lambda: solve_smem(8, 128, [two_ways()[0], two_ways()[0]]),
            "[smem solver] accesses are told apart by their names, but these repeat: ['ldmatrix', 'ldmatrix']",
        ),
        (
            lambda: solve_smem(7, 128, two_ways()),
            "[access 'ldmatrix'] it reaches row 7 and column byte 15, outside the tile of 7 rows x 128 B",
        ),
        (
            lambda: TileAccess("a", np.zeros((1, 32, 2), dtype=int), 4, "tma"),  # type: ignore[arg-type]
            "[access 'a'] the kind is one of ldst, ldmatrix, cp.async, not 'tma'",
        ),
        (
            lambda: TileAccess("a", np.zeros((1, 32, 2), dtype=int), 2, "cp.async"),
            "[access 'a'] cp.async moves 4 or 8 or 16 bytes per lane, not 2",
        ),
        (
            lambda: TileAccess("a", np.zeros((1, 32, 2), dtype=int), 4, weight=0),
            "[access 'a'] the weight must be a positive integer, not 0",
        ),
        (
            lambda: TileAccess("a", np.zeros((32, 2), dtype=int), 4),
            "[access 'a'] coordinates have shape (instances, 32, 2), not (32, 2)",
        ),
        (
            lambda: TileAccess("a", np.zeros((1, 32, 2)), 4),
            "[access 'a'] coordinates are whole rows and bytes, not float64",
        ),
        (
            lambda: TileAccess("a", np.full((1, 32, 2), -2), 4),
            "[access 'a'] rows and columns are non-negative; row -1 marks an inactive lane",
        ),
        (
            lambda: TileAccess("a", np.array([[(0, -4)] + [(1, 4)] * 31]), 4),
            "[access 'a'] rows and columns are non-negative; row -1 marks an inactive lane",
        ),
        (
            lambda: TileAccess("a", np.full((1, 32, 2), 6), 4),
            "[access 'a'] column byte 6 is not a multiple of the 4 bytes that a lane moves",
        ),
        (
            lambda: TileAccess("a", np.array([[(0, 0), (-1, 5), (0, 8), (0, 7), (1, 9)] * 6 + [(0, 4)] * 2]), 4),
            "[access 'a'] column byte 7 is not a multiple of the 4 bytes that a lane moves",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message


def test_z3_is_loaded_by_the_first_question_that_the_menu_cannot_answer() -> None:
    code = """
import sys
import numpy as np
from tinygpu.solver import SolverCache, TileAccess, solve_smem
row = np.arange(8)
access = TileAccess("ldmatrix", np.stack([row, row * 0], axis=-1)[None], 16, "ldmatrix")
solution = solve_smem(64, 128, [access], cache=SolverCache())
print(solution.layout.hardware_swizzle(), sorted({"z3"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "128B []"


@pytest.mark.parametrize(
    ("units", "asked"),
    [
        ([(0, c) for c in range(32)], 31),
        ([(r, c) for r in range(4) for c in range(8)], 31),
        ([(3 * (c // 16), c % 16 ^ 5 * (c // 16)) for c in range(32)], 31),
        ([(0, c) for c in range(31)], 31 * 30),
        ([(r, r) for r in (0, 1, 2, 4)], 4 * 3),
    ],
)
def test_where_all_units_meet_the_others_alike_only_one_is_compared(
    units: list[tuple[int, int]], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The units of an XOR space (moved or not) do; of any other set each is compared with each."""
    pairs = []
    kept = phases._pair
    monkeypatch.setattr(phases, "_pair", lambda *of: pairs.append(of) or kept(*of))
    for moved in (0, 2):
        phases._phase_of.cache_clear()
        pairs.clear()
        lanes = np.array([[(r ^ moved, 4 * (c ^ moved)) for r, c in units]])
        tile_phases(lanes, 4, 4, 128, 128, True)
        assert len(pairs) == asked
