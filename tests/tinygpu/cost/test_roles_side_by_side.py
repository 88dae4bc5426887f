"""Roles that work at the same time wait for what they look up before their loops side by side, and do not add up."""

from __future__ import annotations

from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Option, Output, Param, Tracer, blocked, integers
from tinygpu.machines.grouped_matmul_blackwell import GroupedMatmulBlackwell
from tinygpu.machines.grouped_matmul_hopper import GroupedMatmulHopper
from tinygpu.ptx import isa
from tinygpu.spaces.build import MachineSpace, build_space


class LookedUp(Machine):
    """y = x, which a producer brings and a consumer stores, each from numbers that it has looked up"""

    n, listed = Dim(), Dim()
    at = Input("s32", listed, values=integers(0, 1))
    x, y = Input("f32", n, 32), Output("f32", n, 32)
    produced, consumed = Option(1, 2, 3, 4), Option(1, 2, 3, 4)
    stages = Param(2, 3)
    tma, get, st, single = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1)

    def program(self, p: Tracer) -> None:
        who = blocked((8, 32), threads=128)
        ring = p.pipeline("ring", self.stages, x=p.smem("f32", (8, 32), swizzle=128))
        with p.grid((self.n, 64)) as (i,), ring as tiles:
            with p.role("producer", warps=1):
                first = i + self.looked_up(0, self.produced)
                with p.loop(64, step=8) as j, tiles.produce() as s:
                    p.copy(self.tma, self.x.tile(first + j, 0, shape=(8, 32)), s.x)
            with p.role("consumer", warps=4, first=4):
                first = i + self.looked_up(4, self.consumed)
                with p.loop(64, step=8) as j, tiles.consume() as s:
                    p.store(self.st, self.y.tile(first + j, 0, shape=(8, 32)), p.load(self.get, s.x, who))

    def looked_up(self, begin: int, count: int) -> Any:
        return sum((self.at[begin + k] for k in range(1, count)), self.at[begin])

    @staticmethod
    def reference(at: Any, x: Any, produced: int, consumed: int) -> Any:
        return x


def trips(space: MachineSpace) -> int:
    """Round trips to memory in series before the first round of a candidate."""
    (point,) = space.space.take([0])
    index = space.structure_index(point)
    axes = {a: int(point[a]) for a in space.traces[index].axes}
    demand = space.counts(index).demand({**space.environment, **axes}, space.device)
    return int(demand.prologue.chain.global_loads)


@pytest.mark.parametrize("produced", [1, 2, 3, 4])
@pytest.mark.parametrize("consumed", [1, 2, 3, 4])
def test_a_cta_waits_for_the_role_that_looks_up_most(produced: int, consumed: int) -> None:
    problem = LookedUp.problem(n=4096, listed=8, options={"produced": produced, "consumed": consumed})
    assert trips(build_space(LookedUp, problem, device("h100"))) == max(produced, consumed) + 1  # and the first box


def test_more_roles_that_find_the_same_wait_no_longer() -> None:
    """Two roles find the expert of a tile on Hopper, three on Blackwell: by offsets, its begin and its end."""
    sizes = {"m": 1024, "n": 512, "k": 256, "experts": 64}
    hopper = build_space(GroupedMatmulHopper, GroupedMatmulHopper.problem(**sizes), device("h100"))
    blackwell = build_space(GroupedMatmulBlackwell, GroupedMatmulBlackwell.problem(**sizes), device("b200"))
    assert trips(hopper) == trips(blackwell) == 4
