"""The menu: swizzles that a few instructions compute, tried all at once before any question goes to Z3."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.banks import ROW_BYTES
from tinygpu.solver.phases import Linear, Phase
from tinygpu.solver.smem_layout import hardware_masks, row_bits
from tinygpu.solver.swizzle_search import Xor


def menu(rows: int, pitch_bytes: int, vector_bytes: int, block_bytes: int) -> Iterator[Xor]:
    """No swizzle, hardware's swizzles, then column ^= (row >> i & (2^B - 1)) << M for all B, M and i, in this order.

    block_bytes   power of two below which column bits may be flipped

    >>> list(menu(4, 64, 16, 64))
    [(), ((1, 16),), ((1, 16),), ((0, 16),), ((1, 16),), ((0, 32),), ((1, 32),), ((0, 16), (1, 32))]
    """
    yield ()
    bits = row_bits(rows)
    for _, xor in hardware_masks(rows, pitch_bytes):
        if xor and all(vector_bytes <= mask < block_bytes for _, mask in xor):
            yield xor
    lowest, highest = vector_bytes.bit_length() - 1, block_bytes.bit_length() - 1
    for count in range(1, bits + 1):
        for column in range(lowest, highest - count + 1):
            for first in range(bits - count + 1):
                yield tuple((first + place, 1 << column + place) for place in range(count))


def every_xor(sources: Sequence[tuple[int, int]]) -> list[Xor]:
    """All assignments of masks to source bits, those with the fewest flipped bits first.

    sources   (row bit, column bits that it may flip)

    >>> every_xor(((0, 16), (1, 16)))
    [(), ((1, 16),), ((0, 16),), ((0, 16), (1, 16))]
    """
    per_source = [[mask for mask in range(ROW_BYTES) if mask & ~allowed == 0] for _, allowed in sources]
    listed = [
        tuple((bit, mask) for (bit, _), mask in zip(sources, masks, strict=True) if mask)
        for masks in itertools.product(*per_source)
    ]
    return sorted(listed, key=lambda xor: sum(mask.bit_count() for _, mask in xor))


def menu_totals(phases: Sequence[Phase], candidates: Sequence[Xor], bits: int) -> NDArray[np.int64]:
    """Wavefronts of all phases, each as often as it runs, under each candidate; shape (candidates,).

    bits   source bits: no source coordinate reaches 2^bits
    """
    if not phases:
        return np.zeros(len(candidates), dtype=np.int64)
    pairs = [pair for phase in phases for row in phase.rows for pair in row]
    row_lengths = [len(row) for phase in phases for row in phase.rows]
    phase_rows = [len(phase.rows) for phase in phases]
    masks = np.zeros((len(candidates), bits), dtype=np.int64)
    for index, xor in enumerate(candidates):
        for bit, mask in xor:
            masks[index, bit] = mask
    flips = np.zeros((len(candidates), 1), dtype=np.int64)  # XOR of the masks of each source coordinate
    for column in masks.T:
        flips = np.hstack([flips, flips ^ column[:, np.newaxis]])
    if isinstance(next(iter(pairs), None), Linear):
        facts = np.array([(pair.source, pair.bank) for pair in pairs if isinstance(pair, Linear)], dtype=np.int64)
        gap = flips[:, facts[:, 0]] ^ facts[:, 1]
    else:
        facts = np.array(
            [
                (pair.source, pair.place, pair.other_source, pair.other_place, pair.shift)
                for pair in pairs
                if not isinstance(pair, Linear)
            ],
            dtype=np.int64,
        ).reshape(-1, 5)
        gap = (flips[:, facts[:, 0]] ^ facts[:, 1]) - (flips[:, facts[:, 2]] ^ facts[:, 3]) + facts[:, 4]
    conflicts = np.zeros((len(candidates), len(pairs) + 1), dtype=np.int64)
    np.cumsum(gap % ROW_BYTES == 0, axis=1, out=conflicts[:, 1:])
    ends = np.cumsum([0, *row_lengths])
    per_row = conflicts[:, ends[1:]] - conflicts[:, ends[:-1]]
    per_phase = 1 + np.maximum.reduceat(per_row, np.cumsum([0, *phase_rows[:-1]]), axis=1)
    totals: NDArray[np.int64] = per_phase @ np.array([phase.times for phase in phases], dtype=np.int64)
    return totals
