"""What is chosen first, over problems and GPUs: python -m tests.benchmarks.first_choices [--only h100]

Of each matrix product the machine of the GPU's own generation is searched whole, by prediction, and ties are decided by
preference (`tinygpu.search.preference`). An expert looks at the rows: tiles, clusters, depths of rings, slots of sums.
"""

from __future__ import annotations

import argparse
import sys

from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import ranked
from tinygpu.spaces.build import build_space

MACHINES: dict[str, type[Machine]] = {"a100": MatmulAmpere, "h100": MatmulHopper, "b200": MatmulBlackwell}
SIZES = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 2048), (1024, 1024, 1024), (16384, 1024, 4096),
    (8192, 8192, 512), (512, 512, 32768), (256, 8192, 8192), (64, 8192, 8192), (1000, 1000, 1000), (5000, 3000, 2000),
)  # fmt: skip
# How the parameters of a choice are told, in their order; what a machine does not have is left out.
NAMES = (
    "schedule", "store", "ctas", "bm", "bn", "bk", "warps_m", "warps_n", "stages", "tiles", "outs", "piece",
    "cluster_m", "cluster_n", "raster", "split_k", "stream_k", "launch_control", "swizzle",
)  # fmt: skip
# What these say where they say nothing.
PLAIN = {"split_k": 1, "stream_k": 0, "launch_control": 0, "ctas": "one"}


def first_choice(gpu: str, sizes: tuple[int, int, int]) -> str:
    machine = MACHINES[gpu]
    posed = machine.problem(**dict(zip("mnk", sizes, strict=True)), dtypes={"a": "bf16"})
    space = build_space(machine, posed, device(gpu))
    objective = PredictedTime(space)
    point = ranked(objective, minimize(space.space, objective), 1, 1)[0][0].point
    found = objective.prediction(point)
    told = " ".join(f"{n}={point[n]}" for n in NAMES if n in point and point[n] != PLAIN.get(n))
    cells = (
        f"{float(found.seconds) * 1e6:,.1f}", f"{100 * float(found.share_of_roofline):.0f} %",
        f"{int(found.occupancy.ctas_per_sm)}", told,
    )  # fmt: skip
    return f"| {gpu} | {' x '.join(f'{size:,}' for size in sizes)} | {' | '.join(cells)} |"


def main(only: str) -> None:
    print("| GPU | m x n x k | us | roofline | CTAs/SM | first choice |\n| --- | --- | ---: | ---: | ---: | --- |")
    for gpu in MACHINES:
        for sizes in SIZES:
            if only in gpu:
                print(first_choice(gpu, sizes), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a GPU")
    main(parser.parse_args(sys.argv[1:]).only)
