"""Whatever is broken in a ring, verification sees it: waits, arrivals, phases, wraps and skips, at every depth.

An edited kernel is caught where the assembler refuses it or `verify` finds a fault or a wrong result; else it is the
same kernel, because the assembler makes the same machine code of it, or for a reason that is stated here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx.assembler import AssemblerError, assemble
from tinygpu.ptx.build import build
from tinygpu.ptx.kernel import Kernel
from tinygpu.ptx.verification import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

sys.path.insert(0, str(Path(__file__).parent))
from ptx_edits import Edit
from ring_edits import ring_edits

AMPERE: dict[str, Any] = {
    "copy_a": "cp.async", "copy_b": "cp.async", "fragment_a": "ldmatrix", "fragment_b": "ldmatrix", "put": "direct",
    "bm": 32, "bn": 32, "bk": 32, "wm": 2, "wn": 1, "group": 1,
}  # fmt: skip
HOPPER: dict[str, Any] = {
    "schedule": "single", "out": "direct", "bm": 64, "bn": 16, "bk": 32, "cluster_m": 1, "cluster_n": 1, "group": 1,
    "split_k": 1, "stream_k": 0, "swizzle": 32, "swizzle_c": 32, "vr": 1,
}  # fmt: skip
SKINNY: dict[str, Any] = {
    "product": "mma.sync", "bm": 8, "bn": 64, "bk": 32, "warps": 1, "split_k": 1, "swizzle": 64,
}  # fmt: skip
WHOLE_WARPGROUP = {"product": "wgmma", "bk": 64, "warps": 4}


@dataclass(frozen=True, slots=True)
class Subject:
    """A machine with rings, for a small problem, and all of a candidate but its depth."""

    machine: type[Machine]
    on: str
    sizes: tuple[int, int, int]
    point: dict[str, Any]
    depths: tuple[int, ...]

    @property
    def problem(self) -> Problem:
        m, n, k = self.sizes
        return self.machine.problem(m=m, n=n, k=k)


SMALL = (300, 72, 320)
SUBJECTS = {
    "ampere": Subject(MatmulAmpere, "a100", (70, 90, 136), AMPERE, (1, 2, 3, 4, 5, 6)),
    "ampere staged": Subject(MatmulAmpere, "a100", (70, 90, 136), AMPERE | {"put": "staged"}, (1, 3, 6)),
    "hopper": Subject(MatmulHopper, "h100", SMALL, HOPPER, (2, 3, 4, 5, 6, 7, 8)),
    "hopper pingpong": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "out": "bulk", "cluster_m": 2}, (2, 3, 5, 8)
    ),
    "hopper cooperative": Subject(
        MatmulHopper, "h100", SMALL,
        HOPPER | {"schedule": "cooperative", "out": "matrices", "bm": 128, "cluster_m": 2, "cluster_n": 2}, (2, 4, 7),
    ),
    "hopper split-K": Subject(MatmulHopper, "h100", SMALL, HOPPER | {"cluster_n": 2, "split_k": 3}, (2, 5, 8)),
    "hopper pingpong split-K": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "split_k": 2}, (3, 6)
    ),
    "hopper stream-K": Subject(MatmulHopper, "h100", SMALL, HOPPER | {"stream_k": 1, "cluster_m": 2}, (2, 3, 6)),
    "hopper pingpong stream-K": Subject(
        MatmulHopper, "h100", SMALL, HOPPER | {"schedule": "pingpong", "stream_k": 1}, (3, 4, 8)
    ),
    "skinny": Subject(MatmulSkinny, "h100", (8, 200, 528), SKINNY, (2, 3, 4, 5, 6, 8, 10, 12, 16)),
    "skinny wgmma": Subject(MatmulSkinny, "h100", (8, 200, 1000), SKINNY | WHOLE_WARPGROUP, (2, 5, 12)),
    "skinny split-K": Subject(
        MatmulSkinny, "h100", (8, 200, 1000), SKINNY | WHOLE_WARPGROUP | {"split_k": 3}, (3, 8, 12)
    ),
}  # fmt: skip
# In the quick suite: a deep ring, roles that take turns, and one whose warps fill and drain.
QUICK = (("skinny", 12, 4), ("hopper pingpong", 3, 19), ("ampere", 3, 4))


@cache
def made(name: str, depth: int) -> Kernel:
    of = SUBJECTS[name]
    space = build_space(of.machine, of.problem, device(of.on))
    (point,) = space.space.restrict(of.point | {"stages": depth}).sample(1, np.random.default_rng(depth))
    return build(space.fill(point), of.problem, point, SolverCache()).kernel


# Edits of a kernel that change nothing, each with how many there are.
EQUIVALENT = {
    # Of two tiles, one of each role, with the same number of slots, the sum is even: the first role begins at slot 0.
    ("hopper pingpong", 2): (r"skip: rem\.u32 (%r\d+, %r\d+), 2;  ->  rem\.u32 \1, 1;", 1),
}


def alive(name: str, depth: int, every: int) -> list[str]:
    """Edits that nothing catches and that change what the kernel does, of every n-th edit."""
    found = list(_alive(name, depth, every))
    pattern, count = EQUIVALENT.get((name, depth), ("", 0))
    same = [edit for edit in found if re.search(pattern, edit)][:count]
    return [edit for edit in found if edit not in same]


def _alive(name: str, depth: int, every: int) -> Iterator[str]:
    of, kernel = SUBJECTS[name], made(name, depth)
    cubin = assemble(kernel.ptx, kernel.architecture).cubin
    for kind, edit in list(ring_edits(kernel.ptx))[::every]:
        if not _caught(of, kernel, edit) and assemble(edit.text, kernel.architecture).cubin != cubin:
            yield f"{name}, {depth} stages: {kind}: {edit}"


def _caught(of: Subject, kernel: Kernel, edit: Edit) -> bool:
    edited = replace(kernel, ptx=edit.text)
    try:
        assemble(edit.text, kernel.architecture)
    except AssemblerError:
        return True
    return not verify(edited, of.machine, of.problem, thorough=True, to_first_failure=True).passed


@pytest.mark.parametrize(("name", "depth", "every"), QUICK)
def test_a_broken_ring_is_caught(name: str, depth: int, every: int) -> None:
    assert not alive(name, depth, every)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "depth"), [(name, depth) for name, of in SUBJECTS.items() for depth in of.depths])
def test_every_broken_ring_is_caught_at_every_depth(name: str, depth: int) -> None:
    assert verify(made(name, depth), SUBJECTS[name].machine, SUBJECTS[name].problem, thorough=True).passed
    assert not alive(name, depth, 1)


def test_edits_are_of_every_kind() -> None:
    kinds = {kind for name, depth, _ in QUICK for kind, _ in ring_edits(made(name, depth).ptx)}
    assert kinds == {"wait", "arrival", "landing", "flip", "wrap", "skip", "retry"}
