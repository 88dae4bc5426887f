"""The closed form beside the simulator, on random candidates: python -m tests.benchmarks.closed_and_simulated

Both speak of the same work; what they take to overlap differs. Compared are the seconds of the SMs, without launch and
power, of machines whose roles hand pipelines to each other, and of machines of rows, which store in every round; with
--products, of 20 matrix products on a B200, and of some of them on an H100.
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
from tinygpu.machines.gradients import RmsNormBackward
from tinygpu.machines.grouped_matmul_blackwell import GroupedMatmulBlackwell
from tinygpu.machines.grouped_matmul_hopper import GroupedMatmulHopper
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny_blackwell import MatmulSkinnyBlackwell
from tinygpu.machines.scan import RowScan
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
    (GroupedMatmulBlackwell, "b200", {"m": 4096, "n": 4096, "k": 2048, "experts": 64}, False),
    (GroupedMatmulHopper, "h100", {"m": 4096, "n": 4096, "k": 2048, "experts": 64}, False),
    (RmsNormBackward, "a100", {"m": 8192, "n": 8192}, False),
    (RmsNormBackward, "h100", {"m": 8192, "n": 8192}, False),
    (RowScan, "a100", {"m": 2000, "n": 5000}, False),
    (RowScan, "h100", {"m": 8192, "n": 8192}, False),
)

# Large, with a short and a long k, of few rows, of sizes that no tile divides.
SIZES = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (512, 512, 512),
    (8192, 8192, 1024), (16384, 2048, 4096), (12288, 12288, 512), (3072, 9216, 3072), (1536, 1536, 8192),
    (512, 512, 65536), (256, 4096, 16384), (128, 8192, 8192), (64, 8192, 8192), (16, 7168, 4096),
    (1000, 1000, 1000), (5000, 3000, 2000), (4100, 4104, 4104), (7777, 1240, 4328), (300, 20000, 2048),
)  # fmt: skip
PRODUCTS: tuple[tuple[type[Machine], str, Mapping[str, int], bool], ...] = (
    *((MatmulBlackwell, "b200", dict(zip("mnk", sizes, strict=True)), False) for sizes in SIZES),
    *((MatmulHopper, "h100", dict(zip("mnk", sizes, strict=True)), False) for sizes in SIZES[::3]),
)


def main(count: int, only: str, products: bool) -> None:
    head = ("machine, device, problem", "candidates", "simulated / closed form", "5 % to 95 %", "off", "Spearman")
    print(f"| {' | '.join(head)} |\n| --- | {' | '.join(['---:'] * 5)} |")
    for machine, gpu, sizes, causal in PRODUCTS if products else CASES:
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
    parser.add_argument("--products", action="store_true", help="of 20 matrix products")
    said = parser.parse_args(sys.argv[1:])
    main(said.count, said.only, said.products)
