"""What every CTA of a run works on, as the tile scheduler of its grid says."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tinygpu.expressions import evaluate
from tinygpu.program import nodes as n
from tinygpu.schedulers.raster import place_of
from tinygpu.schedulers.run_time import Numbers
from tinygpu.schedulers.scheduler import TileScheduler


@dataclass(frozen=True, slots=True)
class Work:
    """What a CTA does of one tile.

    tile    numbers along the axes of the grid
    part    which of the equal parts of the tile
    rounds  (first, how many) of divided loops, where CTAs share rounds in a row; None: those that the part has
    owners  CTAs that do something of the tile
    """

    tile: tuple[int, ...]
    part: int
    rounds: tuple[int, int] | None
    owners: int


@dataclass(frozen=True, slots=True)
class Dealing:
    """A grid with its numbers.

    counts     clusters of tiles along each axis
    cluster    CTAs of a cluster along each axis
    raster     rows of clusters that are visited together
    rounds     of divided loops, of a whole tile
    clusters   that are launched
    """

    scheduler: TileScheduler
    counts: tuple[int, ...]
    cluster: tuple[int, ...]
    raster: int
    rounds: int
    clusters: int

    def ctas(self) -> Iterator[list[Work]]:
        """What each CTA does, in order; those of a cluster follow each other, the last axis fastest."""
        for number in range(self.clusters):
            run = Numbers(number, self.clusters, self.counts, self.rounds)
            walk = self.scheduler.walk(run, (0, 1))
            taken = [walk.work(run, item) for item in walk.items()]
            mine = [(work, place_of(run, work.tile, self.counts, self.raster)) for work in taken]
            for rank in range(math.prod(self.cluster)):
                places = np.unravel_index(rank, self.cluster)
                yield [
                    Work(
                        tuple(int(at * c + r) for at, c, r in zip(tile, self.cluster, places, strict=True)),
                        work.slice,
                        work.rounds,
                        walk.owners(run, work, work.tile)[1] if walk.shared(run, work) else 1,
                    )
                    for work, tile in mine
                ]


def deal(grid: n.Grid, sizes: Mapping[str, int], ctas: int | None, rounds: Callable[[], int]) -> Dealing:
    """How the tiles of a filled-in grid are dealt.

    ctas    that are launched of a persistent grid, at most; None: four clusters of them
    rounds  of a whole tile, where they are shared in a row
    """
    cluster = tuple(int(a.cluster) for a in grid.axes)
    counts = tuple(int(evaluate(a.clusters, sizes)) for a in grid.axes)
    scheduler = grid.scheduler.settled()
    per_tile = rounds() if scheduler.deals_rounds else 1
    most = PERSISTENT_CLUSTERS if ctas is None else -(-ctas // math.prod(cluster))
    clusters = scheduler.launch_rule.clusters(math.prod(counts), per_tile, most)
    return Dealing(scheduler, counts, cluster, int(grid.raster), per_tile, clusters)


# Clusters of a persistent grid that are run where nobody says how many are resident: enough to share tiles.
PERSISTENT_CLUSTERS = 4
