"""The closed form beside the simulator, on random candidates: python -m tests.benchmarks.closed_and_simulated

Both speak of the same work; what they take to overlap differs. Compared are the seconds of the SMs, without launch and
power, of machines whose roles hand pipelines to each other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import numpy as np

from tests.benchmarks.prediction_ranking import spearman
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.attention_blackwell import AttentionBlackwell
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny_blackwell import MatmulSkinnyBlackwell
from tinygpu.simulator.simulator import Simulator
from tinygpu.spaces.build import build_space

LONG = {"b": 4, "h": 16, "g": 1, "s": 4096, "t": 4096}
CASES: tuple[tuple[type[Machine], str, Mapping[str, int], bool], ...] = (
    (AttentionBlackwell, "b200", {**LONG, "d": 128}, False),
    (AttentionBlackwell, "b200", {**LONG, "d": 64}, False),
    (AttentionBlackwell, "b200", {**LONG, "d": 128}, True),
    (AttentionBlackwell, "b200", {**LONG, "s": 1000, "t": 700, "d": 128}, False),
    (AttentionHopper, "h100", {**LONG, "d": 128}, False),
    (AttentionHopper, "h100", {**LONG, "d": 64}, True),
    (MatmulBlackwell, "b200", {"m": 4096, "n": 4096, "k": 4096}, False),
    (MatmulSkinnyBlackwell, "b200", {"m": 16, "n": 4096, "k": 4096}, False),
    (MatmulHopper, "h100", {"m": 4096, "n": 4096, "k": 4096}, False),
)


def main(count: int, only: str) -> None:
    head = ("machine, device, problem", "candidates", "simulated / closed form", "5 % to 95 %", "off", "Spearman")
    print(f"| {' | '.join(head)} |\n| --- | {' | '.join(['---:'] * 5)} |")
    for machine, gpu, sizes, causal in CASES:
        if only not in machine.__name__:
            continue
        options = {"options": {"causal": True}} if causal else {}
        space = build_space(machine, machine.problem(**sizes, **options), device(gpu))
        simulator = Simulator(space)
        pairs = []
        for point in space.space.sample(count, np.random.default_rng(0)):
            found = simulator.simulate(point)
            if np.isfinite(found.seconds):
                closed = float(found.prediction.seconds - found.prediction.launch_s - found.prediction.power_s)
                pairs.append((closed, found.sm_s))
        closed_s, simulated_s = np.array(pairs).T
        ratio = simulated_s / closed_s
        low, high = np.quantile(ratio, (0.05, 0.95))
        said = f"{machine.__name__}, {gpu}, {' '.join(f'{k}={v}' for k, v in sizes.items())}{' causal' * causal}"
        print(
            f"| {said} | {len(pairs)} | {ratio.mean():.2f} | {low:.2f} to {high:.2f} | "
            f"{100 * np.abs(ratio - 1).mean():.1f} % | {spearman(closed_s, simulated_s):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--only", default="", help="part of a machine's name")
    said = parser.parse_args(sys.argv[1:])
    main(said.count, said.only)
