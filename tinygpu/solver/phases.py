"""Bank conflicts as statements about pairs of lanes, in which only the swizzle is unknown.

Lanes of one phase that touch different units (words, or whole vectors of wider lanes) conflict exactly if their units
start in the same bank. A phase then needs as many wavefronts as its largest set of lanes that all conflict, and,
conflict being an equivalence, that is one plus the most conflicts that any one lane has.

A swizzle XORs a mask into the bank bits of an address for every set *source bit* of the lane's coordinate. Where all
else is linear over F2, a pair conflicts by the XOR of its coordinates alone (`Linear`); where rows lie at a pitch whose
multiples carry into the column bits, both ends of the pair are kept (`Carrying`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.banks import ROW_BYTES
from tinygpu.layouts.f2 import rank

Masks: TypeAlias = Mapping[int, int]  # source bit -> mask in bytes


@dataclass(frozen=True, slots=True, order=True)
class Linear:
    """Two units that conflict iff bank ^ (XOR of the masks of the bits of source) is 0 mod 128.

    source   XOR of the two source coordinates
    bank     XOR of the two bank bytes (address mod 128) without a swizzle
    """

    source: int
    bank: int

    @property
    def sources(self) -> int:
        """Source bits whose masks matter."""
        return self.source

    def conflicts(self, masks: Masks) -> bool:
        return (self.bank ^ folded(masks, self.source)) % ROW_BYTES == 0


@dataclass(frozen=True, slots=True, order=True)
class Carrying:
    """Two units that conflict iff shift + (place ^ masks of source) - (the same of the other) is 0 mod 128.

    source, place               source coordinate and bank byte of the column of one unit
    other_source, other_place   of the other unit
    shift                       what their row starts differ by, mod 128
    """

    source: int
    place: int
    other_source: int
    other_place: int
    shift: int

    @property
    def sources(self) -> int:
        """Source bits whose masks matter."""
        return self.source | self.other_source

    def conflicts(self, masks: Masks) -> bool:
        one = self.place ^ folded(masks, self.source)
        other = self.other_place ^ folded(masks, self.other_source)
        return (self.shift + one - other) % ROW_BYTES == 0


Pair: TypeAlias = Linear | Carrying
PhaseKind: TypeAlias = tuple[tuple[tuple[Pair, ...], ...], tuple[int, ...]]  # rows and levels of a Phase


@dataclass(frozen=True, slots=True)
class Phase:
    """Lanes that the banks serve together.

    rows     for each distinct way in which a unit meets the others: the pairs that might conflict
    levels   numbers of wavefronts that are possible at all, rising; the first is a lower bound for every layout
    times    how often the phase runs
    """

    rows: tuple[tuple[Pair, ...], ...]
    levels: tuple[int, ...]
    times: int

    def wavefronts(self, masks: Masks) -> int:
        """Wavefronts under a swizzle."""
        return max((1 + sum(pair.conflicts(masks) for pair in row) for row in self.rows), default=1)


def folded(masks: Masks, source: int) -> int:
    """XOR of the masks of the set bits of `source`."""
    total = 0
    for bit, mask in masks.items():
        if source >> bit & 1:
            total ^= mask
    return total


def total_wavefronts(phases: Iterable[Phase], masks: Masks) -> int:
    """Wavefronts of all phases, each as often as it runs."""
    return sum(phase.times * phase.wavefronts(masks) for phase in phases)


def least_imaginable(phases: Iterable[Phase]) -> int:
    """Wavefronts that no layout can undercut that keeps vectors whole: the sum of the first levels."""
    return sum(phase.times * phase.levels[0] for phase in phases)


def tile_phases(
    lanes: NDArray[np.int64], unit_bytes: int, vector_bytes: int, pitch_bytes: int, block_bytes: int, linear: bool
) -> Counter[PhaseKind]:
    """The distinct phases of one access to a tile, as (rows, levels) with their number.

    lanes         (phases, lanes of a phase, 2) row and column byte; row -1 is inactive
    unit_bytes    bytes that the banks serve at once for a lane
    vector_bytes  bytes that stay whole in every layout asked about
    block_bytes   power of two below which a swizzle flips column bits
    linear        True where row * pitch is XORed, not added, to the column as far as banks can see
    """
    active = lanes[..., 0] >= 0
    units = lanes // np.array([1, unit_bytes])
    if linear:
        # Only differences count, so phases that are XOR translates of one another are one.
        units = units ^ np.take_along_axis(units, active.argmax(axis=1)[:, None, None], axis=1)
    distinct, counts = np.unique(np.where(active[..., None], units, -1), axis=0, return_counts=True)
    found: Counter[PhaseKind] = Counter()
    for group, count in zip(distinct, counts, strict=True):
        members = tuple(sorted({(row, column) for row, column in group.tolist() if row >= 0}))
        if members:
            turn = pitch_bytes % ROW_BYTES  # all that the banks see of the pitch
            found[_phase_of(members, unit_bytes, vector_bytes, turn, block_bytes, linear)] += int(count)
    return found


@lru_cache(maxsize=4096)  # one search asks about the same few phases under hundreds of tiles
def _phase_of(
    members: tuple[tuple[int, int], ...],
    unit_bytes: int,
    vector_bytes: int,
    pitch_bytes: int,
    block_bytes: int,
    linear: bool,
) -> PhaseKind:
    per_vector = vector_bytes // unit_bytes
    # A vector stays whole, so a unit keeps its place inside its vector, and the units with one such place share the
    # 128 / vector_bytes starts of vectors that the banks have: a pigeonhole bound for every layout.
    crowd = max(Counter(column % per_vector for _, column in members).values())
    floor = -(-crowd // (ROW_BYTES // vector_bytes))
    if linear:
        width = max(column for _, column in members).bit_length()
        first, *others = (row << width | column for row, column in members)
        is_space = len(members) == 2 ** rank([first ^ other for other in others])
    else:
        is_space = False
    rows = set()
    for member in members[:1] if is_space else members:
        pairs = (
            _pair(member, other, unit_bytes, pitch_bytes, block_bytes, linear)
            for other in members
            if other != member and (other[1] - member[1]) % per_vector == 0
        )
        rows.add(tuple(sorted(pair for pair in pairs if pair is not None)))
    # On a linear space every bank that is hit serves equally many units: only powers of two occur.
    powers = (2**power for power in range(crowd.bit_length()))
    levels = tuple(power for power in powers if power >= floor) if is_space else tuple(range(floor, crowd + 1))
    return tuple(sorted(rows)), levels


def _pair(
    one: tuple[int, int], other: tuple[int, int], unit_bytes: int, pitch_bytes: int, block_bytes: int, linear: bool
) -> Pair | None:
    """How two units at (row, column unit) may conflict; None where no swizzle within the block makes them."""
    (row_a, column_a), (row_b, column_b) = sorted((one, other))
    start_a, start_b = column_a * unit_bytes, column_b * unit_bytes
    if linear:
        bank = ((row_a ^ row_b) * pitch_bytes ^ start_a ^ start_b) % ROW_BYTES
        return Linear(row_a ^ row_b, bank) if bank < block_bytes else None
    # What lies above the block is not flipped, and can be counted with the rows.
    place_a, place_b = start_a % block_bytes, start_b % block_bytes
    shift = ((row_a - row_b) * pitch_bytes + start_a - place_a - start_b + place_b) % ROW_BYTES
    if block_bytes <= shift <= ROW_BYTES - block_bytes:
        return None
    return Carrying(row_a, place_a, row_b, place_b, shift)
