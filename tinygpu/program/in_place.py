"""Tensors that are read and written in place: where the threads of a role meet, so that what one of them reads is what
the statements before have left, and none overwrites what another has yet to read.

Threads that load what they store themselves need nothing. But a result of all warps is stored by one of those that hold
it, and what is added to it was loaded by all: the others may load what is there already.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import expr
from tinygpu.language.holders import LANES
from tinygpu.language.memories import GMEM
from tinygpu.language.partition import Partition
from tinygpu.language.register_windows import is_multiple
from tinygpu.language.tile import Tile
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """A window of a tensor that threads load or store under a partition."""

    window: Tile
    by: Partition
    stores: bool


def meetings(program: Program) -> frozenset[n.Statement]:
    """The loads and stores before which the threads of a role meet, if it has more than one warp."""
    loaded = {s.source.name for s in walk(program.body) if isinstance(s, n.Load) and s.source.memory is GMEM}
    changed = {t.name for t in program.tensors if t.access == "inout" and t.name in loaded}
    found: dict[n.Statement, None] = {}
    if changed:
        _follow(program.body, changed, (), found)
    return frozenset(found)


def _follow(
    body: tuple[n.Statement, ...], changed: set[str], behind: tuple[_Access, ...], found: dict[n.Statement, None]
) -> tuple[_Access, ...]:
    """What has been accessed since the threads last met, behind a body.

    changed  the tensors in question
    behind   the same before the body
    found    gets the statements before which they meet
    """
    for s in body:
        mine = _access(s, changed)
        if mine is not None:
            if s in found or any(_race(before, mine) for before in behind):
                found[s] = None
                behind = ()
            behind = (*behind, mine)
        rounds = 2 if isinstance(s, n.Repeated) else 1  # what a round finds, the one before it may have left
        before = behind
        for _ in range(rounds if s.children else 0):
            for inner in s.children:
                behind = _follow(inner.statements, changed, behind, found)
        if s.children:  # which may have been left out, or had no rounds
            behind = tuple(dict.fromkeys((*before, *behind)))
    return behind


def _access(s: n.Statement, changed: set[str]) -> _Access | None:
    if not isinstance(s, n.Load | n.Store):
        return None
    window, value = (s.target, s.value) if isinstance(s, n.Store) else (s.source, s.result)
    if window.memory is not GMEM or window.name not in changed or value.partition is None:
        return None
    return _Access(window, value.partition, isinstance(s, n.Store))


def _race(before: _Access, after: _Access) -> bool:
    """Whether another thread may do the later one before the earlier one has been done."""
    if before.window.name != after.window.name or not (before.stores or after.stores):
        return False
    if not (_alike(before.by, after.by) and _apart_or_same(before.window, after.window)):
        return True
    return before.stores is not after.stores and _in_several_warps(after.by)


def _alike(one: Partition, other: Partition) -> bool:
    return one is other or str(one) == str(other)


def _in_several_warps(by: Partition) -> bool:
    """Whether threads of more than one warp may hold the same: all of them load it, and one stores it."""
    below = expr(1)
    for size, step in by.threads.steps:
        through = below * size
        copies = not isinstance(step, Step) and not expr(size).same(1)
        if copies and not (through.is_number and int(through) <= LANES):
            return True
        below = through
    return False


def _apart_or_same(one: Tile, other: Tile) -> bool:
    """Whether two windows have all elements in common, or none: each begins at a multiple of its extents."""
    one, other = one.finest, other.finest
    if one.axes != other.axes or one.every != other.every or len(one.shape) != len(other.shape):
        return False
    if one.pick is not None or other.pick is not None:
        return one.pick is other.pick
    sizes = zip(one.shape, other.shape, strict=True)
    if not all(a.same(b) for a, b in sizes):
        return False
    begins = zip(one.offset, other.offset, one.shape, strict=True)
    return all(a.same(b) or (is_multiple(a, size) and is_multiple(b, size)) for a, b, size in begins)
