"""What looking back costs: closed forms against listing every lane, and listing against the emulator."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.look_back import looked_back
from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.machines.scan import LongScan
from tinygpu.program import nodes as n
from tinygpu.program.exchanged import looked_back as places_of
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.line_info import LineInfo
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space
from tinygpu.testing.case import Case
from tinygpu.testing.cases import examine
from tinygpu.testing.workbench import Workbench

PROBLEM = LongScan.problem(m=3, n=160, dtypes={"x": "s32"})
SECTOR_BYTES = 32


@cache
def space() -> MachineSpace:
    return build_space(LongScan, PROBLEM, device("a100"))


def point(warps: int, across: int, vector: int = 1, step: int = 1, exchange: str = "shuffles") -> dict[str, Any]:
    return {"warps": warps, "across": across, "vector": vector, "step": step, "exchange": exchange}


# One warp and many, one row and many of a CTA, rows of a part of a warp, of one, and of several.
POINTS = (
    point(1, 4), point(2, 32, 4, 2), point(4, 64, 1, 2), point(4, 128, 4, 8, "pairs"), point(8, 8, 2, 2),
    point(16, 4), point(16, 512, 1, 4, "pairs"),
)  # fmt: skip
# Those that the quick suite emulates with all that verification asks.
FEW = (POINTS[0], POINTS[2])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("at", POINTS, ids=str)
@pytest.mark.parametrize("check", ["counts", "meter"])
def test_counts_listing_and_the_emulator_agree(at: dict[str, Any], check: str) -> None:
    found = examine(check, Case(LongScan, PROBLEM, device("a100"), at), Workbench())
    assert (found.fault, found.absent, found.blind) == ("", "", "")


@pytest.mark.parametrize("at", POINTS, ids=str)
def test_what_a_cta_tells_others_is_counted_as_it_is_listed(at: dict[str, Any]) -> None:
    (s,) = [s for s in walk(space().program(at).body) if isinstance(s, n.Preceding)]
    listed = {False: 0, True: 0}
    for writes, addresses in places_of(s).told():
        listed[writes] += len(np.unique(addresses // SECTOR_BYTES))
    work = looked_back(s, expr(at["warps"])).work
    assert {w: int(work[f"sectors_{'written' if w else 'read'}"]) for w in (False, True)} == listed


@pytest.mark.parametrize("at", [p if p in FEW else pytest.param(p, marks=pytest.mark.slow) for p in POINTS], ids=str)
def test_sectors_that_ctas_publish_are_those_that_are_counted(at: dict[str, Any]) -> None:
    """The first tile of a row publishes once, the others twice; every CTA counts itself in, and the last one clears."""
    program = space().program(at)
    built = build(program, PROBLEM, at, SolverCache())
    lines = LineInfo.of(built, PROBLEM)
    found = verify(
        built.kernel, LongScan, PROBLEM, orders=("late",), random_inputs=False, derived=PROBLEM, lines=lines
    )
    assert found.passed
    text = built.kernel.ptx.splitlines()
    written = {"published": 0, "counted": 0, "cleared": 0}
    for line, counters in found.lines.items():
        printed = lines.lines.get(line)
        if printed is not None and isinstance(printed.statement, n.Preceding) and counters.sectors:
            words = text[line - 1]
            kind = "counted" if " atom." in words else "cleared" if words.endswith(", 0;") else "published"
            written[kind] += 0 if " ld." in words else counters.sectors
    (s,) = [s for s in walk(program.body) if isinstance(s, n.Preceding)]
    by = places_of(s)
    rows, tiles = (-(-PROBLEM.dim[d] // int(a.extent)) for d, a in zip("mn", program.grid.axes, strict=True))
    each = int(looked_back(s, expr(at["warps"])).work["sectors_written"]) - 1
    flags = (rows * tiles + np.arange(rows * tiles * by.tuples)) * 4  # behind the place of the counter
    cleared = sum(len(np.unique(flags[first : first + 32] // SECTOR_BYTES)) for first in range(0, len(flags), 32))
    assert written == {"published": rows * (2 * tiles - 1) * each // 2, "counted": rows * tiles, "cleared": cleared}
