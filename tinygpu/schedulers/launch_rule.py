"""How many clusters of CTAs a launch has, as plain numbers that a kernel's description holds."""

from __future__ import annotations

from dataclasses import dataclass

# Where clusters share rounds in a row: rounds of one tile, and clusters, at most. Those of two tiles for each cluster
# are counted in 32 bits.
MOST_ROUNDS, MOST_CLUSTERS = 2**17, 2**14


@dataclass(frozen=True, slots=True)
class LaunchRule:
    """What decides the number of clusters.

    persistent  clusters take one unit after another, so that any number of them can be launched
    slices      units of every tile
    by_rounds   a cluster may have as little as one round of a tile
    """

    persistent: bool
    slices: int = 1
    by_rounds: bool = False

    def clusters(self, tiles: int, rounds: int, most: int | None) -> int:
        """Clusters for so many tiles (or clusters of them); of a persistent grid no more than `most`.

        Where `most` is not given, they are as many as units.
        """
        units = tiles * self.slices
        if not self.persistent or most is None:
            return units
        if self.by_rounds:
            units, most = units * rounds, min(most, MOST_CLUSTERS)
        return max(1, min(units, most))
