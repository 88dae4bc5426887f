"""Verification where dims follow from others: problems are small, and references have all that belongs together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, ascending, blocked, integers
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

# How many offsets, or words, there are for so many rows; nothing of the kernel goes along them.
BESIDE: dict[str, Callable[[int], int]] = {
    "one more": lambda m: m + 1,
    "twice as many": lambda m: 2 * m,
    "one for 32": lambda m: (m + 31) // 32,
}


@cache
def sums(beside: str) -> type[Machine]:
    """y[i] = sum of x from begin to end: offsets lie in a tensor of its own size, some for each row."""
    size, each = BESIDE[beside], {"one more": 1, "twice as many": 2, "one for 32": 0}[beside]

    class Sums(Machine):
        m, n = Dim(), Dim()
        k = Dim(follows=lambda m: size(m))
        at, x = Input("s32", k, values=ascending(0, n)), Input("f32", n)
        y = Output("f32", m)

        vector = Param(1, 2)
        ld, ld_at, st = isa.LdGlobal(1), isa.LdGlobalReadOnly(1), isa.StGlobal(1)
        add, shuffle = isa.Add("f32"), isa.ShflBfly()

        def program(self, p: Any) -> None:
            shape = (32 * self.vector,)
            who = blocked(shape, threads=32)
            with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
                first = i * each if each else i // 32
                begin, end = self.at[first], self.at[first + 1] if each else self.n
                total = p.full(who, "f32")
                with p.loop(p.until(end - begin), step=shape[0]) as j:
                    total += p.load(self.ld, self.x.segment(begin, end).tile(j, shape=shape), who)
                p.store(self.st, self.y.tile(i, shape=(1,)), p.reduce(self.add, total, axis=0, by=self.shuffle))

        @staticmethod
        def reference(at: Any, x: Any, m: int) -> Any:
            at = at.astype(int)
            ends = [(i * each, at[i * each + 1]) if each else (i // 32, len(x)) for i in range(m)]
            return np.stack([x[at[first] : end].sum() for first, end in ends])

    return Sums


@cache
def kernel_of(beside: str, m: int) -> tuple[Kernel, Any]:
    problem = sums(beside).problem(m=m, n=211)
    space = build_space(sums(beside), problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(m))
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("m", [1, 7, 1_000_003, 2**31 - 2])
def test_sizes_that_only_follow_keep_no_derived_problem_large(beside: str, m: int) -> None:
    if beside == "twice as many" and m > 2**30:
        m = 2**30 - 1
    kernel, problem = kernel_of(beside, m)
    small = derive(kernel, sums(beside), problem)
    assert small.dim["k"] == BESIDE[beside](small.dim["m"])
    assert small.dim["m"] <= min(m, 2)


class Windows(Machine):
    """y[i] = x[at[i]] + x[at[i + 1]], whose reference asks for no size"""

    m, n = Dim(), Dim()
    k = Dim(follows=lambda m: m + 1)
    at, x = Input("s32", k, values=integers(0, n)), Input("s32", n)
    y = Output("s32", m)
    vector = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(vector), isa.Add("s32")

    def program(self, p: Any) -> None:
        shape = (32 * self.vector,)
        who = blocked(shape, threads=32, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=1):
            left, right = (p.load(self.ld, self.at.tile(i + d, shape=shape), who) for d in (0, 1))
            a, b = (p.load(self.ld, self.x.rows(at).tile(0, shape=shape), who) for at in (left, right))
            p.store(self.st, self.y.tile(i, shape=shape), a + b)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        at = at.astype(int)
        return x[at[:-1]] + x[at[1:]]


def verified(machine: type[Machine], **dims: int) -> Verification:
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    return verify(kernel, machine, problem, orders=("random",), thorough=True)


@pytest.mark.parametrize("m", [1, 31, 65, 1009])
def test_ctas_of_the_problem_itself_are_judged_beside_all_that_follows_from_their_rows(m: int) -> None:
    found = verified(Windows, m=m, n=97)
    assert found.passed, str(found)
    assert m < 1009 or any(c.where.startswith("CTA") for c in found.checks)


def test_a_wrong_offset_is_seen_where_sizes_follow() -> None:
    class Wrong(Windows):
        @staticmethod
        def reference(at: Any, x: Any) -> Any:
            at = at.astype(int)
            return x[at[:-1]] + x[at[:-1]]

    assert not verified(Wrong, m=65, n=97).passed


class Mirrored(Machine):
    """y = x with rows before and behind, which are those inside, reflected: fewer than there are"""

    h, w, pad = Dim(), Dim(), Dim()
    higher = Dim(follows=lambda h, pad: h + 2 * pad)
    x, y = Input("f32", h, w), Output("f32", higher, w)
    inside = Require(pad < h, "there are more rows than are reflected")
    rows = Param(1, 2)
    ld, st, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32")

    def program(self, p: Any) -> None:
        shape = (self.rows, 32)
        who = blocked(shape, threads=32)
        with p.grid((self.higher, self.rows), (self.w, 32)) as (i, j), p.role("all", warps=1):
            row = self.h - 1 - abs(self.h - 1 - abs(p.index(who.along(0), 0) + (i - self.pad)))
            x = p.load(self.ld, self.x.rows(row).tile(0, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), x)

    @staticmethod
    def reference(x: Any, pad: int) -> Any:
        return np.pad(x, ((pad, pad), (0, 0)), mode="reflect")


@pytest.mark.parametrize(("h", "pad"), [(2, 1), (5, 4), (31, 7)])
def test_what_dims_follow_from_is_legal_in_derived_problems(h: int, pad: int) -> None:
    problem = Mirrored.problem(h=h, w=37, pad=pad)
    for rows in (1, 2):
        space = build_space(Mirrored, problem, device("a100"))
        kernel = build(space.program({"rows": rows}), problem, {"rows": rows}, SolverCache()).kernel
        small = derive(kernel, Mirrored, problem)
        assert small.dim["pad"] < small.dim["h"] <= h, small
        assert verify(kernel, Mirrored, problem).passed
