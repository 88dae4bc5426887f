"""Every way to deal tiles, in a machine of one role whose warps hand nothing to others: no TMA, no mbarrier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WHO = blocked((8, 32), threads=32, across=32)


def machine(persistent: bool, rounds: bool) -> type[Machine]:
    class Sums(Machine):
        """y = the sum of the windows of 32 columns of x, which come by cp.async"""

        m, k, w = Dim(), Dim(), Dim()
        x = Input("f32", m, k)
        y = Output("f32", m, w)
        stages, parts, cluster = Param(1, 2), Param(1, 2), Param(1, 2)
        bring, ld, st, add = isa.CpAsync(1), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")
        leave, take = isa.StGlobal(4), isa.LdGlobal(4)

        def program(self, p: Any) -> None:
            shared = {"stream_k": 1} if rounds else {"slices": self.parts}
            with (
                p.grid((self.m, 8), cluster=self.cluster, persistent=persistent, **shared) as (i,),
                p.pipeline("ring", self.stages, x=p.smem("f32", (8, 32))) as ring,
                p.role("all", warps=1),
            ):
                total = p.full(WHO, "f32")
                with p.loop(self.k, step=32, divided=True) as kk, ring.produce() as s:
                    p.copy(self.bring, self.x.tile(i, kk, shape=(8, 32)), s.x, WHO)
                with p.loop(self.k, step=32, divided=True), ring.consume() as s:
                    p.apply(self.add, total, p.load(self.ld, s.x, WHO), into=total)
                with p.fix_up(self.add, self.leave, self.take, total) as whole:
                    p.store(self.st, self.y.tile(i, 0, shape=(8, 32)), whole)

        @staticmethod
        def reference(x: Any) -> Any:
            padded = np.pad(x, ((0, 0), (0, -x.shape[1] % 32)))
            return padded.reshape(len(x), -1, 32).sum(axis=1)

    return Sums


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize(("persistent", "rounds"), [(False, False), (True, False), (True, True)])
def test_tiles_are_dealt_in_a_role_that_hands_over_to_itself(persistent: bool, rounds: bool, cluster: int) -> None:
    made = machine(persistent, rounds)
    problem = made.problem(m=37, k=150, w=32)
    space = build_space(made, problem, device("h100"))
    for stages, parts in ((1, 1), (2, 2)):
        fixed = {"stages": stages, "cluster": cluster} | ({} if rounds else {"parts": parts})
        (point,) = space.space.restrict(fixed).sample(1, np.random.default_rng(0))
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert kernel.architecture == ("sm_90" if cluster > 1 else "sm_80")
        found = verify(kernel, made, problem, orders=("late", "random"), random_inputs=False)
        assert found.passed, f"{point}\n{found}"
        assert assemble(kernel.ptx, kernel.assembled_for("sm_90")).spill_store_bytes == 0
