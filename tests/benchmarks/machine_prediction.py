"""Error of the Ampere machine's best predicted time.

    python -m tests.benchmarks.machine_prediction TABLE.csv[.xz] [--every N]

As prediction_error.py, but the candidates are those of the project's own machine `matmul_ampere`, all of them, for
every N-th problem of the A100's columns. Nothing is fitted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.benchmarks.prediction_error import Errors, rows, two_constant_roofline
from tinygpu.devices import device
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import build_space


def best_seconds(m: int, n: int, k: int) -> float:
    """The least predicted time over the whole space."""
    space = build_space(MatmulAmpere, MatmulAmpere.problem(m=m, n=n, k=k, dtypes={"a": "bf16"}), device("a100"))
    value = minimize(space.space, PredictedTime(space)).value
    if value is None:
        raise ValueError(f"m={m}, n={n}, k={k} has no candidate")
    return value


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of matmul_ampere's best predicted time.")
    parser.add_argument("table", type=Path)
    parser.add_argument("--every", type=int, default=40)
    chosen = parser.parse_args(arguments)
    if not chosen.table.exists():
        print(f"skipped: no table of measured times at {chosen.table}")
        return 0
    gpu = device("a100")
    for column in ("a100_sxm.alt", "a100_sxm.trt"):
        measured = rows(chosen.table, column, 512)[:: chosen.every]
        model = [best_seconds(p.m, p.n, p.k) / truth - 1 for p, truth in measured]
        simple = [two_constant_roofline(p, gpu) / truth - 1 for p, truth in measured]
        print(f"{gpu}, {column}: {Errors(np.array(model), np.array(simple))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
