"""How well predictions rank the candidates of one problem.

    python -m tests.benchmarks.prediction_ranking SPACE.json[.xz] ...

SPACE is a cache file of Kernel Tuner: the measured time of every configuration of one kernel on one GPU. Known are
Xgemm of CLBlast (a matrix product in f32) and the 2-D convolution of Kernel Tuner's examples. Each configuration
becomes a Demand by counting what the kernel does; nothing is fitted. Reported are, for all configurations of the file:

    Spearman     rank correlation of predicted and measured times
    regret       measured time of the best among the N shortest predictions, over the best measured time, minus 1
    Spearman within the fastest quarter, where a search decides

A file of another kernel is named with the number of its configurations, and left out. The files are third-party data
and not part of the project.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.convolution import convolution
from tests.benchmarks.xgemm import xgemm
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, Figure, device, devices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# From GPU, problem size and configurations to what they ask for.
KERNELS: Mapping[str, Callable[[Device, int, Mapping[str, Ints]], Demand]] = {
    "Xgemm": xgemm,
    "convolution_kernel": convolution,
}
# GPUs of the files that the library lacks: a sibling of the same architecture, with the datasheet's figures in place of
# its own. (SMs, boost MHz, GB/s of DRAM, MB of L2)
ABSENT: Mapping[str, tuple[str, float, float, float, float]] = {
    "RTX A4000": ("rtxa6000", 48, 1560, 448, 4),
    "RTX 3060 Laptop": ("rtx3090", 30, 1425, 336, 3),
}


class NotCounted(ValueError):
    """The file of a kernel whose demand this benchmark cannot count."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Configurations of one kernel on one GPU, with their times.

    columns  per parameter the values of all configurations
    seconds  measured times
    size     along each axis
    """

    gpu: Device
    kernel: str
    columns: Mapping[str, Ints]
    seconds: Floats
    size: int


def load(path: Path) -> Measured:
    """The configurations that ran; raises NotCounted for the file of a kernel that is not known."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        data: Any = json.load(file)
    kernel, rows = data["kernel_name"], list(data["cache"].values())
    if kernel not in KERNELS:
        known = " and ".join(KERNELS)
        raise NotCounted(f"[{path.name}] holds {len(rows):,} times of {kernel}; this benchmark counts {known} alone")
    ran = [row for row in rows if isinstance(row["time"], int | float)]
    names = [name for name in data["tune_params_keys"] if all(isinstance(row[name], int) for row in ran)]
    columns = {name: np.array([row[name] for row in ran], dtype=np.int64) for name in names}
    seconds = np.array([row["time"] * 1e-3 for row in ran])
    return Measured(_gpu(data["device_name"]), kernel, columns, seconds, int(data["problem_size"][0]))


def _gpu(name: str) -> Device:
    """The device of the library whose marketing name the file gives, or the stand-in of one that it lacks."""
    for gpu in devices():
        if gpu.marketing_name.removeprefix("GeForce ") in name:
            return gpu
    for absent, (sibling, sms, clock, bandwidth, l2) in ABSENT.items():
        if absent in name:
            return _stand_in(absent, device(sibling), sms, clock, bandwidth, l2)
    raise ValueError(f"the library has no device {name!r}")


def _stand_in(name: str, sibling: Device, sms: float, clock: float, bandwidth: float, l2: float) -> Device:
    values = {
        "sm_count": sms,
        "boost_clock_mhz": clock,
        "dram_bw_gbs_datasheet": bandwidth,
        "l2_size_mb": l2,
    }
    figures = {f: Figure(v, sibling.given(f).unit, "datasheet", "datasheet") for f, v in values.items()}
    unknown = {
        f: Figure(None, sibling.given(f).unit, None, "null") for f in ("dram_bw_gbs_measured", "l2_bw_gbs_measured")
    }
    return sibling.with_figures({**figures, **unknown}, name)


@dataclass(frozen=True, slots=True)
class Ranking:
    """How predictions order measured candidates; regrets by the number of candidates that may be tried."""

    spearman: float
    spearman_fast: float
    regret: Mapping[int, float]
    median_error: float

    def __str__(self) -> str:
        regrets = ", ".join(f"top {n} {r:.1%}" for n, r in self.regret.items())
        return (
            f"Spearman {self.spearman:.3f}, within the fastest quarter {self.spearman_fast:.3f}; "
            f"regret of the {regrets}; "
            f"median absolute error {self.median_error:.0%}"
        )


def ranking(predicted: Floats, measured: Floats, tries: Sequence[int] = (1, 8, 50)) -> Ranking:
    """Compares two lists of seconds of the same candidates."""
    order = np.argsort(predicted, kind="stable")
    best = measured.min()
    fast = measured <= np.quantile(measured, 0.25)
    return Ranking(
        spearman(predicted, measured),
        spearman(predicted[fast], measured[fast]),
        {n: float(measured[order[:n]].min() / best - 1) for n in tries},
        float(np.median(np.abs(predicted / measured - 1))),
    )


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; equal values share their mean rank. NaN where all values of a or of b are equal."""
    if len(np.unique(a)) < 2 or len(np.unique(b)) < 2:
        return float("nan")
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[inverse], dtype=np.float64)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Rank correlation and regret of predicted times within one problem.")
    parser.add_argument(
        "space", type=Path, nargs="+", help="cache file of Kernel Tuner, as it is or compressed with xz"
    )
    chosen = parser.parse_args(arguments)
    for path in chosen.space:
        if not path.exists():
            print(f"skipped: no measured space at {path}")
            continue
        try:
            found = load(path)
        except NotCounted as error:
            print(f"left out: {error}")
            continue
        demand = KERNELS[found.kernel](found.gpu, found.size, found.columns)
        predicted = np.asarray(predict(found.gpu, demand).seconds)
        print(f"{path.name}, {len(predicted):,} candidates on {found.gpu}: {ranking(predicted, found.seconds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
