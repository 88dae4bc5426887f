"""Dims that follow from others, windows with steps and merged axes: what is refused, and what is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr, symbol
from tinygpu.language import DeclarationError, Dim, Input, Machine, Option, Output, Param, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.language.merging import split
from tinygpu.language.partition import Partition
from tinygpu.language.problem import ProblemError
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.layouts.layout import Layout
from tinygpu.ptx import isa
from tinygpu.testing import check_machine


class Shorter(Machine):
    """y = every second sum of two neighbours"""

    n = Dim()
    gap = Option(1, 3)
    m = Dim(follows=lambda n, gap: (n - gap - 1) // 2 + 1)
    x, y = Input("f32", n), Output("f32", m)
    vector = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(vector), isa.Add("f32")

    def program(self, p: Any) -> None:
        who = blocked((64,), threads=32, vector=self.vector)
        with p.grid((self.m, 64)) as (i,), p.role("all", warps=1):
            a = p.load(self.ld, self.x.tile(2 * i, shape=(64,), step=(2,)), who)
            b = p.load(self.ld, self.x.tile(2 * i + self.gap, shape=(64,), step=(2,)), who)
            p.store(self.st, self.y.tile(i, shape=(64,)), p.apply(self.add, a, b))

    @staticmethod
    def reference(x: Any, gap: int) -> Any:
        return x[: len(x) - gap : 2] + x[gap::2][: len(x[: len(x) - gap : 2])]


def test_a_dim_that_follows_is_computed_and_held_to() -> None:
    assert Shorter.problem(n=10).dim == {"n": 10, "m": 5}
    assert Shorter.problem(n=10, m=4, options={"gap": 3}).dim["m"] == 4
    for given, sentence in (
        ({"n": 10, "m": 6}, "Shorter: the dim m is 5 for these sizes, not 6"),
        ({"n": 1}, "Shorter: the dim m would be 0 for these sizes; it is 1 or more"),
        ({}, "Shorter needs the dim n: give n=..."),
    ):
        with pytest.raises(ProblemError) as refused:
            Shorter.problem(**given)
        assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("dim", "sentence"),
    [
        (lambda: Dim(follows=lambda k: k), "Twisted.m: it follows from k, which is no dim before it and no Option"),
        (lambda: Dim(4, follows=lambda n: n), "m: a Dim has values of its own, or follows from others, not both"),
        (lambda: Dim(follows=3), "m: what a Dim follows from is a function of dims and options, not 3"),  # type: ignore[arg-type]
    ],
)
def test_a_dim_that_cannot_follow_is_refused(dim: Callable[[], Dim], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:

        class Twisted(Shorter):
            m = dim()

    assert str(refused.value).endswith(sentence)


def window() -> Any:
    tensor = Tensor("x", dtype("f32"), ("a", "b", "c"), "in")
    return gmem_tile(tensor, (0, 0, 0), (2, 8, 16), steps=(1, 2, 1))


def held() -> Tile:
    """Registers of 2 x 2 x 16 elements, of which each of four threads holds a run of four along the last axis."""
    who = Partition((2, 2, 16), Layout.parse("(4,(4,2,2)):(4@2,(1@2,1@1,1@0))"))
    zeros = (expr(0),) * 3
    return Tile("v", RMEM, dtype("f32"), who.shape, zeros, partition=who)


def buffer() -> Tile:
    shape = (expr(8), expr(16))
    made = Buffer("ring.t", SMEM, dtype("f32"), shape, 1, expr(0), "", expr(1))
    return Tile("ring.t", SMEM, dtype("f32"), shape, (expr(0), expr(0)), buffer=made)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda w: w.merge(0, 2),
            "x.merge(0, 2): axes that stand side by side, in their order, become one; it has the axes 0 to 2",
        ),
        (
            lambda w: w.merge(0, 1).window((0, 0), (8, 16)),
            "x is a window whose axes are merged; take the smaller window, then merge",
        ),
        (
            lambda w: w.merge(0, 1).split(0, (4, 4)),
            "x is a window whose axes are merged; split axes first, then merge",
        ),
        (lambda w: w.split(1, (3, 4)), "x has 8 elements along axis 1, and 3 x 4 are 12"),
        (lambda w: buffer().merge(0, 1), "ring.t is a buffer, and its axes are its own: there is no .merge(0, 1)"),
        (
            lambda w: held().merge(0, 1).window((0, 0), (2, 4)),
            "%v has axes that were merged or split, and no windows; take them before",
        ),
    ],
)
def test_a_window_that_cannot_be_is_refused(make: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        make(window())
    assert str(refused.value) == sentence


def test_windows_are_listed_with_their_steps() -> None:
    assert str(window()) == "x[0:+2, 0:+8:2, 0:+16]"
    assert str(window().as_matrix()) == "x[0:+2, 0:+8:2, 0:+16] as 16 x 16"
    assert str(window().window((0, 3, 0), (2, 4, 16))) == "x[0:+2, 6:+4:2, 0:+16]"
    assert str(window().split(1, (2, 4))) == "x[0:+2, 0:+2:8, 0:+4:2, 0:+16]"


def test_who_holds_what_of_merged_axes_is_where_dividing_leads() -> None:
    """Of drawn partitions: the coordinates of the merged tile, divided by the extents, are those of the axes apart."""
    rng = np.random.default_rng(0)
    cut = 0
    for _ in range(200):
        shape = tuple(int(e) for e in rng.choice([1, 2, 3, 4, 6, 8], 3))
        columns = int(rng.choice([4, 8]))
        rows = int(np.prod(shape))
        threads = int(rng.choice([t for t in (1, 2, 3, 4, 6, 8, 16, 32) if rows * columns % t == 0]))
        across = int(rng.choice([t for t in range(1, columns + 1) if columns % t == 0 and threads % t == 0]))
        if rows % (threads // across):
            continue
        who = blocked((rows, columns), threads=threads, vector=1, across=across)
        apart = split(who, ((0, 1, 2), (3,)), tuple(map(expr, (*shape, columns))))
        if any(not c.condition.same(True) for c in apart.conditions[len(who.conditions) :]):
            continue  # a digit that ends within an axis: it cannot be cut
        cut += 1
        row, column = who.coordinates()[..., 0], who.coordinates()[..., 1]
        wanted = [*np.unravel_index(row, shape), column]
        assert np.array_equal(apart.coordinates(), np.stack(wanted, axis=-1))
    assert cut > 60


@pytest.mark.parametrize("of", [2, 4, 3])
def test_an_axis_that_is_split_where_vectors_end_is_held_as_its_parts_are(of: int) -> None:
    """By form, whatever the parameters are: so tiles of one number for each part are combined with it."""
    written = [symbol(name) for name in ("across", "vector", "rows")]
    for across, vector, rows in (written, (4, 2, 3), (1, 1, 1), (2, 8, 4)):
        whole = blocked((rows, of * across * vector), threads=rows * across, vector=of * vector, across=across)
        apart = split(whole, ((0,), (1, 2)), tuple(map(expr, (rows, across * vector, of)))).reduced(2).squeeze(2)
        parts = blocked((rows, across * vector), threads=rows * across, vector=vector, across=across)
        if across is written[0]:
            assert str(apart.threads) == str(parts.threads)
            continue
        one, other = (np.unique(who.coordinates(), axis=1) for who in (apart, parts))
        assert np.array_equal(one, other)


PAIRS = "p.loops: axes must be a pair of numbers, parameters, dims or expressions of them, not"


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ((), "p.loops runs over at least one axis: (extent, step)"),
        ((3,), f"{PAIRS} 3"),
        (((3, 1, 1),), f"{PAIRS} (3, 1, 1)"),
    ],
)
def test_loops_run_over_axes(axes: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:

        class Looping(Shorter):
            def program(self, p: Any) -> None:
                with p.grid((self.m, 64)), p.role("all", warps=1), p.loops(*axes):
                    pass

    assert str(refused.value).endswith(f"Looping.program: {sentence}")


def test_a_machine_of_which_the_smallest_sizes_leave_nothing_is_checked() -> None:
    report = check_machine(Shorter, devices=("a100",), problems=2, candidates=2, tell=lambda text: None)
    assert report.ok
