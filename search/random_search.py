"""Random search: points drawn uniformly, none twice. The yardstick for every other strategy."""

from __future__ import annotations

import numpy as np

from tinygpu.search.searchable import Searchable
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals


def random_search(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """Uniform draws without replacement, until every point was evaluated."""
    unseen = UnseenPoints(space, seen, rng)
    while points := unseen.draw(batch):
        yield points
