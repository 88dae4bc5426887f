"""Numbers with which data are compared: inputs come to them, and to both sides of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.distributions import Distribution
from tinygpu.dtypes import dtype
from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    blocked,
    equal,
    integers,
    uniform,
    where,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.compared import elements_near, turns_of
from tinygpu.ptx.verification.encoded import encoded
from tinygpu.ptx.verification.reference_numbers import compared_numbers
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WIDTH = 32
IGNORED = -100


class Rows(Machine):
    """y = what is made of x and of a number of each row"""

    m, n = Dim(), Dim()
    at = Input("s32", m)
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps = Param(1)
    numbered = True
    ld, st, arithmetic, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, WIDTH), threads=32, across=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1), p.loop(self.n, step=WIDTH) as j:
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, WIDTH)), who)
            number = p.load(self.ld, self.at.column(i, 1), who.along(0)) if self.numbered else None
            p.store(self.st, self.y.tile(i, j, shape=(1, WIDTH)), self.made(x, number))

    def made(self, x: Any, at: Any) -> Any:
        return where(equal(at, IGNORED), 0.0, x)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.where((at != IGNORED)[:, None], x, 0)


class Bounded(Rows):
    """the same, of numbers whose ends are declared"""

    at = Input("s32", Rows.m, values=integers(-200, 200))


class Helped(Rows):
    """of a reference that calls another function"""

    def made(self, x: Any, at: Any) -> Any:
        return where(at > 70_001, x, 0.0)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.where(is_far(at)[:, None], x, 0)


def is_far(at: Any, limit: float = 7e4) -> Any:
    return at >= limit + 2


class Steps(Rows):
    """a step at a number that single precision has"""

    numbered = False
    def made(self, x: Any, at: Any) -> Any:
        return where(x > 97.5, 1.0, 0.0)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.where(x > 97.5, 1, 0)


class Rounded(Rows):
    """a step at a number that single precision rounds: whoever compares with it means what it is rounded to"""

    numbered = False
    def made(self, x: Any, at: Any) -> Any:
        return where(x > 0.3, 1.0, 0.0)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.where(x > 0.3, 1, 0)


class Clipped(Rows):
    """6.5 at most, of numbers that are declared"""

    numbered = False
    x = Input("f32", Rows.m, Rows.n, values=uniform(-1000, 1000))

    def made(self, x: Any, at: Any) -> Any:
        return where(x < 6.5, x, 6.5)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        return np.clip(x, None, 6.5)


class Limited(Rows):
    """of a number that is given at launch"""

    numbered = False
    limit = Scalar("f32")

    def made(self, x: Any, at: Any) -> Any:
        return where(equal(0.0 * x + self.limit, 97.5), x, 0.0)

    @staticmethod
    def reference(at: Any, x: Any, limit: Any) -> Any:
        return np.where(limit == 97.5, x, 0)


def with_made(machine: type[Rows], made: Callable[[Any, Any], Any]) -> type[Rows]:
    return type(f"Wrong{machine.__name__}", (machine,), {"made": lambda self, x, at: made(x, at)})


def verified(machine: type[Rows], orders: tuple[Any, ...] = ("late", "early", "random")) -> Verification:
    problem = machine.problem(m=300, n=100)
    space = build_space(machine, problem, device("a100"))
    point = space.space.sample(1, np.random.default_rng(0))[0]
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    return verify(kernel, machine, problem, orders=orders)


RIGHT = [Rows, Bounded, Helped, Steps, Rounded, Clipped, Limited]
WRONG: list[tuple[type[Rows], Callable[[Any, Any], Any]]] = [
    (Rows, lambda x, at: where(equal(at, 0 * at), x, x)),
    (Rows, lambda x, at: where(equal(at, IGNORED - 1), 0.0, x)),
    (Rows, lambda x, at: where(equal(at, IGNORED + 1), 0.0, x)),
    (Rows, lambda x, at: where(at > IGNORED, x, 0.0)),
    (Bounded, lambda x, at: where(equal(at, -101), 0.0, x)),
    (Helped, lambda x, at: where(at >= 70_001, x, 0.0)),
    (Steps, lambda x, at: where(x >= 97.5, 1.0, 0.0)),
    (Steps, lambda x, at: where(x > 97.25, 1.0, 0.0)),
    (Rounded, lambda x, at: where(x > 0.30001, 1.0, 0.0)),
    (Clipped, lambda x, at: where(x < 6.75, x, 6.75)),
    (Limited, lambda x, at: where(x < x, x, 0.0)),
]


@pytest.mark.parametrize("machine", RIGHT)
def test_right_machines_are_right_at_the_numbers_that_they_compare_with(machine: type[Rows]) -> None:
    found = verified(machine)
    assert found.passed, str(found)
    assert "compared" in [c.inputs for c in found.checks]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_who_compares_with_another_number_is_wrong(number: int) -> None:
    machine, made = WRONG[number]
    found = verified(with_made(machine, made))
    assert "compared" in [c.inputs for c in found.checks if not c.passed], str(found)


def test_numbers_are_those_that_stand_in_comparisons_and_limits() -> None:
    """What is asked of shapes is none of them; factors are none, terms are."""
    assert compared_numbers(Rows) == (IGNORED,)
    assert compared_numbers(Helped) == (2.0, 70_000.0, 70_002.0)
    assert compared_numbers(Clipped) == (6.5,)

    class Several(Rows):
        """x"""

        reference = staticmethod(several)  # type: ignore[assignment]

    assert compared_numbers(Several) == (-3.0, 0.1, 3.0, 6.0, 8.0, 5000.0)


def several(at: Any, x: Any) -> Any:
    y = np.clip(x + 3, 0.1, max(6, 2 * x), out=x.max(axis=9)) if x.ndim == 2 and len(at) > 77 and x.shape[1] < 99 else x
    return y if at.any() > 5e3 or -3 < y * 1000 <= 2**3 else x


@given(
    st.sampled_from(["f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "s32", "u8", "s8"]),
    st.lists(st.floats(-300, 300) | st.integers(-300, 300), min_size=1, max_size=4),
    st.none() | st.tuples(st.integers(-250, 0), st.integers(1, 250)),
)
def test_elements_near_a_number_are_it_and_the_next_on_both_sides(
    name: str, numbers: list[float], ends: tuple[int, int] | None
) -> None:
    """By every element of the type where there are few, and by NumPy's neighbours where there are many."""
    kind, law = dtype(name), None if ends is None else Distribution("uniform", *map(float, ends))
    if law is not None and not kind.is_float:
        law = Distribution("integers", law.low, law.high)
    found = elements_near(kind, law, numbers)
    assert len(set(found)) == len(found)
    held = np.asarray(found, dtype=np.float64)
    assert np.array_equal(encoded(held, None, kind).astype(np.float64), held)
    low, high = (-np.inf, np.inf) if law is None else (law.low, law.high)
    assert all(low <= x <= high for x in found)
    for number in numbers:
        if low + 1 <= number <= high - 1 and number in held_by(kind):
            assert number in found
            assert [x for x in found if x < number] or kind.kind == "unsigned" or number == 0


def held_by(kind: Any) -> set[float]:
    """Whole numbers that are elements."""
    whole = np.arange(-300, 301, dtype=np.float64)
    if not kind.is_float:
        least = -(1 << (kind.bits - 1)) if kind.kind == "signed" else 0
        return set(whole[(whole >= least) & (whole < least + (1 << kind.bits))])
    return set(whole[encoded(whole, None, kind).astype(np.float64) == whole])


def test_few_elements_come_to_all_numbers_in_several_runs() -> None:
    """Two rows have two of four numbers in one run, and the others in the next."""
    problem = Helped.problem(m=2, n=68)
    turns = turns_of(Helped, problem, (2.0, 70_000.0, 70_001.0, 70_002.0), 3)
    assert turns == [(70_000.0, 70_001.0, 70_002.0), (70_001.0, 70_002.0, 70_000.0)]
    assert turns_of(Helped, problem, (-3.0, 2.0), 3) == []
    assert turns_of(Steps, problem, (97.5,), 3) == [(97.5,)]
