"""Rows that values in registers name: what cannot be is told when the class is made."""

from __future__ import annotations

from typing import Any

from negation import Later, around, refused, thing

from tinygpu.language import InOut, Input, blocked, integers
from tinygpu.ptx import isa


def _nothing(x: Any, **others: Any) -> Any:
    return x


MORE: dict[str, Any] = {
    "ids": Later(lambda n: Input("s32", n)),
    "table": Later(lambda n: Input("f32", n, n)),
    "get": isa.LdGlobal(1),
    "tma": isa.TmaLoad(),
    "red": isa.RedGlobal("add"),
    "reference": staticmethod(_nothing),
}


def told(inner: Any, sentence: str, **more: Any) -> None:
    refused(lambda: thing(around(inner), **(MORE | more)), f"Thing.program: {sentence}")


def test_rows_are_named_by_whole_numbers_in_registers() -> None:
    def by_floats(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.table.rows(p.load(self.ld, x, who))

    def by_a_window(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.table.rows(self.ids.tile(0, shape=(32,)))

    def twice(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        ids = p.load(self.get, self.ids.tile(0, shape=who.shape), who)
        self.table.rows(ids).rows(ids)

    told(by_floats, "table.rows takes s32 or u32 values, and %v1 is f32; convert it first")
    told(by_a_window, "table.rows takes values in registers, and ids lies in GMEM")
    told(twice, "table.rows(...) has rows that values give, and takes no further rows()")
    wrong = "table.rows: by must be a tile (a window of a tensor, a buffer of a slot, or a value in registers), not 3"
    told(lambda self, p, x, y, who: self.table.rows(3), wrong)


def test_a_window_has_all_of_the_rows() -> None:
    def ids(self: Any, p: Any, who: Any) -> Any:
        return p.load(self.get, self.ids.tile(0, shape=(8,)), who.along(0).squeeze(1))

    def behind(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32 * self.warps)
        self.table.rows(ids(self, p, held)).tile(1, 0, shape=(8, 32))

    def fewer(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32 * self.warps)
        self.table.rows(ids(self, p, held)).tile(0, 0, shape=(4, 32))

    def lines(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32 * self.warps)
        self.x.rows(ids(self, p, held)).row(0, 8)

    def axes(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32 * self.warps)
        self.table.rows(ids(self, p, held)).tile(0, shape=(8,))

    def ahead(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32 * self.warps).along(1)
        self.table.at(1).rows(p.index(held, 1)).tile(0, shape=(32,))

    named = "table.rows(...) has as many rows as %v1 names, 8; a window of them begins at 0 and has all of them, not"
    told(behind, f"{named} 8 from 1 on")
    told(fewer, f"{named} 4 from 0 on")
    told(lines, "x.rows(...) has rows that values give; take windows of it by tile()")
    told(axes, "table.rows(...) has 2 dims, beginning with that of %v1, 8; the window gives 1 offset and 1 extent")
    those = "beginning with those of %v1, 1 x 32"
    told(ahead, f"table.at(...).rows(...) has 2 dims, {those}; the window gives 1 offset and 1 extent")


def test_every_thread_holds_what_names_its_rows() -> None:
    def others(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((32, 32), threads=32)
        ids = p.load(self.get, self.ids.tile(0, shape=(32,)), blocked((32,), threads=32))
        p.load(self.ld, self.table.rows(ids).tile(0, 0, shape=(32, 32)), held)

    def boxes(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((8, 32), threads=32)
        ids = p.load(self.get, self.ids.tile(0, shape=(8,)), held.along(0).squeeze(1))
        with p.pipeline("ring", 1, t=p.smem("f32", (8, 32), swizzle=128)) as ring, ring.produce() as slot:
            p.copy(self.tma, self.table.rows(ids).tile(0, 0, shape=(8, 32)), slot.t)

    right = "load %v1 under the part of its partition along these rows, or bring it there by p.relayout"
    told(others, f"each thread holds what names the rows of table that it moves; {right}")
    boxed = "tma (cp.async.bulk.tensor) moves boxes, and %v1 says row by row where table lies; copy it thread by thread"
    told(boxes, boxed)


def test_what_combines_is_there_before() -> None:
    def scattered(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        ids = p.load(self.get, self.ids.tile(0, shape=who.shape), who)
        p.store(self.red, self.y.rows(ids).tile(0, shape=who.shape), p.load(self.ld, x, who))

    there = "red (red.global.add) combines with what y holds, which is declared Output; declare it InOut"
    told(scattered, there)
    thing(around(scattered), **(MORE | {"y": Later(lambda n: InOut("f32", n))}))
    kinds = Later(lambda n: InOut("bf16", n))
    moves = "red (red.global.add) moves f32 or f64 or f16 or s32 or u32, and y is bf16"

    def of_bf16(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.store(self.red, y, p.full(who, "bf16"))

    told(of_bf16, moves, y=kinds)


def test_rows_of_buffers_lie_in_plain_rows_of_shared_memory() -> None:
    def of_a_tensor(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        x.rows(p.load(self.get, self.ids.tile(0, shape=who.shape), who))

    def swizzled(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        ids = p.load(self.get, self.ids.tile(0, shape=who.shape), who)
        with p.pipeline("ring", 1, t=p.smem("f32", (8, 32), swizzle=128)) as ring, ring.produce() as slot:
            slot.t.rows(ids)

    def by_floats(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.pipeline("ring", 1, t=p.smem("f32", (32,))) as ring, ring.produce() as slot:
            slot.t.rows(p.load(self.ld, x, who))

    def fewer(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((64,), threads=32)
        ids = p.load(self.get, self.ids.tile(0, shape=(64,)), held)
        with p.pipeline("ring", 1, t=p.smem("f32", (32,))) as ring, ring.produce() as slot:
            slot.t.rows(ids).tile(0, shape=(32,))

    def copied(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        held = blocked((64,), threads=32, vector=2)
        ids = p.load(self.get, self.ids.tile(0, shape=(64,)), held)
        with p.pipeline("ring", 1, t=p.smem("f32", (32,))) as ring, ring.produce() as slot:
            p.copy(self.async_copy, self.x.tile(0, shape=(64,)), slot.t.rows(ids).tile(0, shape=(64,)), held)

    told(of_a_tensor, "x.rows(...) is of buffers in SMEM, and of tensors: self.x.rows(...)")
    told(swizzled, "ring.t has a layout of its own, and rows that values name lie in plain ones")
    told(by_floats, "ring.t.rows takes s32 or u32 values in registers, and %v1 is f32")
    few = "ring.t.rows(...) has as many rows as %v1 names, 64; a window of them begins at 0 and has all of them, not"
    told(fewer, f"{few} 32 from 0 on")
    whole = "cp.async moves what lies together, and %v1 says row by row where ring.t lies"
    told(copied, f"{whole}; move it element by element, as by isa.LdShared and isa.StShared", async_copy=isa.CpAsync(2))


def test_a_window_of_a_buffer_begins_where_no_data_say() -> None:
    def moved(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.pipeline("ring", 1, t=p.smem("f32", (64,))) as ring:
            with ring.produce() as slot:
                p.store(self.put, slot.t, p.full(blocked((64,), threads=32), "f32"))
            with ring.consume() as slot:
                p.store(self.st, y, p.load(self.take, slot.t.window((self.begins[0],), who.shape), who))

    begins = Later(lambda n: Input("s32", n, values=integers(0, 9)))
    say = "a window of ring.t begins where data say, begins.at1; of a buffer, rows that values name are"
    right = "SLOT.NAME.rows(values), and windows begin at sums of multiples of indices"
    told(moved, f"{say} {right}", put=isa.StShared(1), take=isa.LdShared(1), begins=begins)
