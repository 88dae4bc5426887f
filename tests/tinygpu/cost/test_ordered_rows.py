"""Rows that values name in order: as many pieces as neighbours have, beside what the emulator counts."""

from __future__ import annotations

from typing import Any

import pytest
from counted_launches import counted, whole

from tinygpu.devices import device
from tinygpu.language import (
    Dim,
    ExchangePlan,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Tracer,
    ascending,
    blocked,
    integers,
)
from tinygpu.ptx import isa
from tinygpu.testing import Case, examine


class Places(Machine):
    """y = x, stored row by row where values say that it lies"""

    n = Dim()
    x, y = Input("f32", n), Output("f32", n)
    warps, vector = Param(1, 4), Param(1, 4)
    ld, st, arithmetic, whole = isa.LdGlobal(vector), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")
    adds, exchange = isa.Add("s32"), ExchangePlan("shuffles", isa.ShflUp())

    def program(self, p: Tracer) -> None:
        shape = (128 * self.warps,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            p.store(self.st, self.place(p, who, i, shape, x), x)

    def place(self, p: Tracer, who: Any, i: Any, shape: Any, x: Any) -> Any:
        return self.y.tile(i, shape=shape)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class ByNumber(Places):
    def place(self, p: Tracer, who: Any, i: Any, shape: Any, x: Any) -> Any:
        return self.y.rows(p.index(who, 0) + i).tile(0, shape=shape)


class Backwards(Places):
    """every row of the tile by what is left of it: no order is known of a product"""

    def place(self, p: Tracer, who: Any, i: Any, shape: Any, x: Any) -> Any:
        return self.y.rows(p.index(who, 0) * 1 + i).tile(0, shape=shape)


class Kept(Places):
    """y begins with the elements of x of each tile that are not above 2: all of them"""

    def place(self, p: Tracer, who: Any, i: Any, shape: Any, x: Any) -> Any:
        keep = x <= 2.0
        one = p.where(keep, p.full(who, "s32", 1), 0)
        place = p.scan(self.adds, one, axis=0, exclusive=True, by=self.exchange)
        return self.y.rows(p.where(keep, place + i, -1)).tile(0, shape=shape)


class Gathered(Machine):
    """y[i] = x[at[i]], of sorted numbers"""

    n, v = Dim(), Dim()
    fits = Require(v >= 1, "there is a row")
    at, x = Input("s32", n, values=ascending(0, v - 1)), Input("f32", v)
    y = Output("f32", n)
    warps, vector = Param(1, 4), Param(1, 4)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)

    def program(self, p: Tracer) -> None:
        shape = (128 * self.warps,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            at = p.load(self.ld, self.at.tile(i, shape=shape), who, fill=-1)
            x = p.load(self.single, self.x.rows(at).tile(0, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), x)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return x[at]


class AtRandom(Gathered):
    at = Input("s32", Gathered.n, values=integers(0, Gathered.v - 1))


POINTS = [{"warps": warps, "vector": vector} for warps in (1, 4) for vector in (1, 4)]


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_numbers_in_order_touch_what_a_window_touches(point: dict[str, int]) -> None:
    written = {}
    for machine in (Places, ByNumber, Kept, Backwards):
        demand, counters = counted(machine, {"n": 1 << 14}, point)
        written[machine] = whole(demand, "sectors_written")
        assert machine is Backwards or written[machine] == counters.global_store_sectors
    assert written[Places] == written[ByNumber] == written[Kept] < written[Backwards] == 1 << 14


@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("v", [100, 1 << 12, 1 << 14, 1 << 16])
def test_sorted_numbers_are_as_near_to_each_other_as_their_ends_say(v: int, point: dict[str, int]) -> None:
    n = 1 << 14
    demand, counters = counted(Gathered, {"n": n, "v": v}, point)
    listed = n // 8  # of the numbers themselves
    expected, found = (float(s) - listed for s in (whole(demand, "sectors_read"), counters.global_load_sectors))
    assert expected == pytest.approx(found, rel=0.35)
    at_random, _ = counted(AtRandom, {"n": n, "v": v}, point, emulated=False)
    # four rows from one number to the next, and four numbers from one lane to the next, are sectors apart
    assert (expected < 0.9 * (whole(at_random, "sectors_read") - listed)) == (v < 4 * n or point["vector"] == 1)


@pytest.mark.parametrize("machine", [Places, ByNumber, Kept, Backwards, Gathered])
def test_a_check_knows_that_rows_in_order_share_pieces(machine: type[Machine]) -> None:
    sizes = {"n": 1 << 14, "v": 1 << 12} if machine is Gathered else {"n": 1 << 14}
    for point in POINTS:
        found = examine("counts", Case(machine, machine.problem(**sizes), device("a100"), point))
        assert not found.fault, found.fault
        assert not found.absent, found.absent
