"""Tiles of any number of axes: blocked partitions, axes of extent 1 that come and go, buffers in shared memory."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import (
    Choice,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Partition,
    Route,
    UnknownLayout,
    blocked,
    not_equal,
    where,
)
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@settings(max_examples=150)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=5),
    threads=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16]),
    vector=st.sampled_from([1, 1, 2, 4]),
    axis=st.integers(-1, 4),
    across=st.sampled_from([None, None, 1, 2, 3, 4]),
)
def test_a_blocked_partition_holds_each_element_once_where_its_conditions_hold(
    shape: list[int], threads: int, vector: int, axis: int, across: int | None
) -> None:
    who = blocked(tuple(shape), threads=threads, vector=vector, axis=axis % len(shape), across=across)
    held = Counter(map(tuple, who.coordinates().reshape(-1, len(shape)).tolist()))
    everything = set(np.ndindex(*shape))
    whole = set(held) == everything and set(held.values()) == {1} and who.threads.size == threads
    if all(bool(c.condition.sympy) for c in who.conditions):
        assert whole
        first = who.coordinates()[:, :vector, axis % len(shape)]
        assert (np.diff(first, axis=1) == 1).all()  # a vector is made of neighbours
    elif len(shape) < 3:
        assert not whole


@given(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4), st.integers(0, 3))
def test_an_axis_of_one_comes_and_goes(shape: list[int], axis: int) -> None:
    who = blocked(tuple(shape), threads=math.prod(shape), across=shape[-1])
    place = axis % (len(shape) + 1)
    more = who.unsqueeze(place)
    assert [int(e) for e in more.shape] == [*shape[:place], 1, *shape[place:]]
    assert np.array_equal(np.delete(more.coordinates(), place, axis=2), who.coordinates())
    assert not more.coordinates()[:, :, place].any()
    back = more.squeeze(place)
    assert (back.shape, back.layout) == (who.shape, who.layout)


def window() -> Tile:
    return gmem_tile(Tensor("x", dtype("f32"), ("b", "m", "n"), "in"), (expr(3), expr(0), expr(8)), (1, 4, 8))


def test_an_axis_of_a_window_that_is_dropped_keeps_its_place_in_the_tensor() -> None:
    thin = window().squeeze(0)
    assert (str(thin), thin.axes, thin.contiguous) == ("x[3, 0:+4, 8:+8]", (1, 2), 1)
    wide = thin.unsqueeze(-1)
    assert (wide.axes, [int(e) for e in wide.shape], wide.contiguous) == ((1, 2, None), [4, 8, 1], 1)
    assert str(wide.squeeze(2)) == str(thin)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: window().squeeze(1), "x has 4 elements along axis 1; squeeze drops an axis of 1"),
        (lambda: window().squeeze(3), "x.squeeze(3): the axis is one from -3 to 2"),
        (lambda: window().unsqueeze(-5), "x.unsqueeze(-5): the axis is one from -4 to 3"),
        (
            lambda: window().permute(0, 2),
            "x.permute(0, 2): a window of a tensor, or registers, with 3 axes, takes each of them once",
        ),
        (
            lambda: in_smem().unsqueeze(0),
            "ring.x is a buffer, and its axes are its own; unsqueeze windows of tensors, registers",
        ),
    ],
)
def test_axes_that_do_not_come_or_go(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        make()
    assert str(refused.value) == sentence


def in_smem() -> Tile:
    shape = (expr(4), expr(8))
    buffer = Buffer("ring.x", SMEM, dtype("f32"), shape, 1, expr(0), "", expr(1))
    return Tile("ring.x", SMEM, dtype("f32"), shape, (expr(0), expr(0)), buffer=buffer)


def test_registers_keep_their_values() -> None:
    who = blocked((4, 8), threads=32)
    value = Tile("v1", RMEM, dtype("f32"), who.shape, (expr(0), expr(0)), partition=who)
    more = value.unsqueeze(1)
    assert (more.name, [int(e) for e in more.shape]) == ("v1", [4, 1, 8])
    assert isinstance(more.partition, Partition)
    assert str(more.partition) == "[4x1x8] ((8,4),1):((1@2,1@0),0)"


class Turned(Machine):
    """y[b, n, m] = x[b, m, n] + bias[n], through tiles with three axes in shared memory"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f32", b, m, n)
    bias = Input("f32", n)
    y = Output("f32", b, n, m)
    deep, tall = Param(1, 2), Param(4, 8)
    pad, vector = Param(0, 1, 4), Param(1, 2)
    swizzle = UnknownLayout()
    copy = Choice(isa.CpAsync(vector), Route(isa.LdGlobal(1), isa.StShared(1)))
    get, bring, st, add = isa.LdShared(1), isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (self.deep, self.tall, 32)
        with p.grid((self.b, self.deep), (self.m, self.tall), (self.n, 32)) as (k, i, j), p.role("all", warps=2):
            lines = blocked(shape, threads=64, vector=self.vector, name="lines")
            columns = blocked(shape, threads=64, axis=1, name="columns")
            along = columns.along(2).squeeze(0).squeeze(0)
            with p.pipeline("ring", 1, t=p.smem("f32", shape, pad=self.pad, layout=self.swizzle)) as ring:
                with ring.produce() as slot:
                    p.copy(self.copy, self.x.tile(k, i, j, shape=shape), slot.t, lines)
                with ring.consume() as slot:
                    bias = p.load(self.bring, self.bias.tile(j, shape=(32,)), along)
                    values = p.load(self.get, slot.t, columns)
                    total = p.apply(self.add, values, bias.unsqueeze(0).unsqueeze(0))
                    turned = self.y.tile(k, j, i, shape=(self.deep, 32, self.tall))
                    p.store(self.st, turned.permute(0, 2, 1), total)

    @staticmethod
    def reference(x: Any, bias: Any) -> Any:
        return (x + bias).swapaxes(1, 2)


@pytest.mark.parametrize("sizes", [(3, 9, 70), (1, 8, 32), (2, 17, 5)])
def test_tiles_with_three_axes_pass_through_shared_memory(sizes: tuple[int, int, int]) -> None:
    problem = Turned.problem(b=sizes[0], m=sizes[1], n=sizes[2])
    space = build_space(Turned, problem, device("a100"))
    points = space.space.sample(6, np.random.default_rng(sum(sizes)))
    assert len(points) == 6
    for point in points:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert verify(kernel, Turned, problem, orders=("late",)).passed, point


@pytest.mark.parametrize("sizes", [(3, 9, 70), (2, 17, 5)])
def test_a_program_with_renamed_axes_runs_as_it_is_written(sizes: tuple[int, int, int]) -> None:
    problem = Turned.problem(b=sizes[0], m=sizes[1], n=sizes[2])
    space = build_space(Turned, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(4))
    x = np.arange(math.prod(sizes), dtype=np.float32).reshape(sizes)
    bias = np.arange(sizes[2], dtype=np.float32) * 1000
    out = space.program(point).run({"x": x, "bias": bias})
    assert np.array_equal(out["y"], Turned.reference(x, bias))


class Butterfly(Machine):
    """y = the smaller, or the larger, of each two elements of a row that are `apart`, as their place says"""

    m, n, apart = Dim(), Dim(32), Dim(1, 2, 4, 8, 16)
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    ld, st, low, high, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Min("f32"), isa.Max("f32"), isa.ShflBfly()
    select, whole = isa.Select("f32"), isa.arithmetic("s32")

    def program(self, p: Any) -> None:
        shape = (4 * self.warps, 32)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
            bits = (16 // self.apart, 2, self.apart)
            pair, second = x.split(1, bits), not_equal(p.index(who, 1) & self.apart, 0).split(1, bits)
            assert pair.merge(1, 2, 3).partition is who
            low, high = (p.reduce(one, pair, axis=2, by=self.shuffle) for one in (self.low, self.high))
            ordered = where(second, high, low).merge(1, 2, 3)
            assert ordered.partition is who
            p.store(self.st, self.y.tile(i, 0, shape=shape), where(ordered > x, ordered, ordered))

    more = isa.Compare("f32", ">")

    @staticmethod
    def reference(x: Any, apart: int) -> Any:
        other = x[:, np.arange(32) ^ apart]
        return np.where(np.arange(32) & apart, np.maximum(x, other), np.minimum(x, other))


@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
def test_axes_that_are_split_and_merged_are_what_they_were(apart: int) -> None:
    problem = Butterfly.problem(m=5, apart=apart)
    space = build_space(Butterfly, problem, device("a100"))
    for point in space.space.sample(3, np.random.default_rng(apart)):
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert verify(kernel, Butterfly, problem, orders=("late",)).passed, point


def test_digits_that_are_one_together_are_held_by_the_same_threads() -> None:
    """Two of three axes merged, and then the third: the digits of the thread id are others, the threads are not."""

    class Twice(Butterfly):
        def program(self, p: Any) -> None:
            who = blocked((4, 32), threads=32, across=32)
            with p.grid((self.m, 4)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, 0, shape=(4, 32)), who)
                apart = x.split(1, (8, 2, 2)).merge(1, 2).merge(1, 2)
                assert apart.partition is not who
                p.store(self.st, self.y.tile(i, 0, shape=(4, 32)), where(apart > x, apart, x))

        warps, vector = Param(1), Param(1)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    problem = Twice.problem(m=5, apart=1)
    space = build_space(Twice, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, Twice, problem, orders=("late",)).passed
