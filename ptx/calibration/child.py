"""The process that touches the GPU: it measures the microbenchmarks that it is told, one line of JSON for each.

A kernel that hangs or faults costs this process and one microbenchmark, not the calibration (run.py).
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, replace
from typing import Any, TextIO

from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.gpu import GpuLauncher
from tinygpu.ptx.calibration.launcher import LaunchFailed, chip_on
from tinygpu.ptx.calibration.measuring import measure, warm_up
from tinygpu.ptx.calibration.suite import microbenchmarks
from tinygpu.ptx.runtime.calls import load_driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.errors import GpuUnavailable


def serve(settings: dict[str, Any], orders: TextIO, answers: TextIO) -> None:
    """Says which GPU it has, then measures each microbenchmark whose name is a line of `orders`.

    settings  driver (its module), ordinal, l2_partitions, rounds, warm_up_s, trips (name -> [few, many], for tests)
    """

    def say(data: dict[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    try:
        launcher = GpuLauncher(open_context(load_driver(settings["driver"]), settings["ordinal"]))
    except GpuUnavailable as missing:
        say({"unavailable": str(missing)})
        return
    chip = chip_on(launcher.gpu, settings["l2_partitions"])
    known = {b.name: _shortened(b, settings["trips"]) for b in microbenchmarks()}
    say({"gpu": asdict(launcher.gpu), "clocks": _plain(launcher)})
    try:
        warm_up(known["clock"], launcher, chip, settings["warm_up_s"], time.monotonic)
        for line in orders:
            name = line.strip()
            outcome = measure(known[name], launcher, chip, settings["rounds"])
            say({"outcome": outcome.to_json(), "clocks": _plain(launcher)})
    except LaunchFailed as failed:
        say({"lost": str(failed)})


def _shortened(benchmark: Microbenchmark, trips: dict[str, list[int]]) -> Microbenchmark:
    if benchmark.name not in trips:
        return benchmark
    few, many = trips[benchmark.name]
    return replace(benchmark, trips=(few, many), held=min(benchmark.held, many))


def _plain(launcher: GpuLauncher) -> dict[str, Any] | None:
    clocks = launcher.clocks()
    return None if clocks is None else dict(clocks)


def main() -> int:
    """Settings are the first line of the input."""
    serve(json.loads(sys.stdin.readline()), sys.stdin, sys.stdout)
    return 0

