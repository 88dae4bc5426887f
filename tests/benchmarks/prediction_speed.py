"""How many candidates a second the dojo judges: python -m tests.benchmarks.prediction_speed [--draw N]

For every matmul machine on one GPU: candidates predicted a second, as arrays by structure, on one core (counts, DRAM
traffic and times; the first call, which compiles the counts, apart); and candidates simulated a second, one by one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import build_space

CASES: tuple[tuple[type[Machine], str], ...] = ((MatmulAmpere, "a100"), (MatmulHopper, "h100"), (MatmulSimt, "a100"))
SIMULATED = 12


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Candidates predicted and simulated a second, on one core.")
    parser.add_argument("--draw", type=int, default=20_000, help="candidates to predict, drawn uniformly")
    chosen = parser.parse_args(arguments)
    for machine, name in CASES:
        space = build_space(machine, machine.problem(m=4096, n=4096, k=4096), device(name))
        points = space.space.sample(chosen.draw, np.random.default_rng(0))
        columns = {key: np.array([point[key] for point in points]) for key in points[0]}
        objective = PredictedTime(space)
        began = time.perf_counter()
        objective.score_columns({n: v[:1000] for n, v in columns.items()})
        first = time.perf_counter() - began
        began = time.perf_counter()
        seconds = objective.score_columns(columns)
        took = time.perf_counter() - began
        simulator = Simulator(space)
        simulator.simulate(points[0])
        began = time.perf_counter()
        for point in points[1 : SIMULATED + 1]:
            simulator.simulate(point)
        each = (time.perf_counter() - began) / SIMULATED
        print(
            f"{machine.__name__} on {name}: {len(seconds) / took:,.0f} candidates predicted a second "
            f"({first:.2f} s for the first 1,000, with compiling the counts); {1 / each:,.0f} simulated a second"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
