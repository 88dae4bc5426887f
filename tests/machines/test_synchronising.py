"""Every wait, arrival, commit, fence and barrier of these kernels of Blackwell is needed: without it, it is refused.

Those without which it passes are listed, by where they stand, with how many there are and why they change nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from ptx_edits import Edit
from synchronising import without_each

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ONE = {"store": "direct", "stages": 2, "cluster_n": 1, "raster": 1, "tiles": 1, "bn": 32, "stream_k": 0}
PLAIN = ONE | {"bk": 32, "split_k": 1, "launch_control": 0}
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
MET, WAIT = "bar.warp.sync -1;", "mbarrier.try_wait"
# (where, what) -> how many
Spared = dict[tuple[str, str], int]
# The same in all kernels.
SPARED: Spared = {
    # All threads of the CTA, or of the cluster, meet at a barrier that releases everything before one uses an mbarrier.
    ("begin", "fence.mbarrier_init.release.cluster;"): 1,
    # Lanes come one by one to an instruction of the whole warp, tcgen05.alloc; no memory is ordered by that.
    ("begin", MET): 1,
    # Nobody has touched tensor memory yet: its address comes through shared memory, and a barrier orders that.
    ("begin", BEFORE): 1, ("begin", AFTER): 1,
    # Two waits, for sums that were read and for operands, each with a fence before the first product: either will do.
    ("multiplier", AFTER): 2,
    # Whatever was under way has been waited for, and columns are given back behind a barrier of all threads.
    ("end", BEFORE): 1, ("end", AFTER): 1,
    # Lanes come one by one to an instruction of the whole warp, tcgen05.dealloc.
    ("end", MET): 1,
}  # fmt: skip
# The lanes have met at tcgen05.wait::ld.sync.aligned, and touch no memory from there to the arrival.
LOADED: Spared = {("epilogue", MET): 1}


@dataclass(frozen=True, slots=True)
class Subject:
    """A candidate, and what of it may go besides what may go everywhere."""

    machine: type[Machine]
    sizes: dict[str, int]
    point: dict[str, Any]
    spared: Spared


SUBJECTS = {
    "taken over": Subject(
        MatmulBlackwell, {"m": 300, "n": 40, "k": 104},
        PLAIN | {"launch_control": 1, "ctas": "one", "bm": 128, "cluster_m": 1},
        # Who hears the answer asks for the next one, and its lanes meet where one of them is elected for that.
        LOADED | {("producer", MET): 1},
    ),
    "64 rows": Subject(
        MatmulBlackwell, {"m": 150, "n": 40, "k": 104}, PLAIN | {"ctas": "one", "bm": 64, "cluster_m": 1}, LOADED
    ),
    "64 rows of pairs": Subject(
        MatmulBlackwell, {"m": 300, "n": 40, "k": 104}, PLAIN | {"ctas": "pairs", "bm": 64, "cluster_m": 2},
        # Columns of a pair are allocated when both CTAs have come to that, and the cluster meets again behind it.
        LOADED | {("begin", "barrier.cluster.arrive.aligned;"): 1},
    ),
}  # fmt: skip


@cache
def made(name: str) -> tuple[Kernel, Problem]:
    of = SUBJECTS[name]
    problem = of.machine.problem(**of.sizes)
    few = device("b200").with_figures({"sm_count": replace(device("b200").figure("sm_count"), value=2)})
    space = build_space(of.machine, problem, few)
    (point,) = space.space.restrict(of.point).sample(1, np.random.default_rng(0))
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


def where(ptx: str, edit: Edit) -> str:
    """The role that a taken line is of, or "begin" or "end" where all warps are."""
    lines, left = ptx.split("\n"), edit.text.split("\n")
    at = next(number for number, line in enumerate(lines) if number >= len(left) or line != left[number])
    if any(re.match(r"\$end\d+:", line) for line in lines[:at]):
        return "end"
    roles = [found[1] for line in lines[:at] if (found := re.match(r"\s*// role (\w+):", line))]
    return roles[-1] if roles else "begin"


def alive(name: str) -> Iterator[tuple[str, str]]:
    """Where and what may be taken away, without anything that catches it."""
    kernel, problem = made(name)
    machine = SUBJECTS[name].machine
    for edit in without_each(kernel.ptx):
        edited = replace(kernel, ptx=edit.text)
        if verify(edited, machine, problem, thorough=True, to_first_failure=True).passed:
            yield where(kernel.ptx, edit), edit.before.split(" ")[0] if WAIT in edit.before else _first(edit.before)


def _first(statements: str) -> str:
    return statements[: statements.index(";") + 1]


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.end_to_end
def test_nothing_that_synchronises_can_be_taken_away(name: str) -> None:
    kernel, problem = made(name)
    assert verify(kernel, SUBJECTS[name].machine, problem, thorough=True).passed
    assert Counter(alive(name)) == Counter(SPARED | SUBJECTS[name].spared)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.end_to_end
def test_of_two_fences_that_do_the_same_one_is_needed(name: str) -> None:
    kernel, problem = made(name)
    head, role, rest = re.split(r"(?m)(^ *// role multiplier:)", kernel.ptx)
    mine, others = re.split(r"(?m)^(?= *// role epilogue:)", rest)
    assert mine.count(AFTER) == 2
    edited = replace(kernel, ptx=head + role + mine.replace(AFTER, "") + others)
    found = verify(edited, SUBJECTS[name].machine, problem, to_first_failure=True)
    assert "tcgen05.fence::after_thread_sync is missing" in str(found), str(found)
