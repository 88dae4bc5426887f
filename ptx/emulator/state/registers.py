"""Registers of all resident warps, as arrays [register, warp, lane] with one typed view per way of reading them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tinygpu.ptx.emulator.source.types import VIEW_DTYPES, Array, view_index

LANES = 32
# Registers live in four groups by width; predicates are a group of their own.
GROUP_DTYPES: tuple[Any, ...] = (np.bool_, np.uint16, np.uint32, np.uint64)
_VIEWS_OF_GROUP: tuple[tuple[int, ...], ...] = ((0,), (1, 2, 3, 4), (5, 6, 7), (8, 9, 10))
_GROUP_OF_VIEW: tuple[int, ...] = (0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3)

# All bits of a register, by group.
ALL_BITS: tuple[Any, ...] = (True, np.uint16(0xFFFF), np.uint32(0xFFFFFFFF), np.uint64(0xFFFFFFFFFFFFFFFF))

Files = tuple[list[Array], ...]
Slot = tuple[int, int]
"""(group, index) of a register."""


def group_of(type_name: str) -> int:
    """The register group that holds values of this type."""
    return _GROUP_OF_VIEW[view_index(type_name)]


class RegisterFile:
    """The registers of `warps` resident warps.

    counts  registers per group
    taint   bits that are uninitialised, per register that has some; those without an entry are wholly initialised
    """

    def __init__(self, counts: tuple[int, ...], warps: int) -> None:
        self.warps = warps
        self.groups: tuple[Array, ...] = tuple(
            np.zeros((count, warps, LANES), dtype) for count, dtype in zip(counts, GROUP_DTYPES, strict=True)
        )
        self.taint: dict[Slot, Array] = {}
        self._views: dict[tuple[int, int, int], tuple[Files, set[Slot]]] = {}
        self._none = np.zeros((0, LANES), np.bool_)

    def view(self, rows: slice, slots: Iterable[Slot]) -> Files:
        """Typed views of the registers in `slots` of the warps in `rows` (a slice with explicit bounds); cached.

        Other registers are missing, or are there from another call.
        """
        key = (rows.start, rows.stop, rows.step)
        found = self._views.get(key)
        if found is None:
            found = self._views[key] = self._missing(), set()
        files, known = found
        for group, index in [slot for slot in slots if slot not in known]:
            part = self.groups[group][index][rows]
            for k in _VIEWS_OF_GROUP[group]:
                files[k][index] = part.view(VIEW_DTYPES[k])
            known.add((group, index))
        return files

    def _missing(self) -> Files:
        """Lists in which every register is an empty array."""
        return tuple([self._none] * len(self.groups[_GROUP_OF_VIEW[k]]) for k in range(len(VIEW_DTYPES)))

    def gather(self, rows: Array, slots: tuple[Slot, ...]) -> tuple[Files, list[Array]]:
        """Copies of the registers in `slots` for the warps `rows`; returns typed lists and the copies in order.

        Other registers are missing (their list entries are empty arrays): a block touches only its own.
        """
        files = self._missing()
        copies: list[Array] = []
        for group, index in slots:
            copy = self.groups[group][index][rows]
            copies.append(copy)
            for k in _VIEWS_OF_GROUP[group]:
                files[k][index] = copy.view(VIEW_DTYPES[k])
        return files, copies

    def scatter(self, rows: Array, slots: tuple[Slot, ...], files: Files) -> None:
        """Write the copies of `slots` back."""
        for group, index in slots:
            self.groups[group][index][rows] = files[_VIEWS_OF_GROUP[group][0]][index]

    def mark(self, slot: Slot, rows: slice | Array, bits: Any, mask: Array | None = None) -> None:
        """Say which bits of a register are uninitialised in some warps.

        bits  in the register's type: (rows, 32), or 0 for none
        mask  (rows, 32) lanes that this is about; None for all
        """
        whole = self.taint.get(slot)
        if mask is not None:
            bits = np.where(mask, bits, 0 if whole is None else whole[rows])
        none = not np.any(bits)
        if whole is None:
            if none:
                return
            whole = self.taint[slot] = np.zeros((self.warps, LANES), GROUP_DTYPES[slot[0]])
        whole[rows] = bits
        if none and not whole.any():
            del self.taint[slot]
