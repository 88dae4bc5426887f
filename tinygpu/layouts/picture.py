"""Pictures: grids of labelled cells, as text and as SVG, drawn from arrays of offsets or of coordinates.

`str(picture)` is text; `picture.svg()` is a self-contained drawing that reads well on light and on dark pages.
`tinygpu.layouts.draw` makes pictures of layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.errors import LayoutError

_MOST_CELLS = 1 << 14  # beyond this no page shows it and no reader follows it
_CLASS = "tinygpu-picture"
_HUES = (210, 30, 130, 340, 265, 55, 180, 0)  # degrees; neighbours lie far apart


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
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{_CLASS}" viewBox="0 0 {full_width} {full_height}" '
            f'width="{full_width}" height="{full_height}" role="img" '
            f'aria-label="{escape(self.title, {chr(34): "&quot;"})}">',
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


def drawn_offsets(title: str, values: NDArray[np.int64], window: tuple[int, int] | None = None) -> Picture:
    """The numbers of a table, in colours by blocks of 8; `window` rows and columns at most, None for all."""
    rows, columns, title = _windowed(title, (values.shape[0], values.shape[1]), window)
    shown = values[:rows, :columns].tolist()
    return Picture(
        title,
        numbers(columns),
        numbers(rows),
        tuple(tuple(str(v) for v in line) for line in shown),
        tuple(tuple(v // 8 for v in line) for line in shown),
    )


def drawn_holders(
    title: str,
    threads: int,
    coordinates: NDArray[np.int64],
    extents: tuple[int, int],
    window: tuple[int, int] | None = None,
) -> Picture:
    """Who holds each element of a table: coordinates[t + threads * v] is where value v of thread t lies.

    coordinates  (threads * values, 2) rows and columns, within `extents`
    window       rows and columns that are drawn, at most; the title says what was left out. None: all
    """
    rows, columns, title = _windowed(title, extents, window)
    holders: list[list[list[int]]] = [[[] for _ in range(columns)] for _ in range(rows)]
    for index in np.flatnonzero((coordinates < (rows, columns)).all(axis=1)).tolist():
        holders[coordinates[index, 0]][coordinates[index, 1]].append(index)

    def cell(indices: list[int]) -> str:
        if not indices:
            return ""
        first = f"T{indices[0] % threads}:V{indices[0] // threads}"
        return first if len(indices) == 1 else f"{first}+{len(indices) - 1}"

    return Picture(
        title,
        numbers(columns),
        numbers(rows),
        tuple(tuple(cell(indices) for indices in line) for line in holders),
        tuple(tuple(indices[0] % threads if indices else 0 for indices in line) for line in holders),
    )


def notebook(text: str, picture: Picture | None) -> str:
    """What a notebook shows of a layout: its notation, and its picture where it has one."""
    return f"<div><code>{escape(text)}</code>{picture.svg() if picture is not None else ''}</div>"


def _windowed(title: str, extents: tuple[int, int], window: tuple[int, int] | None) -> tuple[int, int, str]:
    """Rows and columns that are drawn, and the title that says so."""
    most = extents if window is None else (min(extents[0], window[0]), min(extents[1], window[1]))
    rows, columns = checked_grid(most, title)
    return rows, columns, title + left_out(most, extents, ("rows", "columns"))


def left_out(drawn: Sequence[int], whole: Sequence[int], names: Sequence[str]) -> str:
    """What a picture does not show, as the end of its title."""
    kept = [f"{d} of {w} {name}" for d, w, name in zip(drawn, whole, names, strict=True) if d < w]
    return f"; the first {' and '.join(kept)}" if kept else ""


def checked_grid(extents: tuple[int, int], name: str) -> tuple[int, int]:
    rows, columns = extents
    if rows * columns > _MOST_CELLS:
        raise LayoutError(
            f"{name}: {rows} x {columns} cells are more than the {_MOST_CELLS} of a picture; take a tile of it"
        )
    return rows, columns


def numbers(count: int) -> tuple[str, ...]:
    return tuple(str(k) for k in range(count))


def _line(head: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join([head, *(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))]).rstrip()


def _style() -> str:
    """Of the pictures alone: in a page the rules of one drawing reach all others."""
    light = "".join(f".{_CLASS} .g{k}{{fill:hsl({hue},70%,86%)}}" for k, hue in enumerate(_HUES))
    dark = "".join(f".{_CLASS} .g{k}{{fill:hsl({hue},40%,26%)}}" for k, hue in enumerate(_HUES))
    return (
        f".{_CLASS} text{{font:12px monospace;text-anchor:middle;fill:#1b1f24}}"
        f".{_CLASS} .title{{text-anchor:start;font-weight:bold}}"
        f".{_CLASS} .row{{text-anchor:end}}.{_CLASS} rect{{stroke:#8c959f}}.{_CLASS} .empty{{fill:none}}{light}"
        f"@media(prefers-color-scheme:dark){{.{_CLASS} text{{fill:#e6edf3}}{dark}}}"
    )
