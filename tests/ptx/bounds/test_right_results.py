"""No right result is refused: references in single precision, sums in any order, lie between their ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.bounds.answers import Answer, answers
from tinygpu.ptx.bounds.arithmetic import Rounding

SINGLE = Rounding(exact=True)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention(x: Any, y: Any) -> Any:
    return softmax(x @ y.T / 8) @ y


def rms_norm(x: Any, y: Any) -> Any:
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-5) * y[0]


def layer_norm(x: Any, y: Any) -> Any:
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-2) + y[0]


def gelu(x: Any, y: Any) -> Any:
    z = x @ y.T
    return 0.5 * z * (1 + np.tanh(0.7978845608028654 * (z + 0.044715 * z**3))) + z.T.sum(axis=0)[:, None]


def pieces(x: Any, y: Any) -> Any:
    out = np.zeros_like(x)
    out[1:] = x[:-1] * y[0]
    out[:, 0] += np.where(x[:, 0] > 0, np.log1p(np.abs(x[:, 0])), np.minimum(x[:, 0], -0.5))
    return np.concatenate([np.clip(out, -1, 1), np.flip(np.cumsum(x, axis=1), 0)]) - np.square(x).max()


def formulas(x: Any, y: Any) -> Any:
    z = np.einsum("ij,kj->ik", x, y) + np.outer(x[:, 0], y[:, 0]) + np.tensordot(x, y, axes=([1], [1]))
    return np.sin(z) * np.log(np.abs(z) + 0.5) + np.stack([x[0, 0], y[0, 0]]).prod()


REFERENCES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: softmax(x), attention, rms_norm, layer_norm, gelu, pieces, formulas,
    lambda x, y: x @ y.T @ y, lambda x, y: (x - y[0]) * 3 + y[0] * x, lambda x, y: np.exp(x.sum(0)) / (1 + y[0] ** 2),
    lambda x, y: x**3 - x * x * x, lambda x, y: np.sort(x, axis=1)[:, ::-1] / (y.max() + 2),
)  # fmt: skip


def judged(reference: Callable[..., Any], *arrays: Any, rounding: Rounding = SINGLE) -> Answer:
    given = dict(zip("xyz", (a.astype(np.float64) for a in arrays), strict=False))
    found = answers(lambda **named: reference(*named.values()), given, {}, ["out"], rounding)["out"]
    assert found.followed == ""
    return found


def inside(answer: Answer, got: Any) -> bool:
    wide = np.asarray(got, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        held = (answer.low <= wide) & (wide <= answer.high)
    anything = (answer.low == -np.inf) & (answer.high == np.inf)
    return bool((held | anything | np.isnan(answer.low) & np.isnan(wide)).all())


def drawn(rows: int, columns: int, scale: float, seed: int) -> tuple[Any, Any]:
    """Numbers of all sizes; small results of large terms come of the pairs that nearly cancel."""
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(n, columns)) * scale * 2.0 ** rng.integers(-3, 3, (n, columns)) for n in (rows, rows + 1))
    x[:, columns // 2 :] = -x[:, : columns - columns // 2] * (1 + 1e-4 * rng.normal())
    return x.astype(np.float32), y.astype(np.float32)


@pytest.mark.parametrize("reference", REFERENCES, ids=range(len(REFERENCES)))
@settings(max_examples=30)
@given(st.integers(1, 12), st.integers(2, 90), st.sampled_from([0.01, 0.3, 1.0, 4.0]), st.integers(0, 2**32))
def test_single_precision_lies_between_the_ends(
    reference: Callable[..., Any], rows: int, columns: int, scale: float, seed: int
) -> None:
    """What NumPy makes of it in single precision, and of the columns in another order where the result has none."""
    x, y = drawn(rows, columns, scale, seed)
    answer = judged(reference, x, y)
    with np.errstate(all="ignore"):
        assert inside(answer, reference(x, y))
        assert inside(answer, reference(*(a.astype(np.float64) for a in (x, y))))
        if reference in (attention, gelu):
            return
    assert np.isfinite(answer.low).all()


@settings(max_examples=60)
@given(st.integers(1, 300), st.integers(0, 2**32), st.sampled_from([1.0, 1e-3, 1e4]))
def test_sums_in_any_order_cut_off_or_rounded_lie_between_the_ends(terms: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(8, terms)) * scale).astype(np.float32)
    answer = judged(lambda x: x.sum(axis=1), x)
    total = np.zeros(8)
    for column in rng.permutation(terms):  # cut off after each addition, as tensor cores do
        exact = total + x[:, column].astype(np.float64)
        nearest = exact.astype(np.float32)
        beyond = np.abs(nearest.astype(np.float64)) > np.abs(exact)
        total = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest).astype(np.float64)
    assert inside(answer, total)
    assert inside(answer, np.add.reduce(x[:, rng.permutation(terms)], axis=1, dtype=np.float32))


@given(st.integers(1, 5), st.integers(2, 40), st.integers(0, 2**32))
@settings(max_examples=30)
def test_special_values_become_what_numpy_makes_of_them(rows: int, columns: int, seed: int) -> None:
    x, y = drawn(rows, columns, 1.0, seed)
    rng = np.random.default_rng(seed)
    x[rng.integers(rows), rng.integers(columns)] = rng.choice([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-44, -0.0])
    for reference in (lambda x, y: softmax(x), rms_norm, lambda x, y: np.maximum(x, 0) + y[0], lambda x, y: x @ y.T):
        answer = judged(reference, x, y)
        with np.errstate(all="ignore"):
            assert inside(answer, reference(x, y))
            missing = np.isnan(reference(x.astype(np.float64), y.astype(np.float64)))
        assert (missing == np.isnan(answer.value)).all()


@given(st.integers(2, 40), st.integers(0, 2**32), st.sampled_from([np.inf, -np.inf]))
@settings(max_examples=30)
def test_one_infinite_term_makes_a_sum_infinite_however_others_round(terms: int, seed: int, infinite: float) -> None:
    """Of finite terms that are rounded none makes anything else of it."""
    x, y = drawn(3, terms, 1.0, seed)
    rng = np.random.default_rng(seed)
    x[1, rng.integers(terms)] = infinite
    y = np.where(y == 0, np.float32(1), y)[:3]
    answer = judged(lambda x, y: (x * y).sum(axis=1), x, y)
    wanted = (x.astype(np.float64) * y).sum(axis=1)
    assert answer.low[1] == answer.high[1] == wanted[1]
    assert np.isfinite(answer.low[[0, 2]]).all()
    assert inside(answer, wanted)


def test_small_whole_numbers_have_no_error() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-60, 60, s).astype(np.float64) for s in ((7, 500), (500, 9)))
    answer = judged(lambda x, y: np.maximum(x @ y + 3, 0) - y.sum(), x, y)
    assert answer.low is answer.value is answer.high
    large = judged(lambda x, y: (x @ y) * 300, x, y)
    assert (large.low < large.value).all(), "beyond 2^24 single precision rounds"


def test_every_element_has_a_bound_of_its_own() -> None:
    """A small result of large terms may be off by what these terms are rounded by; one of small terms may not."""
    x = np.array([[1e4, -1e4, 1.0], [1.0, -1.0, 1.0]])
    answer = judged(lambda x: x.sum(axis=1), x + 0.1)
    off = answer.high - answer.value
    assert off[0] > 1e-3
    assert off[1] < 1e-5
    assert judged(lambda x: x / x.sum(), np.full(4, 0.3)).high.max() < 0.25 * (1 + 1e-5)


def test_a_reference_that_cannot_be_followed_is_estimated_and_says_so() -> None:
    def by_hand(x: Any) -> Any:
        out = np.zeros(x.shape)
        for i in range(len(x)):
            out[i] = x[i] * 3 + 1
        return out

    x = np.random.default_rng(0).normal(size=50)
    found = answers(by_hand, {"x": x}, {}, ["y"], SINGLE)["y"]
    assert found.followed == "makes a Python number of an input"
    assert inside(found, (x.astype(np.float32) * np.float32(3) + np.float32(1)))
    assert (found.high - found.value < 1e-4).all()
    assert not inside(found, x * 3 + 1.001)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_what_is_rounded_on_the_way_lies_between_the_ends(kind: Any, seed: int) -> None:
    """Numbers that are no normal ones of the type, and such as exceed it: infinite, or of 8 bits the largest."""
    rng = np.random.default_rng(seed)
    x, y = (
        (rng.normal(size=(9, 20)) * 2.0 ** rng.integers(-16, 17, (9, 20))).astype(np.float32) for _ in range(2)
    )
    largest = np.float32(ml_dtypes.finfo(kind).max)

    def rounded(a: Any, b: Any) -> Any:
        return (a * b).astype(kind) * 0.125 + b

    with np.errstate(all="ignore"):
        made = x * y
        held = (np.clip(made, -largest, largest) if np.dtype(kind).itemsize == 1 else made).astype(kind)
        assert inside(judged(rounded, x, y), held.astype(np.float32) * np.float32(0.125) + y)


def test_a_part_of_an_array_is_of_its_type() -> None:
    """What is rounded to the type of a part of q is rounded: 0.03 is no number of f16, and may be either neighbour."""
    q = np.full((4, 3), 0.1, np.float16)
    kinds = {"q": q.dtype}

    def reference(q: Any) -> Any:
        return (q[1:, :2].T * 0.3).astype(q[1:].T.dtype)

    rounding = Rounding(exact=False, approximation=0.0)
    found = answers(reference, {"q": q.astype(np.float64)}, {}, ["y"], rounding, kinds)["y"]
    assert not found.followed
    assert (found.high - found.low > 2.0**-16).all()
