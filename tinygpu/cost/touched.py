"""Bytes of a tensor that a launch touches: all of them, or of rows that values give as many as are picked."""

from __future__ import annotations

from typing import Literal

from tinygpu.cost.named_rows import picked_windows
from tinygpu.cost.operations import sum_of
from tinygpu.expressions import Expr, ceil_div, expr, minimum
from tinygpu.language.tensors import Tensor
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


def picked_by_data(program: Program, t: Tensor) -> frozenset[int]:
    """The axes of a tensor along which every window has one index, which data say: of many matrices, one."""
    said, found = program.said_by_data, list[frozenset[int]]()
    for s in walk(program.body):
        for tile in (*s.reads, *s.writes):
            if tile.tensor is not None and tile.tensor.name == t.name:
                found.append(frozenset(home for home, at in tile.fixed if home not in tile.axes and at.symbols & said))
    return frozenset.intersection(*found) if found else frozenset()


def touched_bytes(program: Program, t: Tensor, verb: Literal["read", "written"]) -> Expr:
    """Bytes of a tensor that a launch reads or writes at least: of rows that values give, each is taken for another."""
    if of_rows := picked_windows(program, t, verb):
        return minimum(tensor_bytes(t), sum_of(of_rows))
    groups = [a for a in program.grid.axes if not a.groups.same(1)]
    if len(groups) == 1:  # no more indices are picked than tiles along the groups have elements
        for axis in picked_by_data(program, t):
            return tensor_bytes(t) // t.size(axis) * minimum(t.size(axis), groups[0].filled)
    return tensor_bytes(t)


def tensor_bytes(t: Tensor) -> Expr:
    out = expr(t.dtype.bits)
    for axis in range(t.rank):
        out = out * t.size(axis)
    return ceil_div(out, 8)
