"""What it costs to look back at the tiles before: each CTA alone, and all of them one after another."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.cost.demand import SECTOR_BYTES
from tinygpu.expressions import Expr, ceil_div, expr, maximum, minimum
from tinygpu.language.meeting import LANES, WORD_BYTES
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# A warp that looks back: shuffles over its 32 lanes, one after another; instructions beside these and the merges, of
# what lowering writes; and trips to L2: flags, what they speak of, and what the tile before publishes on its way there.
STEPS = 5
ISSUED = 70
TRIPS = 3


@dataclass(frozen=True, slots=True)
class LookedBack:
    """What one CTA does, which finds in the first 32 tiles before its own one that knows what all up to it have.

    work    amounts by name (`tinygpu.cost.demand.Work`)
    waits   what it waits for in series, by name (`tinygpu.cost.demand.Chain`)
    merges  of two tuples, by all lanes
    """

    work: Mapping[str, Expr]
    waits: Mapping[str, Expr]
    merges: Expr


def looked_back(s: n.Preceding, warps: Expr) -> LookedBack:
    """All of it stays in L2, so that DRAM sees none.

    warps  of the role
    """
    who, words = s.meeting, s.merge.words
    tuples = who.groups * who.results
    # Of one tuple of each of 32 tiles, whose tuples are neighbours; of sectors that hold several of a tile one is read.
    flags = minimum(tuples * (LANES * WORD_BYTES // SECTOR_BYTES), LANES)
    shuffled, merged = STEPS * words, STEPS + 2
    left, in_turn = who.results * words, ceil_div(tuples, warps)
    work = {
        "sectors_read": tuples * (flags * (1 + words)),
        "sectors_written": tuples * (2 * (1 + words)) + 1,
        "warp_instructions": tuples * (ISSUED + shuffled + merged * len(s.merge.steps)),
        "l1_wavefronts": tuples * (shuffled + 2 * flags * (1 + words)),
        "smem_store_wavefronts": left * (who.groups // maximum(who.together, 1)) + tuples * words,
        "smem_load_wavefronts": left * warps + tuples * words,
    }
    waits = {"l2_trips": in_turn * TRIPS, "smem_loads": in_turn * STEPS + 2, "barriers": in_turn * 0 + 2}
    return LookedBack(work, waits, tuples * (LANES * merged))


def handed_on(program: Program, s: n.Preceding) -> Expr:
    """Trips to L2 from the first tile of a row to the last: what all have together gets 32 tiles further in each.

    A rule that is on the safe side: as if no CTA looked at more than the 32 tiles before it.
    """
    tuples = s.meeting.groups * s.meeting.results
    warps = maximum(*[r.warps for r in program.roles])
    return ceil_div(program.grid.axes[s.grid].tiles * ceil_div(tuples, warps) * TRIPS, LANES)


@dataclass(frozen=True, slots=True)
class Chained:
    """How the tiles of a grid wait for each other.

    tiles   of a row, each of which waits for those before it; 0: nobody waits
    beside  rows whose tiles are launched by turns
    """

    tiles: Expr
    beside: Expr


def chained(program: Program) -> Chained:
    """Of several statements that look back, the rows of the most tiles, and the fewest beside each other."""
    found = [s for s in walk(program.body) if isinstance(s, n.Preceding)]
    if not found:
        return Chained(expr(0), expr(1))
    axes = program.grid.axes
    beside = [math.prod((axis.tiles for axis in axes[s.grid + 1 :]), start=expr(1)) for s in found]
    return Chained(maximum(*(axes[s.grid].tiles for s in found)), minimum(*beside))
