"""The grid: tiles over the problem, and how they are dealt to CTAs."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, ceil_div, expr, maximum, minimum
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
    groups   parts of the axis, one behind the other, none of whose tiles has elements of two: of any length, as data
             say. However long they are, there are as many tiles as for one of them, and one more for each other
    """

    index: str
    size: Expr
    extent: Expr
    cluster: Expr = ONE
    groups: Expr = ONE

    @property
    def tiles(self) -> Expr:
        """Tiles along the axis: of groups, as many as there can be."""
        one = ceil_div(self.size, self.extent)
        return one if self.groups.same(1) else one + self.groups - 1

    @property
    def clusters(self) -> Expr:
        """Clusters of tiles along the axis."""
        return ceil_div(self.size, self.extent * self.cluster) if self.groups.same(1) else self.tiles

    @property
    def filled(self) -> Expr:
        """Tiles that have elements, as predictions take it: of each group half a tile is empty in the mean, of many
        more groups than elements each element is one.
        """
        if self.groups.same(1):
            return self.tiles
        there = self.size * self.groups // (self.size + self.groups)
        return minimum(self.size, maximum(there, ceil_div(self.size, self.extent) + self.groups // 2), self.tiles)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The tiles of a program, and how they are dealt to CTAs.

    raster     tile rows that are visited together (L2 locality); 1 = row by row
    cluster    CTAs per cluster: the product over the axes
    scheduler  which CTA (or cluster) works on what
    portable   every GPU with clusters takes clusters of this size
    """

    axes: tuple[Axis, ...]
    raster: Expr
    cluster: Expr
    scheduler: TileScheduler = ONE_TILE
    portable: bool = True

    @property
    def tiles(self) -> Expr:
        """Tiles, or clusters of them."""
        out = expr(1)
        for axis in self.axes:
            out = out * axis.clusters
        return out
