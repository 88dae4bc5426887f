"""Tiles in equal slices (split-K), one slice or as many as a number says: to a CTA each, or dealt round robin."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, where
from tinygpu.schedulers.run_time import RunTime, Value
from tinygpu.schedulers.scheduler import ONE, Sharing, TileScheduler, Walk, Work


@dataclass(frozen=True, slots=True)
class SlicedWalk(Walk):
    """Items are slices of tiles; those of a tile follow each other, so that they are done at the same time."""

    slices: int = 1

    def work(self, run: RunTime, item: Value) -> Work:
        part = run.rem(item, self.slices)
        return Work(run.div(item, self.slices), part)

    def shared(self, run: RunTime, work: Work) -> bool:
        return self.slices > 1

    def owners(self, run: RunTime, work: Work, tile: Value) -> tuple[int, int]:
        return 0, self.slices

    def own_place(self, run: RunTime, work: Work) -> Value:
        return work.slice


@dataclass(frozen=True, slots=True, eq=False)
class Sliced(TileScheduler):
    """What both have in common.

    slices  of each tile
    """

    slices: Expr = ONE

    @property
    def title(self) -> str:
        how = " persistent" if self.persistent else ""
        return how if self.slices.same(1) else f"{how}; {self.slices} slices of each tile"

    @property
    def places(self) -> tuple[int, int]:
        return int(self.slices), 0

    def sharing(self, tiles: Expr, cluster: Expr) -> tuple[Sharing, ...]:
        """Each leaves its values, and the last one takes those of all, for which everybody waits."""
        slices = self.slices
        if slices.same(1):
            return ()
        return (Sharing(where(slices > 1, 1, 0), ONE, ONE, slices, slices - 1, ONE * 2, (ONE, slices)),)


@dataclass(frozen=True, slots=True, eq=False)
class OneTile(Sliced):
    """Every CTA (or cluster) has one slice of one tile: data-parallel, or split-K."""

    @property
    def in_order(self) -> bool:
        return self.slices.same(1)

    def walk(self, run: RunTime, share: tuple[int, int]) -> SlicedWalk:
        return SlicedWalk(run.own(), slices=int(self.slices))


ONE_TILE = OneTile()


@dataclass(frozen=True, slots=True, eq=False)
class StaticPersistent(Sliced):
    """As many CTAs as are resident; cluster c takes the slices c, c + clusters, c + 2 clusters, ..."""

    @property
    def persistent(self) -> bool:
        return True

    def walk(self, run: RunTime, share: tuple[int, int]) -> SlicedWalk:
        rest, every = share
        own, clusters = run.own(), run.launched()
        begin, step = run.add(own, run.mul(clusters, rest)), run.mul(clusters, every)
        return SlicedWalk(begin, step, run.mul(run.tiles(), int(self.slices)), int(self.slices))
