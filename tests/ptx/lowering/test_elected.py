"""One thread issues for its role, which its warp elects: behind numbers that all of the role's threads have found."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Partition, blocked, integers
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ROWS, COLUMNS = 8, 32


class Blocks(Machine):
    """Eight rows of y are the eight of x from row at[i] on, tile after tile: who brings them reads where they begin"""

    n, k = Dim(), Dim()
    at = Input("s32", n, values=integers(0, n))
    x = Input("f32", n, k)
    y = Output("f32", n, k)
    warps, stages = Param(1, 4), Param(1, 3)
    plus, shuffle = isa.Add("s32"), isa.ShflBfly()
    single, tma, get, st = isa.LdGlobal(1), isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape = (ROWS, COLUMNS)
        tile = p.smem("f32", shape, swizzle=128)
        who = blocked(shape, threads=32)
        with p.grid((self.n, ROWS), persistent=True) as (i,), p.pipeline("ring", self.stages, t=tile) as ring:
            with p.role("bring", warps=self.warps):
                lanes = Partition((32,), Layout.of([(32, E(0)), (self.warps, 0)], []))  # the same in every warp
                some = p.reduce(self.plus, p.index(lanes, 0), axis=0, by=self.shuffle)
                first = self.at[i] + p.number(some, integers(sum(range(32)), sum(range(32)) + 1)) - sum(range(32))
                with p.loop(self.k, step=COLUMNS) as j, ring.produce() as slot:
                    p.copy(self.tma, self.x.tile(first, j, shape=shape), slot.t)
            with p.role("keep", warps=1, first=4), p.loop(self.k, step=COLUMNS) as j, ring.consume() as slot:
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.get, slot.t, who))

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        behind = np.concatenate([x, np.zeros((ROWS, x.shape[1]), x.dtype)])
        return np.concatenate([behind[at[i] : at[i] + ROWS] for i in range(0, len(x), ROWS)])[: len(x)]


def made(n: int, **point: int) -> tuple[Any, Kernel, Any]:
    problem = Blocks.problem(n=n, k=100)
    space = build_space(Blocks, problem, device("h100"))
    (found,) = space.space.restrict(point).sample(1, np.random.default_rng(0))
    program = space.program(found)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    protocol = lowered(program, problem, found, swizzles).protocol
    return problem, build(program, problem, found, SolverCache()).kernel, protocol


@pytest.mark.parametrize("n", [1, 63, 1500])
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("warps", [1, 4])
def test_what_all_threads_find_in_every_tile_one_goes_on_with(warps: int, stages: int, n: int) -> None:
    problem, kernel, protocol = made(n, warps=warps, stages=stages)
    found = verify(kernel, Blocks, problem)
    assert found.passed, str(found)
    assert certify(protocol).proved


BROKEN = {
    "all lanes issue": (r"@%p\d+ (cp\.async\.bulk\.tensor)", r"\1"),
    "all lanes expect bytes": (r"@%p\d+ (mbarrier\.arrive\.expect_tx)", r"\1"),
    "a thread of every warp issues": (r"@%p\d+ bra \$found\d+;", ""),
    "the others issue": (r"@(%p\d+) (cp\.async\.bulk\.tensor|mbarrier\.arrive\.expect_tx)", r"@!\1 \2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_kernels_in_which_others_issue_are_refused(name: str) -> None:
    problem, kernel, _ = made(63, warps=4, stages=3)
    pattern, by = BROKEN[name]
    ptx = re.sub(pattern, by, kernel.ptx)
    assert ptx != kernel.ptx
    assert not verify(replace(kernel, ptx=ptx), Blocks, problem, orders=("late",)).passed


def test_a_role_that_only_issues_has_one_warp_go_on() -> None:
    """Of four warps the others leave at once."""
    from tinygpu.machines.attention_blackwell import AttentionBlackwell

    problem = AttentionBlackwell.problem(b=1, h=1, g=1, s=128, t=128, d=64)
    space = build_space(AttentionBlackwell, problem, device("b200"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    ptx = build(space.program(point), problem, point, SolverCache()).kernel.ptx
    producer = ptx.split("// role producer")[1].split("// role ")[0]
    assert re.search(r"setmaxnreg.*\n\s*@%p\d+ bra \$end\d+;", producer)
