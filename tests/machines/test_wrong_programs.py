"""Programs that are wrong as users write them, beside their right twins: verification refuses each, and no twin."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import (
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Tracer,
    ascending,
    blocked,
    equal,
    exp,
    floor,
    gelu,
    integers,
    log,
    maximum,
    minimum,
    rint,
    rsqrt,
    trunc,
    where,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WIDE = 128
WHO = blocked((1, WIDE), threads=32)


class OfRows(Machine):
    """y[i] is made of x[i], a row of 128 elements at most"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps = Param(1)
    ld, st, one, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1), isa.ShflBfly()
    arithmetic = isa.arithmetic("f32")
    add, larger = isa.Add("f32"), isa.Max("f32")
    fits = Require(n <= WIDE, "a row fits into a tile")
    exact = False
    fill = 0.0
    how = ""

    def program(self, p: Tracer) -> None:
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(1, WIDE)), WHO, fill=self.fill)
            p.store(self.st, self.y.tile(i, 0, shape=(1, WIDE)), self.of(p, x, i))

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        return x

    def total(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.add, x, axis=1, by=self.shuffle)

    def top(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.larger, x, axis=1, by=self.shuffle)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class Centred(OfRows):
    """y = x - mean of the row"""

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        count = {"of one less": self.n - 1, "of the whole tile": WIDE}.get(self.how, self.n)
        return x - self.total(p, x) / count

    @staticmethod
    def reference(x: Any) -> Any:
        return x - x.mean(axis=1, keepdims=True)


class Scaled(OfRows):
    """y = x / sqrt(mean of squares + 1e-5)"""

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        mean = self.total(p, x * x) / (self.n - 1 if self.how == "of one less" else self.n)
        if self.how == "no epsilon":
            return x * rsqrt(mean)
        return x * (rsqrt(mean) + 1e-5 if self.how == "epsilon behind the root" else rsqrt(mean + 1e-5))

    @staticmethod
    def reference(x: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)


class Weights(OfRows):
    """y = softmax of the row"""

    fill = -math.inf

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        e = exp(x) if self.how == "largest not taken off" else exp(x - self.top(p, x))
        total = self.total(p, e)
        return e / (total + 1e-3 if self.how == "epsilon in the sum" else total)

    @staticmethod
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


class Causal(OfRows):
    """y[i, j] = x[i, j] up to the diagonal, -1 behind it"""

    whole = isa.arithmetic("s32")

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        column = p.index(WHO, 1)
        seen = {
            "without the diagonal": lambda: column < i, "one more": lambda: column <= i + 1,
            "not shifted": lambda: column <= 0, "the other triangle": lambda: column >= i,
        }.get(self.how, lambda: column <= i)()  # fmt: skip
        return where(seen, x, -1.0)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.where(np.arange(x.shape[1]) <= np.arange(len(x))[:, None], x, -1)


class Largest(OfRows):
    """y = the largest absolute value of the row, in every place"""

    whole = isa.arithmetic("s32")
    fill = 0.0

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        size = x if self.how == "with signs" else maximum(x, -x)
        if self.how == "without the last":
            size = where(p.index(WHO, 1) < self.n - 1, size, 0.0)
        return x * 0.0 + self.top(p, size) if self.how == "NaN and infinity spread" else self.spread(p, x, size)

    def spread(self, p: Tracer, x: Any, size: Any) -> Any:
        return where(p.index(WHO, 1) >= 0, self.top(p, size), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.broadcast_to(np.abs(x).max(axis=1, keepdims=True), x.shape)


class LargestSigned(OfRows):
    """y = the largest of the row, in every place"""

    whole = isa.arithmetic("s32")
    fill = -math.inf

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        top = self.top(p, x)
        top = maximum(top, 0.0) if self.how == "from zero on" else top
        top = maximum(top, -100.0) if self.how == "from -100 on" else top
        return where(p.index(WHO, 1) >= 0, top, x)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.broadcast_to(x.max(axis=1, keepdims=True), x.shape)


class Quantised(OfRows):
    """y = x in steps of its row's largest / 127, and zeros of a row of zeros"""

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        top = self.top(p, maximum(x, -x))
        step = top / (128.0 if self.how == "128 steps" else 127.0)
        if self.how != "no guard":
            step = where(equal(top, 0.0), 1.0, step)
        ratio = x / step
        whole = {
            "cut off": lambda: trunc(ratio), "rounded down": lambda: floor(ratio), "not clamped": lambda: rint(ratio),
        }.get(self.how, lambda: minimum(maximum(rint(ratio), -127.0), 127.0))()  # fmt: skip
        return whole

    @staticmethod
    def reference(x: Any) -> Any:
        top = np.abs(x).max(axis=1, keepdims=True)
        return np.clip(np.rint(x / np.where(top == 0, 1, top / 127)), -127, 127)


class Rounded(OfRows):
    """y = x / 2, rounded to the nearest whole number, halves to even ones"""

    exact = True

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        half = x * 0.5
        return {"cut off": lambda: trunc(half), "halves up": lambda: floor(half + 0.5)}.get(
            self.how, lambda: rint(half)
        )()

    @staticmethod
    def reference(x: Any) -> Any:
        return np.rint(x * 0.5)


class HalvesUp(OfRows):
    """y = x / 4, rounded to the nearest whole number, halves up"""

    exact = True

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        return rint(x * 0.25) if self.how == "halves to even ones" else floor(x * 0.25 + 0.5)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.floor(x / 4 + 0.5)


class Activated(OfRows):
    """y = gelu of x, by the error function"""

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        if self.how == "of another slope":
            return x * (1.0 / (1.0 + exp(x * -1.702)))
        return gelu(x)

    approximation = 2.0**-10

    @staticmethod
    def reference(x: Any) -> Any:
        return x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))


class Gradient(OfRows):
    """y = 1 where x is above zero, else 0"""

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        return where(x >= 0.0 if self.how == "zero counts" else x > 0.0, 1.0, 0.0)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.where(x > 0, 1.0, 0.0)


class Loss(OfRows):
    """y = log of the sum of exponentials of the row, less x"""

    fill = -math.inf

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        top = self.top(p, x)
        total = self.total(p, exp(x - top))
        return log(total) - x if self.how == "largest not added" else log(total) + top - x

    @staticmethod
    def reference(x: Any) -> Any:
        top = x.max(axis=1, keepdims=True)
        return np.log(np.exp(x - top).sum(axis=1, keepdims=True)) + top - x


class Blocks(OfRows):
    """y[i, j] = x[i, j] + the sum of its block of 32"""

    def program(self, p: Tracer) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            going_on = p.full(who, "f32") if self.how else None
            with p.loop(self.n, step=32) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who)
                if going_on is not None:
                    going_on += x
                block = x if going_on is None else going_on
                p.store(self.st, self.y.tile(i, j, shape=(1, 32)), x + self.total(p, block))

    @staticmethod
    def reference(x: Any) -> Any:
        n = x.shape[1]
        padded = np.concatenate([x, np.zeros((len(x), -n % 32), x.dtype)], axis=1)
        sums = padded.reshape(len(x), -1, 32).sum(axis=2)
        return x + np.repeat(sums, 32, axis=1)[:, :n]


class NarrowSums(OfRows):
    """y = sums of rows, in every place; x is bf16, sums are not"""

    whole = isa.arithmetic("s32")
    x = Input("bf16", OfRows.m, OfRows.n)
    fits = Require(OfRows.n <= 1 << 20, "rows are taken tile after tile")

    def program(self, p: Tracer) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.n, step=32) as j:
                total += p.cast(p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who), "f32")
                if self.how == "kept in bf16":
                    p.cast(p.cast(total, "bf16"), "f32", into=total)
            summed = self.total(p, total)
            with p.loop(self.n, step=32) as j:
                p.store(self.st, self.y.tile(i, j, shape=(1, 32)), where(p.index(who, 1) >= 0, summed, total))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.broadcast_to(x.astype(np.float32).sum(axis=1, keepdims=True), x.shape)


class Place(OfRows):
    """y = the place of the largest of the row, the first of equals"""

    whole = isa.arithmetic("s32")
    x, y = Input("f32", OfRows.m, OfRows.n, values=integers(-20, 20)), Output("s32", OfRows.m)
    fill = -math.inf

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        ties = {"the last of equals": maximum(i, j), "any of equals": j}.get(self.how)
        first = where(equal(x, y), minimum(i, j) if ties is None else ties, j)
        return maximum(x, y), where(x > y, i, first)

    def program(self, p: Tracer) -> None:
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(1, WIDE)), WHO, fill=self.fill)
            _, at = p.reduce(Combine(self.better), (x, p.index(WHO, 1)), axis=1, by=self.shuffle)
            p.store(self.st, self.y.column(i, 1), at)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.argmax(axis=1).astype(np.int32)


class Groups(OfRows):
    """y[i] = sum of the rows of group i, which may be empty, of x"""

    whole = isa.arithmetic("s32")
    g, groups = Dim(), Dim(follows=lambda g: g + 1)
    offsets = Input("s32", groups, values=ascending(0, OfRows.m, ends=True))
    y = Output("f32", g, OfRows.n)

    def program(self, p: Tracer) -> None:
        with p.grid((self.g, 1)) as (i,), p.role("all", warps=1):
            begin, end = self.offsets[i], self.offsets[i + 1]
            if self.how == "one row at least":
                end = maximum(end, begin + 1)
            total = p.full(WHO, "f32")
            with p.loop(p.until(end - begin)) as r:
                total += p.load(self.ld, self.x.segment(begin, end).tile(r, 0, shape=(1, WIDE)), WHO)
            p.store(self.st, self.y.tile(i, 0, shape=(1, WIDE)), total)

    @staticmethod
    def reference(x: Any, offsets: Any) -> Any:
        return np.stack([x[int(a) : int(b)].sum(axis=0) for a, b in pairwise(offsets)])


class Eights(Groups):
    """The same, eight rows at a time, of which those behind the group are left out, or weigh nothing"""

    def program(self, p: Tracer) -> None:
        who = blocked((8, WIDE), threads=32)
        with p.grid((self.g, 1)) as (i,), p.role("all", warps=1):
            begin, end = self.offsets[i], self.offsets[i + 1]
            total = p.full(who, "f32")
            with p.loop(p.until(end - begin), step=8) as r:
                if self.how == "rows behind weigh nothing":
                    x = p.load(self.ld, self.x.tile(begin + r, 0, shape=(8, WIDE)), who)
                    x = x * where(p.index(who.along(0), 0) + r < end - begin, 1.0, 0.0)
                else:
                    x = p.load(self.ld, self.x.segment(begin, end).tile(r, 0, shape=(8, WIDE)), who)
                total += x
            p.store(self.st, self.y.tile(i, 0, shape=(1, WIDE)), p.reduce(self.add, total, axis=0))


class SparseRows(OfRows):
    """y = A x, of a matrix in compressed rows: a warp for each row"""

    whole = isa.arithmetic("s32")
    m, n, nnz = Dim(), Dim(), Dim()
    ends = Dim(follows=lambda m: m + 1)
    ptr = Input("s32", ends, values=ascending(0, nnz, ends=True))
    column, value = Input("s32", nnz, values=integers(0, n)), Input("f32", nnz)
    x, y = Input("f32", n), Output("f32", m)
    fits = Require(n >= 1, "there is a column")

    def program(self, p: Tracer) -> None:
        who = blocked((WIDE,), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            begin, end = self.ptr[i], self.ptr[i + 1]
            columns, values = self.column.segment(begin, end), self.value.segment(begin, end)
            total = p.full(who, "f32")
            with p.loop(p.until(end - begin), step=WIDE) as k:
                ids = p.load(self.ld, columns.tile(k, shape=(WIDE,)), who, fill=0 if self.how else -1)
                if self.how == "last column for none":
                    ids = where(p.index(who, 0) + k < end - begin, ids, self.n - 1)
                x = p.load(self.ld, self.x.rows(ids).tile(0, shape=(WIDE,)), who)
                total += p.load(self.ld, values.tile(k, shape=(WIDE,)), who) * x
            p.store(self.st, self.y.tile(i, shape=(1,)), p.reduce(self.add, total, axis=0, by=self.shuffle))

    @staticmethod
    def reference(ptr: Any, column: Any, value: Any, x: Any) -> Any:
        products = value * x[column]
        return np.stack([products[int(a) : int(b)].sum() for a, b in pairwise(ptr)])


class Halved(OfRows):
    """y = x / 2 of whole numbers, rounded down"""

    whole = isa.arithmetic("s32")
    x, y = Input("s32", OfRows.m, OfRows.n), Output("s32", OfRows.m, OfRows.n)

    def of(self, p: Tracer, x: Any, i: Any) -> Any:
        return {"towards zero": lambda: (x + ((x >> 31) & 1)) >> 1, "up": lambda: (x + 1) >> 1}.get(
            self.how, lambda: x >> 1
        )()

    @staticmethod
    def reference(x: Any) -> Any:
        return x // 2


@dataclass(frozen=True)
class Twins:
    machine: type[OfRows]
    sizes: dict[str, int]
    wrong: tuple[str, ...]


TWINS = (
    Twins(Centred, {"m": 9, "n": 100}, ("of one less", "of the whole tile")),
    Twins(Scaled, {"m": 9, "n": 100}, ("no epsilon", "epsilon behind the root", "of one less")),
    Twins(Weights, {"m": 9, "n": 100}, ("fill 0", "largest not taken off", "epsilon in the sum")),
    Twins(Causal, {"m": 40, "n": 100}, ("without the diagonal", "one more", "not shifted", "the other triangle")),
    Twins(Largest, {"m": 9, "n": 100}, ("with signs", "without the last", "NaN and infinity spread")),
    Twins(LargestSigned, {"m": 9, "n": 100}, ("fill 0", "from zero on", "from -100 on")),
    Twins(
        Quantised, {"m": 9, "n": 100},
        ("no guard", "128 steps", "cut off", "rounded down"),
    ),
    Twins(Rounded, {"m": 9, "n": 100}, ("cut off", "halves up")),
    Twins(HalvesUp, {"m": 9, "n": 100}, ("halves to even ones",)),
    Twins(Activated, {"m": 9, "n": 100}, ("of another slope",)),
    Twins(Gradient, {"m": 9, "n": 100}, ("zero counts",)),
    Twins(Loss, {"m": 9, "n": 100}, ("fill 0", "largest not added")),
    Twins(Blocks, {"m": 9, "n": 100}, ("sums go on",)),
    Twins(NarrowSums, {"m": 9, "n": 9000}, ("kept in bf16",)),
    Twins(Place, {"m": 9, "n": 100}, ("the last of equals", "any of equals")),
    Twins(Groups, {"m": 40, "n": 100, "g": 30}, ("one row at least",)),
    Twins(Eights, {"m": 40, "n": 100, "g": 30}, ("rows behind weigh nothing",)),
    Twins(Eights, {"m": 400, "n": 100, "g": 30}, ("rows behind weigh nothing",)),
    Twins(SparseRows, {"m": 11, "n": 101, "nnz": 701}, ("first column for none", "last column for none")),
    Twins(SparseRows, {"m": 301, "n": 7, "nnz": 701}, ("first column for none", "last column for none")),
    Twins(Halved, {"m": 9, "n": 100}, ("towards zero", "up")),
)  # fmt: skip
CASES = [(of, how) for of in TWINS for how in ("", *of.wrong)]


def passes(of: Twins, how: str) -> str:
    """What verification says of a program that is right, or wrong in a way; "" where it passes."""
    more = {"fill": 0.0} if how == "fill 0" else {}
    machine: Any = type(of.machine.__name__, (of.machine,), {"how": how, "__module__": __name__, **more})
    problem = machine.problem(**of.sizes)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1, 0)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",), to_first_failure=bool(how))
    return "" if found.passed else str(found)


@pytest.mark.end_to_end
@pytest.mark.parametrize(("of", "how"), CASES, ids=[f"{of.machine.__name__}, {how or 'right'}" for of, how in CASES])
def test_a_program_that_is_wrong_as_users_write_it_is_refused_and_its_right_twin_is_not(of: Twins, how: str) -> None:
    said = passes(of, how)
    assert bool(said) == bool(how), said
