"""The grid: tiles over the problem, and how they are dealt to CTAs."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, ceil_div, expr
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import ONE_TILE

ONE = expr(1)
# The part of a tile that a CTA works on, where several share each tile.
PART = "part0"
# The first of its rounds, where they share rounds in a row.
FIRST_ROUND = "round0"


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of the grid: tiles of `extent` elements over `size`; `index` is the tile's number in expressions.

    cluster  neighbouring tiles along the axis whose CTAs form a cluster
    """

    index: str
    size: Expr
    extent: Expr
    cluster: Expr = ONE


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The tiles of a program, and how they are dealt to CTAs.

    raster     tile rows that are visited together (L2 locality); 1 = row by row
    cluster    CTAs per cluster: the product over the axes
    scheduler  which CTA (or cluster) works on what
    """

    axes: tuple[Axis, ...]
    raster: Expr
    cluster: Expr
    scheduler: TileScheduler = ONE_TILE

    @property
    def tiles(self) -> Expr:
        """Tiles, or clusters of them."""
        out = expr(1)
        for axis in self.axes:
            out = out * ceil_div(axis.size, axis.extent * axis.cluster)
        return out
