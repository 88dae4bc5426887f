"""Preference: which of the candidates is taken where predicted times cannot decide.

A predicted time is some per cent off (docs/predictor.md), and thousands of candidates lie closer together than that. Of
those the one is taken that strains the device least. Each strain is a cost in seconds, a small share of the predicted
time, so that it decides between neighbours and never makes up for a loss that the model can see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.counts import Counted
from tinygpu.cost.predictor import Prediction
from tinygpu.devices import Device
from tinygpu.search.predicted import PredictedTime, columns_of, counted, counted_at
from tinygpu.search.result import Result
from tinygpu.search.searchable import Columns, Point
from tinygpu.spaces.build import MachineSpace

# Predicted times that differ by less than this share are not told apart.
RESOLUTION = 0.005

# Work of a unit that is hidden behind a busier one: of each unit's busy time. It delays the busier one now and then,
# costs power, and is the first to show where the model is too kind. Narrow copies, narrow swizzles, boxes that TMA
# cuts, and stores that fill no sectors show here, as instructions and as accesses of L2.
HIDDEN_SHARE = 5e-3
# For each doubling of a cluster, which waits for that many SMs of one GPC to be free.
CLUSTER_SHARE = 2e-3
# For all SMs that have no CTA: what a single SM can draw from L2 is not known, and theirs is lost.
IDLE_SHARE = 1e-2
# Where groups of warps take turns at tiles, and no CTA has a second one: turns hide nothing then.
LONE_TURN_SHARE = 1e-2
# Of the time of DRAM if L2 kept nothing from one wave of CTAs to the next.
REFETCH_SHARE = 1e-4
# Of the time in which DRAM would deliver what CTAs pass over again, as far as it fills L2 in between: the fuller L2
# is, the sooner some of it is gone.
KEPT_SHARE = 1e-2
# Of the time in which data would come with so much of it under way at a time, which work hides: data that comes late
# now and then is waited for the sooner, the less of it is under way.
READS_SHARE = 2e-3
# Of what SMs wait for, latencies and the last wave, also where the power limit takes as long anyway: how much room it
# leaves for that differs from part to part, and from data to data. It shows sums that wait in tensor memory until the
# ones before are stored, rings that are too short, and tiles that leave SMs idle.
WAITS_SHARE = 2e-2
# Of what rounds wait for in series while products hide it: each hands a slot over, and longer rounds do so less often.
HANDOVERS_SHARE = 1e-2
# Where CTAs share tiles: that they wait for each other, and what they leave in L2, is worth it only where it shows.
SHARED_SHARE = 3e-3
# Where they share the rounds of all tiles evenly, though there are more tiles than CTAs: tiles begin anywhere in k, so
# that neighbours no longer have the same operands at the same time, which the model does not know.
EVEN_SHARE = 2e-2
# For each doubling of the persistent CTAs of an SM whose roles overlap by themselves: each has a ring of its own, half
# as deep, and nothing orders their turns at the tensor cores.
CROWDED_SHARE = 1e-2
# For all registers that a thread can have: what the assembler needs beyond the estimate spills.
REGISTERS_SHARE = 1e-4
# For all shared memory that a CTA can have.
SMEM_SHARE = 1e-6

# Candidates that take so many times as long as the last that is wanted are not looked at.
FAR = 1.05

# Rows that are judged at once, and scores that count as equal: arrays of other lengths round differently.
_ROWS = 16_384
_EQUAL = 1e-10

# CTAs, threads of each, rounds of each.
Division = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with what it is chosen by: its value and its strain, in seconds."""

    point: Point
    score: float


def ranked(objective: PredictedTime, result: Result, groups: int, each: int) -> list[list[Ranked]]:
    """The candidates to be taken first, by value and strain; the order in which they were tried plays no part.

    Candidates that divide the work alike (`division`) are one group, of up to `each`, best first; the `groups` whose
    best are best, best first. Candidates that take `FAR` times as long as the last of these bests are left out.

    objective  predicts the points of the result, whose values may be known better than by its prediction
    """
    history = result.history
    order = np.argsort(history.values, kind="stable")
    order = order[: int(np.count_nonzero(np.isfinite(history.values)))]
    found: dict[Division, list[tuple[float, int]]] = {}
    farthest = math.inf
    for start in range(0, len(order), _ROWS):
        rows = order[start : start + _ROWS]
        rows = rows[history.values[rows] <= farthest]
        if not len(rows):
            break
        columns = {name: np.asarray(column)[rows] for name, column in history.columns.items()}
        strains, kinds = judge(objective, columns, len(rows))
        totals = history.values[rows] + strains
        for kind in np.unique(kinds, axis=0):
            mine = np.flatnonzero((kinds == kind).all(axis=1))
            pairs = found.get(tuple(kind.tolist()), [])
            pairs = sorted([*pairs, *zip(totals[mine].tolist(), rows[mine].tolist(), strict=True)])
            last = pairs[min(each, len(pairs)) - 1][0] * (1 + _EQUAL)
            found[tuple(kind.tolist())] = [pair for pair in pairs if pair[0] <= last]
        bests = sorted(pairs[0][0] for pairs in found.values())
        farthest = FAR * bests[min(groups, len(bests)) - 1]
    if not found:
        return []
    bests = sorted(pairs[0][0] for pairs in found.values())
    last = bests[min(groups, len(bests)) - 1] * (1 + _EQUAL)

    key = _in_order(bests[0])
    out = []
    for pairs in found.values():
        if pairs[0][0] <= last:
            group = [Ranked(history[row].point, score) for score, row in pairs if score <= farthest]
            out.append(sorted(group, key=key)[:each])
    return sorted(out, key=lambda group: key(group[0]))[:groups]


def scored(objective: PredictedTime, points: Sequence[Point]) -> list[Ranked]:
    """Candidates with the same parameters by value and strain, best first; none of which the launch is refused."""
    columns = columns_of(points)
    totals = np.asarray(objective.seconds(points)) + judge(objective, columns, len(points))[0]
    found = [Ranked(p, score) for p, score in zip(points, totals.tolist(), strict=True) if math.isfinite(score)]
    return sorted(found, key=_in_order(min(r.score for r in found))) if found else []


def _in_order(best: float) -> Callable[[Ranked], tuple[int, tuple[tuple[str, bool, Any], ...]]]:
    """A key by score, in units that arrays of other lengths do not round differently; of equals by names and values."""
    return lambda r: (round(r.score / best / _EQUAL), canonical(r.point))


def alike(objective: PredictedTime, result: Result, point: Point) -> tuple[int, tuple[str, ...]]:
    """Candidates that divide the work as this one does and that the model does not tell apart from it.

    How many others were tried, and the parameters in which they differ from it.
    """
    history, seconds = result.history, float(objective.prediction(point).seconds)
    rows = np.flatnonzero(np.abs(history.values - seconds) <= RESOLUTION * seconds)
    if not len(rows):
        return 0, ()
    columns = {name: np.asarray(column)[rows] for name, column in history.columns.items()}
    wanted = division(counted_at(objective.space, point))
    same = (divisions(objective, columns, len(rows)) == wanted).all(axis=1)
    differ = tuple(n for n, c in columns.items() if n in point and np.any(c[same] != point[n]))
    others = int(np.count_nonzero(same)) - 1
    return max(others, 0), differ


def canonical(point: Point) -> tuple[tuple[str, bool, Any], ...]:
    """A key that orders points by their parameters' names and values, wherever they were listed."""
    return tuple((name, isinstance(point[name], str), point[name]) for name in sorted(point))


def judge(
    objective: PredictedTime, columns: Columns, rows: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(rows,) strains and (rows, 3) divisions of many candidates."""
    strains, kinds = np.full(rows, np.inf), np.zeros((rows, 3), dtype=np.int64)
    for index, mask, chosen in objective.by_structure(columns, rows):
        found = counted(objective.space, index, chosen)
        strains[mask] = strain_of(objective.space.device, found, objective.predict(found))
        kinds[mask] = division(found)
    return strains, kinds


def divisions(objective: PredictedTime, columns: Columns, rows: int) -> NDArray[np.int64]:
    """(rows, 3) how many candidates divide the work."""
    kinds = np.zeros((rows, 3), dtype=np.int64)
    for index, mask, chosen in objective.by_structure(columns, rows):
        kinds[mask] = division(counted(objective.space, index, chosen))
    return kinds


def division(found: Counted) -> NDArray[np.int64]:
    """(..., 3) how candidates of one structure divide the work: CTAs, their threads, and the rounds of each."""
    parts = np.broadcast_arrays(found["ctas"], found["threads"], found["iterations"])
    return np.stack([np.asarray(part, dtype=np.int64) for part in parts], axis=-1)


def strain_at(space: MachineSpace, point: Point, prediction: Prediction) -> float:
    """The strain of one candidate, given its prediction."""
    return float(strain_of(space.device, counted_at(space, point), prediction))


def strain_of(device: Device, found: Counted, prediction: Prediction) -> NDArray[np.float64]:
    """The strain of candidates of one structure, given what was counted of them and their prediction.

    Seconds that are added to the predicted ones to choose; never negative, and infinite where the launch is refused.
    """
    program = found.counts.program
    even = np.asarray(found["even"]) > 0
    # CTAs that share rounds are as many as fit; those of a cluster that have a tile beyond the last one do nothing
    busy = np.where(even, device.sms_of_clusters(found["cluster"]), found["working"])
    shared = even | (np.asarray(found["slices"]) > 1)
    lone_turns = (np.asarray(found["turns"]) > 1) & (np.asarray(prediction.waves) <= 1)
    overlapping = len(program.roles) > 1 and program.grid.scheduler.persistent
    shares = (
        CLUSTER_SHARE * np.log2(np.maximum(found["cluster"], 1))
        + IDLE_SHARE * np.maximum(1 - busy / device.sm_count, 0)
        + REGISTERS_SHARE * np.asarray(found["registers"]) / 255
        + SMEM_SHARE * np.divide(found["smem"], device.max_smem_bytes_per_block)
        + SHARED_SHARE * shared
        + EVEN_SHARE * even
        + LONE_TURN_SHARE * lone_turns
        + CROWDED_SHARE * overlapping * np.log2(np.maximum(prediction.occupancy.ctas_per_sm, 1))
    )
    seconds = prediction.seconds
    dram_bytes = REFETCH_SHARE * found.refetched_bytes(device) + KEPT_SHARE * found.crowded_bytes(device)
    added = (
        shares * seconds
        + HIDDEN_SHARE * sum(np.asarray(busy) for busy in prediction.busy_s.values())
        + dram_bytes / device.dram_bytes_per_s
        + READS_SHARE * prediction.reads_s
        + WAITS_SHARE * (prediction.latency_s + prediction.tail_s)
        + HANDOVERS_SHARE * prediction.handovers_s
    )
    return np.asarray(np.where(np.isfinite(seconds), added, np.inf), dtype=np.float64)
