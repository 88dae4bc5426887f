"""The strategy "rl" by name: with the policy that comes with the package."""

from __future__ import annotations

import numpy as np

from tinygpu.search.searchable import Searchable
from tinygpu.search.seen import Seen
from tinygpu.search.strategy import Proposals


def rl(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """A trained policy chooses parameter after parameter: its best guesses first, then adapted to what they gave."""
    # The policy looks at machines and their counts; whoever does not ask for it should not pay for loading them.
    from tinygpu.search.rl.policy import shipped_policy
    from tinygpu.search.rl.strategy import PolicySearch

    yield from PolicySearch(shipped_policy())(space, seen, rng, batch)
