"""Relayouts within a warp that are linear over F2, in the fewest rounds of shuffles.

Lane l holds A l + R x in its value x, and wants B l + S y in its value y: columns over F2, as bits of the coordinate.
Two lanes have a coset of span R & span S in common, or nothing; it has 2^d values. A lane wants 2^s values, and gets at
most one word from one lane in a round, so that the rounds are at least

    (2^s - o 2^d) / min(2^d, values of a word),     o = 1 if every lane keeps some of what it has, else 0.

They are reached: let lanes give and ask for their values in orders of their own, x = z(l) ^ ... and y = w(l) ^ ...,
with linear z, w and a linear map q of lanes such that A q(l) + R z(q(l)) = B l + S w(l). Then lane l reads lane
q(l) ^ u in a round, and all who read a lane want the same word. Before the rounds each lane brings its words into the
order z, and behind them out of the order w, by selects between pairs of words. Where every lane keeps something q is
the identity, and the rounds are butterflies. Replicated values leave more freedom: A may have a kernel (any holder
gives), and so may B (all who want the same read one lane).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import f2
from tinygpu.layouts.relayout.plan import LANES, WORD_BYTES, RelayoutPlan
from tinygpu.layouts.relayout.stages import Stages
from tinygpu.layouts.relayout.subspace import cosets, extended, images, intersection, outside, reduced
from tinygpu.layouts.relayout.words import Words, packed

LANE_BITS = 5


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a distribution: images of the bits of the lane, and of the value."""

    lanes: tuple[int, ...]
    values: tuple[int, ...]

    @classmethod
    def of(cls, held: NDArray[np.int64]) -> Columns | None:
        """Those of (lanes, values) coordinates, or None where these are not linear, or a lane has one twice."""
        count = held.shape[1]
        if held.shape[0] != LANES or count & (count - 1) or held[0, 0] != 0:
            return None
        lanes = tuple(int(held[1 << k, 0]) for k in range(LANE_BITS))
        values = tuple(int(held[0, 1 << k]) for k in range(count.bit_length() - 1))
        if f2.rank(values) < len(values) or not np.array_equal(held, images(lanes)[:, None] ^ images(values)[None]):
            return None
        return cls(lanes, values)


@dataclass(frozen=True, slots=True)
class Orders:
    """The maps of the construction, as columns over the bits of a lane.

    gives   z: the order in which a lane brings its values before the rounds
    takes   w: the order in which they come
    reads   q: whom a lane reads
    keeps   whether every lane keeps some of its values: q is the identity
    """

    gives: tuple[int, ...]
    takes: tuple[int, ...]
    reads: tuple[int, ...]
    keeps: bool


def least_rounds(a: Columns, b: Columns, word_values: int) -> int:
    """The lower bound; no plan has fewer rounds."""
    together = len(a.values) + len(b.values) - f2.rank(a.values + b.values)
    kept = 1 << together if _kept(a, b) is not None else 0
    return ((1 << len(b.values)) - kept) // min(1 << together, word_values)


def plan(a: Columns, b: Columns, value_bytes: int, packing: tuple[int, int]) -> RelayoutPlan | None:
    """The plan of fewest rounds, or None where b wants what a does not hold.

    packing  values that share a register, before and behind
    """
    reach = f2.eliminate(a.values + a.lanes)
    if any(reach.solve(column) is None for column in b.lanes + b.values):
        return None
    low_a, low_b = (tuple(1 << k for k in range(count.bit_length() - 1)) for count in packing)
    in_word = (WORD_BYTES // value_bytes).bit_length() - 1
    together = _together(a, b, len(low_a), len(low_b))[:in_word]
    word_a = extended([x for x, _ in together], [*low_a, *_units(a)], min(in_word, len(a.values)))
    brought = [y for _, y in together]
    word_b = extended(brought, [*low_b, *_units(b)], min(in_word, len(b.values)))
    orders = _kept(a, b) or _exchanged(a, b)
    z, w, q = images(orders.gives), images(orders.takes), images(orders.reads)

    words = Words(packed(images(a.lanes)[:, None] ^ images(a.values)[None], packing[0], value_bytes))
    nothing = np.zeros(LANES, dtype=np.int64)
    give = Stages(words, a.lanes, a.values, value_bytes, low_a, nothing, lambda x: [x >> len(low_a)])
    give.regroup(word_a)
    give.reorder(z)

    received = {}
    for y in cosets(brought, len(b.values)):
        combination = reach.solve(f2.image(b.values, y)) or 0
        x, u = combination & (1 << len(a.values)) - 1, combination >> len(a.values)
        word = give.word(x ^ int(z[u]))
        received[y] = word if orders.keeps and u == 0 else words.shuffled(word, q ^ u)

    take = Stages(
        words,
        b.lanes,
        b.values,
        value_bytes,
        word_b,
        w,
        lambda y: list(dict.fromkeys(received[reduced(y ^ int(v), brought)] for v in images(word_b))),
    )
    take.reorder(nothing)
    take.regroup(low_b)
    outputs = [take.word(register << len(low_b)) for register in range(2 ** len(b.values) >> len(low_b))]
    return words.plan(outputs)


def _units(columns: Columns) -> list[int]:
    return [1 << k for k in range(len(columns.values))]


def _together(a: Columns, b: Columns, low_a: int, low_b: int) -> list[tuple[int, int]]:
    """A basis of the pairs (x, y) with R x = S y; first those that share a word before and behind, or in one place."""
    bits = len(a.values)
    pairs = [(k & (1 << bits) - 1, k >> bits) for k in f2.eliminate(a.values + b.values).kernel]
    near = [(x >> low_a, y >> low_b) for x, y in pairs]
    wanted = (
        [x << len(b.values) | y for x, y in near],
        [x for x, _ in near],
        [y for _, y in near],
        [0] * len(pairs),
    )
    chosen: list[int] = []  # combinations of pairs
    for columns in wanted:
        chosen = extended(chosen, f2.eliminate(columns).kernel, len(pairs))
    return [(f2.image([x for x, _ in pairs], c), f2.image([y for _, y in pairs], c)) for c in chosen]


def _kept(a: Columns, b: Columns) -> Orders | None:
    """The orders in which every lane gives to and takes from itself first, where all have something to keep."""
    bits = len(a.values)
    both = f2.eliminate(a.values + b.values)
    found = [both.solve(x ^ y) for x, y in zip(a.lanes, b.lanes, strict=True)]
    solved = [k for k in found if k is not None]
    if len(solved) < len(found):
        return None
    gives, takes = tuple(k & (1 << bits) - 1 for k in solved), tuple(k >> bits for k in solved)
    return Orders(gives, takes, tuple(1 << k for k in range(LANE_BITS)), True)


def _exchanged(a: Columns, b: Columns) -> Orders:
    """The orders in which what a lane asks for first, B l + S w(l), lies in a common complement N of S (and of R).

    N is spanned by sums of what R and S have beyond each other, and by what neither has; where a value has several
    holders, N may share vectors with R: these are given by other holders.
    """
    shared = intersection(a.values, b.values)
    only_a = outside(a.values, shared)
    only_b = outside(b.values, shared)
    sums = [x ^ y for x, y in zip(only_a, only_b, strict=False)]
    neither = outside(a.lanes, [*a.values, *b.values])
    common = [*neither, *sums, *only_a[len(only_b) :]]

    # Per vector of N: a lane that has it, and its place there; lanes that differ for vectors that do.
    bits = len(a.values)
    held = f2.eliminate(a.values + a.lanes)
    holders: list[int] = []
    places: list[int] = []
    for vector in common:
        found = held.solve(vector)
        if found is None:
            raise ValueError("a complement of what lanes hold lies in what they hold")
        others = [0, *images([k for k in held.kernel if k >> bits])[1:].tolist()]
        choice = next(c for c in (found ^ o for o in others) if f2.rank([*holders, c >> bits]) > len(holders))
        holders.append(choice >> bits)
        places.append(choice & (1 << bits) - 1)
    beyond = outside([1 << k for k in range(LANE_BITS)], holders)
    basis = f2.eliminate([*holders, *beyond])
    gives = tuple(f2.image([*places, *[0] * len(beyond)], basis.solve(1 << k) or 0) for k in range(LANE_BITS))

    asked = f2.eliminate([*common, *b.values])
    split = [asked.solve(column) or 0 for column in b.lanes]
    reads = tuple(f2.image(holders, k & (1 << len(common)) - 1) for k in split)
    return Orders(gives, tuple(k >> len(common) for k in split), reads, False)
