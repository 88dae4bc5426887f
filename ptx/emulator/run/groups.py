"""Groups: warps of a batch with some of their lanes, and the places where they go on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.cohort import RowSet, compact_rows
from tinygpu.ptx.emulator.state.registers import LANES
from tinygpu.ptx.emulator.state.residents import Residents

Bools = NDArray[np.bool_]
Place = tuple[int, int]
"""(rank of a block, position of the next operation in it)."""
Group: TypeAlias = "tuple[RowSet, Bools | None]"
"""Warps, and which of their lanes: (warps, 32), None for all."""


def lanes_of(group: Group) -> Bools:
    """(warps, 32) the lanes of a group."""
    rowset, mask = group
    return np.ones((rowset.index.size, LANES), np.bool_) if mask is None else mask


def subset(residents: Residents, lanes: Bools, within: RowSet | None) -> Group:
    """The rows that have lanes, and those lanes; `lanes` is over all warps or over the rows of `within`."""
    rows = lanes.any(axis=1)
    if within is not None and rows.all():
        return within, None if lanes.all() else lanes
    at = np.flatnonzero(rows)
    index = at if within is None else within.index[at]
    rowset = residents.rowset(compact_rows(index))
    mask = lanes[at]
    return rowset, None if mask.all() else mask


def merge(residents: Residents, groups: Sequence[Group]) -> Group:
    """All of them as one."""
    if len(groups) == 1:
        return groups[0]
    lanes = np.zeros((residents.warps, LANES), np.bool_)
    for rowset, mask in groups:
        if mask is None:
            lanes[rowset.rows] = True
        else:
            lanes[rowset.rows] |= mask
    return subset(residents, lanes, None)
