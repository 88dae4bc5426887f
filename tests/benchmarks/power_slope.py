"""How the time of products that power limits goes with the part of it in which tensor cores are busy.

    python -m tests.benchmarks.power_slope TABLE.csv[.xz] ... [--every N]

TABLE and the candidates are those of prediction_error.py, in bf16, m, n and k of 512 and more. Of each problem whose
shortest time is bounded by what the part sustains, D is the time at the datasheet's peak over the shortest one that is
predicted with no limit of power. Where the clock falls, so that D f^3 stays the same, measured times over those at the
sustained rate grow as D^(-2/3); where a product takes the same energy at any clock, they do not grow. Printed are the
slope of the logarithms by least squares with its standard error, and what is left at D = 1: by how much the rate that
the device is said to sustain is too high.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.library_products import Problem
from tests.benchmarks.measured_products import columns_of, rows
from tests.benchmarks.prediction_error import PEAKS, best_seconds
from tinygpu.devices import Device, device

LEAST = 512  # of m, n and k
PROBLEMS = 30  # that a slope needs


@dataclass(frozen=True, slots=True)
class Slope:
    """Of the logarithm of the time at the sustained rate's multiple, over that of 1 / D.

    limited  problems that power limits, of how many
    """

    limited: int
    problems: int
    slope: float
    error: float
    rest: float

    def __str__(self) -> str:
        rest = f"{100 * self.rest:+.1f} %"
        return f"{self.limited:,} of {self.problems:,} | {self.slope:.2f} | {self.error:.2f} | {rest}"


def slope(measured: Sequence[tuple[Problem, float]], gpu: Device) -> Slope | None:
    """Of the problems of one column; None where too few are limited by power."""
    problems, truth = [p for p, _ in measured], np.array([seconds for _, seconds in measured])
    launch_s = gpu.number("launch_overhead_graph_us") * 1e-6
    free_s = best_seconds(problems, gpu, limited=False) - launch_s
    flops = np.array([2.0 * p.m * p.n * p.k for p in problems])
    peak_s = flops / (gpu.number(PEAKS["bf16"]) * 1e12)
    sustained_s = peak_s / gpu.sustained_tensor_share
    limited = sustained_s > free_s
    if limited.sum() < PROBLEMS:
        return None
    idle = np.log(free_s / peak_s)[limited]
    longer = np.log((truth - launch_s) / sustained_s)[limited]
    design = np.stack([idle, np.ones_like(idle)], axis=1)
    (found, rest), *_ = np.linalg.lstsq(design, longer, rcond=None)
    left = longer - design @ (found, rest)
    error = float(left.std() / np.sqrt(limited.sum()) / idle.std())
    return Slope(int(limited.sum()), len(problems), float(found), error, float(np.expm1(rest)))


def report(path: Path, every: int) -> Iterator[str]:
    for column in columns_of(path):
        gpu = device(column.partition(".")[0].removesuffix("_sxm"))
        measured = [(p, s) for p, s in rows(path, column, dtype="bfloat16") if min(p.m, p.n, p.k) >= LEAST][::every]
        found = slope(measured, gpu) if measured else None
        yield f"| {gpu.name}, {column} | {found or 'too few are limited by power | | | '} |"


HEAD = (
    "| device and column | limited by power | slope | standard error | above the sustained rate at D = 1 |\n"
    "| --- | ---: | ---: | ---: | ---: |"
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="How times that power limits go with how busy tensor cores are.")
    parser.add_argument("table", type=Path, nargs="+", help="CSV of measured times, as it is or compressed with xz")
    parser.add_argument("--every", type=int, default=1, help="use every n-th problem")
    chosen = parser.parse_args(arguments)
    print(HEAD)
    for path in chosen.table:
        for line in report(path, chosen.every):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
