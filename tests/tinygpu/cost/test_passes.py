"""Passes over what L2 no longer holds are counted as often as the emulator's caches count them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.cost.passes import read_again
from tinygpu.devices import Figure, device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import Caches, emulate
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import make_inputs
from tinygpu.ptx.verification.memory import arguments
from tinygpu.search.predicted import counted_at
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Passes(Machine):
    """y = the sum of each row of x, times what is found by going over it some times more, and over w some times"""

    m, n = Dim(), Dim()
    x, w, y = Input("f32", m, n), Input("f32", m, n), Output("f32", m, n)
    warps, vector = Param(1, 2), Param(1, 4)
    ld, st, arithmetic, plus = isa.LdGlobal(vector), isa.StGlobal(vector), isa.arithmetic("f32"), isa.Add("f32")
    order = "xw"

    def program(self, p: Any) -> None:
        shape = (1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            for name in self.order:
                with p.loop(self.n, step=shape[1]) as j:
                    total += p.load(self.ld, (self.x if name == "x" else self.w).tile(i, j, shape=shape), who)
            with p.loop(self.n, step=shape[1]) as j:
                p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return x


@cache
def passing(order: str) -> type[Passes]:
    return type(f"Passes{order}", (Passes,), {"order": order, "__module__": __name__, "__doc__": Passes.__doc__})


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(48))
def test_dram_bytes_are_those_of_the_emulators_caches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = "xw" + "".join(rng.choice(list("xw"), size=int(rng.integers(0, 4))))
    machine = passing(order)
    sms, per_sm = int(rng.choice((2, 4))), 2
    m, n = 3 * sms * per_sm, int(rng.choice((512, 1024, 2048)))
    space = build_space(machine, machine.problem(m=m, n=n), device("a100"))
    (point,) = space.sample(1, seed)
    counts = space.counts(space.structure_index(point))
    values = {**space.environment, **{name: int(point[name]) for name in ("warps", "vector")}}
    again = [
        (counts.value(f"again{i}.bytes", values), counts.value(f"again{i}.distance", values))
        for i in range(len(read_again(counts.program)))
    ]
    assert len(again) == len(order) - 2
    # L2 holds clearly more, or clearly less, than what is moved between two passes
    kept = float(rng.choice((0.3, 0.55, 1.5, 2.5, 5.0)))
    row = 4 * n
    l2_bytes = int(kept * sms * per_sm * row) // 32 * 32
    wanted = 2 * m * row
    for size, distance in again:
        moved = distance * sms * per_sm
        if 0.6 < moved / l2_bytes < 1.2:
            pytest.skip("what is moved is about what L2 holds")
        wanted += size if moved > l2_bytes else 0
    problem = space.problem
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    operands, scalars = make_inputs(machine, problem, "random", 0)
    report = emulate(
        kernel.ptx,
        grid=kernel.grid(problem),
        block=(kernel.threads, 1, 1),
        args=arguments(kernel, problem, operands, scalars),
        check=False,
        caches=Caches(0, l2_bytes, sms, per_sm),
    )
    assert report.traffic is not None
    assert report.traffic.dram_read_bytes == pytest.approx(wanted, rel=0.15), (order, n, l2_bytes, again)


def test_what_no_cta_reads_twice_is_read_once() -> None:
    space = build_space(passing("xw"), passing("xw").problem(m=64, n=4096), device("a100"))
    assert read_again(space.counts(0).program) == []


@pytest.mark.parametrize("n", [1, 40, 1024, 1025])
def test_nothing_is_moved_beyond_the_end_of_a_row(n: int) -> None:
    """Rounds of 256 elements: the last of them reaches beyond a row of 1025, the only one beyond a row of 40."""
    space = build_space(passing("xwx"), passing("xwx").problem(m=64, n=n), device("a100"))
    counts = space.counts(0)
    values = {**space.environment, "warps": 2, "vector": 4}
    assert counts.value("again0.distance", values) == 2 * 4 * n
    assert counts.value("again0.bytes", values) == 64 * 4 * n


@pytest.mark.parametrize("n", [40, 1024, 20_000])
@pytest.mark.parametrize("m", [1, 64, 1000])
def test_what_a_further_pass_finds_in_l2_is_told_with_how_full_it_is(m: int, n: int) -> None:
    """Of a further pass either DRAM delivers the bytes again, or L2 is full of them to a share of at most 1."""
    space = build_space(passing("xx"), passing("xx").problem(m=m, n=n), device("a100"))
    again = 4 * m * n
    for point in space.space.sample(3, np.random.default_rng([m, n])):
        found, apart = counted_at(space, point), set()
        for mib in 2.0 ** np.arange(-12, 12):
            gpu = device("a100").with_figures({"l2_size_mb": Figure(mib, "MiB", "a test", "spec")}, name="mine")
            crowded = float(found.crowded_bytes(gpu))
            from_dram = float(found.demand(gpu).dram_bytes_read)
            assert from_dram == float(found.refetched_bytes(gpu)) - (again if crowded else 0)
            assert 0 <= crowded <= again
            apart |= {round(crowded / again * gpu.l2_near_bytes, 3)} - {0.0}
        assert len(apart) == 1  # bytes that all CTAs of a wave move between two passes
        assert min(apart) % (4 * n) == 0


@pytest.mark.filterwarnings("error")
def test_passes_over_gigabytes_are_numbers_too() -> None:
    """Bytes of two passes, multiplied by each other, are beyond 64 bits."""
    machine = passing("xx")
    space = build_space(machine, machine.problem(m=70001, n=40009), device("b200"))
    for point in space.space.sample(4, np.random.default_rng(0)):
        again = float(counted_at(space, point).crowded_bytes(space.device))
        assert 0 <= again < 4 * 70001 * 40009
