"""Timing microbenchmarks: fewer and more trips in turns, and the figures that follow from the difference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from tinygpu.ptx.calibration.benchmark import CLOCKS, MOST_LAUNCHES, Launch, Microbenchmark, Reading
from tinygpu.ptx.calibration.chip import Chip
from tinygpu.ptx.calibration.launcher import Launcher, LaunchFailed, Loaded

# Above this relative spread (middle half of the rounds over their median) a figure is not used.
MOST_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often fewer and more trips take turns.

    rounds     of fewer and more trips
    warm_up_s  seconds of light work before the first microbenchmark, so that the clock is up
    """

    rounds: int = 9
    warm_up_s: float = 0.5

    def __post_init__(self) -> None:
        # Two launches check the data and warm up. Then each round has fewer and more trips, each launched once for
        # cycles, and twice for seconds.
        most = (MOST_LAUNCHES - 2) // 6
        if not 2 <= self.rounds <= most:
            raise ValueError(f"a microbenchmark is timed in 2 to {most} rounds, not {self.rounds}")


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure as it was measured.

    benchmark  name of the microbenchmark
    name       of the figure, in words
    field      the device's figure that it stands for; "" where it stands for none
    value      median of the rounds, in `unit`
    spread     middle half of the rounds, relative to the median
    formula    how it follows from the time and the emulator's count
    amount     the work of one trip that the formula divides by, or that is divided
    doubt      why it is not used, as a sentence; "" where it is
    """

    benchmark: str
    name: str
    field: str
    value: float
    unit: str
    spread: float
    formula: str
    amount: float
    doubt: str = ""

    @property
    def used(self) -> bool:
        """Whether it replaces a figure of the device."""
        return bool(self.field) and not self.doubt


@dataclass(frozen=True, slots=True)
class Failure:
    """A microbenchmark that gave no figure, and why, as a sentence; `skipped` where it is not meant for this GPU."""

    benchmark: str
    sentence: str
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one microbenchmark gave: figures, or a failure."""

    figures: tuple[Measured, ...] = ()
    failure: Failure | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "figures": [asdict(f) for f in self.figures],
            "failure": None if self.failure is None else asdict(self.failure),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        failure = data["failure"]
        return Outcome(
            tuple(Measured(**f) for f in data["figures"]), None if failure is None else Failure(**failure)
        )


def warm_up(clock: Microbenchmark, launcher: Launcher, chip: Chip, seconds: float, now: Callable[[], float]) -> None:
    """Light work until the clock is up; `now` is a clock of the host."""
    if seconds <= 0:
        return
    loaded = launcher.load(clock, clock.plan(chip, clock.trips[1]))
    try:
        begun = now()
        while now() - begun < seconds:
            loaded.run(clock.trips[1])
    finally:
        loaded.close()


def measure(benchmark: Microbenchmark, launcher: Launcher, chip: Chip, rounds: int = 9) -> Outcome:
    """The figures of one microbenchmark; raises LaunchFailed only where nothing more runs in this process."""
    if not benchmark.runs_on(chip):
        return Outcome(failure=Failure(benchmark.name, _not_here(benchmark, chip), skipped=True))
    try:
        return _measure(benchmark, launcher, chip, rounds)
    except LaunchFailed as failed:
        if failed.lost:
            raise
        return Outcome(failure=Failure(benchmark.name, str(failed)))


def _not_here(benchmark: Microbenchmark, chip: Chip) -> str:
    if not chip.runs(benchmark.target):
        return f"its PTX is of {benchmark.target}, which compute capability {chip.cc / 10:g} does not run"
    return f"compute capability {chip.cc / 10:g} has no such instruction: its assembler makes others of it"


def _measure(benchmark: Microbenchmark, launcher: Launcher, chip: Chip, rounds: int) -> Outcome:
    few, many = benchmark.trips
    launch = benchmark.plan(chip, many)
    loaded = launcher.load(benchmark, launch)
    try:
        # on fresh buffers, and before anything is timed: is it right?
        loaded.run(few)
        wrong = benchmark.check(launch, few, {b.name: loaded.read(b.name) for b in launch.all_buffers()})
        if wrong:
            return Outcome(failure=Failure(benchmark.name, f"the kernel is wrong on this GPU: {wrong}"))
        loaded.run(many)
        slopes: dict[tuple[str, float], list[float]] = {}
        for number in range(rounds):
            for key, slope in _round(benchmark, launch, loaded, number % 2 == 1).items():
                slopes.setdefault(key, []).append(slope)
    finally:
        loaded.close()
    per_trip = benchmark.per_trip(launch)
    return Outcome(tuple(_figure(benchmark, r, slopes, launch, per_trip, chip) for r in benchmark.readings))


Key = tuple[str, float]  # which clock, and for cycles which quantile of the SMs


def _keys(reading: Reading) -> tuple[Key, ...]:
    own = (reading.clock, reading.quantile if reading.clock == "cycles" else 0.0)
    return (own, ("cycles", 0.5)) if reading.of == "cycles" else (own,)


def _round(benchmark: Microbenchmark, launch: Launch, loaded: Loaded, reverse: bool) -> dict[Key, float]:
    """Time of one trip by each clock that is asked for; every other round begins with more trips."""
    wanted = {key for reading in benchmark.readings for key in _keys(reading)}
    few, many = benchmark.trips
    found: dict[int, dict[Key, float]] = {}
    for trips in (many, few) if reverse else (few, many):
        times: dict[Key, float] = {}
        if any(clock == "cycles" for clock, _ in wanted):
            loaded.run(trips)
            cycles = launch.cycles(loaded.read(CLOCKS))
            times |= {(c, q): float(np.quantile(cycles, q)) for c, q in wanted if c == "cycles"}
        for key in wanted:
            if key[0] == "seconds":
                # in a graph, so that the host does not stand between the event and the launch
                times[key] = loaded.seconds(trips, 1, "graph")
            elif key[0] == "stream":
                times[key] = loaded.seconds(1, trips, "stream", benchmark.held)
            elif key[0] == "graph":
                times[key] = loaded.seconds(1, trips, "graph")
        found[trips] = times
    return {key: (found[many][key] - found[few][key]) / (many - few) for key in wanted}


def _figure(
    benchmark: Microbenchmark, reading: Reading, slopes: Mapping[Key, Sequence[float]], launch: Launch,
    per_trip: Mapping[str, int], chip: Chip,
) -> Measured:  # fmt: skip
    own, *others = (slopes[key] for key in _keys(reading))
    if reading.of == "cycles":
        amounts: Sequence[float] = others[0]
    else:
        amounts = [1.0 if reading.of == "launches" else reading.amount(launch, per_trip, chip)] * len(own)
    field = reading.field if reading.replaces(chip) else ""

    def made(value: float, spread: float, doubt: str) -> Measured:
        return Measured(
            benchmark=benchmark.name, name=reading.name, field=field, value=value, unit=reading.unit, spread=spread,
            formula=reading.formula, amount=float(median(amounts)), doubt=doubt,
        )  # fmt: skip

    if min(own) <= 0 or min(amounts) <= 0:
        few, many = benchmark.trips
        return made(0.0, 0.0, f"{many} trips did not take longer than {few}")
    values = [reading.value(time, amount) for time, amount in zip(own, amounts, strict=True)]
    value = float(median(values))
    low, _, high = quantiles(values, n=4, method="inclusive")
    spread = float((high - low) / value)
    return made(value, spread, _doubt(reading, value, spread))


def _doubt(reading: Reading, value: float, spread: float) -> str:
    if not reading.least <= value <= reading.most:
        return f"{value:.4g} {reading.unit} is outside of what any GPU has, {reading.least:g} to {reading.most:g}"
    if spread > MOST_SPREAD:
        return f"the rounds differ by {100 * spread:.0f} %, and {100 * MOST_SPREAD:.0f} % is the most that is used"
    return ""
