"""Every wait, arrival, commit, fence, barrier and ordered atomic of these kernels of Blackwell is needed: without it,
the kernel is refused.

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
from tinygpu.machines.attention_blackwell import AttentionBlackwell
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.matmul_blackwell_scaled import MatmulBlackwellMx, MatmulBlackwellNvfp4
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ONE = {"store": "direct", "stages": 2, "cluster_n": 1, "raster": 1, "tiles": 1, "bn": 32, "stream_k": 0}
PLAIN = ONE | {"bk": 32, "split_k": 1, "launch_control": 0}
BEFORE, AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
MET, WAIT, STORED = "bar.warp.sync -1;", "mbarrier.try_wait.parity.shared::cta.b64", "tcgen05.wait::st.sync.aligned;"
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
# Columns of a pair are allocated when both CTAs have come to that, and the cluster meets again behind it.
PAIRED: Spared = {("begin", "barrier.cluster.arrive.aligned;"): 1}
# Tiles that two CTAs share, with scales of blocks.
SCALED = ONE | {"cluster_m": 1, "launch_control": 0, "split_k": 2, "bk": 128, "scaled": 1}
SCALES: Spared = LOADED | {
    # Two waits, for a free place and for the scales, each with a fence before the first copy: either will do.
    ("scaler", AFTER): 2,
    # The scales of a stage are copied once all of it has come, and the products wait for the copies.
    ("multiplier", WAIT): 1,
}  # fmt: skip
ATTENTION = {
    "groups": 1, "corrects": "who weighs", "scaled": "every round", "powers": "ex2", "bn": 32, "stages": 2, "piece": 32,
    "columns": 64, "swizzle": 128,
}  # fmt: skip
HEAD = {"b": 1, "h": 1, "g": 1, "s": 129, "t": 100, "d": 64}


@dataclass(frozen=True, slots=True)
class Subject:
    """A candidate, and what of it may go besides what may go everywhere.

    sms  of the device, few enough for CTAs to take tile after tile
    """

    machine: type[Machine]
    sizes: dict[str, int]
    point: dict[str, Any]
    spared: Spared
    sms: int = 2


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
        LOADED | PAIRED,
    ),
    "mx": Subject(MatmulBlackwellMx, {"m": 150, "n": 40, "k": 400}, SCALED | {"ctas": "one"}, SCALES, 4),
    "mx of pairs": Subject(
        MatmulBlackwellMx, {"m": 300, "n": 40, "k": 400}, SCALED | {"ctas": "pairs", "cluster_m": 2}, SCALES | PAIRED, 6
    ),
    "nvfp4": Subject(
        MatmulBlackwellNvfp4, {"m": 150, "n": 40, "k": 576}, SCALED | {"ctas": "one", "bk": 256}, SCALES, 4
    ),
    "nvfp4 of pairs": Subject(
        MatmulBlackwellNvfp4, {"m": 300, "n": 40, "k": 576}, SCALED | {"ctas": "pairs", "cluster_m": 2, "bk": 256},
        SCALES | PAIRED, 6,
    ),
    "values first": Subject(
        AttentionBlackwell, HEAD, ATTENTION | {"issued": "values first"},
        {
            # Operands are waited for before cells are, whose fence is the last one before the products (3). The first
            # product of a tile has three: its queries come when all products of the tile before have ended (3).
            ("multiplier", AFTER): 6,
            # The lanes have met at tcgen05.wait, and touch no memory from there to the arrival (3); scores of which
            # nothing is read yet are waited for and handed back at once (1, with both fences).
            ("weigher0", MET): 4, ("weigher0", AFTER): 1,
            # Sums that were read are given back, and written by products that wait for weights, with a fence there (1).
            ("weigher0", BEFORE): 2,
            # Weights, and columns of the sums: the wait for the last of these is one for all stores of the warp.
            ("weigher0", STORED): 2,
        },
    ),
    "scores first": Subject(
        AttentionBlackwell, HEAD, ATTENTION | {"issued": "scores first"},
        {
            # As above: of operands (3), and before the first product of a tile (3); of weights before that of sums (2).
            ("multiplier", AFTER): 8,
            # Queries of a tile come when the products of the one before have ended; these waited for weights, and so
            # for scores that were read.
            ("multiplier", WAIT): 1,
            # The first weights of a tile: the sums of the one before were waited for, and with them the products with
            # its weights. Sums: the place of the weights is free when the product that adds to them has ended.
            ("weigher0", WAIT): 2, ("weigher0", AFTER): 2,
            ("weigher0", MET): 6,
            # Products wait for weights and for scaled sums, which are handed over later, with a wait and a fence (1);
            # sums that were read are written by products that wait for later weights, with a fence there (1).
            ("weigher0", BEFORE): 2, ("weigher0", STORED): 2,
        },
    ),
    "corrected": Subject(
        AttentionBlackwell, HEAD | {"s": 300},
        ATTENTION | {"issued": "values first", "corrects": "a role", "scaled": "where it grew"},
        {
            ("multiplier", AFTER): 6,  # as above
            # Cells of which nothing is read or written are handed on at once, with both fences and a meeting (2); the
            # lanes have met at tcgen05.wait, and touch no memory from there (2).
            ("weigher0", MET): 4, ("weigher0", AFTER): 2, ("weigher0", BEFORE): 2,
            # Scores come when sums were corrected, by factors that were taken before.
            ("weigher0", WAIT): 1,
            # Handed on at once (2); scores, which come behind sums that were waited for, and are left alone (1). Sums
            # that were read are written by products that wait for weights, with a fence there (1).
            ("corrector", AFTER): 3, ("corrector", BEFORE): 3, ("corrector", WAIT): 1,
            # Handed on at once (2); at bar.sync or tcgen05.wait the lanes have met since they read factors (2), or sums
            # (2).
            ("corrector", MET): 6,
            ("corrector", STORED): 1,  # as above
        },
    ),
}  # fmt: skip
# Of scales one of pairs and one alone, one of each format; the others take longer than they are different.
SELDOM = ("mx", "nvfp4 of pairs", "corrected")
OFTEN = [pytest.param(name, marks=pytest.mark.slow) if name in SELDOM else name for name in SUBJECTS]


@cache
def made(name: str) -> tuple[Kernel, Problem]:
    of = SUBJECTS[name]
    problem = of.machine.problem(**of.sizes)
    few = device("b200").with_figures({"sm_count": replace(device("b200").figure("sm_count"), value=of.sms)})
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
            yield where(kernel.ptx, edit), WAIT if WAIT in edit.before else _first(edit.before)


def _first(statements: str) -> str:
    return statements[: statements.index(";") + 1]


@pytest.mark.parametrize("name", OFTEN)
@pytest.mark.end_to_end
def test_nothing_that_synchronises_can_be_taken_away(name: str) -> None:
    kernel, problem = made(name)
    assert verify(kernel, SUBJECTS[name].machine, problem, thorough=True).passed
    assert Counter(alive(name)) == Counter(SPARED | SUBJECTS[name].spared)


@pytest.mark.parametrize(
    ("name", "role"),
    [
        (name, role)
        for name in SUBJECTS
        for role, what in SPARED | SUBJECTS[name].spared
        if what == AFTER and role not in ("begin", "end")
    ],
)
@pytest.mark.end_to_end
def test_of_fences_that_do_the_same_one_is_needed(name: str, role: str) -> None:
    kernel, problem = made(name)
    parts = re.split(rf"(?m)(^ *// role {role}:|^ *// role \w+:|^\$end\d+:)", kernel.ptx)
    at = next(n for n, part in enumerate(parts) if part.strip() == f"// role {role}:") + 1
    assert parts[at].count(AFTER) > 1
    parts[at] = parts[at].replace(AFTER, "")
    found = verify(replace(kernel, ptx="".join(parts)), SUBJECTS[name].machine, problem, to_first_failure=True)
    assert "tcgen05.fence::after_thread_sync is missing" in str(found), str(found)
