"""What a CTA reads again: the bytes of every further pass over a tensor, and how much is moved until then.

A machine that goes over its rows twice finds them in L2 if what all CTAs that run at a time moved since then fits into
it, and reads them from DRAM once more if not. A pass is a loop of a role, or what stands outside of all loops; within
one, what is read again is taken to be still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from tinygpu.cost.operations import bytes_of, sum_of
from tinygpu.expressions import Expr, ceil_div, expr, maximum, minimum
from tinygpu.language.memories import GMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program

Loops: TypeAlias = tuple[n.Repeated, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """One further pass over a tensor.

    tensor    its name
    bytes     that each CTA reads of it, at most what it read before
    distance  different bytes that a CTA moves from the beginning of the pass before to the beginning of this one
    """

    tensor: str
    bytes: Expr
    distance: Expr


@dataclass(slots=True)
class _Pass:
    """Bytes that a CTA reads of each tensor; and what it writes, or reads of rows that values name."""

    read: dict[str, Expr] = field(default_factory=dict)
    other: Expr = field(default_factory=lambda: expr(0))


def read_again(program: Program) -> list[Again]:
    """All further passes of all roles, in the order of the program."""
    out: list[Again] = []
    for body in _bodies(program.body):
        done: list[_Pass] = []
        last: dict[str, int] = {}
        for one in _passes(program, body):
            for name, size in one.read.items():
                if name in last:
                    since = done[last[name] :]
                    out.append(Again(name, minimum(size, since[0].read[name]), _different(since)))
                last[name] = len(done)
            done.append(one)
    return out


def _different(passes: list[_Pass]) -> Expr:
    """Bytes that some passes move, those of a tensor that several of them read once."""
    read: dict[str, Expr] = {}
    total = expr(0)
    for one in passes:
        total = total + one.other
        for name, size in one.read.items():
            read[name] = maximum(read[name], size) if name in read else size
    return total + sum_of(read.values())


def _bodies(body: tuple[n.Statement, ...]) -> Iterator[tuple[n.Statement, ...]]:
    """What is carried out in a row: of every role by itself, and what stands outside of roles."""
    yield body
    for s in body:
        for inner in s.children:
            if isinstance(s, n.InRole):
                yield inner.statements
            else:
                yield from list(_bodies(inner.statements))[1:]


def _passes(program: Program, body: tuple[n.Statement, ...]) -> list[_Pass]:
    """The loops of a body, and what stands between them, in order; of roles inside nothing."""
    out: list[_Pass] = [_Pass()]
    for s, around in _in_a_row(body, ()):
        if _is_loop(s):
            out.append(_Pass())
            for inner, loops in _inside((s,), around):
                _add(program, out[-1], inner, loops)
            out.append(_Pass())
        else:
            _add(program, out[-1], s, around)
    return [one for one in out if one.read or not one.other.same(0)]


def _in_a_row(body: tuple[n.Statement, ...], around: Loops) -> Iterator[tuple[n.Statement, Loops]]:
    """Statements with the rounds around them, blocks that are no loops opened."""
    for s in body:
        if isinstance(s, n.InRole):
            continue
        yield s, around
        if _is_loop(s):
            continue
        for inner in s.children:
            yield from _in_a_row(inner.statements, (*around, s) if isinstance(s, n.Repeated) else around)


def _is_loop(s: n.Statement) -> bool:
    return isinstance(s, n.Repeated) and not s.written_out


def _inside(body: Iterable[n.Statement], around: Loops) -> Iterator[tuple[n.Statement, Loops]]:
    for s in body:
        yield s, around
        for inner in s.children:
            yield from _inside(inner.statements, (*around, s) if isinstance(s, n.Repeated) else around)


def _add(program: Program, to: _Pass, s: n.Statement, around: Loops) -> None:
    if s.children:
        return
    for tile in s.reads:
        if tile.memory is GMEM and tile.tensor is not None:
            size = moved_bytes(program, tile, around)
            if tile.pick is None:
                to.read[tile.tensor.name] = to.read.get(tile.tensor.name, expr(0)) + size
            else:
                to.other = to.other + size
    for tile in s.writes:
        if tile.memory is GMEM:
            to.other = to.other + moved_bytes(program, tile, around)


def moved_bytes(program: Program, tile: Tile, around: Loops) -> Expr:
    """Bytes of a tensor that a CTA moves in all rounds of some loops: along an axis no more than the tensor has.

    A tile that is wider than the tensor, and the last of a row of tiles, reach beyond its end; nothing is moved there.
    """
    rounds = {loop.index: program.rounds_of(loop) for loop in around}
    whole = tile.finest
    if whole.tensor is None or tile.pick is not None:
        return bytes_of(tile) * _product(rounds.values())
    left = dict(rounds)
    begins = whole.begins
    out = expr(whole.dtype.bits)
    for home, size in zip(whole.axes, whole.shape, strict=True):
        if home is None or len(whole.along(home)) > 1:
            out = out * size
            continue
        along = [left.pop(index) for index in list(left) if index in begins[home].symbols]
        out = out * minimum(size * _product(along), whole.tensor.size(home))
    return ceil_div(out * _product(left.values()), 8)


def _product(sizes: Iterable[Expr]) -> Expr:
    out = expr(1)
    for size in sizes:
        out = out * size
    return out


__all__ = ["Again", "moved_bytes", "read_again"]
