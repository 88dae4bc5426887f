"""What L1 spares L2: bytes that the threads of a CTA read again while L1 still holds what its loads bring.

`ld.global` into registers passes through L1, whose lines of 128 bytes are filled sector by sector. Windows that
overlap (the taps of a filter, round after round or statement after statement) and warps that read the same values ask
L2 for each of their sectors once, if all lines that the resident CTAs' loads touch until then fit into what shared
memory leaves of an SM's array. Otherwise every load asks L2, as if there were no L1. `cp.async` of 16 bytes and TMA do
not use L1, and what other CTAs read is left out. Only tensors that the kernel does not write count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from tinygpu.cost.pieces import begins
from tinygpu.expressions import Expr, Table, ceil_div, expr, maximum, minimum, symbol, tabulated
from tinygpu.language.buffer_space import shared_bytes
from tinygpu.language.instruction import Transfer
from tinygpu.language.live_registers import registers_estimate
from tinygpu.language.memories import GMEM
from tinygpu.language.tile import Tile
from tinygpu.layouts.leaf import Leaf, leaf, times
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.access import tensor_pitches
from tinygpu.program.program import Program
from tinygpu.program.tree import Place, places
from tinygpu.program.windows import counts_to, window

LINE_BYTES = 128
# How the array of an SM can be divided: KiB of shared memory. Source: cuda_occupancy.h of CUDA 13.0.
CARVEOUTS_KIB = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)
# Rows of bytes that are listed at most: more of them than lines in any L1.
MOST_ROWS = 1 << 14

Loops: TypeAlias = tuple[n.Repeated, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """What one load asks of L2 where L1 holds what the CTA reads.

    fits     1 where L1 does, else 0
    rounds   how many executions of the statement, one after another, share their bytes
    tiles    the windows whose bytes it asks for; (): statements before it asked for all of its own
    around   the loops whose rounds these executions are
    """

    program: Program
    fits: Expr
    rounds: Expr
    tiles: tuple[Tile, ...]
    around: Loops

    def pieces(self, piece_bytes: int, otherwise: Expr) -> Expr:
        """Distinct pieces of memory that one of these executions touches first, on average; `otherwise` where L1 holds
        too little.
        """
        found = touched(self.program, self.tiles, self.around, piece_bytes) if self.tiles else expr(0)
        return tabulated(_EITHER, self.fits, ceil_div(found, self.rounds), otherwise)


def shared_reads(program: Program) -> dict[n.Statement, Shared]:
    """The loads of a program whose threads, rounds or neighbours read some bytes more than once."""
    cached = [place for place in places(program.body) if _through_l1(place.statement)]
    out: dict[n.Statement, Shared] = {}
    for place in cached:
        if place.statement in out or not _never_written(place):
            continue
        around = _overlapping(program, place)
        group = _neighbours(program, place, [other for other in cached if other.statement not in out])
        if around or len(group) > 1 or _copied(place):
            fits = _fits(program, cached, place, around)
            rounds = _rounds(program, around)
            tiles = tuple(_tile(one) for one in group)
            for other in group:
                out[other.statement] = Shared(program, fits, rounds, tiles if other is place else (), around)
    return out


def touched(program: Program, tiles: Sequence[Tile], around: Loops, piece_bytes: int) -> Expr:
    """Distinct pieces of memory that windows of one tensor touch together in all rounds of some loops.

    tiles  windows of the same shape and steps, which begin at places of their own

    Where windows begin at different places of a piece, this is the mean over all that other loops and tiles reach.
    Tensors begin at whole pieces; edges are not looked at.
    """
    tile, pitches = tiles[0], tensor_pitches(tiles[0])
    trips = {loop.index: program.rounds_of(loop) for loop in around}
    moves = window(tile, pitches, program.indices)
    starts = [window(one, pitches, program.indices).begin for one in tiles]
    width: Leaf = tile.dtype.bits
    digits: list[Leaf] = []
    for axis, (home, step) in enumerate(zip(tile.axes, tile.every, strict=True)):
        if axis == tile.contiguous:
            width = times(leaf(tile.shape[axis], "a width"), width)
        elif home is not None:
            digits += [leaf(tile.shape[axis], "a size"), times(leaf(step, "a step"), pitches[home])]
    outside: list[Leaf] = []
    for (_, by), counter in zip(moves.steps, moves.counters, strict=True):
        if counter is not None and counter.symbols & program.indices <= trips.keys():
            digits += [leaf(counts_to(counter, trips), "rounds"), by]
        else:
            outside.append(by)
    table = _table(8 * piece_bytes, len(starts), len(outside))
    return tabulated(table, *map(expr, (width, *starts, *outside, *digits)))


@lru_cache(maxsize=256)
def _table(piece: int, tiles: int, outside: int) -> Table:
    @lru_cache(maxsize=1 << 14)
    def rule(width: int, *leaves: int) -> float:
        starts, moves, digits = leaves[:tiles], leaves[tiles : tiles + outside], leaves[tiles + outside :]
        if min(width, *digits[::2], 1) < 1:
            return 0
        return distinct(piece, width, starts, moves, list(zip(digits[::2], digits[1::2], strict=True)))

    def least(width: tuple[int, int], *leaves: tuple[int, int]) -> int:
        sizes = leaves[tiles + outside :: 2]
        return 0 if min(low for low, _ in (width, *sizes)) < 1 else -(-width[0] // piece)

    return Table(f"touched_{piece}_{tiles}_{outside}", rule, None, least)


def distinct(
    piece: int, width: int, starts: Sequence[int], moves: Sequence[int], digits: Sequence[tuple[int, int]]
) -> float:
    """Distinct pieces that rows of `width` touch, which begin at any of `starts` and, from there, by digits of (size,
    step); all in bits. The mean over where `moves` shift all of them; an upper bound where rows are too many to list.
    """
    rows = np.unique(np.array(starts, dtype=np.int64))
    for size, step in sorted(digits, key=lambda digit: digit[1]):
        if len(rows) * size > MOST_ROWS:  # no L1 holds them, so that none needs to know which are the same
            return float(-(-width // piece) * len(starts) * np.prod([float(size) for size, _ in digits]))
        rows = np.unique(rows[:, None] + np.arange(size, dtype=np.int64) * step)
    often, reached = begins(piece, 0, (), (), moves)
    total = 0
    for begin, times_ in often.items():
        first, last = (rows + begin) // piece, (rows + begin + width - 1) // piece
        before = np.concatenate([first[:1] - 1, last[:-1]])
        total += times_ * int((last - np.maximum(first - 1, before)).sum())
    return total / reached if total % reached else total // reached


# -- which loads, and what is between them -----------------------------------------------------------------------------


def _through_l1(s: n.Statement) -> bool:
    """Whether it is a load of vectors into registers, of which only the program decides where they lie."""
    if not isinstance(s, n.Load) or not isinstance(s.instruction, Transfer) or s.instruction.past_l1_bytes:
        return False
    return s.source.memory is GMEM and s.source.tensor is not None and s.source.pick is None


def _tile(place: Place) -> Tile:
    return place.statement.reads[0].finest


def _never_written(place: Place) -> bool:
    tensor = _tile(place).tensor
    return tensor is not None and tensor.access == "in"


def _copied(place: Place) -> bool:
    """Whether threads hold copies of what others hold."""
    s = place.statement
    partition = s.result.partition if isinstance(s, n.Load) else None
    return partition is not None and any(not isinstance(step, Step) for _, step in partition.threads.steps)


def _overlapping(program: Program, place: Place) -> Loops:
    """The loops in whose rounds the window may reach into that of another round."""
    return tuple(loop for loop in place.loops if not _side_by_side(program, _tile(place), loop))


def _side_by_side(program: Program, tile: Tile, loop: n.Repeated) -> bool:
    """Whether no two rounds' windows share a byte, as far as their steps tell; and where nobody can say."""
    rounds = expr(1)
    for home, begin in enumerate(tile.begins):
        along = tile.along(home)
        moves = window(tile, {axis: int(axis == home) for axis in range(len(tile.begins))}, program.indices)
        for (_, step), counter in zip(moves.steps, moves.counters, strict=True):
            if counter is None and loop.index in begin.symbols:
                return True
            if counter is None or loop.index not in counter.symbols:
                continue
            if along and (len(along) > 1 or not (tile.shape[along[0][0]] * along[0][1]).same(step)):
                return False
            rounds = rounds * counts_to(counter, {loop.index: program.rounds_of(loop)})
    return rounds.same(program.rounds_of(loop))


def _neighbours(program: Program, place: Place, others: Sequence[Place]) -> list[Place]:
    """The loads in the same rounds whose windows have the same form in the same tensor, and begin elsewhere."""
    mine = _tile(place)
    moves = window(mine, tensor_pitches(mine), program.indices)
    out = []
    for other in others:
        tile = _tile(other)
        if tile.tensor is not mine.tensor or other.loops != place.loops or other.role != place.role:
            continue
        same = (tile.axes, tuple(map(str, tile.shape)), tuple(map(str, tile.every))) == (
            mine.axes, tuple(map(str, mine.shape)), tuple(map(str, mine.every)),
        )  # fmt: skip
        there = window(tile, tensor_pitches(tile), program.indices)
        steps = [tuple((name, str(step)) for name, step in w.steps) for w in (moves, there)]
        if same and steps[0] == steps[1]:
            out.append(other)
    return out


def _rounds(program: Program, loops: Loops) -> Expr:
    out = expr(1)
    for loop in loops:
        out = out * program.rounds_of(loop)
    return out


def _fits(program: Program, cached: Sequence[Place], place: Place, around: Loops) -> Expr:
    """1 where L1 holds all lines that the resident CTAs load from one use of a byte to the next, else 0."""
    depth = place.loops.index(around[0]) if around else len(place.loops)
    within = [one for one in cached if one.loops[:depth] == place.loops[:depth] and one.role == place.role]
    lines = expr(0)
    while within:
        group = _neighbours(program, within[0], within)
        lines = lines + touched(program, [_tile(one) for one in group], within[0].loops[depth:], LINE_BYTES)
        within = [one for one in within if one not in group]
    asked = maximum(shared_bytes(program) + _device("reserved_smem_per_block"), _device("smem_alloc_granularity"))
    at_most = minimum(
        _device("max_blocks_per_sm"),
        _device("max_threads_per_sm") // program.threads,
        _device("max_smem_per_sm") // asked,
        _device("registers_per_sm") // maximum(registers_estimate(program) * program.threads, 1),
    )
    there = ceil_div(program.grid.tiles * program.grid.scheduler.slices, _device("sm_count"))
    memory = _device("l1_smem_bytes"), _device("max_smem_per_sm")
    return tabulated(_HELD, lines * LINE_BYTES, there, maximum(at_most, 1), asked, *memory)


def held(needed: Any, there: Any, at_most: Any, smem: Any, whole: Any, smem_at_most: Any) -> Any:
    """1 where L1 holds what CTAs need on an SM, of which some are there and at most some others could be.

    needed  bytes of L1, and `smem` bytes of shared memory, by each CTA; of the `whole` array shared memory gets no more
            than `smem_at_most`
    """
    carveouts = 1024 * np.array(CARVEOUTS_KIB)
    used = carveouts[np.minimum(np.searchsorted(carveouts, np.multiply(at_most, smem)), len(carveouts) - 1)]
    return (np.minimum(there, at_most) * needed <= whole - np.minimum(used, smem_at_most)).astype(np.int64)


def _lower(_: tuple[int, int], then: tuple[int, int], otherwise: tuple[int, int]) -> int:
    return min(then[0], otherwise[0])


# A choice by a number: a condition may not have one inside it.
_EITHER = Table("either", lambda fits, a, b: a if fits else b, lambda fits, a, b: np.where(fits, a, b), _lower)
_HELD = Table("held_in_l1", lambda *numbers: int(held(*numbers)), held)


def _device(name: str) -> Expr:
    return symbol(f"device.{name}")
