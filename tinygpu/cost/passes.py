"""What a CTA reads again: the bytes of every further pass over a tensor, and how much is moved until then.

A machine that goes over its rows twice finds them in L2 if what all CTAs that run at a time moved since then fits into
it, and reads them from DRAM once more if not. A pass is a loop of a role, or what stands outside of all loops; within
one, what is read again is taken to be still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tinygpu.cost.operations import bytes_of, sum_of
from tinygpu.expressions import Expr, expr, maximum, minimum
from tinygpu.language.memories import GMEM
from tinygpu.program import nodes as n
from tinygpu.program.program import Program


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
    for s, times in _in_a_row(program, body, expr(1)):
        if _is_loop(s):
            out.append(_Pass())
            for inner, each in _inside(program, (s,), times):
                _add(out[-1], inner, each)
            out.append(_Pass())
        else:
            _add(out[-1], s, times)
    return [one for one in out if one.read or not one.other.same(0)]


def _in_a_row(program: Program, body: tuple[n.Statement, ...], times: Expr) -> Iterator[tuple[n.Statement, Expr]]:
    """Statements, blocks that are no loops opened."""
    for s in body:
        if isinstance(s, n.InRole):
            continue
        yield s, times
        if _is_loop(s):
            continue
        rounds = program.rounds_of(s) if isinstance(s, n.Repeated) else expr(1)
        for inner in s.children:
            yield from _in_a_row(program, inner.statements, times * rounds)


def _is_loop(s: n.Statement) -> bool:
    return isinstance(s, n.Repeated) and not s.written_out


def _inside(program: Program, body: Iterable[n.Statement], times: Expr) -> Iterator[tuple[n.Statement, Expr]]:
    for s in body:
        yield s, times
        rounds = program.rounds_of(s) if isinstance(s, n.Repeated) else expr(1)
        for inner in s.children:
            yield from _inside(program, inner.statements, times * rounds)


def _add(to: _Pass, s: n.Statement, times: Expr) -> None:
    if s.children:
        return
    for tile in s.reads:
        if tile.memory is GMEM and tile.tensor is not None:
            size = times * bytes_of(tile)
            if tile.pick is None:
                to.read[tile.tensor.name] = to.read.get(tile.tensor.name, expr(0)) + size
            else:
                to.other = to.other + size
    for tile in s.writes:
        if tile.memory is GMEM:
            to.other = to.other + times * bytes_of(tile)


__all__ = ["Again", "read_again"]
