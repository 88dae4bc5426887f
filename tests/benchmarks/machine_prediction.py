"""Error of the matmul machines' best predicted times.

    python -m tests.benchmarks.machine_prediction TABLE.csv[.xz] [--problems N]

As prediction_error.py, but the candidates are those of the project's own machines, all of them: `matmul_ampere` on an
A100, `matmul_hopper` on H100 and H200, `matmul_blackwell` on a B200, for N problems of each of their columns that the
table has, evenly spaced. Nothing is fitted. The candidate is the one that commands take: of those that the model does
not tell apart, thousands where power is the limit, the preferred one. It is also simulated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks.library_products import Problem
from tests.benchmarks.measured_products import columns_of, rows
from tests.benchmarks.prediction_error import Errors, two_constant_roofline
from tinygpu.devices import Device, device
from tinygpu.language.machine import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import ranked
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import build_space

CASES: tuple[tuple[type[Machine], str, tuple[str, ...]], ...] = (
    (MatmulAmpere, "a100", ("a100_sxm.trt", "a100_sxm.alt")),
    (MatmulHopper, "h100", ("h100_sxm.trt", "h100_sxm.alt")),
    (MatmulHopper, "h200", ("h200_sxm.trt",)),
    (MatmulBlackwell, "b200", ("b200_sxm.vllm",)),
)


def best_seconds(machine: type[Machine], gpu: Device, problem: Problem) -> tuple[float, float]:
    """The predicted time of the first choice over the whole space, and its simulated time."""
    posed = machine.problem(m=problem.m, n=problem.n, k=problem.k, dtypes={"a": "bf16"})
    space = build_space(machine, posed, gpu)
    objective = PredictedTime(space)
    found = ranked(objective, minimize(space.space, objective, strategy="exhaustive"), 1, 1)
    if not found:
        raise ValueError(f"{problem} has no candidate")
    point = found[0][0].point
    return float(objective.prediction(point).seconds), Simulator(space).simulate(point).seconds


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of the matmul machines' best predicted times.")
    parser.add_argument("table", type=Path)
    parser.add_argument("--problems", type=int, default=10, help="of each column")
    chosen = parser.parse_args(arguments)
    if not chosen.table.exists():
        print(f"skipped: no table of measured times at {chosen.table}")
        return 0
    for machine, name, columns in CASES:
        gpu = device(name)
        for column in (c for c in columns if c in columns_of(chosen.table)):
            listed = rows(chosen.table, column, 512)
            count = min(chosen.problems, len(listed))
            measured = [listed[(2 * i + 1) * len(listed) // (2 * count)] for i in range(count)]
            best = np.array([best_seconds(machine, gpu, p) for p, _ in measured])
            truth = np.array([seconds for _, seconds in measured])
            simple = np.array([two_constant_roofline(p, gpu) for p, _ in measured])
            print(f"{machine.__name__} on {gpu}, {column}: {Errors(best[:, 0] / truth - 1, simple / truth - 1)}")
            print(f"  simulated: mean absolute error {np.abs(best[:, 1] / truth - 1).mean():.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
