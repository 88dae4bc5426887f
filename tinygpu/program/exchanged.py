"""Where the warps of a role leave what they exchange, and what each thread takes: as numbers, for one reduction.

Each warp leaves one word for every result that it has a part of. Where its lanes all have the same result, what warps
left of one result lies side by side, and a thread takes several at once; else what the lanes left does, so that no two
lanes of a request ask for one bank. Lowering writes addresses from these numbers, and listing them counts wavefronts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.meeting import LANES, WORD_BYTES, Meeting, paired, vector
from tinygpu.program.nodes.combining import Combining, Preceding, PrecedingInCluster, Reduce, Scan
from tinygpu.program.scanning import Level, ThreadPart, levels, thread_parts

# (threads from one value of the digit to the next, how many values it has, words from one to the next)
DigitStep = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What the warps of a role leave and take.

    warps    that meet
    words    of the tuple that one thread has of a result
    results  tuples of one thread
    block    words that all warps leave of one word of one result
    apart    words from what one warp left of it to what the next one did
    left     the digits of the thread id that say where it leaves its own
    taken    those that say where it takes from
    first    those that are zero in the thread that leaves it, of all that have the same
    threads  that have results; a role may have more
    masks    bits of the lane in which lanes that meet differ, the lowest first
    lanes    among which what the warps left is divided
    vector   warps whose words are taken at once
    """

    warps: int
    words: int
    results: int
    block: int
    apart: int
    left: tuple[DigitStep, ...]
    taken: tuple[DigitStep, ...]
    first: tuple[DigitStep, ...]
    threads: int
    masks: tuple[int, ...]
    lanes: int
    vector: int

    @property
    def own(self) -> int:
        """Warps of which a thread takes what they left."""
        return self.warps // self.lanes

    @property
    def share(self) -> tuple[DigitStep, ...]:
        """The digits of the thread id that say with which warp its share begins, in words."""
        halves = self.masks[: self.lanes.bit_length() - 1]
        return tuple((mask, 2, (self.own << place) * self.apart) for place, mask in enumerate(halves))

    @property
    def storing_warps(self) -> int:
        """Warps of the role in which a thread leaves something."""
        threads = np.arange(self.threads)
        return len(np.unique(threads[placed(threads, self.first) == 0] // LANES))

    def offset(self, result: int, word: int, warp: int) -> int:
        """Bytes to a word of a result that a warp left."""
        return ((word * self.results + result) * self.block + warp * self.apart) * WORD_BYTES

    def requests(self, warps: int) -> Iterator[tuple[bool, int, NDArray[np.int64], NDArray[np.bool_]]]:
        """(whether it stores, bytes of a lane, addresses (warps, lanes), lanes that stay out) of every request.

        warps  of the role
        """
        threads = np.arange(warps * LANES).reshape(warps, LANES)
        out = (threads >= self.threads) | (placed(threads, self.first) != 0)
        both = [(result, word) for word in range(self.words) for result in range(self.results)]
        for result, word in both:
            yield True, WORD_BYTES, placed(threads, self.left) * WORD_BYTES + self.offset(result, word, 0), out
        start = (placed(threads, self.taken) + placed(threads, self.share)) * WORD_BYTES
        nobody = np.zeros_like(out)
        for result, word in both:
            for warp in range(0, self.own, self.vector):
                yield False, WORD_BYTES * self.vector, start + self.offset(result, word, warp), nobody


def placed(threads: NDArray[np.int64], digits: tuple[DigitStep, ...]) -> NDArray[np.int64]:
    """What the digits say of each thread."""
    total = np.zeros_like(threads)
    for below, size, words in digits:
        total = total + threads // below % size * words
    return total


def exchanged(s: Combining) -> Exchanged | None:
    """What the warps exchange for a reduction of a filled-in program; None where lanes alone meet."""
    who = s.meeting
    warps = int(who.warps)
    if s.by is None or not s.by.warps or warps == 1:
        return None
    groups, results = int(who.groups), int(who.results)
    side_by_side = int(who.together) == 1
    lanes = paired(warps, int(who.lanes), int(who.together)) if s.by.in_pairs else 1
    digits = [d for d in who.digits if int(d.size) > 1]
    kept = [(int(d.below), int(d.size)) for d in digits if not d.along and not d.copies]
    members = [(int(d.below) * int(d.lanes), int(d.warps)) for d in digits if d.along]
    same = [(int(d.below), int(d.lanes)) for d in digits if d.along]
    same += [(int(d.below), int(d.size)) for d in digits if d.copies]
    between, apart = (warps, 1) if side_by_side else (1, groups)
    taken = _steps(kept, between)
    return Exchanged(
        warps,
        s.merge.words,
        results,
        warps * groups,
        apart,
        (*taken, *_steps(members, apart)),
        taken,
        tuple((below, size, 1) for below, size in same if size > 1),
        int(np.prod([int(d.size) for d in digits], dtype=np.int64)),
        lane_masks(who),
        lanes,
        vector(warps, lanes, int(who.together)),
    )


def exchanged_at(s: Scan, level: Level, blocks: int) -> Exchanged:
    """What the warps of one level of a scan exchange, of so many blocks."""
    held = s.holders
    return exchanged_between(thread_parts(held, s.axis)[0], levels(held, s.axis), level, blocks, s.merge.words)


def exchanged_between(
    parts: list[ThreadPart], ordered: tuple[Level, ...], level: Level, blocks: int, words: int
) -> Exchanged:
    """What the warps of one level of a scan exchange; threads that differ in earlier levels have the same."""
    done = ordered[: ordered.index(level)]
    kept = [p for p in parts if not p.copies and p.level != level and p.level not in done]
    same = [(p.below, p.size, 1) for p in parts if p.copies or p.level in done]
    groups = math.prod(p.size for p in kept)
    side_by_side = all(p.below >= LANES for p in kept)
    between, apart = (level.size, 1) if side_by_side else (1, groups)
    taken = _steps([(p.below, p.size) for p in kept], between)
    left = (*taken, *_steps([(level.below, level.size)], apart))
    threads, warps = math.prod(p.size for p in parts), level.size
    together = 1 if side_by_side else LANES
    return Exchanged(
        warps, words, blocks, warps * groups, apart, left, taken, tuple(same), threads, (), 1,
        vector(warps, 1, together),
    )  # fmt: skip


def all_exchanged(s: Combining) -> list[Exchanged | LookedBack | OfCluster]:
    """All that warps and CTAs exchange for a statement, in order."""
    if not isinstance(s, Scan):
        if isinstance(s, Preceding):
            return [looked_back(s)]
        if isinstance(s, PrecedingInCluster):
            return [of_cluster(s)] if int(s.ctas) > 1 else []
        found = exchanged(s)
        own: list[Exchanged | LookedBack | OfCluster] = [found] if found is not None else []
        return [*own, of_cluster(s)] if isinstance(s, Reduce) and int(s.ctas) > 1 else own
    blocks = s.holders.values.size
    out: list[Exchanged | LookedBack | OfCluster] = []
    for level in levels(s.holders, s.axis):
        if level.kind == "values":
            blocks //= level.size
        elif level.kind == "warps":
            out.append(exchanged_at(s, level, blocks))
    return out


@dataclass(frozen=True, slots=True)
class OfCta:
    """What a CTA leaves of results that many of its threads have: every one once.

    words    of the tuple that one thread has of a result
    results  tuples of one thread
    groups   of threads that have the same results: what they leave of one word lies side by side
    left     the digits of the thread id that say where
    first    those that are zero in the thread that leaves it
    threads  that have results
    """

    words: int
    results: int
    groups: int
    left: tuple[DigitStep, ...]
    first: tuple[DigitStep, ...]
    threads: int

    @property
    def tuples(self) -> int:
        """Results of the CTA."""
        return self.results * self.groups

    def offset(self, result: int, word: int) -> int:
        """Bytes to a word of a result."""
        return (word * self.results + result) * self.groups * WORD_BYTES


@dataclass(frozen=True, slots=True)
class LookedBack(OfCta):
    """What a CTA leaves for the warps that look back at other CTAs' results, and takes as what those have together."""

    def requests(self, warps: int) -> Iterator[tuple[bool, int, NDArray[np.int64], NDArray[np.bool_]]]:
        """As those of `Exchanged`: all leave theirs; a warp takes a result and gives it back; all take what it gave."""
        threads = np.arange(warps * LANES).reshape(warps, LANES)
        out = (threads >= self.threads) | (placed(threads, self.first) != 0)
        start = placed(threads, self.left) * WORD_BYTES
        both = [(result, word) for result in range(self.results) for word in range(self.words)]
        for result, word in both:
            yield True, WORD_BYTES, start + self.offset(result, word), out
        lanes = np.zeros((1, LANES), dtype=np.int64)
        for place in range(self.tuples):
            for word in range(self.words):
                address = lanes + (word * self.tuples + place) * WORD_BYTES
                yield False, WORD_BYTES, address, np.zeros_like(address, dtype=bool)
                yield True, WORD_BYTES, address, np.arange(LANES)[None, :] < LANES - 1
        for result, word in both:
            yield False, WORD_BYTES, start + self.offset(result, word), np.zeros_like(out)

    def told(self) -> Iterator[tuple[bool, NDArray[np.int64]]]:
        """(whether it writes, addresses of its lanes) of every request in global memory, of flags and of each word.

        For a CTA that finds what it looks for in the first 32 tiles before it, which begin at a sector, and counts
        itself in. Tuples of a tile are neighbours; what flags speak of lies as the flags do.
        """
        lanes = np.arange(LANES) * self.tuples * WORD_BYTES
        for place in range(self.tuples):
            for _ in range(1 + self.words):
                yield False, lanes + place * WORD_BYTES
                yield from [(True, lanes[:1] + place * WORD_BYTES)] * 2  # what the tile has, and what all have
        yield True, lanes[:1]


@dataclass(frozen=True, slots=True)
class OfCluster(OfCta):
    """What a CTA leaves for others of its cluster, and takes of them.

    ctas  of which it takes what they left, from the first one on
    """

    ctas: int

    def requests(self, warps: int) -> Iterator[tuple[bool, int, NDArray[np.int64], NDArray[np.bool_]]]:
        """As those of `Exchanged`; a CTA's own place stands for those of the others."""
        threads = np.arange(warps * LANES).reshape(warps, LANES)
        out = (threads >= self.threads) | (placed(threads, self.first) != 0)
        start = placed(threads, self.left) * WORD_BYTES
        for result, word in [(result, word) for result in range(self.results) for word in range(self.words)]:
            address = start + self.offset(result, word)
            yield True, WORD_BYTES, address, out
            for _ in range(self.ctas):
                yield False, WORD_BYTES, address, np.zeros_like(out)


def of_cluster(s: Reduce | PrecedingInCluster) -> OfCluster:
    """What a reduction, or a scan, leaves for the CTAs of a cluster."""
    return OfCluster(*_of_cta(s), int(s.taken if isinstance(s, PrecedingInCluster) else s.ctas))


def looked_back(s: Preceding) -> LookedBack:
    """What a CTA leaves for those of its warps that look back."""
    return LookedBack(*_of_cta(s))


def _of_cta(s: Combining) -> tuple[int, int, int, tuple[DigitStep, ...], tuple[DigitStep, ...], int]:
    """The fields of `OfCta`."""
    who = s.meeting
    digits = [d for d in who.digits if int(d.size) > 1]
    left = _steps([(int(d.below), int(d.size)) for d in digits if not d.along and not d.copies], 1)
    first = tuple((int(d.below), int(d.size), 1) for d in digits if d.along or d.copies)
    threads = math.prod(int(d.size) for d in digits)
    return s.merge.words, int(who.results), int(who.groups), left, first, threads


def lane_masks(who: Meeting) -> tuple[int, ...]:
    """The bits of the lane in which lanes that meet differ, the lowest first."""
    bits = sum((int(d.lanes) - 1) * int(d.below) for d in who.digits if d.along and int(d.below) < LANES)
    return tuple(1 << bit for bit in range(LANES.bit_length() - 1) if bits >> bit & 1)


def _steps(digits: list[tuple[int, int]], words: int) -> tuple[DigitStep, ...]:
    """Digits that count on, the first one in steps of so many words."""
    out = []
    for below, size in digits:
        if size > 1:
            out.append((below, size, words))
            words *= size
    return tuple(out)
