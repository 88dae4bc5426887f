"""What is counted to wait in a row in a reduction, beside the longest chain of dependent instructions in its PTX."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import (
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Tracer,
    blocked,
    equal,
    minimum,
    where,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Rows(Machine):
    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    warps, across, values = Param(1, 2), Param(4, 32), Param(1, 3, 8, 16)
    ld, st, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    larger, plus, arithmetic, places = isa.Max("f32"), isa.Add("f32"), isa.arithmetic("f32"), isa.arithmetic("s32")
    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")

    def tile(self, p: Tracer, i: Any) -> tuple[Any, Any]:
        shape = (32 * self.warps // self.across, self.across * self.values)
        who = blocked(shape, threads=32 * self.warps, vector=1, across=self.across)
        return p.load(self.ld, self.x.tile(i, 0, shape=shape), who), who

    @property
    def rows(self) -> Any:
        return 32 * self.warps // self.across


class Sum(Rows):
    def program(self, p: Tracer) -> None:
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            x, _ = self.tile(p, i)
            p.store(self.st, self.y.column(i, self.rows), p.reduce(self.plus, x, axis=1, by=self.exchange))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class Place(Rows):
    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return p.apply(self.larger, x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            x, who = self.tile(p, i)
            _, at = p.reduce(Combine(self.better), (x, p.index(who, 1)), axis=1, by=self.exchange)
            p.store(self.st, self.y.column(i, self.rows), p.cast(at, "f32"))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.argmax(axis=1)


MERGES = {Sum: ("add",), Place: ("min.s32", "max.f32", "selp", "setp")}


def longest(ptx: str, counted: tuple[str, ...]) -> int:
    """The most instructions of these kinds of which each takes what the one before it gave, whatever lies between, from
    where the data are loaded on.
    """
    depth: dict[str, int] = {}
    for line in ptx.splitlines():
        if (found := re.match(r"\s*(?:@!?%\w+\s+)?([a-z][\w.]*)\s+(.*);", line)) is None:
            continue
        opcode, operands = found[1], re.findall(r"%\w+", found[2])
        if opcode.startswith("ld.global"):
            depth[operands[0]] = 0
        elif operands and any(o in depth for o in operands[1:]) and not opcode.startswith("st"):
            more = any(opcode.startswith(kind) for kind in counted)
            depth[operands[0]] = max(depth.get(o, 0) for o in operands[1:]) + more
    return max(depth.values())


@pytest.mark.parametrize("machine", [Sum, Place])
@pytest.mark.parametrize(("across", "values"), [(4, 1), (4, 16), (32, 3), (32, 8), (32, 16)])
def test_merges_in_a_row_are_those_of_the_text(machine: type[Machine], across: int, values: int) -> None:
    problem, point = machine.problem(m=64, n=across * values), {"warps": 1, "across": across, "values": values}
    space = build_space(machine, problem, device("a100"))
    ptx = build(space.program(point), problem, point, SolverCache()).kernel.ptx
    demand = space.counts(0).demand({**space.environment, **point}, space.device)
    begun = 30  # of every kernel, before its data are there
    chain = int(demand.iteration.chain.fmas) + int(demand.prologue.chain.fmas) - begun
    assert longest(ptx, MERGES[machine]) == chain
    merges, rounds = (values - 1).bit_length(), across.bit_length() - 1
    # A place waits for a comparison and two choices; of lanes, the one that comes first is chosen before.
    assert chain == (merges + rounds if machine is Sum else 3 * merges + 4 * rounds)
