"""All cards, in the order of the families."""

from __future__ import annotations

from functools import cache

from tinygpu.ptx.cards.evidence import (
    alu,
    atomics,
    cp_async,
    cvt,
    ldmatrix,
    memory,
    mma,
    mma_scaled,
    special,
    stmatrix,
    tcgen05_cp,
    tcgen05_cp_rows,
    tcgen05_ld,
    tcgen05_mma,
    tcgen05_mma_64,
    tcgen05_mma_cells,
    tcgen05_mma_pair,
    tcgen05_mma_scaled,
    tcgen05_mma_ws,
    tcgen05_rows_pair,
    tcgen05_scaled_pair,
    tcgen05_shift,
    tcgen05_st,
    tma,
    unpack,
    warp,
    wgmma,
    wgmma_registers,
)
from tinygpu.ptx.cards.specimen import Card

FAMILIES: tuple[tuple[str, str], ...] = (
    ("Moves between memories", "Transfer, BulkTransfer"),
    ("Matrices", "MatrixLoad, MatrixStore, MatrixMultiply, ChunkCopy, RowCopy, RowShift, CellLoad, CellStore"),
    ("Lanes and warps", "Shuffle, LaneRead, LaneShift, LaneCombine, Instruction"),
    ("Element by element", "Elementwise"),
)


@cache
def cards() -> tuple[Card, ...]:
    """The card of every instruction that ships."""
    cells = (tcgen05_cp, tcgen05_cp_rows, tcgen05_shift, tcgen05_ld, tcgen05_st)
    products_there = (tcgen05_mma, tcgen05_mma_pair, tcgen05_mma_64, tcgen05_mma_ws, tcgen05_mma_cells)
    tensor_memory = (*products_there, tcgen05_mma_scaled, tcgen05_scaled_pair, tcgen05_rows_pair, *cells)
    products = (mma, mma_scaled, wgmma, wgmma_registers, *tensor_memory)
    modules = (memory, atomics, cp_async, tma, ldmatrix, stmatrix, *products, warp, alu, special, cvt, unpack)
    return tuple(card for module in modules for card in module.cards())


def card(name: str) -> Card:
    """The card called `name`: "cp.async"."""
    for candidate in cards():
        if candidate.name == name:
            return candidate
    raise ValueError(f"there is no card {name!r}; there are {', '.join(c.name for c in cards())}")
