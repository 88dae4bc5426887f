"""Numbers that data say, and branches: what cannot be is told when the class is made."""

from __future__ import annotations

from typing import Any

from negation import Later, around, refused, thing

from tinygpu.language import Input, Output, blocked, integers, uniform
from tinygpu.ptx import isa


def _nothing(x: Any, **others: Any) -> Any:
    return x


FLOATS = (
    "x[0] is f32; what decides where windows lie and loops end is s32 or u32, and an element that is computed with is "
    "loaded, as a tile of extent 1: x.tile(..., shape=(1, ...))"
)
MORE: dict[str, Any] = {
    "ends": Later(lambda n: Input("s32", n, values=integers(0, n + 1))),
    "raw": Later(lambda n: Input("s32", n)),
    "single": isa.LdGlobal(1),
    "add": isa.Add("f32"),
    "reference": staticmethod(_nothing),
}


def told(inner: Any, sentence: str, **more: Any) -> None:
    refused(lambda: thing(around(inner), **(MORE | more)), f"Thing.program: {sentence}")


def negated(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
    p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))


def test_what_decides_rounds_is_declared_whole_and_read_only() -> None:
    def undeclared(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.raw[0]

    def of_floats(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.x[0]

    def written(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.y[0]

    def raw_loop(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.loop(self.ends[0]):
            pass

    one = 'declare it with its tensor, as raw = Input("s32", ..., values=integers(0, DIM))'
    declare = f"{one}, or values=ascending(0, DIM)"
    told(undeclared, f"raw[0] decides what is done, and nothing says what it may be; {declare}")
    told(of_floats, FLOATS)
    told(written, "y[0] is a number that decides what is done, and the program writes y")
    told(raw_loop, "p.loop goes over ends.at1, which data say; write p.loop(p.until(ends.at1), ...)")
    wrong = Later(lambda n: Input("f32", n, values=uniform(0, 1)))
    told(of_floats, FLOATS, x=wrong)


def test_an_element_has_as_many_indices_as_its_tensor_and_a_load() -> None:
    told(
        lambda self, p, x, y, who: self.ends[0, 1],
        "ends has 1 dim; one element has as many indices, not 2",
    )
    said = "a whole number, a parameter, a dim, or an expression of them"
    told(lambda self, p, x, y, who: self.ends["a"], f"ends[...]: an index must be {said}, not 'a'")
    wide = "ends[0] needs a load of single elements; declare one, as isa.LdGlobal(1)"
    told(lambda self, p, x, y, who: self.ends[0], wide, single=isa.LdGlobal(2), ld=isa.LdGlobal(4))

    def outside(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)):
            self.ends[0]

    role = "ends[0] is loaded outside a role; say which warps do it with `with p.role(...)`"
    refused(lambda: thing(outside, **MORE), f"Thing.program: {role}")


def test_a_number_of_a_round_is_not_there_behind_the_loop() -> None:
    def behind(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        total = p.full(who, "f32")
        with p.loop(4) as k:
            end = self.ends[k]
            p.apply(self.add, total, p.load(self.ld, self.x.tile(end, shape=who.shape), who), into=total)
        p.store(self.st, y, p.apply(self.add, total, p.load(self.ld, self.x.tile(end, shape=who.shape), who)))

    what = "a kernel computes with + - * // %, minimum and maximum of dims, leading dimensions and indices"
    told(behind, f"the offset of a window of x is ends.at1, and a kernel does not know ends.at1 there; {what}")


def test_segments_are_parts_of_whole_rows() -> None:
    def twice(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.x.segment(0, 1).segment(0, 1)

    def rows(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.x.segment(0, 1).rows(p.load(self.single, self.ends.tile(0, shape=who.shape), who))

    def element(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        self.ends.segment(0, 1)[0]

    told(twice, "x is a part already; write segment() once, and of whole rows")
    told(rows, "x.segment(...) has no rows(); add where it begins to the values")
    told(element, "ends.segment(...) has no single elements; take them of ends itself")


def test_a_branch_has_a_condition_of_numbers_and_keeps_what_it_makes() -> None:
    def by_a_number(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.when(3):
            negated(self, p, x, y, who)

    def by_a_tile(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.when(p.index(who, 0)):
            negated(self, p, x, y, who)

    def used_behind(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.when(self.n > 5):
            loaded = p.load(self.ld, x, who)
        p.store(self.st, y, p.apply(self.neg, loaded))

    takes = "p.when takes a condition over dims, indices and loaded numbers, as i < self.n, not"
    told(by_a_number, f"{takes} 3; between values of tiles p.where chooses")
    told(by_a_tile, f"{takes} %v1; between values of tiles p.where chooses")
    begin = "begin it with p.full before p.when, and write into it"
    told(used_behind, f"%v1 is made where n > 5, and used where that may not hold; {begin}")


def test_a_number_is_one_whole_element_of_which_something_is_declared() -> None:
    few = integers(0, 9)

    def of_memory(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.number(self.ends.tile(0, shape=who.shape), few)

    def of_floats(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.number(p.reduce(self.add, p.load(self.ld, x, who), axis=0, by=self.shuffle), few)

    def of_many(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.number(p.index(who, 0), few)

    def of_fractions(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.number(p.full(who.reduced(0), "s32", 3), uniform(0, 1))

    def twice(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        three = p.full(who.reduced(0), "s32", 3)
        p.number(three, few, "three")
        p.number(three, few, "three")

    ways = {"shuffle": isa.ShflBfly()}
    window = "ends[0:+32*warps]"
    told(of_memory, f"p.number takes a tile in registers, not {window}; load it first", **ways)
    told(of_floats, "p.number makes a number of s32 or u32, and v2 is f32; cast it first", **ways)
    told(of_many, "p.number takes one element, and %v1 has more; reduce it along every axis first", **ways)
    told(of_fractions, "p.number is told what v1 may be, as integers(0, 9), not uniform(0, 1)", **ways)
    told(twice, "three.number is there already; call another number by another name", **ways)


def test_groups_along_the_grid_are_counted_at_launch() -> None:
    def program(self: Any, p: Any, groups: Any, cluster: Any) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.n, 32, groups), cluster=cluster) as (i,), p.role("all", warps=1):
            p.store(self.st, self.y.tile(i, shape=(32,)), p.load(self.ld, self.x.tile(i, shape=(32,)), who))

    half = "p.grid has n // 2 groups along n; that is a Dim of the machine, or a number"
    refused(lambda: thing(lambda self, p: program(self, p, self.n // 2, 1), **MORE), f"Thing.program: {half}")
    clusters = "p.grid has clusters of 2 along n, whose tiles belong to 3 groups; form them along another axis"
    refused(lambda: thing(lambda self, p: program(self, p, 3, 2), **MORE), f"Thing.program: {clusters}")


def test_one_thread_brings_by_tma_what_all_have_found() -> None:
    def program(self: Any, p: Any, behind: bool) -> None:
        tile = p.smem("f32", (8, 32), swizzle=128)
        who = blocked((8, 32), threads=32)
        lanes = blocked((32,), threads=32)
        with p.grid((self.n, 8)) as (i,), p.pipeline("ring", 2, t=tile) as ring:
            with p.role("bring", warps=1):
                total = p.reduce(self.plus, p.index(lanes, 0), axis=0, by=self.shuffle)
                j = p.number(total, integers(0, 500))
                with ring.produce() as slot:
                    p.copy(self.tma, self.x.tile(i, j, shape=(8, 32)), slot.t)
                if behind:
                    p.store(self.st, self.y.tile(i, 0, shape=(8, 32)), p.full(who, "f32"))
            with p.role("keep", warps=1, first=1), ring.consume() as slot:
                p.store(self.st, self.y.tile(i, 0, shape=(8, 32)), p.load(self.get, slot.t, who))

    more = {"x": Later(lambda n: Input("f32", n, n)), "y": Later(lambda n: Output("f32", n, n))}
    more |= {"tma": isa.TmaLoad(), "get": isa.LdShared(1), "plus": isa.Add("s32"), "shuffle": isa.ShflBfly()}
    sentence = (
        "Thing.program: role bring produces 'ring' by TMA, which one of its threads does alone, and all of them do "
        "more behind that; do that in another role, or before"
    )
    refused(lambda: thing(lambda self, p: program(self, p, True), **(MORE | more)), sentence)
    thing(lambda self, p: program(self, p, False), **(MORE | more))


def test_roles_hand_nothing_over_in_a_branch() -> None:
    def program(self: Any, p: Any) -> None:
        tile = p.smem("f32", (8, 32), swizzle=128)
        who = blocked((8, 32), threads=32)
        with p.grid((self.n, 8)) as (i,), p.pipeline("ring", 2, t=tile) as ring:
            with p.role("bring", warps=1), p.when(i < 64), ring.produce() as slot:
                p.copy(self.tma, self.x.tile(i, 0, shape=(8, 32)), slot.t)
            with p.role("keep", warps=1, first=1), p.when(i < 64), ring.consume() as slot:
                p.store(self.st, self.y.tile(i, 0, shape=(8, 32)), p.load(self.get, slot.t, who))

    two = Later(lambda n: Input("f32", n, n))
    told_of = "'ring' is produced inside p.when, and other roles do not know whether; hand it over outside, and branch "
    more = {"x": two, "y": Later(lambda n: Output("f32", n, n)), "tma": isa.TmaLoad(), "get": isa.LdShared(1)}
    refused(lambda: thing(program, **(MORE | more)), f"Thing.program: {told_of}around what is done with a slot")
