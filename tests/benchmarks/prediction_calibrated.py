"""Error of predicted matmul times after calibration: python -m tests.benchmarks.prediction_calibrated TABLE.csv[.xz]

TABLE and the candidates are those of prediction_error.py. Problems with m, n, k >= 512 are cut into two halves by a
hash of their sizes. On a sample of the first half six figures of the device are fitted, within bounds, by the mean
absolute error of the best candidate's time; scored is the second half, which the fit never saw. Side by side are the
library's figures (nothing is fitted), the fitted ones, and the two-constant roofline.

The fit walks along one figure at a time, up or down by a factor that shrinks, and keeps what is better. It is
deterministic.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.library_products import Problem, library_kernels
from tests.benchmarks.measured_products import rows
from tests.benchmarks.prediction_error import two_constant_roofline
from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, Figure, device

Floats = NDArray[np.float64]

# What is fitted, and how far from the library's figure it may go: factors. Beyond these a figure would mean another
# thing than its name says.
FITTED = {
    "gemm_f16_bf16_tflops_measured": (0.9, 1.1),
    "dram_bw_gbs_measured": (0.85, 1.15),
    "l2_bw_gbs_measured": (0.6, 1.3),
    "lat_dram": (0.7, 2.0),
    "lat_barrier_cta": (0.5, 2.0),
    "launch_overhead_graph_us": (0.7, 3.0),
}
# Where the walk begins, if a figure is not given but derived.
DERIVED_AS = {
    "gemm_f16_bf16_tflops_measured": "tflops_f16_sustained",
    "dram_bw_gbs_measured": "dram_bw_gbs_sustained",
    "l2_bw_gbs_measured": "l2_bw_gbs_sustained",
}
STEPS = (1.25, 1.1, 1.04)
# While fitting, candidates slower than the best of their problem by this factor are left out.
NEAR = 1.5
# Problems whose candidates are in memory at a time.
CHUNK = 200


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Candidates of many problems, joined; the launches of a group follow each other.

    groups  (demands, problem of each candidate)
    """

    groups: tuple[tuple[tuple[Demand, ...], NDArray[np.int64]], ...]
    problems: int

    def seconds(self, gpu: Device) -> list[Floats]:
        """Predicted seconds of all candidates, by group."""
        return [sum((predict(gpu, d).seconds for d in demands), np.zeros(())) for demands, _ in self.groups]

    def best_seconds(self, gpu: Device) -> Floats:
        """The least predicted time of every problem."""
        best = np.full(self.problems, np.inf)
        for (_, owners), seconds in zip(self.groups, self.seconds(gpu), strict=True):
            np.minimum.at(best, owners, seconds)
        return best

    def near_the_best(self, gpu: Device, factor: float) -> Launches:
        """Without candidates that take more than `factor` times as long as the best of their problem."""
        best = self.best_seconds(gpu)
        groups = []
        for (demands, owners), seconds in zip(self.groups, self.seconds(gpu), strict=True):
            keep = seconds <= factor * best[owners]
            groups.append((tuple(taken(d, keep) for d in demands), owners[keep]))
        return Launches(tuple(groups), self.problems)


def launches(problems: Sequence[Problem], gpu: Device) -> Launches:
    """The library kernels of all problems."""
    found: dict[int, list[tuple[int, Sequence[Demand]]]] = {}
    for number, problem in enumerate(problems):
        for demands in library_kernels(problem, gpu):
            found.setdefault(len(demands), []).append((number, demands))
    groups = []
    for count, entries in found.items():
        joined = tuple(stacked([demands[i] for _, demands in entries]) for i in range(count))
        sizes = np.array([int(np.prod(_shape(demands))) for _, demands in entries])
        groups.append((joined, np.repeat([number for number, _ in entries], sizes)))
    return Launches(tuple(groups), len(problems))


def _shape(demands: Sequence[Demand]) -> tuple[int, ...]:
    return np.broadcast_shapes(*(d.shape for d in demands))


def stacked(demands: Sequence[Demand]) -> Demand:
    """One demand over the candidates of all of them; what is no number is that of the first."""
    lengths = [max(1, int(np.prod(d.shape))) for d in demands]

    def join(values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, Work | Chain | Phase):
            return type(first)(*(join([getattr(v, f.name) for v in values]) for f in fields(first)))
        if first is None or isinstance(first, str):
            return first
        if isinstance(first, tuple):
            return tuple(join(column) for column in zip(*values, strict=True))
        return np.concatenate([np.broadcast_to(v, n) for v, n in zip(values, lengths, strict=True)])

    return Demand(*(join([getattr(d, f.name) for d in demands]) for f in fields(Demand)))


def taken(demand: Demand, keep: NDArray[np.bool_]) -> Demand:
    """The candidates of a demand over one axis for which `keep` says so."""

    def take(value: Any) -> Any:
        if isinstance(value, Work | Chain | Phase):
            return type(value)(*(take(getattr(value, f.name)) for f in fields(value)))
        if isinstance(value, tuple):
            return tuple(map(take, value))
        return value if value is None or isinstance(value, str) else np.broadcast_to(value, keep.shape)[keep]

    return Demand(*(take(getattr(demand, f.name)) for f in fields(Demand)))


def with_values(gpu: Device, values: Mapping[str, float]) -> Device:
    units = {name: gpu.given(name).unit for name in values}
    return gpu.with_figures({name: Figure(v, units[name], "fitted", "measured") for name, v in values.items()})


def fit(problems: Sequence[tuple[Problem, float]], gpu: Device) -> dict[str, float]:
    """Figures that make the mean absolute error over these problems small."""
    candidates = launches([problem for problem, _ in problems], gpu).near_the_best(gpu, NEAR)
    truth = np.array([seconds for _, seconds in problems])

    def error(values: Mapping[str, float]) -> float:
        return float(np.abs(candidates.best_seconds(with_values(gpu, values)) / truth - 1).mean())

    began = {name: gpu.number(DERIVED_AS.get(name, name)) for name in FITTED}
    best, least = began, error(began)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for name in FITTED:
                low, high = (began[name] * factor for factor in FITTED[name])
                for factor in (step, 1 / step):
                    trial = best | {name: min(max(best[name] * factor, low), high)}
                    if trial[name] == best[name]:
                        continue
                    found = error(trial)
                    if found < least * (1 - 1e-4):
                        best, least, moved = trial, found, True
                        break
    return best


def scored(problems: Sequence[tuple[Problem, float]], gpu: Device, changed: Device) -> Floats:
    """Predicted over measured - 1. The candidates are those for `gpu`, the times those of `changed`."""
    out = []
    for first in range(0, len(problems), CHUNK):
        part = problems[first : first + CHUNK]
        truth = np.array([seconds for _, seconds in part])
        out.append(launches([problem for problem, _ in part], gpu).best_seconds(changed) / truth - 1)
    return np.concatenate(out)


def half(problem: Problem) -> int:
    """0 or 1, by a hash of the sizes."""
    text = f"{problem.m} {problem.n} {problem.k}"
    return hashlib.sha256(text.encode()).digest()[0] & 1


def line(name: str, errors: Floats) -> str:
    low, high = np.percentile(errors, (5, 95))
    return f"  {name:24} {np.abs(errors).mean():6.1%}   bias {errors.mean():+6.1%}   {low:+.0%} to {high:+.0%}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of predicted matmul times, fitted on half of the problems.")
    parser.add_argument("table", type=Path, help="CSV of measured times, as it is or compressed with xz")
    parser.add_argument("--fit-on", type=int, default=200, help="problems of the first half that the fit looks at")
    parser.add_argument("--every", type=int, default=1, help="score every n-th problem of the second half")
    chosen = parser.parse_args(arguments)
    if not chosen.table.exists():
        print(f"skipped: no table of measured times at {chosen.table}")
        return 0
    for name, columns in (("a100", ("a100_sxm.trt", "a100_sxm.alt")), ("h100", ("h100_sxm.trt", "h100_sxm.alt"))):
        gpu = device(name)
        for column in columns:
            measured = rows(chosen.table, column, 512)
            halves = [[entry for entry in measured if half(entry[0]) == side] for side in (0, 1)]
            count = min(chosen.fit_on, len(halves[0]))
            sample = [halves[0][i * len(halves[0]) // count] for i in range(count)]
            score_on = halves[1][:: chosen.every]
            began = time.perf_counter()
            figures = fit(sample, gpu)
            took = time.perf_counter() - began
            print(f"{gpu}, {column}: fitted on {len(sample)} problems ({took:.0f} s), scored on {len(score_on)} others")
            print(line("nothing fitted", scored(score_on, gpu, gpu)))
            print(line("fitted on the other half", scored(score_on, gpu, with_values(gpu, figures))))
            simple = np.array([two_constant_roofline(p, gpu) / truth - 1 for p, truth in score_on])
            print(line("two constants", simple))
            was = {field: gpu.number(DERIVED_AS.get(field, field)) for field in FITTED}
            print("  " + ", ".join(f"{field} {was[field]:,.4g} -> {value:,.4g}" for field, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
