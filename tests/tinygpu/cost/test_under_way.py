"""Loads of rounds that are written out are under way together, in registers of their own: the assembler judges that."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WAYS = ("written out", "in each other", "rounds", "stored between", "met between")
A100 = device("a100")


class Sums(Machine):
    """y = sums of x along rows, some columns at a time"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    at_once = Param(1, 2, 4, 8)
    ld, st, exchange = isa.LdGlobal(4), isa.StGlobal(4), isa.Exchange("pairs")
    arithmetic, plus = isa.arithmetic("f32"), isa.Add("f32")
    how = "rounds"

    def program(self, p: Any) -> None:
        shape = (1, 256)
        who = blocked(shape, threads=64, vector=4)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=2):
            total = p.full(who, "f32")
            with p.loop(self.n, step=256 * self.at_once * (2 if self.how == "in each other" else 1)) as j:
                if self.how == "in each other":
                    with p.unroll(2) as a, p.unroll(self.at_once) as b:
                        total += p.load(self.ld, self.x.tile(i, j + 256 * (2 * b + a), shape=shape), who)
                elif self.how == "rounds":
                    with p.loop(256 * self.at_once, step=256) as c:
                        total += p.load(self.ld, self.x.tile(i, j + c, shape=shape), who)
                else:
                    with p.unroll(256 * self.at_once, step=256) as c:
                        x = p.load(self.ld, self.x.tile(i, j + c, shape=shape), who)
                        total += p.reduce(self.plus, x, axis=1, by=self.exchange) if self.how == "met between" else x
                        if self.how == "stored between":
                            p.store(self.st, self.y.tile(i, j + c, shape=shape), x)
            p.store(self.st, self.y.tile(i, 0, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@cache
def summing(how: str) -> type[Sums]:
    name = f"Sums{how.title().replace(' ', '')}"
    return type(name, (Sums,), {"how": how, "__module__": __name__, "__doc__": Sums.__doc__})


def asked(how: str, at_once: int) -> tuple[int, int, int]:
    """(bytes under way, registers by estimate, registers by the assembler) of a CTA of 64 threads."""
    machine = summing(how)
    problem = machine.problem(m=128, n=1 << 14)
    space = build_space(machine, problem, A100)
    point = {"at_once": at_once, "exchange": "pairs"}
    index = space.structure_index(point)
    values = {**space.environment, "at_once": at_once}
    demand = space.counts(index).demand(values, A100)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assembled = assemble(kernel.ptx, A100.portable_target).registers
    return int(demand.bytes_in_flight_per_cta), int(demand.registers_per_thread), assembled


@pytest.mark.parametrize("how", WAYS)
def test_rounds_that_are_written_out_load_together_where_nothing_comes_between(how: str) -> None:
    bytes_of_one, registers_of_one, _ = asked(how, 1)
    for at_once in (2, 4, 8):
        under_way, registers, assembled = asked(how, at_once)
        together = at_once if how in ("written out", "in each other") else 1
        assert under_way == together * bytes_of_one
        loads = (2 if how == "in each other" else 1) * 4
        assert registers == registers_of_one + (together - 1) * loads
        if together > 1:  # the data of all, beside the sums
            assert assembled >= together * loads + 4


class Walked(Machine):
    """y[i] = the sum of row i, by one thread that goes along it: no two lanes of a warp read of one sector"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    warps = Param(1, 2, 4)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        who = blocked((threads, 1), threads=threads)
        with p.grid((self.m, threads)) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.n) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=(threads, 1)), who)
            p.store(self.st, self.y.tile(i, shape=(threads,)), total.squeeze(1))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


@pytest.mark.parametrize("m", [1009, 1 << 20])
def test_a_round_waits_once_for_whatever_sectors_its_load_touches(m: int) -> None:
    """As the simulator does, which asks for them together."""
    space = tg.space(Walked, m=m, n=127, device="l40s")
    for point in space.sample(3):
        found = tg.predict(space, **point)
        assert found.seconds == pytest.approx(found.simulation.seconds, rel=0.1)
