"""What every CTA of a run works on: tiles, parts of tiles, or rounds of tiles in a row.

    one each     as many clusters of CTAs as there are parts of tiles, or clusters of tiles
    persistent   cluster c takes the units c, c + clusters, c + 2 clusters, ...
    stream-K     the rounds of the first tiles are cut into one run for each cluster; the others are dealt whole
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tinygpu.expressions import evaluate
from tinygpu.program import nodes as n


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

    counts    clusters of tiles along each axis
    cluster   CTAs of a cluster along each axis
    group     rows of clusters that are visited together
    parts     of each tile
    rounds    of a whole tile that clusters share in a row; 0 where they share none
    clusters  that are launched
    """

    counts: tuple[int, ...]
    cluster: tuple[int, ...]
    group: int
    parts: int
    rounds: int
    clusters: int

    @property
    def tiles(self) -> int:
        """Tiles, or clusters of them."""
        return math.prod(self.counts)

    def ctas(self) -> Iterator[list[Work]]:
        """What each CTA does, in order; those of a cluster follow each other, the last axis fastest."""
        taken = self._shares() if self.rounds else self._units()
        for mine in taken:
            for rank in range(math.prod(self.cluster)):
                places = _digits(rank, self.cluster)
                yield [
                    Work(
                        tuple(at * c + r for at, c, r in zip(self.tile(tile), self.cluster, places, strict=True)),
                        part, rounds, owners,
                    )
                    for tile, part, rounds, owners in mine
                ]  # fmt: skip

    def tile(self, number: int) -> tuple[int, ...]:
        """Place of a tile along the axes; with groups, rows are visited column by column, a group after the other."""
        if len(self.counts) < 2 or self.group == 1:
            return _digits(number, self.counts)
        rows, columns = self.counts[-2:]
        outer, inside = divmod(number, rows * columns)
        groups, inside = divmod(inside, columns * self.group)
        height = min(rows - groups * self.group, self.group)
        return (*_digits(outer, self.counts[:-2]), groups * self.group + inside % height, inside // height)

    def _units(self) -> Iterator[list[tuple[int, int, tuple[int, int] | None, int]]]:
        units = self.tiles * self.parts
        for cluster in range(self.clusters):
            mine = range(cluster, units, self.clusters)
            yield [(unit // self.parts, unit % self.parts, None, self.parts) for unit in mine]

    def _shares(self) -> Iterator[list[tuple[int, int, tuple[int, int] | None, int]]]:
        busy = min(self.clusters, self.tiles * self.rounds)
        whole = max(self.tiles // busy, 1) - 1  # tiles that every cluster takes alone
        shared = self.tiles - whole * busy
        each, longer = divmod(shared * self.rounds, busy)
        begins = [c * each + min(c, longer) for c in range(busy + 1)]
        owners = [0] * shared
        for begin, end in itertools.pairwise(begins):
            for tile in range(begin // self.rounds, -(-end // self.rounds)):
                owners[tile] += 1
        for cluster in range(self.clusters):
            mine: list[tuple[int, int, tuple[int, int] | None, int]] = []
            at, end = (begins[cluster], begins[cluster + 1]) if cluster < busy else (0, 0)
            while at < end:
                tile, first = divmod(at, self.rounds)
                trips = min(self.rounds - first, end - at)
                mine.append((tile, 0, (first, trips), owners[tile]))
                at += trips
            if cluster < busy:
                alone = range(shared + cluster, self.tiles, busy)
                mine += [(tile, 0, (0, self.rounds), 1) for tile in alone]
            yield mine


def _digits(number: int, extents: tuple[int, ...]) -> tuple[int, ...]:
    """The digits of a number, the last one fastest."""
    out: list[int] = []
    for extent in reversed(extents[1:]):
        number, digit = divmod(number, extent)
        out.append(digit)
    return (number, *reversed(out)) if extents else ()


def deal(grid: n.Grid, sizes: Mapping[str, int], ctas: int | None, rounds: Callable[[], int]) -> Dealing:
    """How the tiles of a filled-in grid are dealt.

    ctas    that are launched of a persistent grid, at most; None: four clusters of them
    rounds  of a whole tile, where they are shared in a row
    """
    cluster = tuple(int(a.cluster) for a in grid.axes)
    counts = tuple(
        -(-evaluate(a.size, sizes) // (int(a.extent) * c)) for a, c in zip(grid.axes, cluster, strict=True)
    )
    parts, streamed = int(grid.parts), bool(int(grid.stream_k))
    units = math.prod(counts) * parts
    per_tile = rounds() if streamed else 0
    clusters = units
    if grid.persistent:
        most = PERSISTENT_CLUSTERS if ctas is None else -(-ctas // math.prod(cluster))
        clusters = max(1, min(units * max(per_tile, 1), most))
    return Dealing(counts, cluster, int(grid.group), parts, per_tile, clusters)


# Clusters of a persistent grid that are run where nobody says how many are resident: enough to share tiles.
PERSISTENT_CLUSTERS = 4
