"""Ascending numbers as draws never have them: evenly spaced ones are not where a kernel's mistakes show.

Offsets of pieces give one piece everything: a loop over it has as many rounds as there may be. Numbers of segments are
the same throughout, the least or the greatest, or the two in halves: a segment goes on from tile to tile, and the least
number is there, which may be what stands for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.typing import NDArray

from tinygpu.distributions import Distribution

Together = Literal["first", "halves", "last"]


def with_everything_in_one(
    arrays: Mapping[str, NDArray[Any]], declared: Mapping[str, Distribution], which: Together
) -> dict[str, NDArray[Any]]:
    """The arrays, with ascending numbers that leave one piece, or one segment, everything; or two half of it each.

    Where all pieces have some, none may have so many that what a round carries on to the next one counts. Numbers whose
    neighbours are a declared distance apart at most, or differ, stay as they are.
    """
    out = dict(arrays)
    for name, law in declared.items():
        if name not in arrays or law.law != "ascending" or law.apart or law.distinct:
            continue
        if (length := arrays[name].shape[-1] if arrays[name].ndim else 0) <= law.ends:
            continue
        behind = {"first": 0, "halves": length // 2, "last": length}[which]  # so many are the least
        if law.ends:  # the first is the least number whatever else, and the last the greatest
            behind = min(max(behind, 1), max(length - 1, 1))
        out[name] = arrays[name].copy()
        out[name][..., :behind], out[name][..., behind:] = law.low, law.high
    return out
