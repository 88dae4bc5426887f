"""Passes over rows: whichever way a row is passed over, the results are NumPy's; and mistakes are told.

Row programs are drawn: elements are added, compared, chosen and put beside what the whole row has together, held or
not, and stored. Each program is one machine, in which a Choice says whether registers hold the row, all of it at once
or part by part, whether every pass reads it again, and whether its tiles come ahead. All numbers are whole and small,
so that results are the same to the bit.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from negation import around, refused, thing

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.interpreter.interpret import interpret
from tinygpu.language import (
    Ahead,
    Choice,
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Tracer,
    blocked,
    maximum,
    where,
)
from tinygpu.language.tracing.passes import ROW_VERBS, Passes
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa
from tinygpu.spaces.build import build_space

WAYS = ("whole", "parts", "again", "ahead")
# What a step of a program does with values that there are, `a` and `b` of them, and what it needs of the machine.
STEPS = ("sum", "largest", "beside", "more", "larger", "chosen", "places", "held", "store")


@dataclass(frozen=True, slots=True)
class Step:
    does: str
    a: int
    b: int


def draw(rng: np.random.Generator) -> tuple[Step, ...]:
    """Some steps; no more than three sums, so that all numbers stay below 2^24."""
    does = [str(d) for d in rng.choice(STEPS, int(rng.integers(3, 10)))]
    sums = [place for place, d in enumerate(does) if d == "sum"]
    does = ["larger" if place in sums[3:] else d for place, d in enumerate(does)]
    return tuple(Step(d, int(rng.integers(100)), int(rng.integers(100))) for d in does)


def stored(steps: Sequence[Step]) -> int:
    return sum(step.does == "store" for step in steps)


def machine_of(steps: Sequence[Step], axis: int) -> type[Machine]:
    """A machine that passes over the rows of x and z along an axis, with a line w beside them."""
    count = stored(steps)

    def program(self: Any, p: Tracer) -> None:
        shape = (32 // self.across * (self.step if axis == 0 else 1), self.across * (self.step if axis == 1 else 1))
        part = (32 // self.across, self.across)
        who, of_part = (blocked(s, threads=32, across=self.across) for s in (shape, part))
        by = Ahead(self.stages, self.copy, self.get) if self.way == "ahead" else self.ld
        held = {"whole": who, "parts": of_part}.get(self.way)
        dims = (self.m, self.n)
        with p.grid((dims[1 - axis], shape[1 - axis])) as (i,), p.role("all", warps=1):
            at = (i, 0) if axis == 1 else (0, i)
            with p.passes(dims[axis], who, at=at, axis=axis, held=held, by=self.exchange) as row:
                x, z = row.hold(row.load(by, self.x)), row.hold(row.load(by, self.z))
                values = [x, z + row.load(self.ld, self.w, to="f32")]
                outputs = iter([getattr(self, f"y{k}") for k in range(count)])
                for step in steps:
                    a, b = values[step.a % len(values)], values[step.b % len(values)]
                    if step.does == "sum":
                        values.append(b + row.reduce(self.plus, a, inside=True))
                    elif step.does == "largest":
                        most, other = row.reduce(self.most, a, b, inside=True)
                        values.append(maximum(a - most, other))
                    elif step.does == "beside":
                        values.append(a - b)
                    elif step.does == "more":
                        values.append(2 + a)
                    elif step.does == "larger":
                        values.append(maximum(a, b))
                    elif step.does == "chosen":
                        values.append(where(a > b, b, 3.0))
                    elif step.does == "places":
                        values.append(where(row.index < step.b % 7, a, b))
                    elif step.does == "held":
                        values.append(row.hold(maximum(a, b)))
                    else:
                        row.store(self.st, next(outputs), a)
                row.store(self.st, self.last, reduce(maximum, values))  # every value is used

    def reference(x: Any, z: Any, w: Any) -> Any:
        x, z, w = x.astype(np.float32), z.astype(np.float32), w.astype(np.float32)
        values = [x, z + (w if axis == 1 else w[:, None])]
        found: dict[str, Any] = {}
        index = np.arange(x.shape[axis]).reshape((-1, 1) if axis == 0 else (1, -1))
        for step in steps:
            a, b = values[step.a % len(values)], values[step.b % len(values)]
            if step.does == "sum":
                values.append(b + a.sum(axis=axis, keepdims=True))
            elif step.does == "largest":
                most, other = (v.max(axis=axis, keepdims=True) for v in (a, b))
                values.append(np.maximum(a - most, other))
            elif step.does == "beside":
                values.append(a - b)
            elif step.does == "more":
                values.append(2 + a)
            elif step.does in ("larger", "held"):
                values.append(np.maximum(a, b))
            elif step.does == "chosen":
                values.append(np.where(a > b, b, np.float32(3)))
            elif step.does == "places":
                values.append(np.where(index < step.b % 7, a, b))
            else:
                found[f"y{len(found)}"] = a
        return found | {"last": reduce(np.maximum, values)}

    m, k = Dim(), Dim()
    names: dict[str, Any] = {
        "m": m,
        "n": k,
        "x": Input("f32", m, k),
        "z": Input("f32", m, k),
        "w": Input("f16", k if axis == 1 else m),
        **{f"y{number}": Output("f32", m, k) for number in range(count)},
        "last": Output("f32", m, k),
        "way": Choice(*WAYS),
        "across": Param(4, 8, 32),
        "step": Param(1, 2, 4, 8),
        "stages": Param(2, 3),
        "ld": isa.LdGlobal(1),
        "st": isa.StGlobal(1),
        "copy": isa.CpAsync(1),
        "get": isa.LdShared(1),
        "exchange": isa.Exchange("shuffles"),
        "arithmetic": isa.arithmetic("f32"),
        "places": isa.arithmetic("s32"),
        "plus": isa.Add("f32"),
        "most": isa.Max("f32"),
        "program": program,
        "reference": staticmethod(reference),
    }

    def declare(namespace: dict[str, Any]) -> None:
        for name, value in names.items():
            namespace[name] = value

    made = types.new_class("Passing", (Machine,), {}, declare)
    assert issubclass(made, Machine)
    return made


def wrong_ways(seed: int, emulated: bool) -> list[str]:
    """The ways whose results are not NumPy's, of one drawn program; and it is checked that all ways were tried."""
    rng = np.random.default_rng(seed)
    steps, axis = draw(rng), int(rng.integers(2))
    machine = machine_of(steps, axis)
    sizes = {"m": int(rng.integers(1, 20)), "n": int(rng.integers(1, 20))}
    arrays = {name: rng.integers(-4, 5, (sizes["m"], sizes["n"])).astype(np.float32) for name in ("x", "z")}
    arrays["w"] = rng.integers(-4, 5, sizes["n"] if axis == 1 else sizes["m"]).astype(np.float16)
    right = machine.reference(**arrays)
    problem = machine.problem(**sizes)
    space, wrong = build_space(machine, problem, device("a100")), []
    for way in WAYS:
        (point,) = space.space.restrict({"way": [way]}).sample(1, rng)
        program = space.program(point)
        runs = [interpret(program, arrays, {}, {})]
        if emulated:
            found = tg.emulate(tg.emit(space, point), *arrays.values())
            runs.append(dict(zip(right, found if isinstance(found, tuple) else (found,), strict=True)))
        if any(not np.array_equal(run[name], right[name]) for run in runs for name in right):
            wrong.append(f"seed {seed}, {steps}, {point}")
        loads = [s for s in walk(program.body) if isinstance(s, n.Load)]
        if way in ("whole", "parts"):
            assert [s.source.name for s in loads].count("x") <= 1  # what is held is loaded once
        for loop in (s for s in walk(program.body) if isinstance(s, n.Loop)):
            names = [t.source.name for t in loop.body if isinstance(t, n.Load)]
            assert len(set(names)) == len(names)  # what a round has made it makes no more
    return wrong


@pytest.mark.parametrize("seeds", [range(40)], ids=["40 programs"])
def test_every_way_to_pass_over_rows_gives_what_numpy_says(seeds: range) -> None:
    wrong = [found for seed in seeds for found in wrong_ways(seed, emulated=False)]
    assert not wrong, wrong[0]


@pytest.mark.end_to_end
def test_kernels_that_pass_over_rows_give_what_numpy_says() -> None:
    wrong = [found for seed in range(100, 106) for found in wrong_ways(seed, emulated=True)]
    assert not wrong, wrong[0]


@pytest.mark.slow
def test_many_kernels_that_pass_over_rows_give_what_numpy_says() -> None:
    wrong = [found for seed in range(1000, 1200) for found in wrong_ways(seed, emulated=True)]
    assert not wrong, wrong[0]


# -- mistakes ----------------------------------------------------------------------------------------------------------
MORE: dict[str, Any] = {
    "plus": isa.Add("f32"), "minus": isa.Sub("f32"), "ahead": Ahead(2, isa.CpAsync(1), isa.LdShared(1)),
}  # fmt: skip


def told(inner: Any, sentence: str, held: bool = False, **more: Any) -> None:
    """What the author of a program with a row hears: `inner(self, p, row)` is what it does with it."""

    def program(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.passes(self.n, who, at=(0,), axis=0, held=who if held else None) as row:
            inner(self, p, row)

    refused(lambda: thing(around(program), **MORE, **more), f"Thing.program: {sentence}")


def test_a_row_is_passed_over_along_an_axis_that_there_is() -> None:
    def program(at: tuple[int, ...], axis: int) -> Any:
        def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
            with p.passes(self.n, who, at=at, axis=axis):
                pass

        return inner

    said = "Thing.program: p.passes goes along one axis of a tile of 1 axes, from a place with as many; not"
    refused(lambda: thing(around(program((0,), 1))), f"{said} 1 and (0,)")
    refused(lambda: thing(around(program((0, 0), 0))), f"{said} 0 and (0, 0)")


def test_a_row_is_no_place_to_write_into() -> None:
    def added(self: Any, p: Any, row: Any) -> None:
        x = row.load(self.ld, self.x)
        x += x

    told(added, "x + x: a row has no registers to write into; give the result a name, x = ...")


def test_passes_are_over_values_of_their_row() -> None:
    def of_two(self: Any, p: Any, row: Any) -> None:
        with p.passes(self.n, row.who, at=(0,), axis=0) as other:
            row.store(self.st, self.y, row.load(self.ld, self.x) + other.load(self.ld, self.x))

    def of_another(self: Any, p: Any, row: Any) -> None:
        with p.passes(self.n, row.who, at=(0,), axis=0) as other:
            row.reduce(self.plus, other.load(self.ld, self.x))

    def of_none(self: Any, p: Any, row: Any) -> None:
        row.reduce(self.plus, p.full(row.who, "f32"))

    def absent(self: Any, p: Any, row: Any) -> None:
        row.load(self.ld, None)

    told(of_two, "x + x is of two p.passes(...); passes go over one row")
    told(of_another, "a pass is over values of its row, as row.load(...) gives them, and not x")
    told(of_none, "a pass is over values of its row, as row.load(...) gives them, and not %v1")
    told(absent, "passes load and store tensors of the machine, as self.x, and not None")


def test_what_is_written_of_a_row_by_habit_is_told_in_words() -> None:
    def largest(self: Any, p: Any, row: Any) -> None:
        row.max(row.load(self.ld, self.x))

    def misspelt(self: Any, p: Any, row: Any) -> None:
        row.lode(self.ld, self.x)

    def filled(self: Any, p: Any, row: Any) -> None:
        row.load(self.ld, self.x, fil=1.0)

    def converted(self: Any, p: Any, row: Any) -> None:
        p.cast(row.load(self.ld, self.x), "f16")

    offered = ", ".join(ROW_VERBS)
    told(largest, f"the row that p.passes gives has no .max; it has {offered}")
    told(misspelt, "the row that p.passes gives has no .lode; did you mean .load?")
    told(filled, "row.load: got an unexpected keyword argument 'fil'; it takes by, tensor, fill=, to=")
    told(
        converted,
        "p.cast: tile must be a tile (a window of a tensor, a buffer of a slot, or a value in registers), not x, which "
        "passes make as they need it: `with row.tiles(x) as (at, x)` is one with its tiles in it",
    )


def test_a_reduction_begins_with_what_changes_nothing() -> None:
    def taken_away(self: Any, p: Any, row: Any) -> None:
        row.reduce(self.minus, row.load(self.ld, self.x))

    told(taken_away, "a pass begins with what changes nothing, and of minus that is not known")


def test_several_values_at_once_are_reduced_by_their_author() -> None:
    def better(self: Any, p: Any, row: Any) -> None:
        row.reduce(Combine(lambda p, left, right: left), row.load(self.ld, self.x))

    told(better, "a row is reduced by an instruction, not by the Combine <lambda>; write the pass, as row.tiles(...)")


def test_what_comes_ahead_of_a_pass_comes_by_one_ring() -> None:
    def deeper(self: Any, p: Any, row: Any) -> None:
        other = Ahead(3, self.ahead.copy, self.ahead.load)
        row.store(self.st, self.y, row.load(self.ahead, self.x) + row.load(other, self.x))

    told(deeper, "x and x come ahead of one pass, each once, and all by as many stages")


def test_what_is_held_does_not_come_ahead_and_copies_fill_with_zeros() -> None:
    def brought(self: Any, p: Any, row: Any) -> None:
        row.load(self.ahead, self.x)

    def filled(self: Any, p: Any, row: Any) -> None:
        row.load(self.ahead, self.x, fill=1.0)

    told(brought, "x comes ahead of its rounds, and what registers hold is loaded once; give a load", held=True)
    told(filled, "x comes ahead of its rounds, and a copy fills with zeros; give a load")


def test_passes_come_one_after_another_and_end_with_their_block() -> None:
    def inside(self: Any, p: Any, row: Any) -> None:
        with row.tiles(row.load(self.ld, self.x)) as (_, x):
            row.store(self.st, self.y, row.load(self.ld, self.x))
            p.store(self.st, self.y.tile(0, shape=row.who.shape), x)

    def behind(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        with p.passes(self.n, who, at=(0,), axis=0) as row:
            row.store(self.st, self.y, row.load(self.ld, self.x))
        row.store(self.st, self.y, row.load(self.ld, self.x))

    told(inside, "what p.passes gives begins no pass here, as a pass over it is under way")
    over = "Thing.program: what p.passes gives begins no pass here, as its block has ended"
    refused(lambda: thing(around(behind), **MORE), over)


def test_a_row_that_is_held_is_as_long_as_those_who_hold_it_have_room() -> None:
    space = build_space(machine_of((), 1), machine_of((), 1).problem(m=4, n=100), device("a100"))
    held = space.space.restrict({"way": ["whole", "parts"]})
    assert held.size
    assert all(p["across"] * p["step"] >= 100 for p in held.points())
    assert space.space.restrict({"way": ["again"], "across": [4], "step": [1]}).size


def test_what_is_offered_of_a_row_is_there_and_in_the_docs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "language.md").read_text(encoding="utf-8")
    assert all(hasattr(Passes, name) and f"row.{name}" in page for name in ROW_VERBS)
