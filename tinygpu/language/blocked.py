"""Blocked partitions: threads side by side over a tile, vectors or blocks of neighbours each, repeated to fill it."""

from __future__ import annotations

from tinygpu.expressions import Expr, Operand, all_of, expr, maximum, minimum
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.verb import verb
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E


@verb("blocked")
def blocked(
    shape: tuple[Operand, ...],
    *,
    threads: Operand,
    vector: Operand = 1,
    axis: int = -1,
    across: Operand | None = None,
    name: str = "tile",
) -> Partition:
    """Threads side by side along `axis`, `vector` neighbouring elements each, then along the others, repeated.

    shape    extents of a tile with any number of axes; threads stand along the others from the last to the first, and
             what is left of them along the first
    threads  number of threads of the role
    vector   neighbouring elements along `axis` that one thread moves at once
    axis     the axis that is contiguous in memory
    across   threads side by side along `axis` (an AccessPattern); by default as many as the row has vectors
    """
    extents = tuple(expr(s) for s in shape)
    rank = len(extents)
    axis = axis % rank
    threads, vector = expr(threads), expr(vector)
    chunks = extents[axis] // vector
    wide = _some(expr(across) if across is not None else minimum(chunks, threads))
    conditions = [
        Condition(
            f"{name} vectors",
            (extents[axis] % vector).__eq__(0),
            "a row of the tile is a whole number of vectors",
        ),
        Condition(
            f"{name} columns",
            all_of([chunks % wide == 0, threads % wide == 0]),
            "the threads side by side divide both the vectors of a row and the threads of the role",
        ),
    ]
    if rank == 1:
        conditions.append(Condition(f"{name} threads", wide == threads, "all threads stand along the only axis"))
        passes = (_some(chunks // wide), vector * wide * E(axis))
        held = Layout.of([(wide, vector * E(axis))], [(vector, E(axis)), passes])
        return Partition(extents, held, tuple(conditions), threads)
    side_by_side = [(wide, vector * E(axis))]
    values = [(vector, E(axis)), (_some(chunks // wide), vector * wide * E(axis))]
    left = maximum(threads // wide, 1)  # where more stand side by side than there are, the columns condition refuses
    others = [a for a in reversed(range(rank)) if a != axis]
    for other in others:
        last = other == others[-1]
        tall = left if last else minimum(extents[other], left)
        whole = [extents[other] % tall == 0, *([] if last else [left % tall == 0])]
        said, sentence = "rows", "the rows of one pass divide the rows of the tile"
        if rank > 2:
            said = f"axis {other}"
            sentence = f"the threads side by side along axis {other} divide both the tile and the threads that are left"
        conditions.append(Condition(f"{name} {said}", all_of(whole), sentence))
        left = left // tall
        side_by_side.append((tall, E(other)))
        values.append((_some(extents[other] // tall), tall * E(other)))
    return Partition(extents, Layout.of(side_by_side, values), tuple(conditions), threads)


@verb("register_blocked")
def register_blocked(
    shape: tuple[Operand, Operand],
    *,
    threads: tuple[Operand, Operand],
    block: tuple[Operand, Operand],
    name: str = "tile",
) -> Partition:
    """A grid of threads over a tile with two axes, each holding blocks of `block` neighbours, repeated to fill it.

    threads  threads along axis 0 and axis 1; the lane runs along axis 1 first
    block    neighbouring elements per thread along axis 0 and axis 1
    """
    rows, columns = expr(shape[0]), expr(shape[1])
    tall, wide = expr(threads[0]), expr(threads[1])
    down, across = expr(block[0]), expr(block[1])
    conditions = (
        Condition(f"{name} rows", rows % (tall * down) == 0, "the threads' blocks divide the rows of the tile"),
        Condition(
            f"{name} columns",
            columns % (wide * across) == 0,
            "the threads' blocks divide the columns of the tile",
        ),
    )
    held = Layout.of(
        [(wide, across * E(1)), (tall, down * E(0))],
        [
            (across, E(1)),
            (_some(columns // (wide * across)), wide * across * E(1)),
            (down, E(0)),
            (_some(rows // (tall * down)), tall * down * E(0)),
        ],
    )
    return Partition((rows, columns), held, conditions, tall * wide)


def _some(count: Expr) -> Expr:
    """One instead of none: of a tile that is too small, which the conditions refuse."""
    return expr(1) if count.same(0) else count
