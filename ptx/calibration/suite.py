"""All microbenchmarks, in groups, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache

from tinygpu.ptx.calibration import (
    arithmetic,
    copies,
    memory,
    shared,
    synchronisation,
    tensor_cores,
    tensor_memory,
    warpgroups,
)
from tinygpu.ptx.calibration.benchmark import Microbenchmark


@cache
def microbenchmarks() -> tuple[Microbenchmark, ...]:
    """Every microbenchmark of ours, group by group; the clock of the SMs comes first."""
    rooms = (memory, shared, arithmetic, tensor_cores, warpgroups, tensor_memory, copies, synchronisation)
    found = [made for room in rooms for made in room.benchmarks()]
    return tuple(sorted(found, key=lambda b: b.name != "clock"))


def chosen(words: Sequence[str]) -> tuple[Microbenchmark, ...]:
    """Microbenchmarks by their names, by groups, or by figures of a device; all of them without words.

    Raises ValueError for a word that is none of these.

    >>> [b.name for b in chosen(["lat_dram"])]
    ['dram-latency']
    """
    every = microbenchmarks()
    if not words:
        return every
    known = {b.name for b in every} | {b.group for b in every} | {r.field for b in every for r in b.readings if r.field}
    for word in words:
        if word not in known:
            near = get_close_matches(word, sorted(known), 3)
            hint = f"closest: {', '.join(near)}; " if near else ""
            raise ValueError(
                f"there is no microbenchmark, group or figure {word!r}; {hint}`tinygpu calibrate --list` shows all"
            )
    return tuple(
        b for b in every if {b.name, b.group} & set(words) or {r.field for r in b.readings} & set(words)
    )
