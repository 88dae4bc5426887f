"""Triton's reductions, scans, norms, sorts and transposes, compared with NumPy; no fault on any."""

from __future__ import annotations

import numpy as np
import pytest
from triton_fixture import Fixture, Values, cases, launch

F16, F32, I32 = np.float16, np.float32, np.int32


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(29)


def softmax(x: Values) -> Values:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    result: Values = e / e.sum(axis=-1, keepdims=True)
    return result


@pytest.mark.sampled(2)
@cases("softmax")
def test_softmax(fixture: Fixture, rng: np.random.Generator) -> None:
    columns = fixture.constants["BLOCK"] * 3 // 4
    x = rng.standard_normal((3, columns)).astype(fixture.dtype("x"))
    y = np.zeros((3, columns), fixture.dtype("y"))
    launch(fixture, 3, x, y, columns)
    tolerance = 1e-5 if y.itemsize == 4 else 1e-2
    np.testing.assert_allclose(y.astype(np.float64), softmax(x.astype(np.float64)), rtol=tolerance)


@cases("wide_softmax")
def test_softmax_in_pieces(fixture: Fixture, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 912)).astype(F32)
    y = np.zeros_like(x)
    launch(fixture, 3, x, y, 912)
    np.testing.assert_allclose(y, softmax(x.astype(np.float64)), rtol=1e-5)


@pytest.mark.sampled(2)
@cases("tile_reductions")
def test_reductions_of_a_tile_along_each_axis(fixture: Fixture, rng: np.random.Generator) -> None:
    kind = fixture.dtype("x")
    rows, columns = fixture.constants["R"] - 3, fixture.constants["C"] - 1
    x = rng.integers(1, 9 if kind is F16 else 90, (rows, columns)).astype(kind)
    x[:, columns // 2] = -rng.permutation(rows) - 1
    sums, largest, total = np.zeros(rows, kind), np.zeros(columns, kind), np.zeros(1, kind)
    places = np.zeros(rows, I32)
    launch(fixture, 1, x, sums, largest, places, total, rows, columns)
    exact = x.astype(np.int64)
    np.testing.assert_array_equal(places, exact.argmin(axis=1))
    np.testing.assert_array_equal(largest, np.maximum(exact.max(axis=0), 0))
    tolerance = 2e-2 if kind is F16 else 0
    np.testing.assert_allclose(sums, exact.sum(axis=1), rtol=tolerance)
    np.testing.assert_allclose(total, exact.sum(), rtol=tolerance)


@cases("variances")
def test_a_reduction_with_an_operator_of_its_own(fixture: Fixture, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((3, 784)) + 5).astype(F32)
    mean, variance = np.zeros((2, 3), F32)
    launch(fixture, 3, x, mean, variance, 784)
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(axis=1), rtol=1e-5)


def normal(x: Values) -> tuple[Values, Values, Values]:
    v = x.astype(np.float64)
    mean, rstd = v.mean(axis=1), 1 / np.sqrt(v.var(axis=1) + 1e-5)
    return (v - mean[:, None]) * rstd[:, None], mean, rstd


@cases("layer_norm")
def test_layer_norm_over_a_ragged_row(fixture: Fixture, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 777)).astype(F32)
    gamma, beta = rng.standard_normal((2, 777)).astype(F32)
    y, mean, rstd = np.zeros((3, 777), F16), np.zeros(3, F32), np.zeros(3, F32)
    launch(fixture, 3, x, gamma, beta, y, mean, rstd, 777, F32(1e-5))
    z, m, r = normal(x)
    np.testing.assert_allclose(y, z * gamma + beta, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(mean, m, atol=1e-6)
    np.testing.assert_allclose(rstd, r, rtol=1e-5)


@pytest.mark.sampled(2)
@cases("layer_norm_backward")
def test_layer_norm_backward_with_locks_between_ctas(fixture: Fixture, rng: np.random.Generator) -> None:
    rows, columns, groups = 5, 400, fixture.constants["GROUPS"]
    x, dy = rng.standard_normal((2, rows, columns)).astype(F32)
    gamma = rng.standard_normal(columns).astype(F32)
    z, mean, rstd = normal(x)
    dx, parts = np.zeros((rows, columns), F32), np.full((2, groups, columns), np.nan, F32)
    locks = np.zeros(2 * groups, I32)
    launch(fixture, rows, dy, x, gamma, mean.astype(F32), rstd.astype(F32), dx, parts[0], parts[1], locks, columns)
    wg = gamma * dy.astype(np.float64)
    c1, c2 = (z * wg).mean(axis=1), wg.mean(axis=1)
    np.testing.assert_allclose(dx, (wg - z * c1[:, None] - c2[:, None]) * rstd[:, None], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(parts[0].sum(axis=0), (dy * z).sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(parts[1].sum(axis=0), dy.sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(locks, [0] * groups + [1] * groups)


@cases("rms_norm")
def test_rms_norm(fixture: Fixture, rng: np.random.Generator) -> None:
    kind = fixture.dtype("x")
    x, weight = rng.standard_normal((3, 400)).astype(kind), rng.standard_normal(400).astype(kind)
    y = np.zeros((3, 400), kind)
    launch(fixture, 3, x, weight, y, 400, F32(1e-6))
    v = x.astype(np.float64)
    want = v / np.sqrt((v * v).mean(axis=1, keepdims=True) + 1e-6) * weight.astype(np.float64)
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=1e-2)


@cases("cross_entropy")
def test_cross_entropy_and_its_gradient(fixture: Fixture, rng: np.random.Generator) -> None:
    x, labels = rng.standard_normal((3, 784)).astype(F32), rng.integers(0, 784, 3)
    loss, gradient = np.zeros(3, F32), np.zeros_like(x)
    launch(fixture, 3, x, labels, loss, gradient, 784)
    p = softmax(x.astype(np.float64))
    np.testing.assert_allclose(loss, -np.log(p[np.arange(3), labels]), rtol=1e-5)
    p[np.arange(3), labels] -= 1
    np.testing.assert_allclose(gradient, p, rtol=1e-4, atol=1e-7)


@pytest.mark.sampled(2)
@cases("transpose")
def test_transpose(fixture: Fixture, rng: np.random.Generator) -> None:
    x = rng.integers(-100, 100, (96, 80)).astype(fixture.dtype("x"))
    y = np.zeros((80, 96), x.dtype)
    block = fixture.constants["BLOCK"]
    launch(fixture, (-(-96 // block), -(-80 // block)), x, y, 96, 80)
    np.testing.assert_array_equal(y, x.T)


@cases("scan")
def test_scan(fixture: Fixture, rng: np.random.Generator) -> None:
    c = fixture.constants
    x = rng.integers(-9, 9, (2, c["R"], c["C"])).astype(fixture.dtype("x"))
    y = np.zeros_like(x)
    launch(fixture, 2, x, y)
    axis = c["AXIS"] + 1
    if c["REVERSE"]:
        np.testing.assert_array_equal(y, np.flip(np.cumsum(np.flip(x, axis), axis=axis), axis))
    else:
        np.testing.assert_array_equal(y, np.cumsum(x, axis=axis))


@cases("recurrence")
def test_a_scan_of_pairs(fixture: Fixture, rng: np.random.Generator) -> None:
    n = fixture.constants["BLOCK"]
    a, b = rng.uniform(0.5, 1, (2, 2, n)).astype(F32)
    h = np.zeros((2, n), F32)
    launch(fixture, 2, a, b, h)
    want = np.zeros((2, n))
    for t in range(n):
        want[:, t] = (a[:, t] * want[:, t - 1] if t else 0) + b[:, t]
    np.testing.assert_allclose(h, want, rtol=1e-5)


@pytest.mark.sampled(2)
@cases("sort")
def test_sort(fixture: Fixture, rng: np.random.Generator) -> None:
    n = fixture.constants["BLOCK"]
    x = rng.integers(-120, 120, (2, n)).astype(fixture.dtype("x"))
    y = np.zeros_like(x)
    launch(fixture, 2, x, y)
    want = np.sort(x, axis=1)
    np.testing.assert_array_equal(y, want[:, ::-1] if fixture.constants["DESCENDING"] else want)


@cases("top")
def test_the_largest_values(fixture: Fixture, rng: np.random.Generator) -> None:
    n, k = fixture.constants["BLOCK"], fixture.constants["K"]
    x = rng.standard_normal((3, n)).astype(F32)
    y = np.zeros((3, k), F32)
    launch(fixture, 3, x, y)
    np.testing.assert_array_equal(y, np.sort(x, axis=1)[:, ::-1][:, :k])


@cases("gather_rows")
def test_gather_within_a_tile(fixture: Fixture, rng: np.random.Generator) -> None:
    r, c, axis = (fixture.constants[k] for k in ("R", "C", "AXIS"))
    x = rng.standard_normal((r, c)).astype(fixture.dtype("x"))
    ids = rng.integers(0, (r, c)[axis], (r, c)).astype(I32)
    y = np.zeros_like(x)
    launch(fixture, 1, x, ids, y)
    np.testing.assert_array_equal(y, np.take_along_axis(x, ids, axis))


@cases("histogram", "bins")
def test_histogram(fixture: Fixture, rng: np.random.Generator) -> None:
    bins, block, n = fixture.constants.get("BINS", 16), fixture.constants["BLOCK"], 1200
    x = rng.integers(0, bins, n).astype(I32)
    counts = np.zeros(bins, I32)
    launch(fixture, -(-n // block), x, counts, n)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))


@pytest.mark.sampled(2)
@cases("lock")
def test_a_spin_lock_between_ctas(fixture: Fixture, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (4, 128)).astype(F32)
    total = np.zeros(128, F32)
    launch(fixture, 4, x, total, np.zeros(1, I32))
    np.testing.assert_array_equal(total, x.sum(axis=0))


@cases("last_adds")
def test_the_cta_that_finishes_last_adds_up(fixture: Fixture, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 1600).astype(F32)
    out = np.zeros(1, F32)
    launch(fixture, 7, x, np.zeros(7, F32), out, np.zeros(1, I32), 1600)
    assert out[0] == x.sum()
