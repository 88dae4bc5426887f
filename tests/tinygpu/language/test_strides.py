"""Strides of their own: problems pose them, resizing keeps them apart, and kernels step by them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.dtypes import dtype
from tinygpu.language import AccessPattern, Dim, Input, Machine, Option, Output, Param, blocked
from tinygpu.language.problem import Operand, Problem, ProblemError
from tinygpu.language.strides import order_of, overlapping, packed, resized
from tinygpu.ptx import isa
from tinygpu.ptx.launching.binding import problem_of
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.runtime.arrays import reader_of


class Heads(Machine):
    """y = x + x over the heads of an attention, whatever lies next to what"""

    b, h, s = Dim(), Dim(), Dim()
    d = Dim(32, 64)
    x = Input("f32", b, h, s, d, majors=("row", (b, s, h, d)))
    y = Output("f32", b, h, s, d)

    warps, vector = Param(1, 2), Param(1, 4)
    across = AccessPattern(8, 16)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (1, 1, 8, self.d)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.s, 8), (self.h, 1), (self.b, 1)) as (i, h, z), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(z, h, i, 0, shape=shape), who)
            p.store(self.st, self.y.tile(z, h, i, 0, shape=shape), p.apply(self.add, x, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x


class Pixels(Machine):
    """y = x + w over three channels, of as many features as an option says"""

    m = Dim()
    d = Option(32, 64)
    x = Input("f32", m, 3, d)
    w = Input("f32", 3, d)
    y = Output("f32", m, 3, d)

    vector = Param(1, 2)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (4, 1, self.d)
        who = blocked(shape, threads=32, vector=self.vector)
        with p.grid((self.m, 4), (3, 1)) as (i, c), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, c, 0, shape=shape), who)
            w = p.load(self.ld, self.w.tile(c, 0, shape=(1, self.d)).unsqueeze(0), who.along(2))
            p.store(self.st, self.y.tile(i, c, 0, shape=shape), p.apply(self.add, x, w))

    @staticmethod
    def reference(x: Any, w: Any, d: int) -> Any:
        return x + w


SIZES = {"b": 2, "h": 3, "s": 11, "d": 32}


def kernel(**strides: Any) -> Any:
    return tg.emit(tg.space(Heads, SIZES, device="a100", strides=strides), warps=1)


def drawn(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(extents, an order in memory, strides with gaps) of one to five axes."""
    rank = int(rng.integers(1, 6))
    shape = tuple(int(n) for n in rng.integers(1, 6, rank))
    order = tuple(int(a) for a in rng.permutation(rank))
    strides, step = [1] * rank, shape[order[0]] + int(rng.integers(3))
    for axis in order[1:]:
        strides[axis] = step
        step = step * shape[axis] + int(rng.integers(4))
    return shape, order, tuple(strides)


def places(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [sum(i * d for i, d in zip(at, strides, strict=True)) for at in itertools.product(*map(range, shape))]


def test_elements_that_meet_are_found_and_axes_that_nest_are_not_refused() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        shape, _, strides = drawn(rng)
        assert not overlapping(shape, strides)
        assert len(set(places(shape, strides))) == np.prod(shape)
        axis = int(rng.integers(len(shape)))
        closer = tuple(max(d - int(rng.integers(1, 4)), 0) if a == axis else d for a, d in enumerate(strides))
        if len(set(places(shape, closer))) < np.prod(shape):
            assert overlapping(shape, closer)


def test_resized_tensors_keep_the_order_of_their_axes_and_the_gaps() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        shape, order, strides = drawn(rng)
        to = tuple(int(n) for n in rng.integers(1, 7, len(shape)))
        found = resized(shape, strides, order, to, lambda axis, least: least)
        assert not overlapping(to, found)
        back = resized(to, found, order, shape, lambda axis, least: least)
        if 1 not in shape and 1 not in to:  # an axis of one element lies anywhere
            assert back == strides
        assert resized(shape, packed(shape, order, {}), order, to, lambda axis, least: least) == packed(to, order, {})


@pytest.mark.parametrize("order", [(3, 2, 1, 0), (3, 1, 2, 0), (3, 0, 1, 2), (3, 2, 0, 1)])
def test_one_kernel_takes_every_order_of_strides_of_the_axes_that_are_not_contiguous(order: tuple[int, ...]) -> None:
    """The launch gives strides; arrays of any order of heads, rows and batch are computed in place."""
    shape = tuple(SIZES.values())
    strides = packed(shape, order, {order[1]: 36})
    made = kernel(x=dict(enumerate(strides)), y=dict(enumerate(strides)))
    assert tg.verify(made).passed
    whole = np.random.default_rng(2).normal(size=1 + sum((n - 1) * d for n, d in zip(shape, strides, strict=True)))
    x = np.lib.stride_tricks.as_strided(whole.astype(np.float32), shape, [4 * d for d in strides])
    assert np.array_equal(tg.emulate(made, x), x + x)
    assert np.array_equal(tg.run(made, x), x + x)


def test_problems_are_told_and_saved_with_their_strides() -> None:
    posed = Heads.problem(**SIZES, strides={"x": {0: 8192, 2: 40}}, majors={"x": "row"})
    x = posed.operand("x")
    assert (x.ld, x.strides()) == (40, (8192, 440, 40, 1))
    assert [posed.environment()[f"x.stride{axis}"] for axis in (0, 1)] == [8192, 440]
    assert Problem.from_json(posed.to_json()) == posed
    turned = Heads.problem(**SIZES, majors={"x": "b.s.h.d"})
    assert str(turned) == "b=2,h=3,s=11,d=32 x:f32:b.s.h.d y:f32"
    assert turned.operand("x").strides() == (1056, 32, 96, 1)
    assert Problem.from_json(turned.to_json()) == turned


def test_arrays_pose_their_strides() -> None:
    shape = tuple(SIZES.values())
    for order in ((3, 2, 1, 0), (3, 1, 2, 0)):
        array = np.zeros([shape[a] for a in reversed(order)], np.float32)
        x = array.transpose([list(reversed(order)).index(a) for a in range(4)])
        posed = problem_of(Heads, {"x": reader_of(x, "x").view(x, "x")}, {})
        assert posed.operand("x").strides() == tuple(s // 4 for s in x.strides)
        assert posed.operand("x").major == ("row" if order[1] == 2 else "b.s.h.d")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"strides": {"x": {0: 40, 2: 40}}},
            "Heads: elements of x lie at the same place, with 2 x 3 x 11 x 32 elements and strides of 40, 440, 40, 1; "
            "axes are further apart than what lies between their neighbours",
        ),
        ({"strides": {"x": {4: 40}}}, "Heads: x has the axes 0 to 3, and a stride is given for 4"),
        ({"strides": {"x": {3: 2}}}, "Heads: x is contiguous along axis 3, and a stride of 2 is given there"),
        (
            {"strides": {"x": {0: 2.5}}},
            "Heads: the stride of x along axis 0 is a whole number of elements from 1 to 281474976710655, not 2.5",
        ),
        (
            {"strides": {"x": {2: 40}}, "lds": {"x": 48}},
            "Heads: the rows of x are 40 elements apart, or 48; say one",
        ),
        ({"strides": {"z": {0: 1}}}, "Heads has no tensor (its strides was given) 'z'; it has x, y"),
        ({"d": 48}, "Heads: the dim d is 32 or 64, not 48"),
        ({"majors": {"x": "col"}}, "Heads: x is row or b.s.h.d-major, not 'col'"),
    ],
)
def test_a_problem_that_cannot_be_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ProblemError) as refused:
        Heads.problem(**{**SIZES, **given})
    assert str(refused.value) == sentence


def test_a_constant_need_not_be_said() -> None:
    class Fixed(Heads):
        d = Dim(32)
        x = Input("f32", Heads.b, Heads.h, Heads.s, d)
        y = Output("f32", Heads.b, Heads.h, Heads.s, d)

    assert Fixed.problem(b=2, h=3, s=5).dim["d"] == 32
    with pytest.raises(ProblemError, match=r"^Fixed: the dim d is 32, not 64$"):
        Fixed.problem(b=2, h=3, s=5, d=64)


@pytest.mark.end_to_end
def test_a_kernel_is_launched_for_the_dims_that_it_was_made_for() -> None:
    made = kernel().built.kernel
    with pytest.raises(LaunchError, match=r"^heads was made for d = 32, and here it is 64; tune for this problem$"):
        made.check(Heads.problem(**{**SIZES, "d": 64}))
    pixels = tg.emit(tg.space(Pixels, m=5, device="a100", options={"d": 64}))
    assert tg.verify(pixels).passed
    with pytest.raises(
        LaunchError,
        match=r"^pixels was made for 64 elements of x along axis 2, and here they are 32; tune for this problem$",
    ):
        pixels.built.kernel.check(Pixels.problem(m=5))


def test_strides_beyond_32_bits_are_stepped_over() -> None:
    """Rows of some gigabytes: the emulator backs what CTAs at the corners of the grid touch."""
    strides = {"x": {0: 2**35, 1: 2**33, 2: 2**32 + 64}, "y": {0: 2**34, 1: 2**32, 2: 64}}
    with pytest.raises(ProblemError):  # the rows of a head reach over the next one
        Heads.problem(**SIZES, strides={"x": strides["x"]})
    strides["x"] = {0: 2**40, 1: 2**38, 2: 2**32 + 64}
    found = tg.verify(kernel(**strides))
    assert found.passed
    assert any("CTA 11 of 12" in str(check) for check in found.checks)


def test_a_packed_operand_says_no_strides() -> None:
    shape = (3, 5, 7)
    made = Operand("x", dtype("f16"), shape, "row", 8, 16, "in", (40,), order_of(3, "row"))
    assert (made.outer, made.order, made.strides()) == ((), (), (40, 8, 1))
