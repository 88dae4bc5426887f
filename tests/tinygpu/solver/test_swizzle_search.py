"""The search for a swizzle, with Z3's answers read off a list: what it finds, asks, and makes of silence."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.constraints import query
from tinygpu.constraints.query import Answer, ask
from tinygpu.solver import swizzle_search
from tinygpu.solver.menu import every_xor
from tinygpu.solver.phases import Carrying, Linear, Pair, Phase, total_wavefronts
from tinygpu.solver.swizzle_search import (
    JOIN_PHASES,
    SPARSE_RLIMIT,
    SwizzleQuestion,
    Xor,
    find_swizzle,
    swizzle_query,
)

LOW = 4  # vectors of 16 bytes: masks have the bits 4 to 6


@st.composite
def questions(draw: st.DrawFn, most_phases: int = 8) -> SwizzleQuestion:
    """Up to 64 swizzles; phases of random pairs, some of which no mask decides, with the levels that they can have."""
    allowed = draw(st.sampled_from((48, 112)))
    sources = tuple((bit, allowed) for bit in range(1, 4 if allowed == 48 else 3))
    bytes_ = st.sampled_from((0, 16, 32, 48, 64, 112))
    linear, row_bits = draw(st.booleans()), st.integers(0, 15)
    pair: st.SearchStrategy[Pair] = st.builds(Linear, row_bits, bytes_)
    if not linear:
        pair = st.builds(Carrying, row_bits, bytes_, row_bits, bytes_, bytes_)
    row = st.lists(pair, min_size=1, max_size=4, unique=True).map(lambda pairs: tuple(sorted(pairs)))
    phases = []
    for rows in draw(st.lists(st.lists(row, min_size=1, max_size=2), min_size=1, max_size=most_phases)):
        free = Phase(tuple(rows), (1,), 1)
        least = min(free.wavefronts(dict(xor)) for xor in every_xor(sources)) if draw(st.booleans()) else 1
        levels = tuple(range(least, 2 + max(len(r) for r in rows)))
        phases.append(Phase(tuple(rows), levels, draw(st.integers(1, 3))))
    return SwizzleQuestion("drawn", sources, tuple(phases), 16, draw(st.sampled_from((10, 400_000))))


def ones(xor: Xor) -> int:
    return sum(mask.bit_count() for _, mask in xor)


@dataclass
class Listed:
    """Answers like Z3 with any swizzle that is right for the phases asked about; gives up on some totals.

    silent   totals that it says nothing about
    asked    (total asked for, most flipped bits or None, the phases), in order
    """

    question: SwizzleQuestion
    chance: random.Random
    silent: frozenset[int] = frozenset()
    asked: list[tuple[int, int | None, tuple[Phase, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.every = every_xor(self.question.sources)
        self.latest: Mapping[int, int] = {}
        self.flips = 0  # of the last swizzle that was found before fewer flips were asked for

    def ask(self, asked: tuple[SwizzleQuestion, int, int | None], notebook: object) -> Answer:
        part, at_most, most_ones = asked
        assert (part.sources, part.vector_bytes) == (self.question.sources, 16)
        sparse = self.question.rlimit if most_ones is None else min(SPARSE_RLIMIT, self.question.rlimit)
        assert part.rlimit == sparse
        total = at_most + self.question.floor - part.floor
        self.joins(part.phases)
        assert (total, most_ones, part.phases) not in self.asked
        self.asked.append((total, most_ones, part.phases))
        if total in self.silent:
            return Answer("drawn", "unknown", reason="canceled")
        right = [
            xor
            for xor in self.every
            if total_wavefronts(part.phases, dict(xor)) <= at_most and (most_ones is None or ones(xor) <= most_ones)
        ]
        if not right:
            return Answer("drawn", "unsat")
        found = self.chance.choice(right)
        self.latest = dict(found)
        if most_ones is None:
            self.flips = ones(found)
        return Answer("drawn", "sat", {f"mask!{bit}!{LOW}": dict(found).get(bit, 0) >> LOW for bit, _ in part.sources})

    def joins(self, phases: tuple[Phase, ...]) -> None:
        """Phases stay, and those join that lose most under the last swizzle, three at a time."""
        before = self.asked[-1][2] if self.asked else ()
        if phases == before:
            return
        out = [(p.times * (p.wavefronts(self.latest) - p.levels[0]), p) for p in self.question.phases]
        waiting = sorted(loss for loss, p in out if loss > 0 and p not in before)
        joined = sorted(loss for loss, p in out if p in phases and p not in before)
        assert set(before) <= set(phases)
        assert joined == waiting[-JOIN_PHASES:]


def found_by(question: SwizzleQuestion, least: int, below: int, oracle: Listed) -> swizzle_search.SwizzleFinding:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(swizzle_search, "swizzle_query", lambda part, at_most, most=None: (part, at_most, most))
        patch.setattr(query, "ask", oracle.ask)
        return find_swizzle(question, least, below)


@settings(max_examples=80)
@given(questions().filter(lambda q: len(set(q.phases)) == len(q.phases)), st.integers(-1, 4), st.data())
def test_a_search_finds_the_best_that_listing_finds_and_asks_nothing_that_it_knows(
    question: SwizzleQuestion, more: int, data: st.DataObject
) -> None:
    totals = {xor: total_wavefronts(question.phases, dict(xor)) for xor in every_xor(question.sources)}
    best, floor = min(totals.values()), question.floor
    least = data.draw(st.integers(floor, best))
    below = max(best + more, least)
    silent = data.draw(st.frozensets(st.integers(floor, below)))
    oracle = Listed(question, random.Random(data.draw(st.integers(0, 99))), silent)
    found = found_by(question, least, below, oracle)

    asked = [total for total, most, _ in oracle.asked if most is None]
    assert found.asked == len(oracle.asked)
    fewer = {most for _, most, _ in oracle.asked if most is not None}
    assert fewer <= set(range(oracle.flips))
    assert len(fewer) <= oracle.flips.bit_length()
    assert asked[:1] == [least] * (least < below)
    assert all(least <= total < below for total in asked)
    assert (found.xor is None) == (found.total == below)
    if found.xor is not None:
        assert totals[found.xor] == found.total < below
        assert all(total >= found.total - 1 or total == least for total in asked[-1:])
    known = max([least - 1, *(total for total in asked if total < best and total not in silent)])
    assert found.verdict == ("proved" if found.total - 1 <= known else "unknown")
    assert found.reason == ("" if found.verdict == "proved" else f"resource limit of {question.rlimit:,}")
    if not silent:
        assert found.total == min(best, below)
        assert found.xor is None or ones(found.xor) == min(ones(xor) for xor in totals if totals[xor] == best)
        halvings = ones(max(totals, key=ones)).bit_length() + len(question.phases)
        assert found.asked <= below - least + 1 + 2 * len(question.phases) + halvings


@settings(max_examples=60)
@given(questions(most_phases=3), st.integers(-2, 5), st.none() | st.integers(0, 5))
def test_a_query_has_an_answer_exactly_where_listing_finds_one(
    question: SwizzleQuestion, more: int, most: int | None
) -> None:
    at_most = question.floor + more
    right = [
        xor
        for xor in every_xor(question.sources)
        if total_wavefronts(question.phases, dict(xor)) <= at_most and (most is None or ones(xor) <= most)
    ]
    asked: Any = swizzle_query(SwizzleQuestion("drawn", question.sources, question.phases, 16), at_most, most)
    answer = ask(asked)
    assert answer.verdict == ("sat" if right else "unsat")
    limit = "" if most is None else f" and at most {most} XORed bits"
    assert answer.name == f"drawn: at most {at_most} wavefronts{limit}"
    if right:
        assert swizzle_search.read_xor(answer.model) in right


def test_phases_that_lose_most_over_the_least_imaginable_join_first() -> None:
    pairs = [Linear(128 * (1 << i), 0) for i in range(5)]
    costs = [((1, 2, 3, 4, 5, 6), 1), ((4, 5, 6), 3), ((6,), 7), ((5, 6), 2), ((2, 3, 4, 5, 6), 2)]
    served = tuple(Phase((tuple(pairs),), levels, times) for levels, times in costs)
    question = SwizzleQuestion("five", ((7, 112),), served, 16)
    assert [phase.wavefronts({}) for phase in served] == [6] * 5
    assert swizzle_search._Search(question, None).joined == {0, 1, 4}  # they lose 5, 6, 0, 2 and 8


def test_a_swizzle_that_flips_nothing_is_the_sparsest() -> None:
    question = SwizzleQuestion("free", ((7, 112),), (Phase(((Linear(256, 16),),), (1, 2), 1),), 16)
    search = swizzle_search._Search(question, None)
    assert ones(search.sparsest(((7, 16),))) == 0
