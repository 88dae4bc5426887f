"""What whole numbers a verification draws: scalars of which nothing is said, and offsets of pieces."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Scalar, Tracer, ascending, blocked, integers, where
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Kept(Machine):
    """y = x where the hash of its place is below a limit, else 0"""

    n = Dim()
    below, seed = Scalar("u32"), Scalar("u32")
    x, y = Input("f32", n), Output("f32", n)
    warps = Param(1, 2)
    ld, st, select, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.Select("f32"), isa.arithmetic("u32")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, 32 * self.warps)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=who.shape), who)
            h = self.hashed(p.cast(p.index(who, 0), "u32") + i)
            p.store(self.st, self.y.tile(i, shape=who.shape), where(h < self.below, x, 0.0))

    def hashed(self, place: Any) -> Any:
        return (place ^ self.seed) * 0x9E3779B1

    @staticmethod
    def reference(below: Any, seed: Any, x: Any) -> Any:
        hashed = ((np.arange(len(x)) ^ seed) * 0x9E3779B1) % 2**32
        return np.where(hashed < below, x, 0.0)


class OtherHash(Kept):
    def hashed(self, place: Any) -> Any:
        return (place ^ self.seed) * 0x9E3779B3


@pytest.mark.parametrize(("machine", "right"), [(Kept, True), (OtherHash, False)])
def test_a_limit_of_which_nothing_is_said_lies_among_what_is_compared_with_it(machine: Any, right: bool) -> None:
    """Below 2 there is no hash, whatever is hashed."""
    problem = machine.problem(n=100)
    space = build_space(machine, problem, device("a100"))
    kernel = build(space.program({"warps": 2}), problem, {"warps": 2}, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",))
    assert found.passed is right
    small, large = (draw(machine, problem, inputs, 0).scalars["seed"] for inputs in ("integers", "random"))
    assert small == 2
    assert large > 1000


class Pieces(Machine):
    """y[g] = the sum of the rows of x from first[g] to first[g + 1]"""

    g, m, n = Dim(), Dim(), Dim()
    ends = Dim(follows=lambda g: g + 1)
    first = Input("s32", ends, values=ascending(0, m, ends=True))
    x, y = Input("f32", m, n), Output("f32", g, n)
    ld, st, single, add = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1), isa.Add("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.g, 1), (self.n, 32)) as (i, j), p.role("all", warps=1):
            total, begin, end = p.full(who, "f32"), self.first[i], self.first[i + 1]
            with p.loop(p.until(end - begin)) as r:
                total += p.load(self.ld, self.x.segment(begin, end).tile(r, j, shape=(1, 32)), who)
            p.store(self.st, self.y.tile(i, j, shape=(1, 32)), total)

    @staticmethod
    def reference(first: Any, x: Any) -> Any:
        return np.stack([x[int(a) : int(b)].sum(axis=0) for a, b in pairwise(first)])


@pytest.mark.parametrize("g", [1, 2, 5])
def test_some_piece_has_everything(g: int) -> None:
    """So a loop over one has as many rounds as it may have, once in the first piece of all and once in the last."""
    problem = Pieces.problem(g=g, m=7, n=32)
    shapes = {o.name: o.shape for o in problem.operands}
    for inputs, piece in (("lines", g - 1), ("other signs", 0)):
        first = drawn(Pieces, problem, inputs, 0, shapes)[0]["first"]  # type: ignore[arg-type]
        assert np.flatnonzero(np.diff(first)).tolist() == [piece]
        assert first[0] == 0
        assert first[-1] == 7


class Cubes(Machine):
    """y = x x x, in f32"""

    n = Dim()
    x, y = Input("s32", n), Output("f32", n)
    warps = Param(1, 2)
    ld, st, arithmetic, convert = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.Cvt("s32", "f32")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, 32 * self.warps)) as (i,), p.role("all", warps=self.warps):
            x = p.cast(p.load(self.ld, self.x.tile(i, shape=who.shape), who), "f32")
            p.store(self.st, self.y.tile(i, shape=who.shape), self.cubed(p, x))

    def cubed(self, p: Tracer, x: Any) -> Any:
        return x * x * x

    @staticmethod
    def reference(x: Any) -> Any:
        return x**3


def test_powers_of_drawn_integers_have_a_place_in_the_64_bits_of_the_reference() -> None:
    """NumPy's wrap around, and a right kernel would be called wrong."""
    problem = Cubes.problem(n=200)
    for inputs in ("integers", "random"):
        x = draw(Cubes, problem, inputs, 0).arrays["x"].astype(np.float64)
        assert 8 <= np.abs(x).max() < 2.0**21
    space = build_space(Cubes, problem, device("a100"))
    kernel = build(space.program({"warps": 1}), problem, {"warps": 1}, SolverCache()).kernel
    found = verify(kernel, Cubes, problem)
    assert found.passed, str(found)




class LargeOnesOff(Cubes):
    """the same; of large numbers by more than single precision rounds"""

    def cubed(self, p: Tracer, x: Any) -> Any:
        return where(x > 5000.0, x * x * x * 1.0001, x * x * x)


def test_whole_numbers_beyond_single_precision_are_as_exact_as_it_is() -> None:
    problem = LargeOnesOff.problem(n=200)
    space = build_space(LargeOnesOff, problem, device("a100"))
    kernel = build(space.program({"warps": 1}), problem, {"warps": 1}, SolverCache()).kernel
    found = verify(kernel, LargeOnesOff, problem, orders=("late",))
    assert {c.inputs for c in found.checks if not c.passed} >= {"specials"}, str(found)


class Picked(Machine):
    """y = three times the numbers of a table that others name, in f32"""

    n, v = Dim(), Dim()
    at, table, y = Input("s32", n, values=integers(0, v)), Input("s32", v), Output("f32", n)
    warps = Param(1, 2)
    ld, st, arithmetic, convert = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.Cvt("s32", "f32")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, 32 * self.warps)) as (i,), p.role("all", warps=self.warps):
            at = p.load(self.ld, self.at.tile(i, shape=who.shape), who)
            x = p.load(self.ld, self.table.rows(at).tile(0, shape=who.shape), who)
            p.store(self.st, self.y.tile(i, shape=who.shape), p.cast(x, "f32") * 3.0)

    @staticmethod
    def reference(at: Any, table: Any) -> Any:
        return table[at] * 3


class Hashed(Picked):
    """y = hashes, in f32: of floats there are none"""

    whole, wide = isa.arithmetic("u32"), isa.Cvt("u32", "f32")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, 32 * self.warps)) as (i,), p.role("all", warps=self.warps):
            at = p.cast(p.load(self.ld, self.at.tile(i, shape=who.shape), who), "u32")
            p.store(self.st, self.y.tile(i, shape=who.shape), p.cast((at ^ 77) * 0x9E3779B1, "f32"))

    @staticmethod
    def reference(at: Any, table: Any) -> Any:
        return ((at ^ 77) * 0x9E3779B1) % 2**32


@pytest.mark.parametrize("machine", [Picked, Hashed])
def test_places_and_bits_stay_integers_where_others_are_given_as_floats(machine: Any) -> None:
    problem = machine.problem(n=97, v=31)
    space = build_space(machine, problem, device("a100"))
    kernel = build(space.program({"warps": 1}), problem, {"warps": 1}, SolverCache()).kernel
    found = verify(kernel, machine, problem)
    assert found.passed, str(found)


class Differing(Machine):
    """y = the bits in which a and b differ, but for the highest"""

    n, mask = Dim(), 0x7FFFFFFF
    a, b, y = Input("u32", n), Input("u32", n), Output("u32", n)
    warps = Param(1, 2)
    ld, st, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("u32")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps,), threads=32 * self.warps)
        with p.grid((self.n, 32 * self.warps)) as (i,), p.role("all", warps=self.warps):
            a, b = (p.load(self.ld, x.tile(i, shape=who.shape), who) for x in (self.a, self.b))
            p.store(self.st, self.y.tile(i, shape=who.shape), (a ^ b) & self.mask)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a ^ b


def test_undeclared_words_have_their_highest_bit() -> None:
    problem = Differing.problem(n=97)
    space = build_space(Differing, problem, device("a100"))
    kernel = build(space.program({"warps": 1}), problem, {"warps": 1}, SolverCache()).kernel
    assert not verify(kernel, Differing, problem).passed
