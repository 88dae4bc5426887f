"""Solving for the unknown layout of a tile in shared memory: padding is enumerated, swizzles are solved for.

The order is from cheap to dear: the pigeonhole bound, all swizzles where they are few, else the menu of plain
shift-and-XOR swizzles (hardware's first), Z3
for any XOR of column bits by row bits, then padding. It stops where nothing better can exist, and says why.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tinygpu.cost.banks import BANK_BYTES, ROW_BYTES
from tinygpu.solver.menu import every_xor, menu, menu_totals
from tinygpu.solver.phases import Phase, PhaseKind, tile_phases
from tinygpu.solver.smem_layout import SmemLayout, row_bits, xor_block_bytes
from tinygpu.solver.solution import AccessResult, Proof, Solution, results_of, sentence_of
from tinygpu.solver.swizzle_search import RLIMIT, SwizzleQuestion, Verdict, Xor, find_swizzle
from tinygpu.solver.tile_access import TileAccess

if TYPE_CHECKING:
    from tinygpu.constraints.query import Notebook


# Swizzles are all tried, LISTED_AT_ONCE at a time, where 2^LISTED_FLIPS bounds their number and LISTED_PAIRS bounds
# the pairs to compare.
LISTED_FLIPS = 8
LISTED_PAIRS = 4_000_000
LISTED_AT_ONCE = 128


class SolverDisagreement(RuntimeError):
    """The solver's count and the count lane by lane differ: a fault of ours, never of the user."""


@dataclass(slots=True, eq=False)
class SolverCache:
    """Solutions by the canonical text of their question, and the queries that were put to Z3 on the way.

    Pass one to every call that may share answers; nothing is kept elsewhere.
    """

    solutions: dict[str, Solution] = field(default_factory=dict)
    _notebook: list[Notebook] = field(default_factory=list)

    @property
    def notebook(self) -> Notebook:
        """The record of all queries, with verdict, time and SMT-LIB text."""
        if not self._notebook:
            from tinygpu.constraints.query import Notebook

            self._notebook.append(Notebook())
        (notebook,) = self._notebook
        return notebook


@dataclass(slots=True)
class _Best:
    """The best layout so far, in the order of preference: wavefronts, then padding, then the XOR's cost."""

    total: int
    pitch: int
    xor: Xor


def solve_smem(
    rows: int,
    row_bytes: int,
    accesses: Sequence[TileAccess],
    *,
    allow_padding: bool = True,
    allow_xor: bool = True,
    cache: SolverCache | None = None,
    rlimit: int = RLIMIT,
) -> Solution:
    """The layout of a tile of `rows` rows of `row_bytes` bytes that serves all accesses with the fewest wavefronts.

    accesses       how warps touch the tile; the sum of weight x wavefronts is made small
    allow_padding  consider rows that are longer than their data, by up to one turn of the banks
    allow_xor      consider XORing column bits by row bits, at every pitch whose multiples do not carry into the column
                   bits, and without padding at any pitch
    cache          answers known so far; None asks afresh
    rlimit         Z3's resource limit for one query

    Every layout considered keeps vectors of the widest access whole and aligned. Raises ValueError where an access
    leaves the tile.
    """
    start = time.perf_counter()
    question = _Question.of(rows, row_bytes, accesses, allow_padding, allow_xor, rlimit)
    key = question.key()
    if cache is not None and key in cache.solutions:
        return cache.solutions[key]
    solution = question.solve(cache, start)
    if cache is not None:
        cache.solutions[key] = solution
    return solution


@dataclass(frozen=True, slots=True)
class _Question:
    rows: int
    row_bytes: int
    accesses: tuple[TileAccess, ...]
    vector_bytes: int
    paddings: tuple[int, ...]
    allow_xor: bool
    rlimit: int

    @classmethod
    def of(
        cls,
        rows: int,
        row_bytes: int,
        accesses: Sequence[TileAccess],
        allow_padding: bool,
        allow_xor: bool,
        rlimit: int,
    ) -> _Question:
        if rows < 1 or row_bytes < 1:
            raise ValueError(f"[smem solver] a tile has at least one row and one byte, not {rows} x {row_bytes}")
        if not accesses:
            raise ValueError("[smem solver] a layout is chosen for its accesses, but none was given")
        names = [access.name for access in accesses]
        if len(set(names)) != len(names):
            raise ValueError(f"[smem solver] accesses are told apart by their names, but these repeat: {names}")
        for access in accesses:
            active = access.lanes[access.lanes[..., 0] >= 0]
            if active.size and (active[:, 0].max() >= rows or active[:, 1].max() + access.width_bytes > row_bytes):
                raise ValueError(
                    f"[access {access.name!r}] it reaches row {active[:, 0].max()} and column byte "
                    f"{active[:, 1].max() + access.width_bytes - 1}, outside the tile of {rows} rows x {row_bytes} B"
                )
        vector = max(BANK_BYTES, *(access.width_bytes for access in accesses))
        # Vectors stay aligned in every row only if rows start at multiples of the widest vector.
        least = -row_bytes % vector
        paddings = range(least, least + ROW_BYTES, vector) if allow_padding else (least,)
        return cls(rows, row_bytes, tuple(accesses), vector, tuple(paddings), allow_xor, rlimit)

    def key(self) -> str:
        """The canonical text of the question: equal for equal questions, whatever order the instances are in."""
        accesses = []
        for access in self.accesses:
            instances = Counter(lanes.tobytes() for lanes in access.lanes)
            listing = sorted((hashlib.sha256(lanes).hexdigest(), count) for lanes, count in instances.items())
            accesses.append((access.name, access.width_bytes, access.kind, access.weight, listing))
        return json.dumps([self.rows, self.row_bytes, self.paddings, self.allow_xor, self.rlimit, accesses])

    def solve(self, cache: SolverCache | None, start: float) -> Solution:
        least = self.row_bytes + self.paddings[0]
        swizzles = {least: self.swizzle_question(least)}
        least_at: dict[int, int] = {}  # pitch -> a total that no swizzle undercuts, where more than the floor is known
        asked, reason = 0, ""
        floor = swizzles[least].floor
        best = self.from_menu(swizzles[least], least)
        # Is there a layout that reaches the bound which no layout undercuts? Little padding first, the menu before Z3.
        for pitch in (self.row_bytes + padding for padding in self.paddings):
            if best.total == floor:
                break
            if pitch > least and (not self.allow_xor or not banks_see_xor(pitch)):
                # Padding that makes rows carry into columns is the other cure; it is not mixed with an XOR.
                found = _Best(self.count(SmemLayout(self.rows, self.row_bytes, pitch)), pitch, ())
                best = found if found.total < best.total else best
            else:
                if pitch not in swizzles:
                    swizzles[pitch] = self.swizzle_question(pitch)
                question = swizzles[pitch]
                listed = not banks_see_xor(pitch) and self.listable(question)
                found = self.from_list(question, pitch) if listed else self.from_menu(question, pitch)
                best = found if found.total < best.total else best
                if listed:
                    least_at[pitch] = found.total
                elif best.total > floor and question.sources:
                    finding = find_swizzle(question, floor, floor + 1, _notebook(cache))
                    asked += finding.asked
                    if finding.xor is not None:
                        best = _Best(finding.total, pitch, finding.xor)
                    elif finding.verdict == "proved":
                        least_at[pitch] = floor + 1
        if best.total > floor:
            # There is none, so the best is looked for at every pitch, and whatever would be better is refuted.
            for pitch, question in swizzles.items():
                if not question.sources:
                    continue
                below, at_least = best.total + (pitch < best.pitch), least_at.get(pitch, question.floor)
                finding = find_swizzle(question, at_least, below, _notebook(cache))
                asked += finding.asked
                if finding.xor is not None:
                    best = _Best(finding.total, pitch, finding.xor)
                reason = finding.reason or reason
        layout = SmemLayout(self.rows, self.row_bytes, best.pitch, best.xor)
        results = results_of(layout, self.accesses)
        self.check(best.total, results)
        return self.solution(layout, results, best.total, floor, asked, reason, start)

    def solution(
        self,
        layout: SmemLayout,
        results: tuple[AccessResult, ...],
        total: int,
        floor: int,
        asked: int,
        reason: str,
        start: float,
    ) -> Solution:
        proof: Proof
        if all(one.conflict_free for one in results):
            proof = "ideal"
        elif total == floor:
            proof = "pigeonhole"
        else:
            proof = "none" if reason else "refuted"
        verdict: Verdict = "unknown" if proof == "none" else "proved"
        family = self.family()
        sentence = sentence_of(results, proof, family, self.vector_bytes, reason)
        seconds = time.perf_counter() - start
        return Solution(layout, results, verdict, proof, family, sentence, asked, seconds)

    def count(self, layout: SmemLayout) -> int:
        """Wavefronts of all accesses, each as often as it runs, counted lane by lane."""
        return sum(access.weight * access.wavefronts(layout) for access in self.accesses)

    def check(self, total: int, results: tuple[AccessResult, ...]) -> None:
        counted = sum(one.weight * found.wavefronts for one, found in zip(self.accesses, results, strict=True))
        if counted != total:
            raise SolverDisagreement(
                f"[smem solver] the solver expects {total} wavefronts, the count by lanes is {counted}; please report "
                f"this question: {self.key()}"
            )

    def family(self) -> str:
        """The layouts that are considered, in words."""
        least, most = self.paddings[0], self.paddings[-1]
        padding = f"{least} to {most} B of row padding" if most > least else f"rows of {self.row_bytes + least} B"
        if not self.allow_xor:
            return padding
        xor = f"every XOR of column bits from {self.vector_bytes} B on by row bits, with {padding}"
        return f"{xor} (padding alone where it makes rows carry into columns)" if most > least else xor

    def block_bytes(self, pitch: int) -> int:
        """Power of two below which column bits are flipped: in the row, and seen by the banks."""
        return min(ROW_BYTES, xor_block_bytes(self.row_bytes, pitch))

    def swizzle_question(self, pitch: int) -> SwizzleQuestion:
        """The question that is left when the pitch is fixed."""
        block = self.block_bytes(pitch)
        linear = banks_see_xor(pitch)
        merged: Counter[PhaseKind] = Counter()
        for access in self.accesses:
            found = tile_phases(access.phase_lanes(), access.unit_bytes, self.vector_bytes, pitch, block, linear)
            for kind, count in found.items():
                merged[kind] += count * access.weight
        phases = tuple(Phase(rows, levels, times) for (rows, levels), times in sorted(merged.items()))
        seen = 0
        for phase in phases:
            for row in phase.rows:
                for pair in row:
                    seen |= pair.sources
        allowed = max(0, block - self.vector_bytes)
        open_bits = range(row_bits(self.rows)) if self.allow_xor and allowed else ()
        sources = tuple((bit, allowed) for bit in open_bits if seen >> bit & 1)
        name = f"{self.rows} rows x {self.row_bytes} B at a pitch of {pitch} B"
        return SwizzleQuestion(name, sources, phases, self.vector_bytes, self.rlimit)

    def listable(self, question: SwizzleQuestion) -> bool:
        """Whether swizzles are so few that trying each is quicker than asking Z3, which is slow where rows carry."""
        flips = sum(allowed.bit_count() for _, allowed in question.sources)
        pairs = sum(len(row) for phase in question.phases for row in phase.rows)
        return 0 < flips <= LISTED_FLIPS and pairs << flips <= LISTED_PAIRS

    def from_list(self, question: SwizzleQuestion, pitch: int) -> _Best:
        """The best of all swizzles at this pitch, of equals the one with the fewest flips: exact by enumeration."""
        candidates = every_xor(question.sources)
        found: list[tuple[int, int]] = []
        for start in range(0, len(candidates), LISTED_AT_ONCE):
            some = candidates[start : start + LISTED_AT_ONCE]
            totals = menu_totals(question.phases, some, row_bits(self.rows))
            found.append((int(totals.min()), start + int(totals.argmin())))
        total, first = min(found)
        return _Best(total, pitch, candidates[first])

    def from_menu(self, question: SwizzleQuestion, pitch: int) -> _Best:
        """The best layout of the menu at this pitch; the cheapest of equals."""
        candidates: list[Xor] = [()]
        if question.sources:
            candidates = list(menu(self.rows, pitch, self.vector_bytes, self.block_bytes(pitch)))
        totals = menu_totals(question.phases, candidates, row_bits(self.rows))
        first = int(totals.argmin())
        return _Best(int(totals[first]), pitch, candidates[first])


def _notebook(cache: SolverCache | None) -> Notebook | None:
    return None if cache is None else cache.notebook


def banks_see_xor(pitch_bytes: int) -> bool:
    """Whether row * pitch + column is, for the banks, an XOR of what the row and what the column contribute.

    >>> [banks_see_xor(pitch) for pitch in (32, 64, 128, 192, 96, 144)]
    [True, True, True, True, False, False]
    """
    # Only the address mod 128 counts. At a multiple of 64 the row moves bit 6 at most, whose carry leaves the banks;
    # at a smaller power of two the column stays below the bits that the row moves.
    return pitch_bytes % (ROW_BYTES // 2) == 0 or pitch_bytes & (pitch_bytes - 1) == 0
