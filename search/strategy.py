"""What a strategy is: a generator that proposes points and is told what they gave."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import numpy as np

from tinygpu.search.evaluation import Evaluation
from tinygpu.search.searchable import Columns, Point, Searchable
from tinygpu.search.seen import Seen

# What a strategy returns that ends because no point that it did not try can be better than the best one.
PROVED: Final = "proof"

# A strategy yields points, or the columns of many points. It is sent their evaluations, in order; for columns an empty
# list. It knows neither the budget nor the clock: a longer run begins with the whole of a shorter one.
Proposals: TypeAlias = Generator["Sequence[Point] | Columns", Sequence[Evaluation], None]
# The same of a strategy that may end with PROVED.
ProvingProposals: TypeAlias = Generator["Sequence[Point] | Columns", Sequence[Evaluation], Literal["proof"] | None]


class Strategy(Protocol):
    """Proposes points of `space` until it has no more; every draw comes from `rng`.

    seen   what was evaluated before the strategy began (the warm start) and since; a point in it is never proposed
    batch  how many points to propose at once where the strategy need not wait for one to choose the next
    """

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int, /) -> ProvingProposals: ...
