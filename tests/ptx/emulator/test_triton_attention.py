"""Attention by Triton, compared with NumPy under every order in which copies may land; no fault on any."""

from __future__ import annotations

import numpy as np
import pytest
from triton_fixture import Fixture, Order, Values, cases, launch, orders

F16, F32 = np.float16, np.float32


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(37)


def forward(q: Values, k: Values, v: Values, scale: float, causal: bool) -> tuple[Values, Values, Values]:
    """(output, logarithm in base two of the sum of each row, probabilities), in double precision."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    score = np.einsum("hld,hmd->hlm", q, k) * scale
    if causal:
        score = np.where(np.tril(np.ones(score.shape[1:])) > 0, score, -np.inf)
    largest = score.max(axis=-1, keepdims=True)
    p = np.exp(score - largest)
    total = p.sum(axis=-1, keepdims=True)
    p /= total
    return p @ v, ((largest + np.log(total)) / np.log(2))[..., 0], p


@pytest.mark.sampled(8)
@orders
@cases("attention")
def test_attention(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    width, bm = fixture.constants["H"], fixture.constants["BM"]
    heads, length = 2, 2 * bm if bm < 100 else bm
    kind = fixture.dtype("q")
    q, k, v = (rng.standard_normal((heads, length, width)).astype(kind) for _ in range(3))
    out, lse = np.zeros_like(q), np.zeros((heads, length), F32)
    scale = width**-0.5
    launch(fixture, (length // bm, heads), q, k, v, out, lse, length, F32(scale), order=order)
    want, sums, _ = forward(q, k, v, scale, fixture.constants["CAUSAL"])
    tolerance = 4e-3 if kind is F16 else 3e-2
    np.testing.assert_allclose(out.astype(np.float64), want, atol=tolerance)
    np.testing.assert_allclose(lse, sums, atol=1e-4)


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@orders
@cases("descriptor_attention")
def test_attention_through_tensor_maps(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    width, bm = fixture.constants["H"], fixture.constants["BM"]
    heads, length = 2, 2 * bm
    q, k, v = (rng.standard_normal((heads, length, width)).astype(F16) for _ in range(3))
    out = np.zeros_like(q)
    scale = width**-0.5
    launch(fixture, (length // bm, heads), q, k, v, out, length, F32(scale), order=order)
    np.testing.assert_allclose(out, forward(q, k, v, scale, False)[0], atol=4e-3)


@pytest.mark.sampled(4)
@orders
@cases("attention_backward")
def test_attention_backward(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    width, bn = fixture.constants["H"], fixture.constants["BN"]
    heads, length = 1, 2 * bn
    q, k, v, do = (rng.standard_normal((heads, length, width)).astype(F16) for _ in range(4))
    scale = width**-0.5
    out, lse, p = forward(q, k, v, scale, True)
    g = do.astype(np.float64)
    delta = (g * out).sum(axis=-1)
    dq, dk, dv = np.zeros((3, heads, length, width), F32)
    args = (q, k, v, do, lse.astype(F32), delta.astype(F32), dq, dk, dv, length, F32(scale))
    launch(fixture, (length // bn, heads), *args, order=order)
    ds = p * (g @ v.astype(np.float64).swapaxes(1, 2) - delta[..., None]) * scale
    np.testing.assert_allclose(dv, p.swapaxes(1, 2) @ g, atol=2e-2)
    np.testing.assert_allclose(dk, ds.swapaxes(1, 2) @ q.astype(np.float64), atol=2e-2)
    np.testing.assert_allclose(dq, ds @ k.astype(np.float64), atol=2e-2)
