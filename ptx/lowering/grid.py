"""Which tile a CTA works on."""

from __future__ import annotations

from tinygpu.program.nodes import PART
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number


def tile_counts(context: Context) -> list[Number]:
    """Tiles along each axis of the grid; where CTAs form clusters, clusters of tiles."""
    emit = context.emit
    out: list[Number] = []
    for axis in context.program.grid.axes:
        extent = int(axis.extent) * int(axis.cluster)
        out.append(emit.div(emit.add(context.number(axis.size), extent - 1), extent))
    return out


def unit_count(context: Context) -> Number:
    """Parts of all tiles: what is dealt to CTAs, or to clusters."""
    return context.emit.mul(tile_count(context), int(context.program.grid.parts))


def tile_count(context: Context) -> Number:
    """Tiles of the whole grid, or clusters of them."""
    total: Number = 1
    for count in tile_counts(context):
        total = context.emit.mul(total, count)
    return total


def tile_indices(context: Context, number: Number) -> None:
    """Splits the number of a tile's part (or of a cluster of them) into the part, and tile numbers along the axes.

    The parts of a tile follow each other, so that they are done at the same time. The last axis runs fastest. With
    groups of g, g rows of tiles are visited column by column before the next g rows, so that CTAs that run at the same
    time share rows and columns in L2.
    """
    grid, emit = context.program.grid, context.emit
    counts = tile_counts(context)
    parts = int(grid.parts)
    context.indices[PART] = emit.rem(number, parts)
    number = emit.div(number, parts)
    context.tile = number
    group = int(grid.group)
    axes = grid.axes
    found: dict[str, Number] = {}
    if len(axes) < 2 or group == 1:
        for axis, count in zip(reversed(axes[1:]), reversed(counts[1:]), strict=True):
            found[axis.index] = emit.rem(number, count)
            number = emit.div(number, count)
        found[axes[0].index] = number
    else:
        if len(axes) > 3:
            raise LoweringError(f"a grouped grid has two or three axes, not {len(axes)}")
        for axis in axes[:-2]:
            inner = emit.mul(counts[-2], counts[-1])
            found[axis.index] = emit.div(number, inner)
            number = emit.rem(number, inner)
        rows, columns = counts[-2], counts[-1]
        per_group = emit.mul(columns, group)
        first = emit.mul(emit.div(number, per_group), group)
        inside = emit.rem(number, per_group)
        height = emit.minimum(emit.sub(rows, first), group)
        found[axes[-2].index] = emit.add(emit.rem(inside, height), first)
        found[axes[-1].index] = emit.div(inside, height)
    for place, axis in enumerate(axes):
        first_of_cluster = emit.mul(found[axis.index], int(axis.cluster))
        context.indices[axis.index] = emit.add(first_of_cluster, context.cluster_rank(place))
