"""Who covers what, by listing: partitions over their tiles, stores over the outputs, layouts over their buffers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import Expr, compile_scalars, evaluate
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.problem import Problem
from tinygpu.language.tile import Tile
from tinygpu.layouts.rows import CHUNK_BYTES
from tinygpu.program import nodes as n
from tinygpu.program import tree
from tinygpu.program.access import accesses
from tinygpu.program.placement import BufferPlace, place
from tinygpu.program.program import Program
from tinygpu.program.tree import executions, leaves
from tinygpu.program.windows import offsets, unrolled_statements
from tinygpu.solver.buffers import SolvedLayouts

# Elements of one output, or instances of one statement, beyond which a listing would take too long.
LIMIT = 4_000_000


def partitions(program: Program) -> Iterator[tuple[str, Partition]]:
    """Every partition of a program, with the statement that uses it."""
    for s in leaves(program.body):
        if s.moves_under is not None:
            yield _named(s), s.moves_under
        for tile in s.writes:
            if tile.partition is not None:
                yield _named(s), tile.partition


def _named(s: n.Statement) -> str:
    """A statement that makes register tiles, or brings something, as a report names it."""
    match s:
        case n.Load() | n.Copy():
            return f"{s.name} ({s.instruction}) of {s.source.name}"
        case n.Constant():
            return f"%{s.result.name}, which p.full makes,"
        case n.Combining():
            return f"%{s.results[0].name}, the result of {s.name},"
        case n.Apply():
            return f"%{s.result.name}, the result of {s.name},"
        case _:
            return f"the statement {s.headline(frozenset())}"


def stores(program: Program) -> dict[str, tuple[str, ...]]:
    """Per output, the statements that store into it, as a report names them."""
    found: dict[str, dict[str, None]] = {}
    for s in leaves(program.body):
        for tile in s.writes:
            if tile.tensor is not None:
                name = f"{s.name} ({s.instruction})" if isinstance(s, (n.Store, n.Copy)) else _named(s)
                found.setdefault(tile.tensor.name, {})[name] = None
    return {name: tuple(listed) for name, listed in found.items()}


def partition_fault(partition: Partition) -> str:
    """Why a filled-in partition does not hold each element equally often; "" when it does.

    Threads whose number does not decide a coordinate hold copies: each element is held once per combination of those.
    """
    shape = tuple(map(int, partition.shape))
    held = partition.coordinates().reshape(-1, len(shape))
    copies = math.prod(size for size, _ in partition.copies())
    outside = (held < 0).any(axis=1) | (held >= np.array(shape)).any(axis=1)
    if outside.any():
        first = tuple(int(c) for c in held[int(np.argmax(outside))])
        return f"{first} is held, which lies outside the tile {'x'.join(map(str, shape))}"
    counts = np.bincount(np.ravel_multi_index(tuple(held.T), shape), minlength=math.prod(shape))
    wrong = np.flatnonzero(counts != copies)
    if len(wrong):
        first = tuple(int(c) for c in np.unravel_index(int(wrong[0]), shape))
        times = int(counts[wrong[0]])
        return f"{first} of the tile {'x'.join(map(str, shape))} is held {times} times, not {copies} times"
    return ""


def small_problem_dims(program: Program, problem: Problem) -> dict[str, int]:
    """Sizes along the grid's axes with at most two tiles, the last of them as partial as the problem's."""
    out = {}
    for axis in program.grid.axes:
        name = str(axis.size)
        if name.isdigit():
            continue
        extent, size = int(axis.extent), problem.dim[name]
        out[name] = min(size, extent + size % extent if size % extent else 2 * extent)
    return out


def store_fault(program: Program, problem: Problem) -> str:
    """Which element of an output is not stored exactly once over the grid; "" when all are."""
    environment, placed_by_data = problem.environment(), program.placed_by_data
    counts = {
        o.name: np.zeros(o.shape, dtype=np.int64)
        for o in problem.operands
        if o.access != "in" and math.prod(o.shape) <= LIMIT and o.name not in placed_by_data
    }
    tiles = [range(int(evaluate(a.tiles, problem.dim))) for a in program.grid.axes]
    names = [a.index for a in program.grid.axes]
    storing = tuple(k for s in program.body if (k := _only_stores(s, counts.keys())) is not None)
    for number, numbers in enumerate(itertools.product(*tiles)):
        at = {**environment, n.PART: 0, **dict(zip(names, numbers, strict=True))}
        # roles that take turns at tiles: this tile is of one of them
        idle = frozenset(r.name for r in program.roles if number % r.share[1] != r.share[0])
        for s, known in executions(storing, at, value, idle):
            for target in s.writes:
                if target.tensor is not None and target.tensor.name in counts:
                    _count_store(counts[target.tensor.name], target, _held(s, target), known)
    by = stores(program)
    for name, count in counts.items():
        kept = problem.operand(name).access == "inout"  # what is not stored keeps its value
        wrong = np.argwhere(count > 1 if kept else count != 1)
        if len(wrong):
            first = tuple(int(c) for c in wrong[0])
            return f"{name}{list(first)} is stored {int(count[first])} times by {' and '.join(by[name])}, not once"
    return ""


def _only_stores(s: n.Statement, into: Collection[str]) -> n.Statement | None:
    """The statement without what stores into none of these tensors, and without loops for nothing else."""
    if not s.children:
        combines = any(getattr(i, "combines", False) for i in s.instructions)  # any number of times
        return s if any(t.tensor is not None and t.tensor.name in into for t in s.writes) and not combines else None
    kept = [tuple(k for i in inner.statements if (k := _only_stores(i, into)) is not None) for inner in s.children]
    return s.with_children(*kept) if any(kept) else None


def _held(s: n.Statement, target: Tile) -> NDArray[np.int64]:
    """(elements, axes) the coordinates that a statement stores: those that threads hold, or the whole window."""
    who = next((t.partition for t in s.reads if t.partition is not None), None)
    if who is None:
        return np.indices([int(e) for e in target.finest.shape]).reshape(len(target.finest.shape), -1).T
    _, who = target.finest_under(who)
    return who.coordinates()[holders(who)].reshape(-1, len(who.shape))


def value(e: Expr, known: Mapping[str, int]) -> int:
    """An expression as a number."""
    return int(e) if e.is_number else int(_compiled(e.sympy)(known)[0])


@cache
def _compiled(node: Any) -> Callable[[Mapping[str, int]], tuple[Any, ...]]:
    return compile_scalars(Expr(node))


def _count_store(
    count: NDArray[np.int64], target: Tile, held: NDArray[np.int64], known: Mapping[str, int]
) -> None:
    """Counts the elements of a window whose coordinates are `held`."""
    window = target.finest
    place_in = [np.full(len(held), value(begin, known), dtype=np.int64) for begin in window.begins]
    for home, at in enumerate(place_in):
        for axis, step in window.along(home):
            at += held[:, axis] * int(step)
    inside = np.ones(len(held), dtype=np.bool_)
    for where, size in zip(place_in, count.shape, strict=True):
        inside &= (where >= 0) & (where < size)
    np.add.at(count, tuple(where[inside] for where in place_in), 1)


def holders(who: Partition) -> NDArray[np.bool_]:
    """(threads,) the first of the threads that hold the same values."""
    first: dict[tuple[int, ...], int] = {}
    keep = np.zeros(who.threads.size, dtype=np.bool_)
    for thread, start in enumerate(map(tuple, who.thread_coordinates().tolist())):
        if start not in first:
            first[start] = thread
            keep[thread] = True
    return keep


def layout_fault(program: Program, layouts: SolvedLayouts) -> str:
    """Why buffers and their layouts do not keep every element, in bounds and apart; "" when they do."""
    placement = place(program, layouts.swizzles)
    for pipeline in program.pipelines:
        for b in pipeline.buffers:
            if b.memory is SMEM:
                where = placement.places[b.name]
                fault = buffer_fault(b, where) or _vectors_fault(program, b, where)
                if fault:
                    return f"{b.name}: {fault}"
    return _overlap(program, placement.places, placement.total_bytes)


def buffer_fault(b: Buffer, where: BufferPlace) -> str:
    shape, size = tuple(map(int, b.shape)), CHUNK_BYTES if b.padded else max(b.dtype.bits // 8, 1)
    together = CHUNK_BYTES if b.padded else max(8 // b.dtype.bits, 1)  # elements that share an address
    start = where.addresses(np.indices(shape, dtype=np.int64).reshape(len(shape), -1).T)
    if len(np.unique(start)) * together != len(start):
        return "its layout puts two elements at one address"
    if (start % size).any():
        return "its layout splits elements"
    if start.min() < 0 or start.max() + size > where.stage_bytes:
        return f"its layout reaches byte {int(start.max()) + size} of a stage of {where.stage_bytes}"
    return ""


def _vectors_fault(program: Program, b: Buffer, where: BufferPlace) -> str:
    """Accesses stay inside the buffer, and the elements of one access are neighbours."""
    shape = np.array([int(extent) for extent in b.shape], dtype=np.int64)
    along = np.eye(len(shape), dtype=np.int64)[b.contiguous]
    for placed in unrolled_statements(program.body):
        for access in accesses(placed.statement):
            if access.tile.buffer is not b:
                continue
            lanes = access.lanes.reshape(-1, access.lanes.shape[-1])
            first = lanes[lanes[:, 0] >= 0] + np.array(offsets(access.tile, placed.indices), dtype=np.int64)
            last = first + (access.width_bytes * 8 // b.dtype.bits - 1) * along
            inside = ((first >= 0) & (last < shape)).all(axis=1)
            if not inside.all():
                return f"{access.name} touches element {tuple(map(int, first[~inside][0]))}, outside of it"
            starts = where.addresses(first)
            apart = where.addresses(last) - starts != access.width_bytes - max(b.dtype.bits // 8, 1)
            if apart.any() or (starts % access.width_bytes).any():
                return f"its layout splits the {access.width_bytes} bytes that {access.name} moves at once"
    return ""


def _overlap(program: Program, places: Mapping[str, BufferPlace], total_bytes: int) -> str:
    """Buffers that live at the same time lie apart, all within the CTA's shared memory."""
    for where in tree.places(program.body):
        alive = [name for block, _ in where.around for name in block.scopes] + list(where.statement.scopes)
        used: list[tuple[int, int, str]] = []
        for name in alive:
            for b in program.pipeline(name).buffers:
                if b.memory is SMEM:
                    at = places[b.name]
                    used.append((at.offset_bytes, at.offset_bytes + at.stages * at.stage_bytes, b.name))
        used.sort()
        for (_, end, first), (start, _, second) in itertools.pairwise(used):
            if start < end:
                return f"{first} and {second} overlap from byte {start} to {end}"
        if used and used[-1][1] > total_bytes:
            return f"{used[-1][2]} ends at byte {used[-1][1]} of {total_bytes}"
    return ""
