"""NumPy meaning of element-wise instructions against the emulator, which shares nothing with them, on random bits."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language.instruction import Elementwise
from tinygpu.ptx.cards.evidence.elementwise import in_memory, specimen
from tinygpu.ptx.cards.judges import run
from tinygpu.ptx.isa.alu import (
    COMPARISONS,
    Abs,
    Add,
    And,
    Div,
    Fma,
    Max,
    MaxNumber,
    Min,
    MinNumber,
    Mul,
    Neg,
    Not,
    Or,
    Shl,
    Shr,
    Sub,
    Where,
    Xor,
    fused,
)
from tinygpu.ptx.isa.cvt import CONVERSIONS, Ceil, Cvt, Floor, Round, Trunc, round_to_tf32
from tinygpu.ptx.isa.elementwise import Accuracy, Arithmetic
from tinygpu.ptx.isa.ex2_fma import POLYNOMIALS, Ex2Fma
from tinygpu.ptx.isa.predicates import Compare, Select
from tinygpu.ptx.isa.special import (
    Cos,
    DivFull,
    Ex2,
    Lg2,
    Rcp,
    RcpApprox,
    Rsqrt,
    Sin,
    Sqrt,
    SqrtApprox,
    Tanh,
)
from tinygpu.testing.meanings import meaning_fault

EXACT: tuple[type[Arithmetic], ...] = (
    Abs, Add, And, Ceil, Div, Floor, Fma, Max, MaxNumber, Min, MinNumber, Mul, Neg, Not, Or, Rcp, Round, Shl,
    Select, Shr, Sqrt, Sub, Trunc, Xor,
)  # fmt: skip
APPROXIMATE: tuple[type[Arithmetic], ...] = (Cos, DivFull, Ex2, Lg2, RcpApprox, Rsqrt, Sin, SqrtApprox, Tanh)
FORMS = [operation(kind) for operation in EXACT for kind in operation.spelling]
FORMS += [Ex2Fma(degree=degree) for degree in POLYNOMIALS]
FORMS += [made(kind, c) for made in (Where, Compare) for kind in made.spelling for c in COMPARISONS]
APPROXIMATIONS = [operation(kind) for operation in APPROXIMATE for kind in operation.spelling]
THREADS = 1024


def names(forms: list[Any]) -> list[str]:
    return [f"{type(f).__name__} {f.label} {f.types()[1]}" for f in forms]


def random_values(kind: str, rng: np.random.Generator) -> NDArray[Any]:
    """(THREADS, 1): a third random bits, a third ordinary numbers, and small integers, infinities, NaN and zeros."""
    t = dtype(kind)
    if t.kind == "predicate":
        return rng.integers(0, 2, (THREADS, 1)).astype(t.numpy)
    bits: NDArray[Any] = rng.integers(0, 1 << t.bits, THREADS, dtype=np.uint64).astype(f"u{t.numpy.itemsize}")
    if kind == "tf32":
        bits &= np.uint32(0xFFFFE000)
    out = bits.view(t.numpy).copy()
    third = THREADS // 3
    out[third : 2 * third] = ordinary(kind, rng, third)
    special = [0, 1, 2, 3, 5, 31, 32, 33]
    if t.is_float:
        special += [-0.0, 0.5, 1.5, 2.5, -0.5, -1, -7]
        special += [] if kind == "e4m3" else [np.inf, -np.inf]
        special += [np.nan]
    elif t.kind == "signed":
        limits = np.iinfo(t.numpy)
        special += [-1, -2, int(limits.min), int(limits.max)]
    with np.errstate(all="ignore"):
        chosen = np.array(special, dtype=np.float64 if t.is_float else np.int64).astype(t.numpy)
    out[2 * third :] = rng.choice(chosen, THREADS - 2 * third)
    return out.reshape(THREADS, 1)


def ordinary(kind: str, rng: np.random.Generator, count: int) -> NDArray[Any]:
    t = dtype(kind)
    if t.is_float:
        values = (rng.normal(size=count) * 2.0 ** rng.integers(-6, 7, count)).astype(np.float32)
        return round_to_tf32(values) if kind == "tf32" else values.astype(t.numpy)
    return rng.integers(0, 100, count).astype(t.numpy)


def emulated_and_meant(instruction: Elementwise, seed: int) -> tuple[list[NDArray[Any]], NDArray[Any], NDArray[Any]]:
    """The inputs, what the emulator makes of them, and what NumPy does, each (THREADS, 1)."""
    rng = np.random.default_rng(seed)
    inputs = [random_values(kind, rng) for kind in instruction.types()[0]]
    given = [i.astype(dtype(in_memory(kind)).numpy) for i, kind in zip(inputs, instruction.types()[0], strict=True)]
    got = run(replace(specimen(instruction), threads=THREADS), given).astype(dtype(instruction.types()[1]).numpy)
    with np.errstate(all="ignore"):
        want = np.asarray(instruction.meaning(*inputs))
    return inputs, got, want


def same_bits(got: NDArray[Any], want: NDArray[Any]) -> NDArray[np.bool_]:
    """Where two results agree: bit by bit, except that all NaN are one, and zeros of either sign."""
    if got.dtype.kind in "iub":
        return np.asarray(got == want)
    with np.errstate(invalid="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


@pytest.mark.parametrize("instruction", FORMS, ids=names(FORMS))
def test_exact_operations_agree_bit_by_bit(instruction: Arithmetic) -> None:
    inputs, got, want = emulated_and_meant(instruction, 1)
    assert want.dtype == got.dtype == dtype(instruction.types()[1]).numpy
    agree = same_bits(got, want)
    if isinstance(instruction, Fma) and instruction.kind == "f64":  # NumPy has no fused f64: it rounds twice
        with np.errstate(all="ignore"):
            scale = np.maximum(np.abs(inputs[0] * inputs[1]), np.abs(inputs[2]))
            agree |= np.abs(got - want) <= 2.0**-51 * scale
    where = np.flatnonzero(~agree)[:3]
    assert not len(where), [([i[w, 0] for i in inputs], got[w, 0], want[w, 0]) for w in where]


PAIRS = [Cvt(origin, to) for origin, to in CONVERSIONS]


@pytest.mark.parametrize("instruction", PAIRS, ids=[f"{p.origin} to {p.to}" for p in PAIRS])
def test_conversions_agree_bit_by_bit(instruction: Cvt) -> None:
    inputs, got, want = emulated_and_meant(instruction, 2)
    assert want.dtype == got.dtype == dtype(instruction.to).numpy
    where = np.flatnonzero(~same_bits(got, want))[:3]
    assert not len(where), [([i[w, 0] for i in inputs], got[w, 0], want[w, 0]) for w in where]


@pytest.mark.parametrize("instruction", APPROXIMATIONS, ids=names(APPROXIMATIONS))
def test_approximations_stay_within_their_stated_accuracy(instruction: Arithmetic) -> None:
    accuracy = instruction.error()
    assert accuracy != Accuracy()
    inputs, got, want = emulated_and_meant(instruction, 3)
    wide = [i.astype(np.float64) for i in inputs]
    with np.errstate(all="ignore"):
        exact = np.asarray(type(instruction).function(*wide))  # type: ignore[attr-defined]
        promised = np.all([(w >= accuracy.low) & (w <= accuracy.high) for w in wide], axis=0)
        bound = accuracy.relative * np.abs(exact) + accuracy.absolute
        largest = float(np.finfo(np.float32).max) if instruction.kind != "f16" else 65504.0
        for values in (got, want):  # the emulator's and our own
            near = np.abs(values.astype(np.float64) - exact) <= bound
            beyond = (np.abs(exact) * (1 + accuracy.relative) > largest) & np.isinf(values.astype(np.float64))
            agree = near | beyond | same_bits(values, exact) | ~promised
            if "ftz" in instruction.text() or isinstance(instruction, DivFull):
                agree |= np.any([(np.abs(w) < 2.0**-126) & (w != 0) for w in wide], axis=0)  # flushed to zero
            where = np.flatnonzero(~agree)[:3]
            assert not len(where), [([i[w, 0] for i in inputs], values[w, 0], exact[w, 0]) for w in where]
    assert promised.mean() > 0.2


@pytest.mark.parametrize("degree", POLYNOMIALS)
def test_powers_by_polynomials_stay_within_their_stated_accuracy(degree: int) -> None:
    """Evenly, near whole numbers and halves, where the nearest whole number changes, and at both ends."""
    instruction = Ex2Fma(degree=degree)
    accuracy, rng = instruction.error(), np.random.default_rng(degree)
    halves = np.arange(-280, 255) / 2
    near = np.concatenate([np.nextafter(halves, side, dtype=np.float32) for side in (-np.inf, np.inf)])
    a = np.concatenate([near, halves, np.linspace(-140, 127, 400_001), rng.uniform(-1, 1, 200_000), [-np.inf]])
    a = a[a <= accuracy.high].astype(np.float32)
    got, exact = instruction.meaning(a).astype(np.float64), np.exp2(a.astype(np.float64))
    off = np.abs(got - exact) - accuracy.absolute
    assert (off <= accuracy.relative * exact).all(), a[np.argmax(off / exact)]
    assert off.max() > 0
    assert (off / exact).max() > accuracy.relative / 2  # no more is stated than there is
    assert np.isnan(instruction.meaning(np.array([np.nan], np.float32))).all()


def test_a_polynomial_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        Ex2Fma(degree=2)
    assert str(refused.value) == "Ex2Fma has a polynomial of degree 3, 4 or 5, not 2"


@settings(max_examples=300)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_fused_rounds_once(a: float, b: float, c: float) -> None:
    """Against exact fractions, rounded to f32 by Python's correctly rounded division and a search of the neighbours."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    largest = Fraction(float(np.finfo(np.float32).max))
    if abs(exact) > largest:
        return
    with np.errstate(all="ignore"):
        got = np.float32(fused(*(np.array([v], dtype=np.float64) for v in (a, b, c)))[0])
    near = [got, np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))]
    distances = [abs(Fraction(float(v)) - exact) for v in near if np.isfinite(v)]
    assert distances[0] == min(distances)
    if distances.count(distances[0]) > 1:  # a tie goes to the even one
        assert got.view(np.uint32) % 2 == 0


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(1.0, 1.0), (1 + 2.0**-11, 1 + 2.0**-10), (1 + 3 * 2.0**-12, 1 + 2.0**-10), (-1 - 2.0**-11, -1 - 2.0**-10),
     (1 + 2.0**-12, 1.0), (np.inf, np.inf)],
)  # fmt: skip
def test_tf32_rounds_to_nearest_and_ties_away_from_zero(value: float, rounded: float) -> None:
    assert round_to_tf32(np.array([value], dtype=np.float32))[0] == np.float32(rounded)


PAIRED = [form for form in (*FORMS, *APPROXIMATIONS) if form.packed_text()]


@pytest.mark.parametrize("instruction", PAIRED, ids=names(PAIRED))
def test_what_is_done_to_two_values_at_once_is_what_is_done_to_each(instruction: Arithmetic) -> None:
    assert meaning_fault(instruction, np.random.default_rng(5), 2.0**-7) == ""


def test_most_arithmetic_of_16_bits_is_of_pairs() -> None:
    assert len(PAIRED) == 24
    assert {form.issued(expr(8)).same(4) for form in PAIRED} == {True}
    assert {form.issued(expr(7)).same(7) for form in PAIRED} == {True}
