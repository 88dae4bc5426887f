"""Pictures of layouts: who holds what, as text and as SVG.

A Picture is a grid of labelled cells; `str(picture)` is text, `picture.svg()` a self-contained drawing that reads
well on light and on dark pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from tinygpu.layouts import shapes
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout

_MOST_CELLS = 1 << 14  # beyond this no page shows it and no reader follows it
_HUES = (210, 30, 130, 340, 265, 55, 180, 0)  # degrees; neighbours lie far apart

BANKS = 32
"""Banks of shared memory, each 4 bytes wide (CUDA C++ Programming Guide, compute capability 5.x and later)."""
BANK_BITS = 32


@dataclass(frozen=True, slots=True)
class Picture:
    """A grid of cells.

    title     one line above the grid
    columns   the label of each column
    rows      the label of each row
    cells     the text of each cell, row by row; "" is empty
    colours   a group number per cell, row by row: cells of one group have one colour in the SVG
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    colours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        for grid in (self.cells, self.colours):
            if len(grid) != len(self.rows) or any(len(line) != len(self.columns) for line in grid):
                raise LayoutError(
                    f"picture {self.title!r}: every row needs {len(self.columns)} cells, and there must be "
                    f"{len(self.rows)} rows"
                )

    def __str__(self) -> str:
        head = max((len(label) for label in self.rows), default=0)
        widths = [
            max([len(label), *(len(line[k]) for line in self.cells)]) for k, label in enumerate(self.columns)
        ]
        lines = [self.title, _line(" " * head, self.columns, widths)]
        lines += [_line(label.rjust(head), line, widths) for label, line in zip(self.rows, self.cells, strict=True)]
        return "\n".join(lines)

    def svg(self) -> str:
        """The picture as one SVG element with its own styles, for a file or for a page."""
        longest = max([2, *(len(c) for line in self.cells for c in line), *(len(c) for c in self.columns)])
        width, height = 8 * longest + 10, 24
        left, top = 8 * max([1, *(len(label) for label in self.rows)]) + 16, 56
        full_width = max(left + width * len(self.columns), 8 * len(self.title)) + 16
        full_height = top + height * len(self.rows) + 16
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full_width} {full_height}" width="{full_width}" '
            f'height="{full_height}" role="img" aria-label="{escape(self.title, {chr(34): "&quot;"})}">',
            f"<style>{_style()}</style>",
            f'<text class="title" x="{left}" y="20">{escape(self.title)}</text>',
        ]
        for k, label in enumerate(self.columns):
            parts.append(f'<text x="{left + width * k + width // 2}" y="{top - 10}">{escape(label)}</text>')
        for j, label in enumerate(self.rows):
            y = top + height * j
            parts.append(f'<text class="row" x="{left - 8}" y="{y + 16}">{escape(label)}</text>')
            for k, cell in enumerate(self.cells[j]):
                x = left + width * k
                group = f"g{self.colours[j][k] % len(_HUES)}" if cell else "empty"
                parts.append(f'<rect class="{group}" x="{x}" y="{y}" width="{width}" height="{height}"/>')
                if cell:
                    parts.append(f'<text x="{x + width // 2}" y="{y + 16}">{escape(cell)}</text>')
        return "\n".join([*parts, "</svg>"]) + "\n"

    def _repr_svg_(self) -> str:
        """Notebooks show this."""
        return self.svg()


def offset_picture(layout: Layout | ComposedLayout) -> Picture:
    """The offset at each coordinate: rows are mode 0, columns mode 1. Colours go by blocks of 8 offsets.

    >>> print(offset_picture(Layout((2, 3), (3, 1))))
    (2,3):(3,1)
      0 1 2
    0 0 1 2
    1 3 4 5
    """
    rows, columns = _two_modes(layout.extents, str(layout))
    values = layout.offsets().reshape(columns, rows).T
    return Picture(
        str(layout),
        _numbers(columns),
        _numbers(rows),
        tuple(tuple(str(v) for v in line) for line in values),
        tuple(tuple(int(v) // 8 for v in line) for line in values),
    )


def holder_picture(partition: Layout, extents: tuple[int, int], window: tuple[int, int] | None = None) -> Picture:
    """Who holds each element of a tile: cells such as T3:V1, thread 3's value 1. Colours go by thread.

    partition   (thread, value) -> axis 0, the rows, and axis 1, the columns; mode 0 is the thread, mode 1 the value
    extents     rows and columns of the tile; an element that nobody holds stays empty, one with several holders
                shows the first and how many more
    window      rows and columns that are drawn, at most; the title says what was left out. None: all

    A layout into linear indices of the tile becomes such a partition by composing Layout.identity with it.
    """
    threads, _ = _two_modes(partition.extents, str(partition))
    most = extents if window is None else (min(extents[0], window[0]), min(extents[1], window[1]))
    rows, columns = _checked_grid(most, str(partition))
    partition.linearised(extents)  # refuses a partition that leaves the tile
    holders: list[list[list[int]]] = [[[] for _ in range(columns)] for _ in range(rows)]
    at = partition.coordinates((0, 1))
    for index in np.flatnonzero((at < most).all(axis=1)).tolist():
        holders[at[index, 0]][at[index, 1]].append(index)

    def cell(indices: list[int]) -> str:
        if not indices:
            return ""
        first = f"T{indices[0] % threads}:V{indices[0] // threads}"
        return first if len(indices) == 1 else f"{first}+{len(indices) - 1}"

    return Picture(
        f"{partition} in {extents[0]} x {extents[1]}{_left_out((rows, columns), extents, ('rows', 'columns'))}",
        _numbers(columns),
        _numbers(rows),
        tuple(tuple(cell(indices) for indices in line) for line in holders),
        tuple(tuple(indices[0] % threads if indices else 0 for indices in line) for line in holders),
    )


def bank_picture(
    layout: Layout | ComposedLayout, element_bits: int, unit_bits: int | None = None, lines: int | None = None
) -> Picture:
    """What lies in each bank of shared memory: one row per 128 bytes, one column per 4-byte bank.

    A cell names the elements that start in that word, first..last, by a linear index into each mode; an element wider
    than a word fills several banks. Colours go by mode 0, so that one colour in one column is a conflict of a walk
    along mode 1.

    layout         offsets in units of `unit_bits`
    element_bits   width of one element; it must divide 32 or be a multiple of 32
    unit_bits      what an offset counts: 8 where they are bytes; None: elements
    lines          rows of 128 bytes that are drawn, at most; the title says what was left out. None: all
    """
    if element_bits < 1 or (BANK_BITS % element_bits and element_bits % BANK_BITS):
        raise LayoutError(
            f"elements of {element_bits} bits do not fill banks of {BANK_BITS} bits; the width must divide {BANK_BITS} "
            f"or be a multiple of it"
        )
    offsets = layout.offsets()
    words = offsets * (unit_bits or element_bits) // BANK_BITS
    per_element = max(1, element_bits // BANK_BITS)
    reached = -(-(int(words.max()) + per_element) // BANKS)
    drawn, banks = _checked_grid((min(reached, lines or reached), BANKS), str(layout))
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
    return Picture(
        f"{layout}, elements of {element_bits} bits, by bank{_left_out((drawn,), (reached,), ('lines of 128 B',))}",
        _numbers(banks),
        tuple(f"{line * banks * BANK_BITS // 8} B" for line in range(drawn)),
        tuple(tuple(cell(indices) for indices in line) for line in grid),
        tuple(tuple(indices[0] % first_mode if indices else 0 for indices in line) for line in grid),
    )


def _left_out(drawn: Sequence[int], whole: Sequence[int], names: Sequence[str]) -> str:
    """What a picture does not show, as the end of its title."""
    kept = [f"{d} of {w} {name}" for d, w, name in zip(drawn, whole, names, strict=True) if d < w]
    return f"; the first {' and '.join(kept)}" if kept else ""


def _two_modes(shape: shapes.IntTuple, name: str) -> tuple[int, int]:
    if isinstance(shape, int) or len(shape) != 2:
        modes = 1 if isinstance(shape, int) else len(shape)
        raise LayoutError(f"{name} has {modes} mode{'s' * (modes != 1)}; a picture needs two, for its rows and columns")
    return _checked_grid((shapes.size(shape[0]), shapes.size(shape[1])), name)


def _checked_grid(extents: tuple[int, int], name: str) -> tuple[int, int]:
    rows, columns = extents
    if rows * columns > _MOST_CELLS:
        raise LayoutError(
            f"{name}: {rows} x {columns} cells are more than the {_MOST_CELLS} of a picture; take a tile of it"
        )
    return rows, columns


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(count))


def _line(head: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join([head, *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]).rstrip()


def _style() -> str:
    light = "".join(f".g{k}{{fill:hsl({hue},70%,86%)}}" for k, hue in enumerate(_HUES))
    dark = "".join(f".g{k}{{fill:hsl({hue},40%,26%)}}" for k, hue in enumerate(_HUES))
    return (
        "text{font:12px monospace;text-anchor:middle;fill:#1b1f24}.title{text-anchor:start;font-weight:bold}"
        f".row{{text-anchor:end}}rect{{stroke:#8c959f}}.empty{{fill:none}}{light}"
        f"@media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}{dark}}}"
    )
