"""All microbenchmarks, in groups."""

from __future__ import annotations

from functools import cache

from tinygpu.ptx.calibration import arithmetic, copies, memory, shared, synchronisation, tensor_cores, warpgroups
from tinygpu.ptx.calibration.benchmark import Microbenchmark


@cache
def microbenchmarks() -> tuple[Microbenchmark, ...]:
    """Every microbenchmark of ours; the clock of the SMs comes first, since others are given in its cycles."""
    rooms = (memory, shared, arithmetic, tensor_cores, warpgroups, copies, synchronisation)
    found = [made for room in rooms for made in room.benchmarks()]
    return tuple(sorted(found, key=lambda b: b.name != "clock"))
