"""p.relayout: what it refuses when the class is made, and for which parameters a way of it is legal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from negation import around, refused, thing

from tinygpu.dtypes import dtype
from tinygpu.expressions import all_of, compile_scalars, evaluate, expr, symbol
from tinygpu.language import E, Layout, Param, Partition, Route, UnknownLayout, blocked, register_blocked
from tinygpu.language.holders import holds_values, same_threads, same_warps
from tinygpu.language.instruction import tiled
from tinygpu.language.partition import Condition
from tinygpu.language.trace import trace
from tinygpu.layouts.relayout import relayout
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx import isa

MORE = {"shuffle": isa.ShflIdx(), "memory": Route(isa.LdShared(1), isa.StShared(1)), "bfly": isa.ShflBfly()}
LANES = Partition((32,), Layout.parse("(32,1):(1@0,0)"))
TURNED = Partition((32,), Layout.parse("((2,16),1):((16@0,1@0),0)"))


def made(body: Callable[..., Any]) -> Callable[[], Any]:
    """A machine whose program does something with a value of one warp before it negates."""

    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        body(self, p, x, who)
        p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))

    return lambda: thing(around(inner), warps=Param(1), **MORE)


def held(p: Any, who: Partition, kind: str = "f32") -> Any:
    return p.full(who, kind)


ERRORS: dict[str, tuple[Callable[..., Any], str]] = {
    "memory": (
        lambda self, p, x, who: p.relayout(x, who),
        "p.relayout moves values in registers, and x lies in GMEM",
    ),
    "extents": (
        lambda self, p, x, who: p.relayout(held(p, who), blocked((64,), threads=32), self.shuffle),
        "p.relayout moves v1 as 32*warps, but its partition is for 64",
    ),
    "type": (
        lambda self, p, x, who: p.relayout(held(p, LANES, "e2m1"), TURNED, self.shuffle),
        "p.relayout moves elements of 8, 16, 32 or 64 bits, and %v1 is e2m1; convert it first",
    ),
    "instruction": (
        lambda self, p, x, who: p.relayout(held(p, LANES), TURNED, self.bfly),
        "p.relayout takes a LaneRead or Route, not ShflBfly()",
    ),
    "buffer": (
        lambda self, p, x, who: p.relayout(held(p, LANES), TURNED, self.shuffle, pad=1),
        "p.relayout has no buffer without a Route; leave out contiguous, pad and layout",
    ),
    "axes": (
        lambda self, p, x, who: p.relayout(
            held(p, Partition((1, 1, 32), Layout.parse("(32,1):(1@2,0)"))),
            Partition((1, 1, 32), Layout.parse("(32,1):(1@2,0)")),
            self.memory,
        ),
        "p.relayout through shared memory takes tiles with one or two axes, and %v1 has 3",
    ),
    "route": (
        lambda self, p, x, who: p.relayout(held(p, LANES), TURNED, Route(isa.LdGlobal(1), isa.StShared(1))),
        "ld.global (ld.global) reads GMEM, but the operand lies in SMEM: no instruction brings it from SMEM to GMEM",
    ),
    "coordinates": (
        lambda self, p, x, who: p.relayout(
            held(p, Partition((64,), Layout.parse("(32,1):(1@0,0)"))),
            Partition((64,), Layout.parse("(32,2):(1@0,32@0)")),
            self.shuffle,
        ),
        "p.relayout: (32,2):(1@0,32@0) holds coordinates that (32,1):(1@0,0) does not, 32 of them",
    ),
    "unused": (
        lambda self, p, x, who: p.relayout(held(p, LANES), TURNED, self.shuffle),
        "the relayout of %v1 (%v2) is never used; store it, or leave it out",
    ),
    "threads": (
        lambda self, p, x, who: p.relayout(held(p, LANES), TURNED),
        "the relayout of %v1 (%v2) is never used; store it, or leave it out",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_what_a_relayout_cannot_do_is_said_in_a_sentence(what: str) -> None:
    body, sentence = ERRORS[what]
    refused(made(body), f"Thing.program: {sentence}")


def never(way: Any) -> Callable[[], Any]:
    """Two warps exchange what they have."""

    def program(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        two = Partition((64,), Layout.parse("(64,1):(1@0,0)"))
        swapped = Partition((64,), Layout.parse("((32,2),1):((2@0,1@0),0)"))
        p.store(self.st, self.y.tile(0, shape=(64,)), p.relayout(p.full(two, "f32"), swapped, way))
        p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))

    return lambda: thing(around(program), warps=Param(2))


def test_what_no_parameter_makes_legal_is_refused_when_the_class_is_made() -> None:
    said = "Thing.program: it can never work, whatever the parameters: every "
    warps = "warp has the values of %v1 that it is given: warps exchange theirs through shared memory"
    threads = "thread has the values of %v1 that it is given; what exchanges them is said with by="
    refused(never(isa.ShflIdx()), said + warps)
    refused(never(None), said + threads)


# -- for which parameters a way is legal -------------------------------------------------------------------------------

A, B, V, W = (symbol(name) for name in ("a", "b", "v", "w"))
VALUES = {"a": (1, 2, 3, 4), "b": (1, 2, 4), "v": (1, 2, 4), "w": (4, 8, 12, 16, 32)}
PARAMS = tuple(Param(*values) for values in VALUES.values())
for _param, _name in zip(PARAMS, VALUES, strict=True):
    _param.bind_name(_name)


SLOWER = ("rows to grid", "columns to rows", "c to grid")


def tiles(kind: str) -> tuple[Partition, Partition]:
    """Two partitions of a tile: a and b warps along two axes, v values at once, w threads side by side."""
    rows, columns = A * 16 * 2, B * 32
    threads = A * B * 32
    c = tiled(isa.MmaSync(), dtype("f16"), dtype("f16"), (rows, columns), (A, B)).c
    wide = blocked((rows, columns), threads=threads, vector=V, across=W)
    grid = register_blocked((rows, columns), threads=(A * B, 32), block=(V, 1))
    tall = blocked((rows, columns), threads=threads, vector=V, axis=0, across=W)
    made = {"c": c, "rows": wide, "grid": grid, "columns": tall}
    one, other = kind.split(" to ")
    return made[one], made[other]


def points() -> Iterator[dict[str, int]]:
    for values in product(*VALUES.values()):
        yield dict(zip(VALUES, values, strict=True))


def judge(conditions: tuple[Condition, ...]) -> Callable[[dict[str, int]], bool]:
    compute = compile_scalars(all_of([c.condition for c in conditions]))
    return lambda point: bool(compute(point)[0])


@pytest.mark.end_to_end
@pytest.mark.parametrize("kind", ["c to rows", *(pytest.param(k, marks=pytest.mark.slow) for k in SLOWER)])
def test_a_way_is_legal_where_warps_and_threads_have_their_values(kind: str) -> None:
    """The conditions against the plan of every candidate whose partitions cover the tile once."""
    held, wanted = tiles(kind)
    own = judge((*held.conditions, *wanted.conditions))
    warps, threads = (judge(same(f"%{kind}", held, wanted, PARAMS)) for same in (same_warps, same_threads))
    seen = set()
    for point in points():
        if not own(point) or evaluate(held.thread_count, point) != evaluate(wanted.thread_count, point):
            continue
        one, other = (p.layout.fill(point) for p in (held, wanted))
        extents = tuple(int(evaluate(e, point)) for e in held.shape)
        found = relayout(one, other, extents, 32).kind
        assert warps(point) == (found != "shared"), point
        assert threads(point) == (found in ("nothing", "registers")), point
        seen.add(found)
    assert {"shared", "shuffles"} <= seen or kind == "c to grid"


@pytest.mark.parametrize("kind", ["c to rows", pytest.param("c to grid", marks=pytest.mark.slow)])
def test_what_is_admitted_of_values_with_several_holders_has_a_plan(kind: str) -> None:
    """Rows and columns of tiles: threads that differ along the other axis hold the same."""
    for axis in (0, 1):
        held, wanted = (p.along(axis) for p in tiles(kind))
        own = judge((*held.conditions, *wanted.conditions))
        warps, threads = (judge(same(f"%{kind}", held, wanted, PARAMS)) for same in (same_warps, same_threads))
        seen = set()
        for point in points():
            if not own(point) or not (warps(point) or threads(point)):
                continue
            one, other = (p.layout.fill(point) for p in (held, wanted))
            found = relayout(one, other, tuple(int(evaluate(e, point)) for e in held.shape), 32).kind
            assert found in {"nothing", "registers"} | ({"shuffles"} if not threads(point) else set()), point
            seen.add(found)
        assert seen or kind == "c to grid"


# -- the node ----------------------------------------------------------------------------------------------------------


def relaid(way: str, **buffer: Any) -> Any:
    """y = -x by way of other holders, who keep what they have where no way is named."""

    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        window = self.y.tile(0, shape=(32,))
        by, who_next = (getattr(self, way), TURNED) if way else (None, LANES)
        value = p.relayout(p.full(LANES, "f32"), who_next, by, **buffer)
        p.store(self.st, window, value)
        p.store(self.st, y, p.apply(self.neg, p.load(self.ld, x, who)))

    more = {"swizzle": buffer["layout"]} if "layout" in buffer else {}
    machine = thing(around(inner), warps=Param(1), **MORE, **more)
    return trace(machine, machine.problem(n=100), ()).program


def test_a_relayout_is_printed_and_saved() -> None:
    for way, lines in {
        "shuffle": ["%v2 = relayout %v1 by shuffle"],
        "": ["%v2 = relayout %v1"],
        "memory": ["produce relayout2:", "relayout2.tile[0:+32] = st.shared %v1", "consume relayout2:"],
    }.items():
        program = relaid(way)
        printed = [line.strip() for line in str(program).splitlines()]
        assert [line for line in lines if line in printed] == lines, str(program)
        assert str(load_program(json.loads(json.dumps(save_program(program))))) == str(program)


def test_a_buffer_has_the_padding_and_the_layout_that_it_is_given() -> None:
    (pipeline,) = relaid("memory", pad=4, layout=UnknownLayout()).pipelines
    (buffer,) = pipeline.buffers
    assert (str(buffer.shape[0]), int(buffer.pad), buffer.layout, int(pipeline.stages)) == ("32", 4, "swizzle", 1)


@pytest.mark.parametrize("columns", [(2, 4, 8), (2,)])
def test_values_by_which_a_number_of_threads_divides_by_zero_are_passed_over(columns: tuple[int, ...]) -> None:
    """Rows of `columns` elements in vectors: no lane has a vector that is longer than its row."""
    params = Param(*columns), Param(4)
    for param, name in zip(params, ("columns", "vector"), strict=True):
        param.bind_name(name)
    across = params[0] // params[1]
    rows = 32 // across
    lanes = Partition((rows, expr(params[0])), Layout.of([(across, 4 * E(1)), (rows, E(0))], [(4, E(1))]))
    halves = Partition(lanes.shape, Layout.of([(across, 4 * E(1)), (rows, E(0))], [(2, E(1)), (2, 2 * E(1))]))
    assert holds_values("x", lanes, halves, params, "they are the same") == ()
    conditions = same_warps("x", lanes, lanes, params)
    values = [dict(zip(("columns", "vector"), v, strict=True)) for v in product(*(p.values for p in params))]
    legal = [v["columns"] for v in values if v["columns"] >= 4 and all(evaluate(c.condition, v) for c in conditions)]
    assert legal == [c for c in columns if c >= 4]
