"""Whatever is broken in a ring, verification sees it: waits, arrivals, phases, wraps and skips, at every depth.

An edited kernel is caught where the assembler refuses it or `verify` finds a fault or a wrong result; else it is the
same kernel, because the assembler makes the same machine code of it, or for a reason that is stated here and looked up
in its text. What is taken away is taken away everywhere; of what is there and wrong (another count, another slot, too
late, too early), every edit at one depth of each subject, and at the others, which share its code, one of each kind.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_blackwell_consumer import MatmulBlackwellConsumer
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx.assembling.assembler import AssemblerError, assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

sys.path.insert(0, str(Path(__file__).parent))
from ptx_edits import Edit
from ring_edits import handover_edits, ring_edits

AMPERE: dict[str, Any] = {
    "copy_a": "cp.async", "copy_b": "cp.async", "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "store": "direct",
    "bm": 32, "bn": 32, "bk": 32, "warps_m": 2, "warps_n": 1, "raster": 1,
}  # fmt: skip
HOPPER: dict[str, Any] = {
    "schedule": "single", "store": "direct", "bm": 64, "bn": 16, "bk": 32, "cluster_m": 1, "cluster_n": 1, "raster": 1,
    "split_k": 1, "stream_k": 0, "swizzle": 32, "swizzle_c": 32, "piece": 16, "outs": 1, "vr": 1,
}  # fmt: skip
SKINNY: dict[str, Any] = {
    "product": "mma.sync", "bm": 8, "bn": 64, "bk": 32, "warps": 1, "split_k": 1, "swizzle": 64,
}  # fmt: skip
CONSUMER: dict[str, Any] = {
    "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "schedule": "cooperative", "store": "direct", "bm": 32,
    "bn": 32, "bk": 32, "warps_m": 2, "warps_n": 1, "raster": 1, "split_k": 1, "stream_k": 0, "swizzle": 64, "vr": 2,
}  # fmt: skip
WHOLE_WARPGROUP = {"product": "wgmma", "bk": 64, "warps": 4}


@dataclass(frozen=True, slots=True)
class Subject:
    """A machine with rings, for a small problem, and all of a candidate but its depth."""

    machine: type[Machine]
    on: str
    sizes: tuple[int, ...]
    point: dict[str, Any]
    depths: tuple[int, ...]
    types: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        return self.machine.problem(**dict(zip(self.machine.dim_names(), self.sizes, strict=True)), **self.types)


SMALL = (300, 72, 320)
SUBJECTS = {
    "ampere": Subject(MatmulAmpere, "a100", (70, 90, 136), AMPERE, (1, 2, 3, 4, 5, 6)),
    "ampere staged": Subject(MatmulAmpere, "a100", (70, 90, 136), AMPERE | {"store": "staged"}, (1, 3, 6)),
    "ampere staged, shared rows": Subject(
        MatmulAmpere, "a100", (70, 90, 136), AMPERE | {"store": "staged", "warps_m": 1, "warps_n": 2}, (1, 3, 6)
    ),
    "hopper": Subject(MatmulHopper, "h100", SMALL, HOPPER, (2, 3, 4, 5, 6, 7, 8)),
    "hopper pingpong": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "store": "staged", "cluster_m": 2}, (2, 3, 5, 8)
    ),
    "hopper cooperative": Subject(
        MatmulHopper, "h100", SMALL,
        HOPPER | {"schedule": "cooperative", "store": "stmatrix", "bm": 128, "cluster_m": 2, "cluster_n": 2}, (2, 4, 7),
    ),
    "hopper split-K": Subject(MatmulHopper, "h100", SMALL, HOPPER | {"cluster_n": 2, "split_k": 3}, (2, 5, 8)),
    "hopper pingpong split-K": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "split_k": 2}, (3, 6)
    ),
    "hopper stream-K": Subject(MatmulHopper, "h100", SMALL, HOPPER | {"stream_k": 1, "cluster_m": 2}, (2, 3, 6)),
    "hopper pingpong stream-K": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "stream_k": 1}, (3, 4, 8)
    ),
    "hopper fp8": Subject(
        MatmulHopper, "h200", (300, 80, 320), HOPPER | {"cluster_m": 2, "bk": 64, "swizzle": 64}, (4,),
        {"dtypes": {"a": "e4m3", "b": "e4m3", "c": "f16"}, "majors": {"b": "col"}},
    ),
    "consumer": Subject(MatmulBlackwellConsumer, "rtx5090", SMALL, CONSUMER, (2, 3, 5, 8)),
    "consumer pingpong": Subject(
        MatmulBlackwellConsumer, "rtx5090", SMALL, CONSUMER | {"schedule": "pingpong", "store": "staged"}, (2, 3, 5)
    ),
    "skinny": Subject(MatmulSkinny, "h100", (8, 200, 528), SKINNY, (2, 3, 4, 5, 6, 8, 10, 12, 16)),
    "skinny wgmma": Subject(MatmulSkinny, "h100", (8, 200, 1000), SKINNY | WHOLE_WARPGROUP, (2, 5, 12)),
    "skinny split-K": Subject(
        MatmulSkinny, "h100", (8, 200, 1000), SKINNY | WHOLE_WARPGROUP | {"split_k": 3}, (3, 8, 12)
    ),
}  # fmt: skip
# In the quick suite: a deep ring, roles that take turns, and one whose warps fill and drain.
QUICK = (("skinny", 12, 6), ("hopper pingpong", 3, 38), ("ampere", 3, 6))


@cache
def made(name: str, depth: int) -> Kernel:
    of = SUBJECTS[name]
    space = build_space(of.machine, of.problem, device(of.on))
    (point,) = space.space.restrict(of.point | {"stages": depth}).sample(1, np.random.default_rng(depth))
    return build(space.program(point), of.problem, point, SolverCache()).kernel


def edits(name: str, depth: int) -> list[tuple[str, Edit]]:
    """(kind, edit) of a kernel, as the law wants them."""
    ptx, depths = made(name, depth).ptx, SUBJECTS[name].depths
    taken, changed = list(ring_edits(ptx)), list(handover_edits(ptx))
    if depth != depths[len(depths) // 2]:
        mixed = np.random.default_rng(depth).permutation(len(changed))
        changed = list({changed[n][0]: changed[n] for n in mixed}.values())
    return taken + changed


# Edits of a kernel that change nothing, each with how many there are.
EQUIVALENT = {
    # Of two tiles, one of each role, with the same number of slots, the sum is even: the first role begins at slot 0.
    ("hopper pingpong", 2): (r"skip: rem\.u32 (%r\d+, %r\d+), 2;  ->  rem\.u32 \1, 1;", 1),
}
# What lanes of a warp may do between two places without meeting: registers and arrivals.
ALONE = re.compile(r"(@%p\d+ )?(mov|shl|add|and|setp|mapa|mbarrier\.arrive)\b")


# What stands behind the initialisation of mbarriers, and before a tile is stored that goes out through shared memory.
MET = re.compile(r"fence\.mbarrier_init\S*\n\$made\d+:\n *(bar\.sync 0|barrier\.cluster\.arrive\.aligned);")
STAGED = re.compile(r"\n +bar\.sync 0;\n *// .*= st\.shared ")


def reason(of: Subject, kernel: Kernel, edit: Edit) -> str:
    """Why a kernel is no worse for an edit; "" where no reason is known."""
    if "fence.mbarrier_init" in edit.before and not edit.after and (met := MET.search(kernel.ptx)):
        if met[1] == "bar.sync 0":
            return "nobody but its own CTA uses the barriers, whose threads meet at bar.sync; the fence is for clusters"
        return "the cluster meets at a barrier that releases everything; the fence is for arrivals that are relaxed"
    before_stores = STAGED.search(kernel.ptx) and not STAGED.search(edit.text)
    if edit.before == "bar.sync 0;" and not edit.after and before_stores and _right_with_any_rounds(of, kernel, edit):
        return "in the last slots of every number of rounds, a warp stores over what it alone has read"
    if edit.before.startswith("bar.warp.sync") and not edit.after and _have_met(kernel.ptx, edit.text):
        return "the lanes have met at wgmma.wait_group.sync.aligned, and touch no memory until here"
    return ""


def _right_with_any_rounds(of: Subject, kernel: Kernel, edit: Edit) -> bool:
    """Whether no number of rounds, up to two turns of the deepest ring, shows a race; others end like one of these."""
    (step,) = {step for dim, step in kernel.steps if dim == "k"}
    for rounds in range(1, 2 * max(r.stages for r in kernel.rings) + 1):
        problem = replace(of, sizes=(*of.sizes[:2], step * rounds)).problem
        edited = replace(kernel, ptx=edit.text)
        if not verify(edited, of.machine, of.problem, orders=("late",), random_inputs=False, derived=problem).passed:
            return False
    return True


def _have_met(ptx: str, edited: str) -> bool:
    """Whether only registers and arrivals stand between a dropped line and the wait of a whole warpgroup before it."""
    lines, left = ptx.split("\n"), edited.split("\n")
    dropped = next(number for number, line in enumerate(lines) if line != left[number])
    for line in reversed(lines[:dropped]):
        if line.strip().startswith("wgmma.wait_group.sync.aligned"):
            return True
        if not ALONE.match(line.strip()):
            return False
    return False


def alive(name: str, depth: int, every: int) -> list[str]:
    """Edits that nothing catches and that change what the kernel does, of every n-th edit."""
    found = list(_alive(name, depth, every))
    pattern, count = EQUIVALENT.get((name, depth), ("", 0))
    same = [edit for edit in found if pattern and re.search(pattern, edit)][:count]
    return [edit for edit in found if edit not in same]


def _alive(name: str, depth: int, every: int) -> Iterator[str]:
    of, kernel = SUBJECTS[name], made(name, depth)
    cubin = assemble(kernel.ptx, kernel.architecture).cubin
    for kind, edit in edits(name, depth)[::every]:
        try:
            same = assemble(edit.text, kernel.architecture).cubin == cubin
        except AssemblerError:
            continue
        if not same and not reason(of, kernel, edit) and not _caught(of, kernel, edit):
            yield f"{name}, {depth} stages: {kind}: {edit}"


def _caught(of: Subject, kernel: Kernel, edit: Edit) -> bool:
    edited = replace(kernel, ptx=edit.text)
    return not verify(edited, of.machine, of.problem, thorough=True, to_first_failure=True).passed


@pytest.mark.end_to_end
@pytest.mark.parametrize(("name", "depth", "every"), QUICK)
def test_a_broken_ring_is_caught(name: str, depth: int, every: int) -> None:
    assert not alive(name, depth, every)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "depth"), [(name, depth) for name, of in SUBJECTS.items() for depth in of.depths])
def test_every_broken_ring_is_caught_at_every_depth(name: str, depth: int) -> None:
    assert verify(made(name, depth), SUBJECTS[name].machine, SUBJECTS[name].problem, thorough=True).passed
    assert not alive(name, depth, 1)


@pytest.mark.end_to_end
def test_edits_are_of_every_kind() -> None:
    kinds = {kind for name, depth, _ in QUICK for kind, _ in edits(name, depth)}
    assert kinds == {
        "wait", "arrival", "landing", "flip", "wrap", "skip", "retry", "phase", "count", "neighbour", "late wait",
        "lanes", "bytes", "early release", "late landing", "hop", "fence",
    }  # fmt: skip
