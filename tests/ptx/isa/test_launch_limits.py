"""Rules whose judge is the launch: what they refuse, the device refuses, and what they admit, it launches."""

from functools import cache
from typing import Any

import pytest

from tinygpu.constraints.constraint import Constraint
from tinygpu.cost.occupancy import occupancy
from tinygpu.devices import Device, devices
from tinygpu.expressions import evaluate
from tinygpu.language import Dim, Input, Machine, Output, Param, Route, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import LaunchError, emulate
from tinygpu.spaces.build import build_space

DEVICES = [d for d in devices() if d.cc >= 80]


class Staged(Machine):
    """y = x, through shared memory"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)

    warps, rows, stages = Param(1, 31, 32, 33, 64), Param(1, 2, 4, 7, 8), Param(1, 2, 3, 4, 6, 7, 8, 12, 16)
    copy = Route(isa.LdGlobal(1), isa.StShared(1))
    ld, st = isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        threads = self.warps * 32
        shape = (threads * self.rows,)
        who = blocked(shape, threads=threads, across=threads)
        stage = p.smem("f32", shape)
        with (
            p.grid((self.n, shape[0])) as (i,),
            p.pipeline("ring", self.stages, x=stage) as ring,
            p.role("all", warps=self.warps),
        ):
            with ring.produce() as s:
                p.copy(self.copy, self.x.tile(i, shape=shape), s.x, who)
            with ring.consume() as s:
                p.store(self.st, self.y.tile(i, shape=shape), p.load(self.ld, s.x, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@cache
def rules() -> dict[str, Constraint]:
    """The machine's rules whose judge is the launch, by name."""
    made = build_space(Staged, Staged.problem(n=4096), DEVICES[0])
    return {c.name: c for c in made.traces[0].constraints if c.judge == "launch"}


def environment(device: Device) -> dict[str, int]:
    return build_space(Staged, Staged.problem(n=4096), device).environment


def test_these_are_the_rules_that_the_launch_judges() -> None:
    assert set(rules()) == {"threads per CTA", "grid size", "smem capacity"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_threads_and_smem_are_legal_if_and_only_if_the_device_launches_them(device: Device) -> None:
    threads, smem = rules()["threads per CTA"], rules()["smem capacity"]
    figures = environment(device)
    seen = set()
    for warps in (1, 31, 32, 33, 64):
        for rows in (1, 2, 4, 7, 8):
            for stages in (1, 2, 3, 4, 6, 7, 8, 12, 16):
                point = {**figures, "warps": warps, "rows": rows, "stages": stages}
                size = 4 * 32 * warps * rows * stages
                launched = bool(occupancy(device, 32 * warps, 0, size).launchable)
                by_threads, by_smem = bool(evaluate(threads.condition, point)), bool(evaluate(smem.condition, point))
                assert (by_threads and by_smem) == launched, point
                seen.add((by_threads, by_smem))
    assert {(True, True), (False, True), (True, False)} <= seen


def test_the_emulator_refuses_to_launch_too_many_threads() -> None:
    ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry none()\n{\n  ret;\n}\n"
    emulate(ptx, grid=1, block=1024, args=[])
    with pytest.raises(LaunchError, match=r"^block \(1056, 1, 1\) has 1056 threads, but a CTA has at most 1024$"):
        emulate(ptx, grid=1, block=1056, args=[])


@pytest.mark.parametrize(("tiles", "legal"), [(2**31 - 1, True), (2**31, False)])
def test_the_grid_has_at_most_2_31_minus_1_ctas(tiles: int, legal: bool) -> None:
    point = {**environment(DEVICES[0]), "n": 32 * tiles, "warps": 1, "rows": 1, "stages": 1}
    assert bool(evaluate(rules()["grid size"].condition, point)) == legal
