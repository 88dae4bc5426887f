"""Declared inputs: every draw is what its distribution promises, and what a user gives is held to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fake_cuda import FakeCuda
from negation import Later, around, refused, thing

import tinygpu as tg
from tinygpu.distributions import WHOLE, Distribution
from tinygpu.dtypes import dtype
from tinygpu.language import (
    DeclarationError,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Values,
    ascending,
    between,
    blocked,
    integers,
    normal,
    one_of,
    positive,
    shifted,
    symbol,
    uniform,
)
from tinygpu.language.inputs import input_distributions
from tinygpu.ptx import isa
from tinygpu.ptx.measuring.subject import draw as draw_on_gpu
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.elements import ELEMENTS, element
from tinygpu.ptx.runtime.errors import WrongArray
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.values import declared_values

N = 7


def random_values(rng: np.random.Generator) -> Values:
    """A distribution of any law, whose ends are no friends of any type."""
    low = float(rng.normal() * 10.0 ** int(rng.integers(-3, 3)))
    high = low + float(rng.exponential()) * 10.0 ** int(rng.integers(-3, 3))
    first, last = sorted(int(n) for n in rng.integers(-100, 100, 2))
    options: list[Callable[[], Values]] = [
        lambda: uniform(low, high),
        lambda: normal(low, high - low),
        lambda: between(abs(low), abs(low) + abs(high)),
        lambda: positive(abs(high) + 0.01),
        lambda: integers(first, last + 1),
        lambda: ascending(first, last, ends=bool(rng.integers(2))),
        lambda: ascending(first, last, apart=int(rng.integers(1, 20))),
        lambda: one_of(first, last, low),
        lambda: one_of(first, last, weights=(1.0, 3.0)),
        lambda: shifted(normal(low, abs(high - low)), by=abs(low) + 0.1),
        lambda: shifted(uniform(low, high), by=abs(high) + 0.1),
    ]
    return options[int(rng.integers(len(options)))]()


def held(values: Values, kind: str, shape: tuple[int, ...], seed: int, inputs: Any) -> tuple[Distribution, Any]:
    made = values.at({})
    return made, declared_values(np.random.default_rng(seed), made, dtype(kind), shape, inputs == "integers")


def draws_as_promised(seed: int) -> None:
    """One distribution, in every type that holds it, as arrays of several shapes, in each kind of a run."""
    rng = np.random.default_rng(seed)
    values = random_values(rng)
    for kind in (e.name for e in ELEMENTS if not values.misfit(dtype(e.name))):
        for inputs in ("integers", "random", "specials"):
            shape = ((), (1,), (2,), (17,), (3, 40))[int(rng.integers(5))]
            made, array = held(values, kind, shape, seed, inputs)
            where = f"{values} of {kind}, {shape}, {inputs}, seed {seed}"
            assert array.shape == shape, where
            assert array.dtype == dtype(kind).numpy, where
            found = array.astype(np.float64)
            assert made.listed or np.all((found >= made.low) & (found <= made.high)), where
            if made.law in WHOLE:
                assert np.all(found == np.rint(found)), where
                assert made.fault(array) == "", where
            if made.law == "ascending" and shape:
                assert np.all(np.diff(found, axis=-1) >= 0), where
                assert not made.apart or np.all(np.diff(found, axis=-1) <= made.apart), where
                ends = found[..., [0, -1]] == (made.low, made.high)
                assert np.all(ends) or not made.ends or shape[-1] == 1, where
            if made.listed:
                near = element(kind).encode(np.array(made.listed))
                near = near & np.uint32(0xFFFFE000) if kind == "tf32" else near
                assert np.isin(np.asarray(array).view(element(kind).storage), near).all(), where
            elif inputs == "integers" and math.floor(made.high) >= math.ceil(made.low) and abs(made.low) < 8:
                alone = math.floor(made.high) == math.ceil(made.low) and made.low < made.high and made.law not in WHOLE
                part = 2.0 ** math.floor(math.log2((made.high - made.low) / 4)) if alone else 1.0
                assert np.all(found / part == np.rint(found / part)), where
            elif inputs != "integers" and made.law != "ascending" and found.size > 1:
                near = element(kind).decode(element(kind).encode_drawn(np.array([made.low, made.high]), made))
                assert abs(found.min() - near[0]) <= 2e-3 * abs(near[0]), where
                assert abs(found.max() - near[1]) <= 2e-3 * abs(near[1]), where


@pytest.mark.parametrize("seed", range(40))
def test_every_draw_lies_where_its_distribution_promises(seed: int) -> None:
    draws_as_promised(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 3000))
def test_every_draw_lies_where_its_distribution_promises_widely(seed: int) -> None:
    draws_as_promised(seed)


@pytest.mark.parametrize("seed", range(12))
def test_an_expectation_is_the_mean_of_many_draws(seed: int) -> None:
    made = random_values(np.random.default_rng(seed)).at({})
    if made.shift or made.law == "ascending":
        return
    drawn = made.draw(np.random.default_rng(seed), (40_000,))
    spread = max(float(drawn.std()), 1e-9)
    assert abs(made.expectation() - drawn.mean()) < 0.03 * spread + 1e-6 * abs(made.high)
    square = made.expectation(lambda x: x * x)
    assert abs(square - np.mean(drawn**2)) < 0.03 * float((drawn**2).std()) + 1e-6 * made.high**2


def test_lines_of_shifted_values_need_their_maximum_subtracted() -> None:
    drawn = shifted(normal(0, 4), by=1000).at({}).draw(np.random.default_rng(0), (64, 50))
    with np.errstate(over="ignore"):
        assert np.isinf(np.exp(drawn.astype(np.float32))).any()
    inner = np.sort(drawn, axis=1)[:, 1:-1]  # both ends of the range stand somewhere
    assert (np.ptp(inner, axis=1) < 48).mean() > 0.9
    assert np.ptp(drawn.mean(axis=1)) > 500


# --- a machine that declares its inputs ---------------------------------------------------------------------------


class Scaled(Machine):
    """y = x / sqrt(v + eps) + k"""

    n = Dim()
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    x = Input("f32", n, values=normal(0, 2))
    v = Input("f32", n, values=uniform(0, 4))
    k = Input("s32", n, values=integers(0, n))
    order = Input("s32", n, values=ascending(0, n, ends=True))
    y = Output("f32", n)
    warps = Param(1, 2)
    ld, st, cvt = isa.LdGlobal(1), isa.StGlobal(1), isa.Cvt("s32", "f32")
    add, mul, rsqrt = isa.Add("f32"), isa.Mul("f32"), isa.Rsqrt()
    exact = False

    def program(self, p: Any) -> None:
        shape = (self.warps * 32,)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x, v, k, order = (
                p.load(self.ld, t.tile(i, shape=shape), who) for t in (self.x, self.v, self.k, self.order)
            )
            scale = p.apply(self.rsqrt, p.apply(self.add, v, self.eps))
            y = p.apply(self.add, p.apply(self.mul, x, scale), p.apply(self.cvt, k))
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, y, p.apply(self.cvt, order)))

    @staticmethod
    def reference(eps: Any, x: Any, v: Any, k: Any, order: Any) -> Any:
        return x / np.sqrt(v + eps) + k + order


def test_verification_draws_what_is_declared() -> None:
    kernel = tg.emit(tg.space(Scaled, n=1000, device="a100"), warps=1)
    assert tg.verify(kernel).passed
    for inputs in ("integers", "random", "specials"):
        trial = draw(Scaled, Scaled.problem(n=50), inputs, 3)  # type: ignore[arg-type]
        assert 1e-6 <= trial.scalars["eps"] <= 1e-4
        assert trial.arrays["k"].min() >= 0
        assert trial.arrays["k"].max() < 50
        assert trial.arrays["v"].min() >= 0
        assert trial.arrays["order"][[0, -1]].tolist() == [0, 50]
        again = draw(Scaled, Scaled.problem(n=50), inputs, 3)  # type: ignore[arg-type]
        assert all(np.array_equal(trial.arrays[n], again.arrays[n]) for n in trial.arrays)
        other = draw(Scaled, Scaled.problem(n=50), inputs, 4)  # type: ignore[arg-type]
        assert any(not np.array_equal(trial.arrays[n], other.arrays[n]) for n in trial.arrays)


def test_a_bundles_question_draws_what_is_declared() -> None:
    from tinygpu.api.bundle import question

    asked = question(Scaled, Scaled.problem(n=50))
    assert set(asked.values) == {"eps", "x", "v", "k", "order"}
    for inputs in ("integers", "random"):
        bits, scalars = draw_on_gpu(asked, inputs, 1)  # type: ignore[arg-type]
        assert 1e-6 <= scalars["eps"] <= 1e-4
        assert asked.values["order"].fault(bits["order"].view(np.int32)) == ""
        k = bits["k"].view(np.int32)
        assert (k.min(), k.max()) == (0, 49)


GOOD = {"x": np.ones(5, np.float32), "v": np.ones(5, np.float32), "k": np.arange(5, dtype=np.int32)}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"k": np.array([0, 1, 5, 2, 3], np.int32)}, "Scaled: k[2] is 5, and must be a whole number from 0 to 4"),
        ({"k": np.array([0, 1, -1, 2, 3], np.int32)}, "Scaled: k[2] is -1, and must be a whole number from 0 to 4"),
        (
            {"order": np.array([0, 2, 1, 4, 5], np.int32)},
            "Scaled: order[2] is 1, less than the number before it, and they must be in ascending order",
        ),
        (
            {"order": np.array([1, 2, 3, 4, 5], np.int32)},
            "Scaled: order has 1 as its first number, and it must be 0",
        ),
        ({"order": np.array([0, 2, 3, 4, 4], np.int32)}, "Scaled: order has 4 as its last number, and it must be 5"),
    ],
)
def test_numbers_that_addresses_are_made_of_are_held_to_their_range(changed: dict[str, Any], sentence: str) -> None:
    kernel = tg.emit(tg.space(Scaled, n=5, device="a100"), warps=1)
    right = {**GOOD, "order": np.array([0, 1, 2, 2, 5], np.int32)}
    # a float beyond its range breaks no promise that a kernel relies on
    assert np.all(tg.emulate(kernel, *(right | {"x": right["x"] * 1e6}).values(), eps=1.0) > 1e5)
    for call in (tg.emulate, tg.run):
        with pytest.raises(WrongArray) as error:
            call(kernel, *(right | changed).values(), eps=1e-5)
        assert str(error.value) == sentence


def test_host_arrays_of_a_launch_are_held_to_their_range_at_every_call() -> None:
    context = open_context(Driver(FakeCuda(memory_bytes=1 << 28)))
    kernel = tg.compile(Scaled, {"n": 5}, point={"warps": 1}, context=lambda: context)
    k, order = np.arange(5, dtype=np.int32), np.array([0, 1, 2, 2, 5], np.int32)
    assert kernel(GOOD["x"], GOOD["v"], k, order, eps=1e-5).shape == (5,)
    k[3] = 9  # the same array, prepared before
    with pytest.raises(WrongArray, match=r"^Scaled: k\[3\] is 9, and must be a whole number from 0 to 4$"):
        kernel(GOOD["x"], GOOD["v"], k, order, eps=1e-5)


def test_sizes_for_which_there_is_no_number_have_no_candidate() -> None:
    class Few(Scaled):
        """integers(0, n - 3) has none for n <= 3"""

        k = Input("s8", Scaled.n, values=integers(0, Scaled.n - 3))
        cvt = isa.Cvt("s8", "f32")
        cvt_order = isa.Cvt("s32", "f32")

        def program(self, p: Any) -> None:
            shape = (self.warps * 32,)
            who = blocked(shape, threads=32 * self.warps)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                k = p.apply(self.cvt, p.load(self.ld, self.k.tile(i, shape=shape), who))
                p.store(self.st, self.y.tile(i, shape=shape), k)

        @staticmethod
        def reference(eps: Any, x: Any, v: Any, k: Any, order: Any) -> Any:
            return k * 1.0

    for n, name in ((3, "values of k"), (200, "type of k")):
        space = tg.space(Few, n=n, device="a100")
        assert space.size == 0
        assert any(name in sentence for sentence in tg.explain(space).sentences), tg.explain(space)
    assert tg.space(Few, n=4, device="a100").size == 2
    assert input_distributions(Few, Few.problem(n=4))["k"].high == 0


# --- mistakes -----------------------------------------------------------------------------------------------------


@around
def plain(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
    p.store(self.st, y, p.load(self.ld, x, who))


SENTENCES: list[tuple[Callable[[Dim], Any], str]] = [
    (lambda n: Input("f32", n, values=uniform(1, -1)), "uniform(1, -1): it has no number; the lower end comes first"),
    (
        lambda n: Input("s32", n, values=ascending(0, n, apart=-1)),
        "ascending(0, n, apart=-1): neighbours are apart by a whole number above 0, or a dim, at most, not -1",
    ),
    (lambda n: Input("f32", n, values=uniform("a", 1)), "uniform('a', 1): its ends are numbers or dims, not 'a'"),  # type: ignore[arg-type]
    (
        lambda n: Input("f32", n, values=integers(0, 0.5)),
        "integers(0, 0.5): its ends are whole numbers or dims, not 0.5",
    ),
    (
        lambda n: Input("f32", n, values=integers(0, Dim())),
        "integers(0, a Dim that has no name yet): its ends are numbers or dims, not a Dim that has no name yet",
    ),
    (
        lambda n: Input("f32", n, values=between(0, 1)),
        "between(0, 1): it has numbers of every magnitude, from an end above 0 on; use uniform(0, 1)",
    ),
    (lambda n: Input("f32", n, values=positive(0)), "positive(0): the largest is a number above 0"),
    (
        lambda n: Input("f32", n, values=normal(0, 0)),
        "normal(0, 0): a mean and a standard deviation above 0 are numbers",
    ),
    (lambda n: Input("f32", n, values=one_of()), "one_of(): it needs at least one number"),
    (lambda n: Input("f32", n, values=one_of(1, "b")), "one_of(1, 'b'): 'b' is no number"),  # type: ignore[arg-type]
    (
        lambda n: Input("f32", n, values=one_of(1, 2, weights=(1,))),
        "one_of(1, 2, weights=(1,)): there is one weight above 0 for each of 2 numbers",
    ),
    (
        lambda n: Input("f32", n, values=one_of(n, 0.5)),
        "one_of(n, 0.5): beside a dim all numbers are whole, and 0.5 is not",
    ),
    (
        lambda n: Input("f32", n, values=shifted(integers(0, 2), by=1)),
        "shifted(integers(0, 2), by=1): what is shifted is uniform or normal",
    ),
    (
        lambda n: Input("f32", n, values=shifted(normal(0, 1), by=0)),
        "shifted(normal(0, 1), by=0): the shift is a number above 0",
    ),
    (
        lambda n: Input("f32", n, values=(0, 1)),  # type: ignore[arg-type]
        "values are a distribution, as uniform(-1, 1) or integers(0, v), not (0, 1)",
    ),
    (
        lambda n: Input("s8", n, values=uniform(-1, 1)),
        "s8 holds whole numbers, and uniform(-1, 1) has others; use integers(low, high)",
    ),
    (
        lambda n: Input(("f16", "s8"), n, values=integers(0, 300)),
        "s8 holds whole numbers from -128 to 127, and integers(0, 300) goes up to 299",
    ),
    (
        lambda n: Input("f16", n, values=uniform(-1e6, 0)),
        "f16 holds numbers up to 65,504, and uniform(-1000000.0, 0) goes down to -1e+06",
    ),
    (
        lambda n: Input("e4m3", n, values=between(1e-6, 1e-4)),
        "e4m3 has no number from 1e-06 to 0.0001",
    ),
    (
        lambda n: Input("s32", n, values=integers(0, symbol("m"))),
        "integers(0, m) names 'm', which is no Dim of this machine",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), SENTENCES, ids=[s[:40] for _, s in SENTENCES])
def test_a_mistake_in_declared_values_is_told_with_the_class(make: Callable[[Dim], Any], sentence: str) -> None:
    refused(lambda: thing(plain, x=Later(make)), f"Thing.x: {sentence}")


def test_an_output_has_no_values_and_a_scalar_those_of_its_type() -> None:
    refused(
        lambda: thing(y=Later(lambda n: Output("f32", n, values=uniform(0, 1)))),
        "Thing.y: an Output is written before anybody reads it, and has no values to draw, as uniform(0, 1)",
    )
    refused(
        lambda: thing(a=Scalar("s32", values=between(1e-6, 1e-4)), reference=staticmethod(lambda x, a: -x)),
        "Thing.a: s32 holds whole numbers, and between(1e-06, 0.0001) has others; use integers(low, high)",
    )
    with pytest.raises(DeclarationError):
        thing(a=Scalar("f32", values=5))  # type: ignore[arg-type]


def test_types_of_ml_dtypes_are_those_of_elements() -> None:
    """Draws are rounded by the run time's own types, and seen by NumPy's."""
    found = declared_values(np.random.default_rng(0), uniform(0.1, 0.2).at({}), dtype("bf16"), (50,), whole=False)
    assert found.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("law", ["uniform", "normal"])
@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (-0.5, 0.5), (-0.01, 0.9), (2.75, 3.5), (-1e-3, 1e-4), (0, 1)])
def test_of_few_whole_numbers_whole_runs_have_parts(law: Any, low: float, high: float) -> None:
    """Multiples of a power of two, whose sums are exact: of one number alone nothing would be seen that it scales."""
    found = Distribution(law, low, high, mean=(low + high) / 2).draw_whole(np.random.default_rng(0), (1000,), 3)
    assert low <= found.min() < found.max() <= high
    different = np.unique(found)
    part = np.diff(different).min()
    assert math.frexp(part)[0] == 0.5
    assert np.array_equal(found / part, np.rint(found / part))
    assert 3 <= len(different) <= 9


@pytest.mark.parametrize("sign", [-1, 1])
def test_numbers_beyond_those_that_are_all_whole_are_drawn_as_ever(sign: int) -> None:
    low, high = sorted((sign * 1e30, sign * 3e30))
    law = Distribution("uniform", low, high)
    rngs = [np.random.default_rng(0) for _ in range(2)]
    assert np.array_equal(law.draw_whole(rngs[0], (50,), 64), law.draw(rngs[1], (50,)))
    assert law.whole_ends(64) == (low, high)
    near = Distribution("uniform", *sorted((sign * 2.0**52, sign * 2.0**54))).draw_whole(rngs[0], (50,), 64)
    assert np.array_equal(near, np.rint(near))


@pytest.mark.parametrize(
    ("kind", "low", "end", "sentence"),
    [
        ("s8", -128, 128, ""),
        ("s4", -8, 8, ""),
        ("s32", -(2**31), 2**31, ""),
        ("u8", 0, 256, ""),
        ("f16", -2048, 2049, ""),
        ("s8", -129, 5, "holds whole numbers from -128 to 127, and integers(-129, 5) goes down to -129"),
        ("s8", 0, 129, "holds whole numbers from -128 to 127, and integers(0, 129) goes up to 128"),
        ("f16", -2049, 5, "has no element for some whole numbers below -2,048, and integers(-2049, 5) goes there"),
    ],
)
def test_integers_from_the_least_of_their_type_on(kind: str, low: int, end: int, sentence: str) -> None:
    assert integers(low, end).misfit(dtype(kind)) == sentence


@pytest.mark.parametrize(("low", "high"), [(-100, 50), (-7, 1000), (-1, 2)])
def test_integers_on_both_sides_of_zero_come_to_those_beside_it_and_beside_the_least(low: int, high: int) -> None:
    """A rule for one negative number is not one for all: label -100 is not label -1, nor -99."""
    for seed in range(20):
        drawn = set(integers(low, high).at({}).draw(np.random.default_rng(seed), (12,)).tolist())
        assert {low, high - 1, 0, -1, min(low + 1, 0)} <= drawn
