"""Tensors that several warps read and write in place: their threads meet in between, and only where they must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, InOut, Input, Machine, Output, Param, Route, Scalar, Tracer, blocked, where
from tinygpu.program.in_place import meetings
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

CACHE = SolverCache()


class AddedToRow(Machine):
    """y = beta y + the sum of the rows of x: all warps hold the sums, and one stores them"""

    m, n = Dim(), Dim()
    beta = Scalar("f32")
    x, y = Input("f32", m, n), InOut("f32", n)
    warps, vector = Param(1, 2, 4), Param(1, 2)
    ld, st, add, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32"), isa.Exchange("shuffles")
    arithmetic = isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        shape = (4, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.m, step=4) as i:
                total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            found = p.reduce(self.add, total, axis=0, by=self.exchange)
            old = p.load(self.ld, self.y.row(j, shape[1]), who.along(1))
            p.store(self.st, self.y.row(j, shape[1]), self.beta * old + found)

    @staticmethod
    def reference(beta: Any, x: Any, y: Any) -> Any:
        return beta * y + x.sum(axis=0)


class Turned(Machine):
    """y = 2 y, stored by other threads than load it, and z = y: what others have stored is loaded again"""

    m, n = Dim(), Dim()
    y, z = InOut("f32", m, n), Output("f32", m, n)
    warps, rows = Param(1, 2, 4), Param(4, 8)
    ld, st, way = isa.LdGlobal(1), isa.StGlobal(1), Route(isa.LdShared(1), isa.StShared(1))
    add = isa.Add("f32")

    def program(self, p: Tracer) -> None:
        shape, threads = (self.rows, 32), 32 * self.warps
        by_rows = blocked(shape, threads=threads, across=32, name="rows")
        by_columns = blocked(shape, threads=threads, axis=0, name="columns")
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps), p.loop(self.n, step=32) as j:
            window = self.y.tile(i, j, shape=shape)
            x = p.load(self.ld, window, by_rows)
            p.store(self.st, window, p.relayout(p.apply(self.add, x, x), by_columns, self.way))
            p.store(self.st, self.z.tile(i, j, shape=shape), p.load(self.ld, window, by_rows))

    @staticmethod
    def reference(y: Any) -> Any:
        return {"y": y + y, "z": y + y}


class Own(Machine):
    """y = max(y, 0) in place, row by row in two passes: every thread stores what it has loaded itself"""

    m, n = Dim(), Dim()
    y = InOut("f32", m, n)
    warps, vector = Param(1, 2, 4), Param(1, 2)
    ld, st, less, select = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Compare("f32", "<"), isa.Select("f32")

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            for _ in range(2):
                with p.loop(self.n, step=shape[1]) as j:
                    y = p.load(self.ld, self.y.tile(i, j, shape=shape), who)
                    p.store(self.st, self.y.tile(i, j, shape=shape), where(y < 0.0, p.full(who, "f32"), y))

    @staticmethod
    def reference(y: Any) -> Any:
        return np.where(y < 0, 0.0, y)


def verified(machine: type[Machine], sizes: dict[str, int], seed: int) -> tuple[Any, Verification]:
    problem = machine.problem(**sizes)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1, seed)
    program = space.program(point)
    kernel = build(program, problem, point, CACHE).kernel
    return program, verify(kernel, machine, problem, orders=("late", "random"), random_inputs=False)


@settings(max_examples=12)
@given(st.sampled_from([AddedToRow, Turned, Own]), st.integers(1, 9), st.integers(1, 70), st.integers(0, 99))
def test_what_other_threads_load_is_what_was_there(machine: type[Machine], m: int, n: int, seed: int) -> None:
    _, found = verified(machine, {"m": m, "n": n}, seed)
    assert found.passed, str(found)


@pytest.mark.parametrize("machine", [AddedToRow, Turned])
def test_without_a_meeting_they_race(machine: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    problem = machine.problem(m=8, n=64)
    space = build_space(machine, problem, device("a100"))
    point = next(p for p in space.sample(99, 0) if p["warps"] == 4)
    monkeypatch.setattr("tinygpu.ptx.lowering.context.meetings", lambda program: frozenset())
    kernel = build(space.program(point), problem, point, CACHE).kernel
    found = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
    assert not found.passed
    assert "nothing orders the two" in str(found)


def test_who_stores_what_it_has_loaded_waits_for_nobody() -> None:
    program, found = verified(Own, {"m": 3, "n": 200}, 0)
    assert found.passed
    assert not meetings(program)


def test_one_meeting_a_round_serves_the_round_before_too() -> None:
    program, _ = verified(Turned, {"m": 8, "n": 64}, 0)
    assert sorted(type(s).__name__ for s in meetings(program)) == ["Load", "Store"]
