"""Numbers that programs and references write: verification comes to both sides of what they decide."""

from __future__ import annotations

import itertools
from functools import reduce
from typing import Any

import numpy as np
import pytest

from tinygpu.constraints.intervals import Interval
from tinygpu.devices import device
from tinygpu.expressions import compile_scalars
from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Tracer,
    blocked,
    equal,
    integers,
    minimum,
    where,
)
from tinygpu.language.trace import trace
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.beyond import beyond
from tinygpu.ptx.verification.decisions import decisions
from tinygpu.ptx.verification.plan import plan
from tinygpu.ptx.verification.reference_numbers import deciding_numbers
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WIDTH = 32
REAL = {"m": 5000, "n": 1 << 21}


class Rows(Machine):
    """y = x, row by row"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps = Param(1)
    ld, st, arithmetic, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32, across=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1), p.loop(self.bound(), step=WIDTH) as j:
            x = p.load(self.ld, self.x.tile(self.row(i), self.column(j), shape=(1, WIDTH)), who)

            def column(*kinds: str) -> Any:
                return reduce(p.cast, kinds, p.index(who, 1) + j)

            p.store(self.st, self.y.tile(i, j, shape=(1, WIDTH)), self.changed(x, column, i))

    def bound(self) -> Any:
        return self.n

    def row(self, i: Any) -> Any:
        return i

    def column(self, j: Any) -> Any:
        return j

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return x

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class First(Rows):
    """the first 128 columns"""

    def bound(self) -> Any:
        return minimum(self.n, 128)


class Again(Rows):
    """256 columns, again and again"""

    def column(self, j: Any) -> Any:
        return j % 256


class Shared(Rows):
    """eight rows have one in common with the next"""

    def row(self, i: Any) -> Any:
        return i - i // 8


class Window(Rows):
    """what lies far to the right is 0"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return where(column() < i + 150, x, 0.0)


class Bits(Rows):
    """every other 128 columns"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return where((column() >> 7 & 1) < 1, x, 0.0)


FAR = 8 * 25


class Unread(Rows):
    """what only the reference knows"""

    @staticmethod
    def reference(x: Any) -> Any:
        return np.where(np.arange(x.shape[1]) < FAR, x, 0)


class Cut(Rows):
    """the same, written as a slice"""

    @staticmethod
    def reference(x: Any) -> Any:
        y = x.copy()
        y[:, 8 * 25 :] = 0
        return y


def kernel_of(machine: type[Machine], sizes: dict[str, int]) -> tuple[Kernel, Any]:
    problem = machine.problem(**sizes)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


def verified(machine: type[Machine], sizes: dict[str, int] = REAL) -> Verification:
    kernel, problem = kernel_of(machine, sizes)
    return verify(kernel, machine, problem)


@pytest.mark.parametrize("machine", [First, Again, Shared, Window, Bits, Unread, Cut], ids=lambda m: m.__name__)
def test_what_numbers_do_beyond_a_few_rounds_is_seen(machine: type[Machine]) -> None:
    """None of them copies all of x."""
    found = verified(machine)
    wrong = [c.where for c in found.checks if not c.passed]
    assert wrong
    assert all(where.startswith("beyond numbers that are written (") for where in wrong)


def test_who_writes_no_numbers_has_no_run_for_them() -> None:
    found = verified(Rows)
    assert found.passed
    assert not any("beyond" in c.where for c in found.checks)


def test_where_the_real_problem_does_not_come_nobody_goes() -> None:
    assert verified(First, {"m": 3, "n": 128}).passed
    assert verified(Shared, {"m": 8, "n": 1000}).passed
    assert verified(Unread, {"m": 8, "n": FAR}).passed


def test_what_would_take_too_much_is_said() -> None:
    class TooFar(Rows):
        """a million columns"""

        def bound(self) -> Any:
            return minimum(self.n, 1 << 20)

    assert verified(TooFar).notes == (
        "no run comes to all that `minimum(1048576, n)` decides at this shape: that takes more than is emulated; "
        "verify the machine with smaller numbers, too",
    )


def test_sizes_keep_what_the_launch_checks_and_what_is_legal() -> None:
    class Limited(First):
        """rows of 100 mod 1000 alone, or few"""

        short = Require((First.n <= 150) | (First.n % 1000 == 100), "rows are short, or end so")

    kernel, problem = kernel_of(Limited, {"m": 64, "n": 100_100})
    runs = plan(kernel, Limited, problem, ("late",), True, False)
    larger = beyond(kernel, Limited, problem, tuple({r.problem: None for r in runs}))
    (one,) = larger.problems
    assert one.dim["n"] % 1000 == 100 or 128 < one.dim["n"] <= 150
    kernel.check(one)


@pytest.mark.parametrize("machine", [First, Again, Shared, Window, Bits], ids=lambda m: m.__name__)
@pytest.mark.parametrize("sizes", [(1, 31), (9, 300), (40, 700)])
def test_sides_are_those_of_all_tiles_rounds_and_lanes(machine: type[Machine], sizes: tuple[int, int]) -> None:
    m, n = sizes
    program = trace(machine, machine.problem(m=m, n=n), ()).program
    found = decisions(program)
    (axis,) = program.grid.axes
    known = {"m": Interval(m, m), "n": Interval(n, n), axis.index: Interval(0, m - 1)}
    said = found.sides(known)
    seen: list[set[int]] = [set() for _ in found.made]
    names = [name for name, _, _ in found.ranges]
    ends = compile_scalars(*(end for _, low, high in found.ranges for end in (low, high)))
    apart = compile_scalars(*(d.apart for d in found.made))
    for tile in range(m):
        place = {"m": m, "n": n, axis.index: tile}
        numbers = ends(place | dict.fromkeys(names, 0))
        both = zip(numbers[::2], numbers[1::2], strict=True)
        ranges = [range(int(low), int(high) + 1) for low, high in both]
        for values in itertools.product(*ranges):
            for sides, value in zip(seen, apart(place | dict(zip(names, values, strict=True))), strict=True):
                sides.add((int(value) > 0) - (int(value) < 0))
    assert [frozenset(s) for s in seen] == [frozenset(side for side, at_last in sides if not at_last) for sides in said]


def test_declared_integers_decide_too() -> None:
    class Named(Rows):
        """rows that data name, eight of which have one in common"""

        v = Dim()
        at = Input("s32", Rows.m, values=integers(0, v - 1))
        x = Input("f32", v, Rows.n)

        def program(self, p: Tracer) -> None:
            who = blocked((1, WIDTH), threads=32, across=32)
            with p.grid((self.m, 1)) as (i,), p.role("all", warps=1), p.loop(self.n, step=WIDTH) as j:
                at = self.at[i]
                x = p.load(self.ld, self.x.tile(at - at // 64, j, shape=(1, WIDTH)), who)
                p.store(self.st, self.y.tile(i, j, shape=(1, WIDTH)), x)

        @staticmethod
        def reference(at: Any, x: Any) -> Any:
            return x[at]

    assert not verified(Named, {"m": 512, "n": 256, "v": 4096}).passed


def several(x: Any, n: int) -> Any:
    y = x[:, 64:] + x[4:8:16].mean(axis=5)
    z = np.minimum(n, 1 << 9) + np.clip(n, -100, 77) + n // 33 + n % 2**6 + n * 1000 + np.pad(x, 999)
    return y if n > 3 * 40 and x[11] != FAR else z[..., :-20]


def test_numbers_of_a_reference_are_those_at_which_it_decides() -> None:
    class Said(Rows):
        """x"""

        reference = staticmethod(several)  # type: ignore[assignment]

    assert deciding_numbers(Said) == (512, 200, 120, 100, 77, 64, 40, 33, 20, 16, 11, 9, 8, 6, 4)


class Taps(Rows):
    """y[i, j] = the sum over r of x[i, j + 400 r]: all taps but one lie behind the end of a short row"""

    r = Dim()
    ahead: Any = 400

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32, across=32)
        with p.grid((self.m, 1), (self.n, WIDTH)) as (i, j), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.r) as r:
                total += p.load(self.ld, self.x.tile(i, j + self.ahead * r, shape=(1, WIDTH)), who)
            p.store(self.st, self.y.tile(i, j, shape=(1, WIDTH)), total)

    @staticmethod
    def reference(x: Any, r: int) -> Any:
        ahead = round(np.sqrt(160_000))  # no number of a slice, which would be passed for its own sake
        wide = np.pad(x, ((0, 0), (0, ahead * r)))
        return sum(wide[:, ahead * k : ahead * k + x.shape[1]] for k in range(r))


class TapsApart(Taps):
    """the same, farther apart"""

    ahead = 416


def test_windows_lie_within_their_tensors_in_the_last_rounds_too() -> None:
    sizes = {"m": 3, "n": 100_000, "r": 4}
    assert verified(Taps, sizes).passed
    assert not verified(TapsApart, sizes).passed


class Mean(Rows):
    """y[i, :] = the mean of row i"""

    exact = False
    exchange, plus = isa.Exchange("shuffles"), isa.Add("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32, across=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.bound(), step=WIDTH) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=(1, WIDTH)), who)
            mean = p.reduce(self.plus, total, axis=1, by=self.exchange) / self.n
            with p.loop(self.n, step=WIDTH) as j:
                p.store(self.st, self.y.tile(i, j, shape=(1, WIDTH)), mean + p.full(who, "f32", 0.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.broadcast_to(x.mean(axis=1, keepdims=True), x.shape)


class MeanOfFirst(Mean):
    """of 30,000 numbers alone: a round more is within what rounding may lose, and so is half of what has two signs"""

    def bound(self) -> Any:
        return minimum(self.n, 30_000)


def test_what_is_lost_of_a_long_sum_is_more_than_rounding_loses() -> None:
    sizes = {"m": 4, "n": 100_000}
    assert verified(Mean, sizes).passed
    assert not verified(MeanOfFirst, sizes).passed


def test_numbers_of_a_reference_that_are_not_reached_are_said() -> None:
    class Far(Rows):
        """what only the reference knows, far away"""

        @staticmethod
        def reference(x: Any) -> Any:
            return np.where(np.arange(x.shape[1]) < 1_000_000, x, 0)

    assert verified(Far).notes == (
        "no run has more elements along a dim than 1,000,000, which the reference names, and this shape has: that "
        "takes more than is emulated; verify the machine with smaller numbers, too",
    )


def test_a_verdict_is_the_same_every_time() -> None:
    """What is run hangs on no clock."""
    first, second = (verified(Window) for _ in range(2))
    assert [c.where for c in first.checks] == [c.where for c in second.checks]


class OfHalves(Rows):
    """plus the column, which a half holds up to 2048"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return x + column("f32", "f16", "f32")

    @staticmethod
    def reference(x: Any) -> Any:
        return x + np.arange(x.shape[1])


class CutOff(Rows):
    """where a product of the column is not negative, as it is nowhere but beyond 31 bits"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return where(column() * 500_000 >= 0, x, 0.0)


class OfBoth(Rows):
    """the same of row and column, which one of them alone does not come to"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return where((column() + i * 30_000) * 1_000 >= 0, x, 0.0)


@pytest.mark.parametrize("machine", [OfHalves, CutOff])
def test_positions_are_drawn_beyond_what_their_types_hold(machine: type[Machine]) -> None:
    assert verified(machine, {"m": 3, "n": 2000}).passed
    found = verified(machine, {"m": 3, "n": 100_000})
    wrong = [c.where for c in found.checks if not c.passed]
    assert wrong
    assert all(where.startswith("beyond numbers that are written (") for where in wrong)


def test_what_no_dim_alone_comes_to_is_said() -> None:
    (note,) = verified(OfBoth, {"m": 60, "n": 1_000_000}).notes
    assert note.startswith("no run comes to all that `")


def test_a_reference_without_memory_for_more_leaves_that_out() -> None:
    class Outer(First):
        """the reference holds no more than 100 columns"""

        @staticmethod
        def reference(x: Any) -> Any:
            if x.shape[1] > 100:
                raise MemoryError("Unable to allocate 96.0 GiB")
            return x

    left = [said for said in verified(Outer, {"m": 3, "n": 5000}).left_out if said.startswith("beyond")]
    assert left
    why = ": the reference asks for more memory than there is (Unable to allocate 96.0 GiB)"
    assert all(said.endswith(why) for said in left)


class Equal(Machine):
    """y = how many numbers of a row are its first"""

    m, n = Dim(), Dim()
    x, y = Input("s32", m, n, values=integers(0, 3)), Output("s32", m)
    warps = Param(1)
    ld, st, shuffle, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.arithmetic("s32")
    add, kind = isa.Add("s32"), "s32"

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            first = p.load(self.ld, self.x.tile(i, 0, shape=(1, 1)), who.reduced(1))
            total = p.full(who, "s32")
            with p.loop(self.n, step=WIDTH) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(1, WIDTH)), who, fill=-1)
                total += where(equal(x, first), p.full(who, "s32", 1), 0)
            p.store(self.st, self.y.column(i, 1), self.told(p.reduce(self.add, total, axis=1, by=self.shuffle)))

    def told(self, found: Any) -> Any:
        return found

    @staticmethod
    def reference(x: Any) -> Any:
        return (x == x[:, :1]).sum(axis=1)


class EqualInBytes(Equal):
    """the same, up to 255"""

    def told(self, found: Any) -> Any:
        return found & 255


class EqualUpTo(Equal):
    """the same, up to a thousand"""

    def told(self, found: Any) -> Any:
        return minimum(found, 1000)


class EqualInHalves(Machine):
    """y = how many numbers of a row are above zero, which each thread counts in f16"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    warps = Param(1)
    ld, st, shuffle, add = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.Add("f32")
    plus, above, choose, wide = isa.Add("f16"), isa.Compare("f32", ">"), isa.Select("f16"), isa.Cvt("f16", "f32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total, one, none = p.full(who, "f16"), p.full(who, "f16", 1.0), p.full(who, "f16")
            with p.loop(self.n, step=WIDTH) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(1, WIDTH)), who)
                p.apply(self.plus, total, p.where(p.apply(self.above, x, 0.0), one, none), into=total)
            p.store(self.st, self.y.column(i, 1), p.reduce(self.add, p.cast(total, "f32"), axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return (x > 0).sum(axis=1)


@pytest.mark.parametrize(
    ("machine", "by"),
    [(Equal, set()), (EqualInBytes, {"lines"}), (EqualUpTo, {"lines"}), (EqualInHalves, {"other signs"})],
)
def test_what_counts_data_counts_far_enough(machine: type[Machine], by: set[str]) -> None:
    """To where it is cut, and where its type has no next number: 2049 in f16."""
    found = verified(machine, {"m": 1, "n": 200_000})
    wrong = [c for c in found.checks if not c.passed]
    assert {c.inputs for c in wrong} >= by, str(found)
    assert bool(wrong) == bool(by)
    assert all(c.where.startswith("beyond numbers that are written (") for c in wrong)


class Spread(Rows):
    """y = x over the product of both sizes"""

    def changed(self, x: Any, column: Any, i: Any) -> Any:
        return x / (self.m * self.n)

    @staticmethod
    def reference(x: Any, m: int, n: int) -> Any:
        return x / (m * n)


def test_a_product_of_sizes_that_has_no_place_in_a_register_is_told() -> None:
    """No problem that is emulated is so large."""
    (note,) = verified(Spread, {"m": 1 << 17, "n": 1 << 17}).notes
    assert note == (
        "no run comes to all that `%v3 = div.rn.f32 %v2, m*n` decides at this shape: that takes more than is "
        "emulated; verify the machine with smaller numbers, too"
    )
    assert verified(Spread, {"m": 1 << 10, "n": 1 << 10}).notes == ()
