"""Times compared: medians with their spread, ratios of paired times, and when a difference is none.

Times drift with the heat of the chip, so two kernels are never timed one after the other but in turns, and compared
pair by pair: what drifts is the same in both. Nothing is assumed of how times are distributed; an interval for the
median of the ratios comes from their order alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

Verdict = Literal["faster", "slower", "tie"]
# How often an interval holds the median that it is for.
CONFIDENCE = 0.99
# One kernel under two names differs by this much for reasons that no sample shows: where memory lies, which SMs run it.
LEAST_NOISE = 0.002


@dataclass(frozen=True, slots=True)
class Spread:
    """Times of one kernel, in seconds per launch.

    low, high  the quartiles
    """

    median: float
    low: float
    high: float
    least: float
    count: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Time of one kernel over the time of another.

    low, high  an interval that holds the median ratio with CONFIDENCE; 0 and infinity where there are too few pairs
    """

    median: float
    low: float
    high: float
    pairs: int

    def verdict(self, noise: float) -> Verdict:
        """Whether the first kernel is faster; a tie where the interval reaches into what is noise.

        noise  relative
        """
        if self.high < 1 - noise:
            return "faster"
        if self.low > 1 + noise:
            return "slower"
        return "tie"

    def to_json(self) -> dict[str, Any]:
        high = self.high if math.isfinite(self.high) else None
        return {"median": self.median, "low": self.low, "high": high, "pairs": self.pairs}


def spread(seconds: Sequence[float]) -> Spread:
    """The median of at least one time, with quartiles."""
    if not len(seconds):
        raise ValueError("there is no median of no times")
    low, median, high = np.percentile(np.asarray(seconds, dtype=np.float64), [25, 50, 75])
    return Spread(float(median), float(low), float(high), float(np.min(seconds)), len(seconds))


def ratio(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """The ratio of paired times, first over second."""
    if len(first) != len(second) or not len(first):
        raise ValueError(f"ratios are of pairs: {len(first)} times do not pair with {len(second)}")
    if min(*first, *second) <= 0:
        raise ValueError("a time is more than 0 seconds")
    ordered = np.sort(np.log(np.asarray(first) / np.asarray(second)))
    rank = order_rank(len(ordered))
    middle = math.exp(float(np.median(ordered)))
    if rank is None:
        return Ratio(middle, 0.0, math.inf, len(ordered))
    return Ratio(middle, math.exp(ordered[rank]), math.exp(ordered[-1 - rank]), len(ordered))


def order_rank(count: int, confidence: float = CONFIDENCE) -> int | None:
    """The largest r such that the r-th least and the r-th greatest of `count` values (from 0) enclose the median.

    Each value is below the median with probability 1/2, so that the median is below the r-th least with that of at most
    r successes in `count` tosses (David and Nagaraja, Order Statistics, 7.1). None where even the extremes do not
    enclose it with that confidence.

    >>> order_rank(7), order_rank(8), order_rank(30)
    (None, 0, 7)
    """
    tail, below = (1 - confidence) / 2, 0.0
    rank = None
    for r in range(count // 2):
        below += math.comb(count, r) / 2**count
        if below > tail:
            break
        rank = r
    return rank


def noise_of(same: Ratio) -> float:
    """The relative noise that timing one kernel under two names shows: how far its interval is from 1."""
    if not math.isfinite(same.high):
        return LEAST_NOISE
    return max(LEAST_NOISE, same.high - 1, 1 - same.low)


def out_of_race(first: Sequence[float], second: Sequence[float], pairs: int, factor: float) -> bool:
    """Whether a kernel need not be timed further: in all of at least `pairs` pairs it took `factor` as long."""
    if len(first) < pairs:
        return False
    return all(a > factor * b for a, b in zip(first, second, strict=True))
