"""Pictures of layouts: offsets at coordinates, who holds what, and what lies in each bank of shared memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinygpu.layouts import shapes
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.picture import Picture, checked_grid, drawn_holders, drawn_offsets, left_out

BANKS = 32
"""Banks of shared memory, each 4 bytes wide (CUDA C++ Programming Guide, compute capability 5.x and later)."""
BANK_BITS = 32


def offset_picture(layout: Layout | ComposedLayout) -> Picture:
    """The offset at each coordinate: rows are mode 0, columns mode 1. Colours go by blocks of 8 offsets.

    >>> print(offset_picture(Layout((2, 3), (3, 1))))
    (2,3):(3,1)
      0 1 2
    0 0 1 2
    1 3 4 5
    """
    rows, columns = checked_grid(_two_modes(layout.extents, str(layout)), str(layout))
    return drawn_offsets(str(layout), layout.offsets().reshape(columns, rows).T)


def holder_picture(partition: Layout, extents: tuple[int, int], window: tuple[int, int] | None = None) -> Picture:
    """Who holds each element of a tile: cells such as T3:V1, thread 3's value 1. Colours go by thread.

    partition   (thread, value) -> axis 0, the rows, and axis 1, the columns; mode 0 is the thread, mode 1 the value
    extents     rows and columns of the tile; an element that nobody holds stays empty, one with several holders
                shows the first and how many more
    window      rows and columns that are drawn, at most; the title says what was left out. None: all

    A layout into linear indices of the tile becomes such a partition by composing Layout.identity with it.
    """
    threads, _ = _two_modes(partition.extents, str(partition))
    partition.linearised(extents)  # refuses a partition that leaves the tile
    title = f"{partition} in {extents[0]} x {extents[1]}"
    return drawn_holders(title, threads, partition.coordinates((0, 1)), extents, window)


def bank_picture(
    layout: Layout | ComposedLayout,
    element_bits: int,
    unit_bits: int | None = None,
    lines: int | None = None,
    together: int = 1,
) -> Picture:
    """What lies in each bank of shared memory: one row per 128 bytes, one column per 4-byte bank.

    A cell names the elements that start in it, first..last, by a linear index into each mode; an element wider
    than a cell fills several. Colours go by mode 0, so that one colour in one column is a conflict of a walk
    along mode 1.

    layout         offsets in units of `unit_bits`
    element_bits   width of one element; it must divide 32 or be a multiple of 32
    unit_bits      what an offset counts: 8 where they are bytes; None: elements
    lines          rows of 128 bytes that are drawn, at most; the title says what was left out. None: all
    together       neighbouring banks that share a column, which is headed by the first of them: see `banks_together`
    """
    if element_bits < 1 or (BANK_BITS % element_bits and element_bits % BANK_BITS):
        raise LayoutError(
            f"elements of {element_bits} bits do not fill banks of {BANK_BITS} bits; the width must divide {BANK_BITS} "
            f"or be a multiple of it"
        )
    offsets = layout.offsets()
    cell_bits = BANK_BITS * together
    words = offsets * (unit_bits or element_bits) // cell_bits
    per_element = max(1, element_bits // cell_bits)
    columns = BANKS // together
    reached = -(-(int(words.max()) + per_element) // columns)
    drawn, banks = checked_grid((min(reached, lines or reached), columns), str(layout))
    extents = layout.extents
    along = tuple(map(shapes.size, extents)) if isinstance(extents, tuple) else extents
    found: list[list[int]] = [[] for _ in range(drawn * banks)]
    order = np.argsort(offsets, kind="stable")
    for index in order[words[order] < drawn * banks].tolist():
        for word in range(int(words[index]), min(int(words[index]) + per_element, drawn * banks)):
            found[word].append(index)
    first_mode = shapes.size(extents[0]) if isinstance(extents, tuple) and extents else 1

    def name(index: int) -> str:
        return shapes.text(shapes.coordinate_of(index, along)).removeprefix("(").removesuffix(")")

    def cell(indices: Sequence[int]) -> str:
        if len(indices) <= 1:
            return name(indices[0]) if indices else ""
        return f"{name(indices[0])}..{name(indices[-1])}"

    grid = [found[line * banks : (line + 1) * banks] for line in range(drawn)]
    by = "by bank" if together == 1 else f"by {together} banks"
    return Picture(
        f"{layout}, elements of {element_bits} bits, {by}{left_out((drawn,), (reached,), ('lines of 128 B',))}",
        tuple(str(column * together) for column in range(columns)),
        tuple(f"{line * BANKS * BANK_BITS // 8} B" for line in range(drawn)),
        tuple(tuple(cell(indices) for indices in line) for line in grid),
        tuple(tuple(indices[0] % first_mode if indices else 0 for indices in line) for line in grid),
    )


def banks_together(layout: Layout | ComposedLayout, element_bits: int, unit_bits: int | None = None) -> int:
    """The most neighbouring banks, 4, 2 or 1, that always hold a run along one mode, in order: its ends say all."""
    offsets, extents = layout.offsets(), layout.extents
    sizes = tuple(map(shapes.size, extents)) if isinstance(extents, tuple) else (shapes.size(extents),)
    order = np.argsort(offsets, kind="stable")
    modes = np.stack(np.unravel_index(order, sizes, order="F"))
    steps = np.diff(modes, axis=1)
    goes_on = (steps.min(axis=0, initial=0) >= 0) & (steps.sum(axis=0) == 1)
    at_bits = offsets[order] * (unit_bits or element_bits)
    for together in (4, 2):
        cells = at_bits // (BANK_BITS * together)
        firsts = np.flatnonzero(np.diff(cells, prepend=-1))
        spans = np.maximum.reduceat(modes, firsts, axis=1) - np.minimum.reduceat(modes, firsts, axis=1)
        if ((spans > 0).sum(axis=0) <= 1).all() and goes_on[np.diff(cells) == 0].all():
            return together
    return 1


def _two_modes(shape: shapes.IntTuple, name: str) -> tuple[int, int]:
    if isinstance(shape, int) or len(shape) != 2:
        modes = 1 if isinstance(shape, int) else len(shape)
        raise LayoutError(f"{name} has {modes} mode{'s' * (modes != 1)}; a picture needs two, for its rows and columns")
    return shapes.size(shape[0]), shapes.size(shape[1])
