"""Registers that live at once: what a loop makes is made again in each round, and what it carries is kept."""

from __future__ import annotations

from typing import Any

from tinygpu.expressions import evaluate
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.derive import live_registers
from tinygpu.language.trace import trace
from tinygpu.ptx import isa


class Carried(Machine):
    """y = sum of |-x| + |-x| over rows: one tile is carried, the others are made anew"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", n)

    vector = Param(1, 2, 4)
    ld, st, neg, abs_, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Neg("f32"), isa.Abs("f32"), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (32 * self.vector,)
        who = blocked(shape, threads=32, vector=self.vector, across=32)
        with p.grid((self.n, shape[0])) as (j,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.m) as i:
                first = p.apply(self.abs_, p.apply(self.neg, p.load(self.ld, self.x.at(i).tile(j, shape=shape), who)))
                again = p.apply(self.abs_, p.apply(self.neg, p.load(self.ld, self.x.at(i).tile(j, shape=shape), who)))
                p.apply(self.add, total, p.apply(self.add, first, again), into=total)
            p.store(self.st, self.y.tile(j, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return 2 * abs(x).sum(axis=0)


def test_a_round_of_a_loop_holds_what_it_needs_at_once() -> None:
    """The carried tile, the first sum of two, and the second in the making: three tiles, not seven."""
    program = trace(Carried, Carried.problem(m=4, n=100), ()).program
    assert [evaluate(live_registers(program.body), {"vector": v}) for v in (1, 2, 4)] == [3, 6, 12]
