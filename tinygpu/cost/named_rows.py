"""Rows that values name: the bytes of the windows that they say where to find, each window counted once.

Tiles and rounds whose values are the same name the same rows: heads that look up the same pages, queries of one
sequence. So of all tiles and rounds only those count that the values, or the rest of the window, depend on.
"""

from __future__ import annotations

from typing import Literal

from tinygpu.cost.operations import bytes_of
from tinygpu.expressions import Expr, expr
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, places, walk

Verb = Literal["read", "written"]


def picked_windows(program: Program, t: Tensor, verb: Verb) -> list[Expr]:
    """Bytes that statements read or write of a tensor over the whole grid, where values say which rows; else none."""
    out = []
    for place in places(program.body):
        s = place.statement
        combines = verb == "read" and any(getattr(i, "combines", False) for i in s.instructions)
        touched = s.reads if verb == "read" and not combines else s.writes
        for tile in touched:
            if tile.tensor is not None and tile.tensor.name == t.name:
                if tile.pick is None:
                    return []
                out.append(_windows(program, tile, place.loops) * bytes_of(tile))
    return out


def _windows(program: Program, tile: Tile, loops: tuple[n.Repeated, ...]) -> Expr:
    """How many windows there are that may be of other rows than all others."""
    named, out = depends_on(program, tile), expr(1)
    for axis in program.grid.axes:
        out = out * axis.filled if axis.index in named else out
    same = {axis.index for axis in program.grid.axes} - named  # of tiles that name the same rows some have most rounds
    for loop in (loop for loop in loops if loop.index in named):
        out = out * (program.most_rounds_of(loop) if loop.trips.symbols & same else program.rounds_of(loop))
    return out


def depends_on(program: Program, tile: Tile) -> frozenset[str]:
    """The indices of tiles and rounds that say where a window lies, by its offsets or by what its values come from."""
    made: dict[str, list[n.Statement]] = {}
    said: dict[str, n.Statement] = {}
    for s in walk(program.body):
        for written in s.writes:
            made.setdefault(written.name, []).append(s)
        said.update(dict.fromkeys(s.defines, s))
    found: set[str] = set()
    names = {symbol for e in _where(tile) for symbol in e.symbols}
    values = [by.name for by in tile.picked_by]
    seen: set[str] = set()
    while names or values:
        if values:
            if (value := values.pop()) in seen:
                continue
            sources = made.get(value, [])
        else:
            found.add(name := names.pop())
            sources = [said[name]] if name in said and name not in seen else []
            value = name
        seen.add(value)
        for s in sources:
            own = expressions(s) if not s.children else (e for read in s.reads for e in _where(read))
            names |= {symbol for e in own for symbol in e.symbols} - found
            values += [read.name for read in s.reads if read.tensor is None]
            values += [by.name for read in s.reads for by in read.picked_by]
    return frozenset(found & program.indices)


def _where(tile: Tile) -> tuple[Expr, ...]:
    return (*tile.offset, *(at for _, at in tile.fixed), *(end for _, end in tile.ends))
