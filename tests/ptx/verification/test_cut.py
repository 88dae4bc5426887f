"""CTAs of the real problem where windows lie elsewhere than in their tiles: by data, by place, in rounds, scattered."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, wraps
from typing import Any

import numpy as np
import pytest

from tests.ptx.verification.test_far_rows import in_32_bits
from tinygpu.devices import device
from tinygpu.language import Dim, InOut, Input, Machine, Output, Param, Tracer, ascending, blocked, integers
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import prepare
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import Check
from tinygpu.ptx.verification.sampled import chosen_clusters, sampled_checks
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WIDE = 64
WHO = blocked((1, WIDE), threads=32, vector=2)


class OfRows(Machine):
    """y, a row or rows of it in each tile, of rows of x over the same dim, which numbers over that dim decide"""

    n, k = Dim(), Dim()
    at = Input("s32", n, values=integers(0, n))
    x, y = Input("f32", n, k), Output("f32", n, k)
    warps = Param(1, 2)  # of which one is used
    ld, st, one = isa.LdGlobal(2), isa.StGlobal(2), isa.LdGlobalReadOnly(1)
    arithmetic = isa.arithmetic("f32")
    rows = 1

    def program(self, p: Tracer) -> None:
        who = blocked((self.rows, WIDE), threads=32, vector=2)
        with p.grid((self.n, self.rows), (self.k, WIDE)) as (i, j), p.role("all", warps=1):
            p.store(self.st, self.y.tile(i, j, shape=(self.rows, WIDE)), self.of(p, i, j, who))

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        """A tile of y."""
        return p.load(self.ld, self.x.tile(self.at[i], j, shape=(1, WIDE)), who)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return x[at]


class Parents(OfRows):
    """y[i] = x[i] + x[at[i]]: rows of the tile's own, and one that is named"""

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        own = p.load(self.ld, self.x.tile(i, j, shape=(1, WIDE)), who)
        return own + p.load(self.ld, self.x.at(self.at[i]).tile(j, shape=(WIDE,)), who.squeeze(0)).unsqueeze(0)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return x + x[at]


class ByThreads(OfRows):
    """y[i] = x[at[i]]: each thread names a row"""

    rows = 4

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        at = p.load(self.one, self.at.column(i, 4), who.along(0), fill=-1)
        return p.load(self.ld, self.x.rows(at).tile(0, j, shape=(4, WIDE)), who)


class From(OfRows):
    """Four rows of y from x[at[i]] on, zeros behind the last"""

    rows = 4

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        return p.load(self.ld, self.x.tile(self.at[i], j, shape=(4, WIDE)), who)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return from_each(4, at, x)


def from_each(rows: int, at: Any, x: Any) -> Any:
    """So many rows of x from one on, and so on; zeros behind the last."""
    place = np.arange(len(x))
    row = at[place // rows * rows] + place % rows
    return np.where((row < len(x))[:, None], x[np.minimum(row, len(x) - 1)], 0)


class NextTo(OfRows):
    """y[i] = x[at[i] + 1], zeros behind the last: a number is computed of the one that is loaded"""

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        return p.load(self.ld, self.x.tile(self.at[i] + 1, j, shape=(1, WIDE)), who)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.concatenate([x, 0 * x[:1]])[at + 1]


class Numbered(OfRows):
    """y[i] = x[at[i]], and 1 more where at[i] is above 5: what names a row is more than a name"""

    plus = isa.Add("f32")

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        at = self.at[i]
        x = p.load(self.ld, self.x.tile(at, j, shape=(1, WIDE)), who)
        with p.when(at > 5):
            p.apply(self.plus, x, 1.0, into=x)
        return x

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return x[at] + (at > 5)[:, None]


class Segments(OfRows):
    """y[i] = sum of the rows of x from at[i] on, below until[i]"""

    at, until = (Input("s32", OfRows.n, values=ascending(0, OfRows.n, apart=9)) for _ in range(2))

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        total, begin, end = p.full(who, "f32"), self.at[i], self.until[i]
        with p.loop(p.until(end - begin)) as r:
            total += p.load(self.ld, self.x.segment(begin, end).tile(r, j, shape=(1, WIDE)), who)
        return total

    @staticmethod
    def reference(at: Any, until: Any, x: Any) -> Any:
        return np.stack([x[a : max(a, b)].sum(axis=0) for a, b in zip(at, until, strict=True)])


class Neighbours(OfRows):
    """y[i] = x[i - 1] + x[i + 1], zeros beyond the ends"""

    at = None  # type: ignore[assignment]

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        left, right = (p.load(self.ld, self.x.tile(i + d, j, shape=(1, WIDE)), who) for d in (-1, 1))
        return left + right

    @staticmethod
    def reference(x: Any) -> Any:  # type: ignore[override]
        beyond = np.pad(x, ((1, 1), (0, 0)))
        return beyond[:-2] + beyond[2:]


class LessTheSum(OfRows):
    """y[i] = x[i] - the sum of all rows: a loop over what the grid goes along"""

    at = None  # type: ignore[assignment]

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        total = p.full(who, "f32")
        with p.loop(self.n) as r:
            total += p.load(self.ld, self.x.tile(r, j, shape=(1, WIDE)), who)
        return p.load(self.ld, self.x.tile(i, j, shape=(1, WIDE)), who) - total

    @staticmethod
    def reference(x: Any) -> Any:  # type: ignore[override]
        return x - x.sum(axis=0)


class Ahead(OfRows):
    """y[i] = x[i] + x[i + 1] + x[i + 2], zeros behind the last: windows leave the tile in later rounds"""

    at = None  # type: ignore[assignment]

    def of(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        total = p.full(who, "f32")
        with p.loop(3) as r:
            total += p.load(self.ld, self.x.tile(i + r, j, shape=(1, WIDE)), who)
        return total

    @staticmethod
    def reference(x: Any) -> Any:  # type: ignore[override]
        behind = np.pad(x, ((0, 2), (0, 0)))
        return behind[:-2] + behind[1:-1] + behind[2:]


class InSlots(OfRows):
    """y[i] = x[at[i]] by way of shared memory, to which threads copy rows that they name"""

    copy, get, stages = isa.CpAsync(4), isa.LdShared(2), Param(1, 2)

    def program(self, p: Tracer) -> None:
        shape, brought = (4, WIDE), blocked((4, WIDE), threads=32, vector=4)
        with (
            p.grid((self.n, 4)) as (i,), p.role("all", warps=1),
            p.pipeline("ring", self.stages, t=p.smem("f32", shape)) as ring,
        ):  # fmt: skip
            at = p.load(self.one, self.at.column(i, 4), brought.along(0), fill=-1)
            with p.loop(self.k, step=WIDE) as j:
                with ring.produce() as slot:
                    p.copy(self.copy, self.x.rows(at).tile(0, j, shape=shape), slot.t, brought)
                with ring.consume() as slot:
                    t = p.load(self.get, slot.t, blocked(shape, threads=32, vector=2))
                    p.store(self.st, self.y.tile(i, j, shape=shape), t)


class Boxes(OfRows):
    """Eight rows of y from x[at[i]] on, brought by TMA"""

    copy, get, stages = isa.TmaLoad(), isa.LdShared(2), Param(2)

    def program(self, p: Tracer) -> None:
        shape = (8, 32)
        with (
            p.grid((self.n, 8), (self.k, 32)) as (i, j),
            p.pipeline("ring", self.stages, t=p.smem("f32", shape, swizzle=128)) as ring,
        ):
            with p.role("bring", warps=1):
                first = self.at[i]
                with ring.produce() as slot:
                    p.copy(self.copy, self.x.tile(first, j, shape=shape), slot.t)
            with p.role("keep", warps=1, first=1), ring.consume() as slot:
                t = p.load(self.get, slot.t, blocked(shape, threads=32, vector=2))
                p.store(self.st, self.y.tile(i, j, shape=shape), t)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return from_each(8, at, x)


class Added(OfRows):
    """y[at[i]] += x[i]: rows to which CTAs add where data say"""

    y = InOut("f32", OfRows.n, OfRows.k)
    red = isa.RedGlobal("add")

    def program(self, p: Tracer) -> None:
        with p.grid((self.n, 1), (self.k, WIDE)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, WIDE)), WHO)
            p.store(self.red, self.y.tile(self.at[i], j, shape=(1, WIDE)), x)

    @staticmethod
    def reference(at: Any, x: Any, y: Any) -> Any:  # type: ignore[override]
        out = y.copy()
        np.add.at(out, at, x)
        return out


class Behind(OfRows):
    """y[b, i] = x[b, i - at[b]], with zeros before: rows of a dim that no tile divides, written from at[b] on"""

    b = Dim()
    at = Input("s32", b, values=integers(0, OfRows.n))
    x, y = Input("f32", b, OfRows.n, OfRows.k), InOut("f32", b, OfRows.n, OfRows.k)

    def program(self, p: Tracer) -> None:
        who = blocked((1, 1, WIDE), threads=32, vector=2)
        with p.grid((self.b, 1), (self.k, WIDE)) as (i, j), p.role("all", warps=1), p.loop(self.n) as r:
            x = p.load(self.ld, self.x.tile(i, r, j, shape=(1, 1, WIDE)), who)
            p.store(self.st, self.y.tile(i, r + self.at[i], j, shape=(1, 1, WIDE)), x)

    @staticmethod
    def reference(at: Any, x: Any, y: Any) -> Any:  # type: ignore[override]
        out = y.copy()
        for b, first in enumerate(at):
            out[b, first:] = x[b, : x.shape[1] - first]
        return out


@cache
def made(machine: type[Machine], n: int, k: int, **more: int) -> tuple[Kernel, Any]:
    problem = machine.problem(n=n, k=k, **more)
    space = build_space(machine, problem, device("h100"))
    (point,) = space.sample(1, n)
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


def verified(machine: type[Machine], n: int, k: int, **more: int) -> Verification:
    kernel, problem = made(machine, n, k, **more)
    return verify(kernel, machine, problem, orders=("late",), random_inputs=False, thorough=True)


def of_ctas(found: Verification) -> list[Check]:
    return [c for c in found.checks if c.where.startswith("CTA")]


BY_DATA = (OfRows, Parents, ByThreads, From, NextTo, Numbered, Segments, InSlots, Boxes)


@pytest.mark.parametrize("machine", [*BY_DATA, Neighbours, Ahead, LessTheSum], ids=lambda m: m.__name__)
@pytest.mark.parametrize("n", [37, 1])
def test_ctas_are_judged_beside_all_that_their_windows_reach(machine: type[Machine], n: int) -> None:
    found = verified(machine, n, 288)
    assert found.passed, str(found)
    assert of_ctas(found)
    assert not found.left_out


@pytest.mark.parametrize("machine", BY_DATA, ids=lambda m: m.__name__)
def test_rows_that_others_would_be_are_seen_in_ctas(machine: type[Machine]) -> None:
    """The reference takes the numbers of its neighbour."""
    kernel, problem = made(machine, 37, 288)

    @wraps(machine.reference)
    def of_others(at: Any, **others: Any) -> Any:
        return machine.reference(at=np.roll(at, 1), **others)

    wrong = type("Wrong", (machine,), {"reference": staticmethod(of_others), "__module__": __name__})
    found = verify(kernel, wrong, problem, orders=("late",), random_inputs=False, thorough=True, derived=problem)
    chosen = chosen_clusters(kernel, problem)
    judged = sampled_checks(kernel, prepare(kernel.ptx), wrong, problem, chosen, 0)
    assert not found.passed
    assert judged
    assert not all(c.passed for c in judged)


@pytest.mark.parametrize("machine", [OfRows, Parents, ByThreads, InSlots], ids=lambda m: m.__name__)
def test_offsets_of_rows_that_data_name_are_seen_beyond_32_bits(machine: type[Machine]) -> None:
    n, k = (1 << 20) + 7, 4096
    kernel, problem = made(machine, n, k)
    right = verify(kernel, machine, problem, orders=("late",), random_inputs=False, thorough=True)
    assert right.passed, str(right)
    assert not right.left_out
    cut = replace(kernel, ptx=in_32_bits(kernel.ptx))
    assert cut.ptx != kernel.ptx
    wrong = verify(cut, machine, problem, orders=("late",), random_inputs=False, thorough=True)
    assert all(c.passed for c in wrong.checks if not c.where.startswith("CTA"))
    assert not all(c.passed for c in of_ctas(wrong))


LEFT_OUT: tuple[tuple[type[Machine], dict[str, int], tuple[str, ...]], ...] = (
    (Added, {"n": 37, "k": 288}, ("CTAs of the problem itself: what each leaves of y lies anywhere along n",)),
    (
        Behind,
        {"n": 37, "k": 288, "b": 5},
        ("CTAs of the problem itself: what each leaves of y lies anywhere along n",),
    ),
    (
        From,
        {"n": 400_000, "k": 40},
        tuple(
            f"CTA {cta} of 100,000: their windows hold 32,400,000 elements > 8,388,608, those of x all along n"
            for cta in ("99,999", "0")
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize(("machine", "dims", "said"), LEFT_OUT, ids=lambda v: getattr(v, "__name__", ""))
def test_what_cannot_be_cut_is_said(machine: type[Machine], dims: dict[str, int], said: tuple[str, ...]) -> None:
    found = verified(machine, **dims)
    assert found.passed, str(found)
    assert found.left_out == said
