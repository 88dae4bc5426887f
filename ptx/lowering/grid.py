"""Which tile a CTA works on."""

from __future__ import annotations

from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number


def tile_indices(context: Context) -> None:
    """Splits the CTA number into tile numbers.

    The last axis runs fastest. With groups of g, g rows of tiles are visited column by column before the next g rows,
    so that CTAs that run at the same time share rows and columns in L2.
    """
    grid = context.program.grid
    if grid.persistent or int(grid.cluster) != 1:
        raise LoweringError("persistent grids and clusters are not lowered for sm_80")
    emit = context.emit
    cta: Number = emit.computed("r", "mov.u32 {d}, %ctaid.x;")
    counts = [
        emit.div(emit.add(context.number(a.size), int(a.extent) - 1), int(a.extent)) for a in grid.axes
    ]
    group = int(grid.group)
    axes = grid.axes
    if len(axes) < 2 or group == 1:
        for axis, count in zip(reversed(axes[1:]), reversed(counts[1:]), strict=True):
            context.indices[axis.index] = emit.rem(cta, count)
            cta = emit.div(cta, count)
        context.indices[axes[0].index] = cta
        return
    for axis in axes[:-2]:
        inner = emit.mul(counts[-2], counts[-1])
        context.indices[axis.index] = emit.div(cta, inner)
        cta = emit.rem(cta, inner)
    if len(axes) > 3:
        raise LoweringError(f"a grouped grid has two or three axes, not {len(axes)}")
    rows, columns = counts[-2], counts[-1]
    per_group = emit.mul(columns, group)
    first = emit.mul(emit.div(cta, per_group), group)
    inside = emit.rem(cta, per_group)
    height = emit.minimum(emit.sub(rows, first), group)
    context.indices[axes[-2].index] = emit.add(emit.rem(inside, height), first)
    context.indices[axes[-1].index] = emit.div(inside, height)
