"""The process that touches the GPU: it measures the microbenchmarks that it is told, one after another.

A kernel that hangs or faults costs this process and one microbenchmark, not the calibration (run.py).
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Any

from tinygpu.processes.serving import Line
from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.gpu import GpuLauncher
from tinygpu.ptx.calibration.launcher import LaunchFailed, chip_on
from tinygpu.ptx.calibration.measuring import measure, warm_up
from tinygpu.ptx.calibration.suite import microbenchmarks
from tinygpu.ptx.runtime.calls import load_driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.errors import GpuUnavailable


def serve(line: Line) -> None:
    """Says which GPU it has, then measures each microbenchmark whose name it is told.

    The settings come first: driver (its module), ordinal, l2_partitions, rounds, warm_up_s, and trips (name -> (few,
    many), for tests).
    """
    settings = line.receive()
    try:
        launcher = GpuLauncher(open_context(load_driver(settings["driver"]), settings["ordinal"]))
    except GpuUnavailable as missing:
        line.send({"unavailable": str(missing)})
        return
    chip = chip_on(launcher.gpu, settings["l2_partitions"])
    known = {b.name: _shortened(b, settings["trips"]) for b in microbenchmarks()}
    line.send({"gpu": asdict(launcher.gpu), "clocks": _plain(launcher)})
    try:
        warm_up(known["clock"], launcher, chip, settings["warm_up_s"], time.monotonic)
        for name in line:
            outcome = measure(known[name], launcher, chip, settings["rounds"])
            line.send({"outcome": outcome, "clocks": _plain(launcher)})
    except LaunchFailed as failed:
        line.send({"lost": str(failed)})


def _shortened(benchmark: Microbenchmark, trips: dict[str, tuple[int, int]]) -> Microbenchmark:
    if benchmark.name not in trips:
        return benchmark
    few, many = trips[benchmark.name]
    return replace(benchmark, trips=(few, many), held=min(benchmark.held, many))


def _plain(launcher: GpuLauncher) -> dict[str, Any] | None:
    clocks = launcher.clocks()
    return None if clocks is None else dict(clocks)
