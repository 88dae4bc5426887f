"""Blocked partitions: threads side by side over a tile, vectors or blocks of neighbours each, repeated to fill it."""

from __future__ import annotations

from tinygpu.expressions import Operand, all_of, expr, maximum, minimum
from tinygpu.language.partition import Condition, Mode, Partition
from tinygpu.language.verb import verb


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
    """Threads side by side along `axis`, `vector` neighbouring elements each, then along the other axis, repeated.

    shape    extents of a tile with one or two axes
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
    wide = expr(across) if across is not None else minimum(chunks, threads)
    if wide.same(0):  # a row shorter than one vector: the conditions below refuse it
        wide = expr(1)
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
        line = (Mode(vector, axis, expr(1)), Mode(chunks // wide, axis, vector * wide))
        return Partition(extents, (Mode(wide, axis, vector),), line, tuple(conditions), threads)
    other = 1 - axis
    tall = maximum(threads // wide, 1)  # where more stand side by side than there are, the columns condition refuses
    conditions.append(
        Condition(f"{name} rows", extents[other] % tall == 0, "the rows of one pass divide the rows of the tile")
    )
    modes = (Mode(wide, axis, vector), Mode(tall, other, expr(1)))
    values = (
        Mode(vector, axis, expr(1)),
        Mode(chunks // wide, axis, vector * wide),
        Mode(extents[other] // tall, other, tall),
    )
    return Partition(extents, modes, values, tuple(conditions), threads)


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
    return Partition(
        (rows, columns),
        (Mode(wide, 1, across), Mode(tall, 0, down)),
        (
            Mode(across, 1, expr(1)),
            Mode(columns // (wide * across), 1, wide * across),
            Mode(down, 0, expr(1)),
            Mode(rows // (tall * down), 0, tall * down),
        ),
        conditions,
        tall * wide,
    )
