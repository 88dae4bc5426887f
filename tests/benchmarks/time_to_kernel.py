"""CPU seconds from a class to a verified kernel, for every machine that ships.

    python -m tests.benchmarks.time_to_kernel [MACHINE ...] [--device NAME ...]

Each is `tinygpu tune MACHINE --shape ...` in a process of its own, import, search, assembling, layouts and verification
included, at sizes that fill memory (those of tests.benchmarks.memory_figures). The goal is 20 s; a row beyond is bold.
Behind the sum stands what its steps take (tests.benchmarks.timed_tuning): building the space, predicting candidates,
ranking and refining the best, solving their layouts, lowering, assembling, verifying; the rest is import and output.
Exits with 1 where a machine finds no kernel, or one that is wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.memory_figures import filling, posed
from tests.benchmarks.timed_tuning import REST, STEPS
from tinygpu.api.machines import PLANS, SHIPPED, family
from tinygpu.language import Machine
from tinygpu.language.problem import Problem

# Devices that machines are made for: by name, else by a part of it, and of all others both of the first.
DEVICES = ("a100", "h100")
MADE_FOR = {
    "matmul_skinny": "h100",
    "quantise_fp8": "h100",
    "matmul_mx": "rtx5090",
    "matmul_nvfp4": "rtx5090",
    "matmul_blackwell_consumer": "rtx5090",
}
GENERATIONS = {"hopper": "h100", "blackwell": "b200"}
GOAL_SECONDS = 20.0
STEPPED = Path(__file__).with_name("timed_tuning.py")
PRODUCT = {"m": 8192, "n": 8192, "k": 8192}
# Of plans, and of what is no square product.
SIZES = {
    "matmul_skinny": {"m": 16, "n": 16384, "k": 16384},
    "matmul_skinny_blackwell": {"m": 16, "n": 16384, "k": 16384},
    "tensor_reduction": {"n": 1 << 27},
    "top_k": {"m": 1 << 19, "n": 256, "k": 8},
    "grouped_matmul": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "grouped_matmul_hopper": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "grouped_matmul_blackwell": {"m": 8192, "n": 2048, "k": 4096, "experts": 16},
    "attention_decoding": {"b": 16, "h": 8, "r": 8, "t": 16384, "d": 128},
    "attention_paged": {"b": 16, "h": 8, "r": 8, "d": 128, "most": 128, "pages": 2048, "page": 128},
}


@dataclass(frozen=True, slots=True)
class Row:
    """One command.

    steps  seconds of each of its steps, and of the rest
    """

    machine: str
    sizes: str
    device: str
    steps: Mapping[str, float]
    said: str

    @property
    def seconds(self) -> float:
        return sum(self.steps.values())

    def __str__(self) -> str:
        seconds = f"{self.seconds:.1f}"
        shown = f"**{seconds}**" if self.seconds > GOAL_SECONDS else seconds
        steps = " | ".join(f"{self.steps.get(step, 0):.1f}" for step in (*STEPS, REST))
        return f"| `{self.machine}` | {self.sizes} | {self.device} | {shown} | {steps} | {self.said} |"


def devices_of(name: str) -> tuple[str, ...]:
    """Devices that a machine is made for."""
    if name in MADE_FOR:
        return (MADE_FOR[name],)
    return next(((device,) for part, device in GENERATIONS.items() if part in name), DEVICES)


def sizes_of(name: str) -> dict[str, int]:
    """Sizes at which a machine is tried."""
    if name in SIZES:
        return SIZES[name]
    (found,) = family(name).machines
    if not issubclass(found, Machine):
        raise SystemExit(f"{name} is a plan: say in SIZES at which sizes it is tried")
    problem: Problem = posed(found, PRODUCT) if set(found.dim_names()) == set(PRODUCT) else filling(name, found)
    follow = {d.name for d in found.following_dims()}
    return {dim: size for dim, size in problem.dims if dim not in follow}


def tuned(name: str, device: str) -> Row:
    """The command, and what its children and itself took."""
    sizes = sizes_of(name)
    shape = ",".join(f"{dim}={size}" for dim, size in sizes.items())
    with tempfile.TemporaryDirectory() as place:
        seconds = Path(place, "seconds.json")
        command = [sys.executable, str(STEPPED), str(seconds), "tune", name, "--shape", shape, "--device", device]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        steps = json.loads(seconds.read_text())
    last = (done.stderr or done.stdout).strip().splitlines()[-1:]
    right = any(line.startswith("emulated, right") for line in done.stdout.splitlines())
    return Row(name, shape.replace(",", ", "), device, steps, "emulated, right" if right else f"NO KERNEL: {last}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", default=[*SHIPPED, *PLANS], help="names; all that ship unless given")
    parser.add_argument("--device", action="append", dest="devices", help="what each is made for, unless given")
    asked = parser.parse_args()
    head = ("machine", "sizes", "device", "CPU s", *STEPS, REST, "kernel")
    print(f"| {' | '.join(head)} |\n| --- | --- | --- |{' ---: |' * (len(STEPS) + 2)} --- |")
    rows = []
    for name in asked.machines:
        for device in asked.devices or devices_of(name):
            rows.append(tuned(name, device))
            print(rows[-1], flush=True)
    print(f"\nthe slowest: {max(rows, key=lambda row: row.seconds)}")
    return int(any(row.said.startswith("NO KERNEL") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
