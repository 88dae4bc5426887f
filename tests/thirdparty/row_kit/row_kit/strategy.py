"""Every point, the last one first."""

import numpy as np

from tinygpu.search import Searchable, Strategy
from tinygpu.search.searchable import rows
from tinygpu.search.seen import Seen
from tinygpu.search.strategy import ProvingProposals


def backwards(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int, /) -> ProvingProposals:
    """All points in the order opposite to the space's own."""
    for _, columns in reversed(list(space.columns_by_part())):
        for point in reversed(rows(columns)):
            if point not in seen:
                yield [point]
    return None


CHECKED: Strategy = backwards
