"""All microbenchmarks, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache

from tinygpu.ptx.calibration import arithmetic, memory, shared, tensor_cores, warpgroups
from tinygpu.ptx.calibration.benchmark import Microbenchmark


@cache
def microbenchmarks() -> tuple[Microbenchmark, ...]:
    """Every microbenchmark of ours; the clock of the SMs comes first, since others are given in its cycles."""
    found = [*arithmetic.benchmarks(), *memory.benchmarks(), *shared.benchmarks(), *tensor_cores.benchmarks(),
             *warpgroups.benchmarks()]
    return tuple(sorted(found, key=lambda b: b.name != "clock"))
