"""The zero-column mask of tcgen05.mma.ws: which columns of B count as zero, whatever lies in shared memory.

PTX ISA 9.1, "Zero-Column Mask Descriptor" (table 45). Its words for the two spans are the wrong way round: its worked
examples show runs of skip span + 1 zeroed columns between runs of use span + 1 used columns. The tests hold those
examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ZeroColumns:
    """A decoded zero-column mask descriptor.

    start_counts  per sub-mask, columns by which its pattern is already under way
    first_spans   per sub-mask, whether its pattern starts with zeroed columns
    enabled       False: no column is zeroed
    zeroed_run    length of a run of zeroed columns
    used_run      length of a run of used columns
    column_shift  shift of the columns
    """

    start_counts: tuple[int, int, int, int]
    first_spans: tuple[bool, bool, bool, bool]
    enabled: bool
    zeroed_run: int
    used_run: int
    column_shift: int

    def mask(self, m: int, n: int) -> NDArray[np.bool_]:
        """(n,) true where the column of B counts as zero; M = 128, 64, 32 have 1, 2, 4 sub-masks side by side."""
        if m not in (32, 64, 128):
            raise ValueError(f"a zero-column mask exists for M = 32, 64 or 128, not {m}")
        parts = 128 // m
        period = self.zeroed_run + self.used_run
        result = np.zeros(n, np.bool_)
        if not self.enabled:
            return result
        width = n // parts
        for part in range(parts):
            at = (np.arange(width) + self.start_counts[part]) % period
            zeroed = at < self.zeroed_run if self.first_spans[part] else at >= self.used_run
            result[part * width : (part + 1) * width] = zeroed
        return result


def decode_zero_columns(word: int) -> tuple[ZeroColumns, tuple[str, ...]]:
    """The decoded 64 bits, and what is wrong with them."""
    bad = []
    if word >> 36 & 7:
        bad.append("bits 38:36 of a zero-column mask descriptor are reserved and must be 0")
    if word >> 62 & 3:
        bad.append("bits 63:62 of a zero-column mask descriptor are reserved and must be 0")
    counts = [word >> 8 * part & 0xFF for part in range(4)]
    spans = [bool(word >> 32 + part & 1) for part in range(4)]
    decoded = ZeroColumns(
        (counts[0], counts[1], counts[2], counts[3]), (spans[0], spans[1], spans[2], spans[3]), bool(word >> 39 & 1),
        (word >> 40 & 0xFF) + 1, (word >> 48 & 0xFF) + 1, word >> 56 & 0x3F,
    )  # fmt: skip
    return decoded, tuple(bad)
