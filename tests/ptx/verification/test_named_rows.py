"""Tables of which values name rows: verification has few of these, and what else goes along a dim keeps it as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, integers, one_of, where
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.scatter_add import Histogram, ScatterAdd
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Fact, Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.named_rows import namings
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

LARGE = 2**26 + 5


def kernel_of(machine: Any, seed: int = 0, **dims: int) -> tuple[Kernel, Any]:
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1, seed)
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@pytest.mark.parametrize("v", [1, 7, 33, 64, 97, 1_000_003, LARGE])
@pytest.mark.parametrize("machine", [Embedding, ScatterAdd, Histogram], ids=lambda m: m.__name__)
def test_tables_of_derived_problems_have_few_rows(machine: Any, v: int) -> None:
    kernel, problem = kernel_of(machine, m=200, v=v, **({} if machine is Histogram else {"n": 65}))
    small = derive(kernel, machine, problem)
    if any(d == "v" for d, _ in (*kernel.tiles, *kernel.steps)):
        return
    assert small.dim["v"] <= min(v, 64)
    assert small.dim["v"] >= min(v, 33)
    assert small.dim["v"] % 32 == v % 32
    assert small.operand("counts" if machine is Histogram else "y" if machine is ScatterAdd else "table").shape[0] <= 64


def test_facts_of_a_table_stay() -> None:
    kernel, problem = kernel_of(Embedding, m=200, n=65, v=96_000)
    small = derive(replace(kernel, facts=(*kernel.facts, Fact("v", 96))), Embedding, problem)
    assert small.dim["v"] == 96


def kept(how: str) -> type[Machine]:
    """y[i] = x[ids[i]], and y[ids[i]] = x[i] where it is stored; numbers of rows made in several ways."""

    class Rows(Machine):
        m, v = Dim(), Dim()
        ids = Input("s32", m, values=one_of(3, 700) if how == "listed" else integers(0, v))
        x = Input("f32", m if how == "stored" else v)
        y = Output("f32", v if how == "stored" else m)
        vector = Param(1, 2)
        ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("s32")

        def program(self, p: Any) -> None:
            shape = (32 * self.vector,)
            who = blocked(shape, threads=32, vector=self.vector)
            with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=1):
                ids = p.load(self.ld, self.ids.tile(i, shape=shape), who, fill=-1)
                if how == "computed":
                    ids = p.apply(self.add, ids, ids)
                if how == "stored":
                    x = p.load(self.ld, self.x.tile(i, shape=shape), who)
                    p.store(self.st, self.y.rows(ids).tile(0, shape=shape), x)
                else:
                    x = p.load(self.ld, self.x.rows(ids).tile(0, shape=shape), who)
                    p.store(self.st, self.y.tile(i, shape=shape), x)

        @staticmethod
        def reference(ids: Any, x: Any) -> Any:
            return x[ids]

    return Rows


@pytest.mark.parametrize("how", ["listed", "computed", "stored"])
def test_rows_that_a_small_table_might_not_have_or_have_twice_keep_it_as_it_is(how: str) -> None:
    kernel, problem = kernel_of(kept(how), m=200, v=1000)
    assert not namings(kernel, kept(how), problem)
    assert derive(kernel, kept(how), problem).dim["v"] == 1000


def test_rows_as_they_were_loaded_have_a_small_table() -> None:
    kernel, problem = kernel_of(kept("loaded"), m=200, v=1000)
    assert derive(kernel, kept("loaded"), problem).dim["v"] == 40


# y[i] is a row of the block of four that page[i] names: which one, as threads of their own make it, or all together.
IN_BLOCKS: dict[str, Callable[..., Any]] = {
    "shifted": lambda page, inside, place: (page << 2) + (inside() & 3),
    "times": lambda page, inside, place: page * 4 + 3,
    "by place": lambda page, inside, place: (place() & 3) + page * 4,
    "or none": lambda page, inside, place: where(inside() < 2, (page << 2) + (place() & 3), -1),
    "in two ways": lambda page, inside, place: where(place() < 2, (page << 2) + 1, (page << 2) + 2),
    "for all": lambda page, inside, place: 4 * page + 3,
    "for all, by place": lambda page, inside, place: 4 * page + place % 4,
}
NOT_IN_BLOCKS: dict[str, Callable[..., Any]] = {
    "of the next": lambda page, inside, place: (page << 2) + 4,
    "of two blocks": lambda page, inside, place: (page << 2) + (inside() & 7),
    "before": lambda page, inside, place: (page << 2) + -1,
    "as declared": lambda page, inside, place: (page << 2) + inside(),
    "of other blocks": lambda page, inside, place: page * 3 + (inside() & 1),
    "twice": lambda page, inside, place: page * 2 + page * 2,
    "where the number says": lambda page, inside, place: where(page < 5, (page << 2) + 1, -1),
    "by another": lambda page, inside, place: where(inside() < 2, (page << 2) + 1, inside()),
    "one": lambda page, inside, place: where(place() < 2, (page << 2) + 1, 7),
    "for all, by place in five": lambda page, inside, place: 4 * page + place % 5,
    "for all, as declared": lambda page, inside, place: 4 * page + inside(),
}


@cache
def blocks(how: str) -> type[Machine]:
    row = (IN_BLOCKS | NOT_IN_BLOCKS)[how]

    class Blocks(Machine):
        m, pages = Dim(), Dim()
        slots = Dim(follows=lambda pages: 4 * pages)
        page = Input("s32", m, values=integers(0, pages))
        inside = Input("s32", m, values=integers(0, 4))
        x, y, z = Input("f32", slots, 32), Output("f32", m, 32), Output("s32", m)
        warps = Param(1)
        ld, st, whole, single = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32"), isa.LdGlobalReadOnly(1)

        def program(self, p: Any) -> None:
            shape = (8, 32) if not how.startswith("for all") else (1, 32)
            who = blocked(shape, threads=32)
            with p.grid((self.m, int(shape[0]))) as (i,), p.role("all", warps=1):
                inside = p.load(self.ld, self.inside.column(i, shape[0]), who.along(0))
                p.store(self.st, self.z.column(i, shape[0]), inside)
                if how.startswith("for all"):
                    at = row(self.page[i], lambda: self.inside[i], i)
                    x = p.load(self.ld, self.x.tile(at, 0, shape=shape), who)
                else:
                    page = p.load(self.ld, self.page.column(i, 8), who.along(0))
                    at = row(page, lambda: inside, lambda: p.index(who.along(0), 0))
                    x = p.load(self.ld, self.x.rows(at).tile(0, 0, shape=shape), who)
                p.store(self.st, self.y.tile(i, 0, shape=shape), x)

        @staticmethod
        def reference(page: Any, inside: Any, x: Any) -> Any:
            return x[4 * page + inside], inside

    return Blocks


@pytest.mark.parametrize("how", [*IN_BLOCKS, *NOT_IN_BLOCKS])
def test_rows_of_blocks_that_data_name_have_a_small_table(how: str) -> None:
    kernel, problem = kernel_of(blocks(how), m=200, pages=1_000_003)
    found = namings(kernel, blocks(how), problem)
    assert [(f.dim, f.of, f.unit, f.by, f.purely) for f in found] == (
        [("slots", "pages", 4, ("page",), True)] if how in IN_BLOCKS else []
    )
    small = derive(kernel, blocks(how), problem)
    assert small.dim["slots"] == 4 * small.dim["pages"]
    assert small.dim["pages"] == (35 if how in IN_BLOCKS else 1_000_003)


def named(ptx: str) -> re.Match[str]:
    """Where the number of a row, register 2, is multiplied by the pitch, register 3."""
    found = re.search(r"mul\.wide\.u32 (%d\d+), (%r\d+), (%r\d+);(?=\s+shl[^;]+;\s+add\.s64[^;]+;\s+mov)", ptx)
    assert found
    return found


EDITS: dict[str, Callable[[re.Match[str]], str]] = {
    "the next row": lambda at: f"add.u32 {at[2]}, {at[2]}, 1; {at[0]}",
    "a pitch too large": lambda at: f"add.u32 {at[3]}, {at[3]}, 2; {at[0]} sub.u32 {at[3]}, {at[3]}, 2;",
}


def edited(how: str, v: int) -> tuple[Kernel, Any]:
    problem = Embedding.problem(m=100, n=65, v=v)
    space = build_space(Embedding, problem, device("a100"))
    one = {"warps": 1, "across": 2, "vector": 1, "step": 1, "rows": 1}
    (point,) = space.space.restrict(one).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    at = named(kernel.ptx)
    text = EDITS[how](at) if how else at[0]
    return replace(kernel, ptx=kernel.ptx[: at.start()] + text + kernel.ptx[at.end() :]), problem


@pytest.mark.parametrize("how", ["the next row", "a pitch too large"])
@pytest.mark.parametrize("v", [50, LARGE])
def test_another_row_is_seen_in_the_small_table(how: str, v: int) -> None:
    kernel, problem = edited("", v)
    assert verify(kernel, Embedding, problem, orders=("late",)).passed
    kernel, problem = edited(how, v)
    assert not verify(kernel, Embedding, problem, orders=("late",)).passed
