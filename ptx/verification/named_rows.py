"""Dims along which a kernel goes by what data name: rows of tables, which verification has fewer of.

A table is as long as it likes: a kernel multiplies the number of a row by a pitch, and knows of the dim only where it
ends. So derived problems have few rows, and of the real problem's table only some rows are in memory, far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tinygpu.expressions import Expr
from tinygpu.language.machine import Machine
from tinygpu.language.posing import followed
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.language.values import Values
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.statement import Statement
from tinygpu.program.tree import field_names
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.row_numbers import RowNumbers
from tinygpu.ptx.verification.traced import traced

# Rows of a table at least, where the real one has so many, and what the number of them leaves the real one's
# remainder of: a warp's lanes may each name a row of their own, and there is one more.
LEAST_ROWS = 33
REMAINDER_OF = 32
# Numbers of rows that are looked at, from the smallest on.
MOST_SIZES = 4096


@dataclass(frozen=True, slots=True)
class Naming:
    """A dim along which rows are named, and nothing else goes.

    dim
    by      the tensors whose elements name rows
    purely  each of these elements is the number of a row of the table, and nothing else is made of it: any other rows
            in its place give the same results of what lies in them
    of      the dim that has an element for each number: the dim itself where rows are named one by one
    unit    rows of the block that a number names
    """

    dim: str
    by: tuple[str, ...]
    purely: bool
    of: str
    unit: int = 1


def namings(kernel: Kernel, machine: type[Machine], problem: Problem) -> tuple[Naming, ...]:
    """The dims of which rows are named, and of which there may be fewer."""
    program = traced(kernel, machine, problem).program
    taken = _taken(kernel, program)
    alone = [(d, d, 1) for d in free_dims(kernel, machine, problem, program)]
    blocks = [(dim, of, unit) for dim, of, unit in in_blocks(machine, problem) if not {dim, of} & taken]
    found = (_naming(program, problem, dim, of, unit) for dim, of, unit in (*alone, *blocks))
    return tuple(naming for naming in found if naming is not None)


def free_dims(kernel: Kernel, machine: type[Machine], problem: Problem, program: Program) -> tuple[str, ...]:
    """Dims that no tile and no loop goes along, that no other decides, and that nothing in the program names."""
    decided = _decided(machine) | _taken(kernel, program)
    return tuple(d for d, _ in problem.dims if d not in decided)


def _taken(kernel: Kernel, program: Program) -> set[str]:
    """Dims that tiles, loops, rings or groups go along, that the kernel was made for, or that the program names."""
    loops = {d for d, _ in (*kernel.tiles, *kernel.steps)} | {d for r in kernel.rings for d in r.dims}
    return loops | {*kernel.groups, *(d for d, _ in kernel.known), *_named_in(program)}


def in_blocks(machine: type[Machine], problem: Problem) -> Iterator[tuple[str, str, int]]:
    """(dim, the dim that it follows from, elements of it for each of those) where that alone decides it."""
    following, options = machine.following_dims(), dict(problem.options)
    listed = {name for name, values in machine.dim_values().items() if values}
    for d in following:
        for of in (name for name in d.reads if name in problem.dim and name not in listed):
            others = {name for other in following if other is not d for name in (other.name, *other.reads)}
            if {of, d.name} & others:
                continue
            sizes = [followed(machine.__name__, (d,), problem.dim | {of: size}, options)[d.name] for size in (1, 2, 3)]
            unit = sizes[0]
            if unit > 1 and sizes == [unit, 2 * unit, 3 * unit] and problem.dim[d.name] == unit * problem.dim[of]:
                yield d.name, of, unit


def fewer_rows(
    kernel: Kernel, problem: Problem, dim: str, dims: Mapping[str, int], legal: Callable[[Mapping[str, int]], bool]
) -> int:
    """The smallest number of rows with the facts of the real one, and its remainder, that is legal among other dims."""
    size = problem.dim[dim]
    apart = int(np.lcm.reduce([REMAINDER_OF, *(f.divisor for f in kernel.facts if f.name == dim)]))
    least = LEAST_ROWS + (size - LEAST_ROWS) % apart
    tried = range(least, min(size, least + MOST_SIZES * apart), apart)
    return next((rows for rows in tried if legal({**dims, dim: rows})), size)


@lru_cache(maxsize=64)
def _named_in(program: Program) -> frozenset[str]:
    """What expressions of a program name."""
    return _told(program.body)


def _told(value: Any, seen: set[int] | None = None, along: str = "") -> frozenset[str]:
    """What expressions of a program name. What a tensor's numbers may be, or one that data say, has no say in it.

    along  a dim: what says where windows lie along it is not counted
    """
    seen = set() if seen is None else seen
    if isinstance(value, Expr):
        return value.symbols
    if isinstance(value, Layout):
        return frozenset[str]().union(*(e.symbols for e in value.expressions))
    if isinstance(value, tuple):
        return frozenset[str]().union(*(_told(part, seen, along) for part in value))
    if isinstance(value, Tensor | Values) or id(value) in seen:
        return frozenset()
    seen.add(id(value))
    left_out = ("typical", "most", "likely") if isinstance(value, n.Uniform) else ()
    kind: type = type(value)
    parts = {name: getattr(value, name) for name in field_names(kind) if name not in left_out}
    if isinstance(value, Tile) and value.tensor is not None and along:
        dims, offsets = value.tensor.dims, zip(value.axes, value.offset, strict=True)
        parts["fixed"] = tuple(e for axis, e in value.fixed if dims[axis] != along)
        parts["offset"] = tuple(e for axis, e in offsets if axis is None or dims[axis] != along)
    return frozenset[str]().union(*(_told(part, seen, along) for part in parts.values()))


def _decided(machine: type[Machine]) -> set[str]:
    """Dims whose sizes are not free: those that are listed, those that follow from others, and these."""
    listed = {name for name, values in machine.dim_values().items() if values}
    return listed | {name for d in machine.following_dims() for name in (d.name, *d.reads)}


def _windows(s: Statement) -> Iterator[tuple[Tile, Tensor, bool]]:
    """The windows of tensors that a statement reads or writes itself: (window, its tensor, whether it is written)."""
    for tiles, written in ((s.reads, False), (s.writes, True)):
        for tile in (t.finest for t in tiles):
            if tile.tensor is not None:
                yield tile, tile.tensor, written


def rows_named(program: Program, problem: Problem, dim: str, windows: Sequence[tuple[Tile, int]]) -> tuple[str, ...]:
    """The tensors whose elements say, each by the number of one row, where windows lie along a dim, and say nothing
    else; none where anything else has a say.

    windows  with the axis of the tensor that is meant
    """
    numbers, by = RowNumbers(program), dict[str, Tensor]()
    for tile, axis in windows:
        found = numbers.naming(tile, axis)
        if found is None or found[1] != 1:
            return ()
        by |= {source.name: source for source in found[0]}
    pure = all(_is_row(t, problem, dim) for t in by.values()) and _only_names(program, numbers, frozenset(by), dim)
    return tuple(by) if pure else ()


def _naming(program: Program, problem: Problem, dim: str, of: str, unit: int) -> Naming | None:
    """How rows along a dim are named, in blocks of so many; None where something else goes along it.

    of  the dim that has as many elements as there are blocks
    """
    numbers, by = RowNumbers(program), dict[str, Tensor]()
    for s in numbers.statements:
        for tile, tensor, written in _windows(s):
            for axis in (axis for axis, d in enumerate(tensor.dims) if d == dim):
                # Of several plain stores to one row any may be the last: rows are many, lest one is named twice.
                plain = written and not (isinstance(s, n.Store) and getattr(s.instruction, "combines", False))
                found = numbers.naming(tile, axis)
                if found is None or found[1] != unit or plain or tensor.memory.own:
                    return None
                by |= {source.name: source for source in found[0]}
    free = [t.values is None or of in t.values.symbols for t in by.values()]
    if not by or not all(free):
        return None
    declared = all(_is_row(t, problem, of) for t in by.values())
    return Naming(dim, tuple(by), declared and _only_names(program, numbers, frozenset(by), dim), of, unit)


def _is_row(tensor: Tensor, problem: Problem, dim: str) -> bool:
    """Whether an element of a tensor is declared to be the number of a row, any of them or in ascending order."""
    values = tensor.values
    if values is None or not values.whole or values.symbols != {dim}:
        return False
    drawn = values.at(problem.dim)
    return drawn.low == 0 and drawn.high == problem.dim[dim] - 1 and not drawn.apart


def _only_names(program: Program, numbers: RowNumbers, tensors: frozenset[str], dim: str) -> bool:
    """Whether elements of tensors name rows along a dim and are nothing else: no operand, no number, no other's."""
    names: set[str] = set()
    for s in numbers.statements:
        read = {tensor.name for _, tensor, _ in _windows(s)} & tensors
        if read and not isinstance(s, n.Load):
            return False
        names |= {tile.name for tile in s.writes} if read else set()
    while more := _made_of(numbers.statements, names) - names:
        names |= more
    for s in numbers.statements:
        picks = [(t.pick, tensor) for t, tensor, _ in _windows(s) if t.pick is not None]
        for pick, tensor in picks:
            if pick.by.name in names and tensor.dims[pick.home] != dim:
                return False
        picking = {id(pick.by) for pick, _ in picks}
        others = {t.name for t in s.reads if t.tensor is None and id(t) not in picking}
        if others & names and not isinstance(s, n.Relayout | n.Uniform | n.Apply):
            return False
    said = {symbol for symbol, value in numbers.said.items() if value.name in names}
    return not said & _told(program.body, along=dim)


def _made_of(statements: Sequence[Statement], names: set[str]) -> set[str]:
    """The values in registers that are made of others."""
    made = (s for s in statements if isinstance(s, n.Relayout | n.Apply) and {t.name for t in s.reads} & names)
    return {tile.name for s in made for tile in s.writes}
