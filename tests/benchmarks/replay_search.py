"""Search over measured spaces, beside Kernel Tuner: python -m tests.benchmarks.replay_search FOLDER [-o FILE.json]

FOLDER holds spaces that somebody measured whole: cache files of Kernel Tuner or T4 results, plain or compressed. They
are third-party data and not part of the project. Every method starts cold, knows nothing but the space, and may try the
same number of points; a failed point counts as an evaluation, a point that is asked for again does not. For each budget
the least value found is divided by the least value of the space; reported is the median of that ratio over the seeds
with its bootstrap 95 % interval, and the geometric mean of the medians over the spaces.

The strategies of Kernel Tuner run with their default options against its own simulation of a device. They need the
packages of the extra `bench-search`; without them, or with --peers none, our side runs alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.search import minimize
from tinygpu.search.replay.files import load_replay
from tinygpu.search.replay.space import ReplaySpace
from tinygpu.search.searchable import Value

Floats = NDArray[np.float64]
# A method searches a space with a seed: the value of each new point that it tried, in order; infinity for a failure.
Method = Callable[[ReplaySpace, int, int], Sequence[float]]

BUDGETS = (10, 20, 50, 100, 200)
PEERS = ("random_sample", "genetic_algorithm", "pso", "hybrid_vndx", "adaptive_tabu_greywolf")
# The strongest of the peers on known spaces, which ours is compared with.
RIVAL = "adaptive_tabu_greywolf"
RESAMPLES = 4_000


def ours(strategy: str) -> Method:
    """One of the strategies of `minimize`."""

    def method(space: ReplaySpace, seed: int, evaluations: int) -> Sequence[float]:
        history = minimize(space, space, strategy=strategy, evaluations=evaluations, seed=seed).history
        return [trial.evaluation.cost for trial in history]

    return method


class KernelTuner:
    """One strategy of Kernel Tuner, on its own space and its own simulated device."""

    def __init__(self, strategy: str) -> None:
        interface = importlib.import_module("kernel_tuner.interface")
        self._strategy = interface.strategy_map[strategy]
        self._options = interface.Options
        self._util = importlib.import_module("kernel_tuner.util")
        self._searchspace = importlib.import_module("kernel_tuner.searchspace").Searchspace
        self._runner = importlib.import_module("kernel_tuner.runners.simulation").SimulationRunner
        # what was made of the space that was searched last; other spaces may have the same title
        self._made: tuple[ReplaySpace, Any, dict[str, dict[str, Any]]] | None = None

    def __call__(self, space: ReplaySpace, seed: int, evaluations: int) -> Sequence[float]:
        if self._made is None or self._made[0] is not space:
            self._made = (space, *self._make(space))
        _, searchspace, cache = self._made
        options = self._options
        runner = self._runner(
            None, options(kernel_name=space.kernel), options(quiet=True, device_name=space.device), 1, None
        )
        evaluations = min(evaluations, space.size)
        tuning = options(
            objective=["time"],
            objective_higher_is_better=[False],
            strategy_options=options(max_fevals=evaluations),
            max_fevals=evaluations,
            budget=self._util.TuningBudget(None, evaluations),
            cache=cache,
            tune_params=searchspace.tune_params,
            restrictions=[],
            metrics=None,
            verbose=False,
            seed=seed,
        )
        random.seed(seed)
        np.random.seed(seed)
        tried: dict[tuple[Any, ...], float] = {}
        for result in self._strategy.tune(searchspace, runner, tuning):
            key = tuple(result[name] for name in space.names)
            tried.setdefault(key, math.inf if "__error__" in result else float(result["time"]))
        return list(tried.values())[:evaluations]

    def _make(self, space: ReplaySpace) -> tuple[Any, dict[str, dict[str, Any]]]:
        cache = {}
        for trial in space.trials:
            point = {name: _number(trial.point[name]) for name in space.names}
            outcome = (
                {"time": trial.value}
                if trial.failure is None
                else {"time": self._util.RuntimeFailedConfig(), "__error__": self._util.RuntimeFailedConfig()}
            )
            cache[",".join(map(str, point.values()))] = point | outcome
        parameters = {name: [_number(value) for value in values] for name, values in space.parameters.items()}
        points = {tuple(entry[name] for name in space.names) for entry in cache.values()}
        # as a function of all parameters: that is how Kernel Tuner itself reads a cache file back as a space
        admitted = importlib.import_module("constraint").FunctionConstraint(lambda *values: values in points)
        return self._searchspace(parameters, [admitted], 10**9), cache


def _number(value: Value) -> int | float | str:
    """Our spaces keep fractions as words; Kernel Tuner gets numbers."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one space.

    ratios   (seeds, budgets) least value found over the least value of the space; infinity before the first success
    seconds  wall time of one search, on average
    """

    ratios: Floats
    seconds: float


def run(method: Method, space: ReplaySpace, seeds: int) -> Run:
    """All seeds, each with the greatest budget; the smaller ones are its beginning."""
    ratios = np.full((seeds, len(BUDGETS)), math.inf)
    begun = time.perf_counter()
    for seed in range(seeds):
        best = np.minimum.accumulate(method(space, seed, BUDGETS[-1])) / space.optimum
        # a method that stops early keeps what it has
        ratios[seed] = [best[min(budget, len(best)) - 1] for budget in BUDGETS]
    return Run(ratios, (time.perf_counter() - begun) / seeds)


def medians(ratios: Floats, rng: np.random.Generator) -> Floats:
    """(resamples + 1, budgets) medians over the seeds; the first of all seeds, the others of seeds drawn from them."""
    drawn = rng.integers(len(ratios), size=(RESAMPLES, len(ratios)))
    out: Floats = np.concatenate([np.median(ratios, axis=0)[None], np.median(ratios[drawn], axis=1)])
    return out


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with the interval that holds it with 95 % confidence, by resampling the seeds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def intervals(resampled: Floats) -> list[Interval]:
    """One for each budget; `resampled` is (resamples + 1, budgets), the value itself first."""
    low, high = np.quantile(resampled[1:], (0.025, 0.975), axis=0, method="nearest")
    return [Interval(*map(float, row)) for row in zip(resampled[0], low, high, strict=True)]


def compare(mine: Floats, others: Floats) -> list[str]:
    """For each budget "ahead", "level" or "behind": behind where mine / others exceeds 1 beyond the interval."""
    with np.errstate(invalid="ignore"):
        verdicts = []
        for interval in intervals(np.where(np.isinf(mine) & np.isinf(others), 1.0, mine / others)):
            verdicts.append("behind" if interval.low > 1 else "ahead" if interval.high < 1 else "level")
        return verdicts


def report(runs: Mapping[str, Mapping[str, Run]], mine: str) -> tuple[list[str], dict[str, Any]]:
    """The printed lines, and the same for JSON. `runs` is by space, then by method."""
    lines: list[str] = []
    data: dict[str, Any] = {"budgets": list(BUDGETS), "spaces": {}, "geometric mean": {}}
    resampled: dict[str, list[Floats]] = {}
    for title, by_method in runs.items():
        lines += ["", title, _row("after evaluations", [str(budget) for budget in BUDGETS])]
        data["spaces"][title] = {}
        for name, one in by_method.items():
            draws = medians(one.ratios, np.random.default_rng(0))
            resampled.setdefault(name, []).append(draws)
            lines.append(_row(name, [str(i) for i in intervals(draws)]) + f"{one.seconds:8.2f} s")
            data["spaces"][title][name] = _json(intervals(draws)) | {"seconds": one.seconds}
        if mine in by_method and RIVAL in by_method:
            verdicts = compare(resampled[mine][-1], resampled[RIVAL][-1])
            lines.append(_row(f"{mine} against {RIVAL}", verdicts))
            data["spaces"][title][mine][f"against {RIVAL}"] = verdicts
    lines += ["", "geometric mean of the medians over the spaces", _row("after evaluations", list(map(str, BUDGETS)))]
    for name, draws_by_space in resampled.items():
        means = intervals(np.exp(np.mean(np.log(np.stack(draws_by_space)), axis=0)))
        lines.append(_row(name, [str(i) for i in means]))
        data["geometric mean"][name] = _json(means)
    return lines, data


def _row(name: str, cells: Sequence[str]) -> str:
    return f"{name:40s}" + "".join(f"{cell:>22s}" for cell in cells)


def _json(figures: Sequence[Interval]) -> dict[str, Any]:
    columns = {"median": [i.value for i in figures], "low": [i.low for i in figures], "high": [i.high for i in figures]}
    return {name: [v if math.isfinite(v) else None for v in values] for name, values in columns.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("replay_search.json"))
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--strategies", default="auto", help="of ours, with commas; the first one is compared")
    parser.add_argument("--peers", default=",".join(PEERS), help="of Kernel Tuner, with commas; or none")
    parser.add_argument("--match", default="", help="only files with this in their name")
    given = parser.parse_args(arguments)
    files = sorted(f for f in given.folder.glob("*.json*") if given.match in f.name) if given.folder.is_dir() else []
    if not files:
        print(f"skipped: there are no measured spaces (*.json, *.json.xz) in {given.folder}")
        return 0
    mine = given.strategies.split(",")
    methods: dict[str, Method] = {name: ours(name) for name in mine}
    peers = [] if given.peers == "none" else given.peers.split(",")
    versions = {"tinygpu": metadata.version("tinygpu"), "numpy": np.__version__}
    try:
        methods.update({name: KernelTuner(name) for name in peers})
        versions |= {"kernel_tuner": metadata.version("kernel_tuner")} if peers else {}
    except ImportError as missing:
        print(f"without the peers: {missing}; they need pip install 'tinygpu[bench-search]'")
    warnings.filterwarnings("ignore", module="kernel_tuner")
    runs: dict[str, dict[str, Run]] = {}
    for file in files:
        space = load_replay(file)
        title = f"{space.title} ({file.name}): {space.size:,} points, {space.failures:,} failures"
        for name, method in methods.items():
            runs.setdefault(title, {})[name] = run(method, space, given.seeds)
            print(f"{file.name}: {name} took {runs[title][name].seconds:.2f} s a search", file=sys.stderr, flush=True)
    lines, data = report(runs, mine[0])
    head = f"{given.seeds} seeds; median of best / optimum [95 % interval]; seconds of one search; {versions}"
    print("\n".join([head, *lines]))
    given.output.write_text(json.dumps(data | {"seeds": given.seeds, "versions": versions}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
