"""Values in registers that say where windows lie: what is computed of them stands behind them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tinygpu.language.partition import Partition
from tinygpu.language.tile import Pick, Tile
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Reg


@contextmanager
def behind(context: Context, tile: Tile) -> Iterator[None]:
    """A block of its own, behind the values that say where a window lies, for what is computed of them."""
    if tile.pick is None:
        yield
        return
    with context.emit.inner():
        yield


def named_by(context: Context, pick: Pick, who: Partition) -> list[Reg]:
    """For each value of the current thread the register that says where it lies, as one that this block is given."""
    held = context.tiles[pick.by.name]
    if pick.by.partition is None:
        raise LoweringError(f"{pick.by.name} does not lie in registers")
    order = broadcast(pick.by.partition.coalesced.spread(pick.along, len(who.shape)), who, pick.by.name)
    return [replace(held.register(int(value)), depth=len(context.emit.blocks) - 1) for value in order]
