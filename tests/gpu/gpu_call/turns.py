"""Several contenders timed in turns: the protocol of the worker, for any number of kernels, whoever made them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from tinygpu.ptx.measuring.statistics import LEAST_NOISE, Ratio, ratio, spread

# A set of operands is forgotten by the L2 when so many times its size was touched since.
L2_FACTOR = 2
MOST_SETS = 32


class ContenderFailed(RuntimeError):
    """A contender whose launch failed while it was timed.

    name  of the contender
    """

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        super().__init__(why)


class Recorded(Protocol):
    """Launches that were recorded once and run as often as asked."""

    def sample(self) -> float:
        """Seconds per launch of one run."""

    def close(self) -> None:
        """Gives it back."""


class Stage(Protocol):
    """What records and times launches on one GPU.

    sets  of operands, so many that a set is cold when its turn comes
    """

    sets: int

    def single(self, launch: Callable[[int], None]) -> float:
        """Seconds of one launch on the first set, about, after one that brought it there."""

    def record(self, launch: Callable[[int], None], launches: int, sets: int) -> Recorded:
        """So many launches in a row, which go through the first `sets` sets."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to compute a problem.

    launch  launches once, on the stage's stream, for the set with a number
    what    which kernel it is, for the record
    """

    name: str
    launch: Callable[[int], None]
    what: str = ""


@dataclass(frozen=True, slots=True)
class Turns:
    """How contenders are timed; see `tinygpu.ptx.measuring.timing.Protocol`.

    rounds       in which each has one cold sample, in random order
    warm_rounds  the same with one set of operands, whose data stay in the L2 where they fit
    """

    rounds: int = 20
    warm_rounds: int = 8
    sample_s: float = 2e-3
    warm_up_s: float = 25e-3
    most_launches: int = 200

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# To find the best of many: fewer samples, cold alone.
SELECTION = Turns(rounds=3, warm_rounds=0, sample_s=1e-3, warm_up_s=4e-3, most_launches=100)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per launch of one contender, round by round."""

    cold: tuple[float, ...]
    warm: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        warm = spread(self.warm).to_json() if self.warm else None
        return {"cold": spread(self.cold).to_json(), "warm": warm}


def sets_for(bytes_per_set: int, l2_bytes: int, free_bytes: int) -> int:
    """Sets of operands so that each is cold when its turn comes; two at least. Half of the free memory is left alone.

    >>> sets_for(400 << 20, 60 << 20, 100 << 30), sets_for(50 << 20, 60 << 20, 100 << 30)
    (2, 4)
    """
    wanted = 1 + math.ceil(L2_FACTOR * l2_bytes / bytes_per_set)
    fit = int(free_bytes // 2 // bytes_per_set)
    return max(2, min(wanted, fit, MOST_SETS))


def take_turns(stage: Stage, contenders: Sequence[Contender], how: Turns, seed: int) -> dict[str, Times]:
    """The times of contenders, by name. Raises ContenderFailed."""
    if len({c.name for c in contenders}) != len(contenders):
        raise ValueError("two contenders have one name")
    rng = np.random.default_rng(seed)
    singles = []
    for contender in contenders:
        with _blaming(contender):
            singles.append(stage.single(contender.launch))
    taken: list[tuple[list[float], list[float]]] = [([], []) for _ in contenders]
    for kind, rounds in ((0, how.rounds), (1, how.warm_rounds)):
        if not rounds:
            continue
        sets = stage.sets if kind == 0 else 1
        recorded: list[Recorded] = []
        try:
            for contender, seconds in zip(contenders, singles, strict=True):
                # a whole number of trips through the sets, so that no set is touched more often than another
                trips = max(1, round(min(how.sample_s / seconds, how.most_launches) / sets))
                with _blaming(contender):
                    recorded.append(stage.record(contender.launch, trips * sets, sets))
            for contender, run, seconds in zip(contenders, recorded, singles, strict=True):
                with _blaming(contender):
                    run.sample()  # brings its code and its graph to the GPU
                    for _ in range(math.ceil(how.warm_up_s / max(how.sample_s, seconds * sets))):
                        run.sample()
            for _ in range(rounds):
                for which in rng.permutation(len(contenders)).tolist():
                    with _blaming(contenders[which]):
                        taken[which][kind].append(recorded[which].sample())
        finally:
            for run in recorded:
                with suppress(RuntimeError):  # after a fault nothing can be given back any more
                    run.close()
    return {
        c.name: Times(tuple(cold), tuple(warm)) for c, (cold, warm) in zip(contenders, taken, strict=True)
    }


@contextmanager
def _blaming(contender: Contender) -> Iterator[None]:
    """What fails within is this contender's: every sample waits for its end, so that nobody else's comes to light."""
    try:
        yield
    except RuntimeError as error:
        raise ContenderFailed(contender.name, str(error)) from error


def best_of(stage: Stage, contenders: Sequence[Contender], seed: int) -> tuple[Contender, dict[str, float]]:
    """The contender with the least median of a few cold samples, and the medians."""
    times = take_turns(stage, contenders, SELECTION, seed)
    medians = {name: spread(t.cold).median for name, t in times.items()}
    return min(contenders, key=lambda c: medians[c.name]), medians


def compared(times: Mapping[str, Times], first: str, second: str, noise: float = LEAST_NOISE) -> dict[str, Any]:
    """How the first one's cold times stand to those of the second: below 1 it is faster."""
    found: Ratio = ratio(times[first].cold, times[second].cold)
    return {**found.to_json(), "verdict": found.verdict(noise)}
