"""What the search is told of the lanes that the banks serve together, against plain loops over them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tinygpu.constraints.query import ask
from tinygpu.solver import TileAccess, smem
from tinygpu.solver.menu import every_xor
from tinygpu.solver.phases import Carrying, Linear, Pair, Phase, tile_phases, total_wavefronts
from tinygpu.solver.smem import banks_see_xor
from tinygpu.solver.smem_layout import row_bits, xor_block_bytes
from tinygpu.solver.swizzle_search import SwizzleQuestion, _reason_of, _terms, _Writer, swizzle_query


def drawn(rng: np.random.Generator, unit: int, most: int) -> list[tuple[int, int]]:
    """Units of one phase as (row, column unit): a space of XORs, moved, with or without its first; or any."""
    form = int(rng.integers(3))
    if form == 2:
        return sorted({(int(r), int(c)) for r, c in rng.integers(0, 8, (most, 2))})
    space = {(0, 0)}
    for r, c in rng.integers(0, 8, (int(rng.integers(1, most.bit_length())), 2)):
        space |= {(a ^ int(r), b ^ int(c)) for a, b in space}
    r, c = (int(v) for v in rng.integers(0, 8, 2))
    units = sorted((a ^ r, b ^ c) for a, b in space)
    return units[form:] or units


@pytest.mark.parametrize("seed", range(60))
def test_levels_are_the_numbers_of_wavefronts_that_are_possible_at_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    unit = int(rng.choice((4, 8, 16)))
    vector = max(unit, int(rng.choice((4, 8, 16))))
    pitch = int(rng.choice((128, 64, 144)))
    linear, block = banks_see_xor(pitch), min(128, int(rng.choice((vector, 64, 128))))
    units = drawn(rng, unit, 128 // unit)
    inactive = [(-1, int(c)) for c in rng.integers(-1, 2, 2)]  # lanes that stay out, wherever their column says
    lanes = np.array([[(r, c * unit if r >= 0 else c) for r, c in [*units, *inactive, units[0]]]])
    ((rows, levels),) = tile_phases(lanes, unit, vector, pitch, block, linear)
    crowd = max(Counter(column * unit % vector for _, column in units).values())
    floor = -(-crowd * vector // 128)
    (r, c), closed = units[0], linear
    moved = {(row ^ r, column ^ c) for row, column in units}
    closed = linear and all((a ^ x, b ^ y) in moved for a, b in moved for x, y in moved)
    possible = [2**i for i in range(8)] if closed else range(1, 33)
    assert levels == tuple(level for level in possible if floor <= level <= crowd)
    for pair in (pair for row in rows for pair in row):
        flips = range(0, block, vector)
        if isinstance(pair, Linear):  # what no swizzle makes conflict is not kept
            assert pair.bank in flips
        else:
            ends = {(pair.shift + (pair.place ^ a) - (pair.other_place ^ b)) % 128 for a in flips for b in flips}
            assert 0 in ends
    phase = Phase(rows, levels, 1)
    sources = tuple((bit, block - vector) for bit in (0, 2))
    for xor in every_xor(sources)[:40]:
        banks: dict[int, set[tuple[int, int]]] = {}
        for row, column in units:
            flip = 0
            for bit, mask in xor:
                flip ^= (row >> bit & 1) * mask
            banks.setdefault((row * pitch + (column * unit ^ flip)) % 128, set()).add((row, column))
        assert phase.wavefronts(dict(xor)) == max(len(some) for some in banks.values())


def test_lanes_that_all_stay_out_are_no_phase() -> None:
    assert not tile_phases(np.full((2, 8, 2), -1), 16, 16, 128, 128, True)
    assert not tile_phases(np.full((2, 8, 2), -1), 16, 16, 144, 16, False)


def test_the_masks_that_matter_to_a_pair_are_those_of_its_sources() -> None:
    pairs: list[Pair] = [Linear(source, bank) for source in range(8) for bank in (0, 16, 48)]
    pairs += [Carrying(a, 16, b, 32, shift) for a in range(8) for b in range(8) for shift in (0, 16)]
    for pair in pairs:
        for bit in range(3):
            others = [b for b in range(3) if b != bit]
            matters = any(
                pair.conflicts(dict(zip(others, masks, strict=True)))
                != pair.conflicts({**dict(zip(others, masks, strict=True)), bit: mask})
                for masks in itertools.product((0, 16, 32), repeat=2)
                for mask in (16, 48)
            )
            assert (pair.sources >> bit & 1) >= matters
        if isinstance(pair, Linear):
            assert pair.sources == pair.source
        else:
            assert pair.sources == pair.source | pair.other_source


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("at_once", [1, 3, 128])
def test_the_best_of_a_list_is_the_first_of_least_wavefronts(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has the fewest flips; it may be the one without any."""
    monkeypatch.setattr(smem, "LISTED_AT_ONCE", at_once)
    rng = np.random.default_rng(seed)
    spread = 3 if seed % 2 else 1
    lanes = np.stack([rng.integers(0, 8, (1, 32)), 4 * spread * rng.integers(0, 16 // spread, (1, 32))], axis=-1)
    if not seed:
        lanes = np.stack([np.arange(32) // 16, 4 * (np.arange(32) % 16)], axis=-1)[None]
    question = smem._Question.of(8, 80, [TileAccess("it", lanes, 4)], False, True, 1)
    asked = question.swizzle_question(80)
    every = every_xor(asked.sources)
    totals = [total_wavefronts(asked.phases, dict(xor)) for xor in every]
    found = question.from_list(asked, 80)
    assert (found.total, found.pitch, found.xor) == (min(totals), 80, every[totals.index(min(totals))])


def test_a_question_leaves_open_the_bits_from_the_widest_vector_to_the_end_of_the_block() -> None:
    for row_bytes, pitch, width, rows in itertools.product((16, 48, 64, 96, 256), (0, 16, 64), (4, 16), (1, 5, 8)):
        if width == 4 and pitch:
            continue
        rng = np.random.default_rng(rows)
        units = rng.integers(0, (rows, row_bytes // width), (1, 32, 2)) * (1, width)
        question = smem._Question.of(rows, row_bytes, [TileAccess("it", units, width)], True, True, 1)
        asked = question.swizzle_question(row_bytes + pitch)
        block = min(128, xor_block_bytes(row_bytes, row_bytes + pitch))
        open_bits = sum(2**i for i in range(7) if width <= 2**i < block)
        assert {allowed for _, allowed in asked.sources} <= {open_bits} - {0}
        read = 0
        for pair in (pair for phase in asked.phases for row in phase.rows for pair in row):
            read |= pair.sources
        wanted = [bit for bit in range(row_bits(rows)) if read >> bit & 1] if open_bits else []
        assert [bit for bit, _ in asked.sources] == wanted


@pytest.mark.parametrize("seed", range(12))
def test_a_query_about_one_pair_has_the_masks_that_keep_its_units_apart(seed: int) -> None:
    """Each answer for every set of masks, asked one by one."""
    rng = np.random.default_rng(seed)
    sources = ((0, 48), (2, 112))
    places = [16 * int(n) for n in rng.integers(0, 8, 3)]
    one, other = (int(n) for n in rng.integers(0, 8, 2))
    pair: Pair = Carrying(one, places[0], other, places[1], places[2]) if seed % 3 else Linear(one, places[0])
    import z3

    context = z3.Context()
    masks = {bit: z3.BitVec(f"mask!{bit}!4", 3, ctx=context) for bit, _ in sources}
    term = _Writer(masks, 4, 3, context).conflict(pair)
    for chosen in itertools.product(range(0, 64, 16), range(0, 128, 16)):
        told = dict(zip((0, 2), chosen, strict=True))
        if isinstance(term, bool):
            assert term == pair.conflicts(told)
        else:
            values = [(masks[bit], z3.BitVecVal(mask >> 4, 3, ctx=context)) for bit, mask in told.items()]
            assert z3.is_true(z3.simplify(z3.substitute(term, *values))) == pair.conflicts(told)


def test_pairs_are_named_only_where_some_of_them_may_conflict() -> None:
    import z3

    context = z3.Context()
    masks = {bit: z3.BitVec(f"mask!{bit}!4", 3, ctx=context) for bit in range(2)}
    pairs = [Linear(1, 0), Linear(2, 16), Linear(3, 32), Linear(4, 0), Linear(4, 16)]  # the last two are decided
    for count, named in ((0, 0), (1, 0), (2, 3), (3, 3), (4, 0), (5, 0)):
        write = _Writer(masks, 4, 3, context)
        term = write.at_most(pairs, count)
        assert len(write.named) == len(write.definitions) == named
        assert str(term) in ("True", "False") or 1 <= count < 4
    first = swizzle_query(
        SwizzleQuestion("none", ((0, 112), (1, 112)), (Phase((tuple(pairs[:3]),), (1, 2), 1),), 16), 1
    )
    assert "pair!" not in ask(first).smtlib


def test_levels_that_a_phase_cannot_afford_are_not_asked_about() -> None:
    """Named are the levels at which a phase may stop; of the phases, the costliest first."""
    pairs = tuple(Linear(1 << i, 0) for i in range(5))
    for least, times, slack in itertools.product((1, 2), (1, 2), range(8)):
        levels = tuple(range(least, 6))
        question = SwizzleQuestion("one", tuple((i, 112) for i in range(5)), (Phase((pairs,), levels, times),), 16)
        text = ask(swizzle_query(question, question.floor + slack)).smtlib
        affordable = [level for level in levels if times * (level - least) <= slack]
        assert set(re.findall(r"phase!0!\d+", text)) == {f"phase!0!{level}" for level in affordable[:-1]}


def test_pairs_that_may_never_conflict_are_forbidden_once() -> None:
    import z3

    pairs = (Linear(1, 0), Linear(2, 16), Linear(3, 0))
    phases = tuple(Phase((pairs[:2], pairs[:2][::-1], pairs[i:]), (1, 2, 3), 1) for i in range(2))
    terms = _terms(SwizzleQuestion("never", ((0, 112), (1, 112)), phases, 16), 2, None, z3.Context())
    assert len(terms) == 2 + len(pairs)  # what the masks may be, and each pair


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("canceled", "resource limit of 12,000"),
        ("max. resource limit exceeded", "resource limit of 12,000"),
        ("(incomplete quantifiers)", "(incomplete quantifiers)"),
    ],
)
def test_a_limit_is_named_and_any_other_reason_is_z3s_own(reason: str, said: str) -> None:
    assert _reason_of(reason, 12_000) == said


def test_phases_are_counted_as_often_as_they_run() -> None:
    conflict: tuple[Any, ...] = ((Linear(0, 0), Linear(0, 0)),)
    phases = [Phase(conflict, (1, 2, 3), 5), Phase((), (1,), 2), Phase(((),), (1,), 1)]
    assert [phase.wavefronts({}) for phase in phases] == [3, 1, 1]
    assert total_wavefronts(phases, {}) == 5 * 3 + 2 + 1
