"""Random expressions of tiles: a machine computes what Python makes of the same expression of arrays."""

from __future__ import annotations

import numpy as np
import pytest
from expression_trees import BOUNDED, ROUNDED, evaluated, expression, machine_of

import tinygpu as tg
from tinygpu.dtypes import dtype

OLDEST = {"bf16": "h100"}  # comparisons of bf16 are of sm_90


def rounded_as_numpy(kind: str, seed: int) -> None:
    """Every bit of a kernel's result is that of NumPy's arrays of the type, whose operations round once each."""
    rng = np.random.default_rng([seed, len(kind), ord(kind[0])])
    whole = not dtype(kind).is_float
    tree = expression(rng, ROUNDED[kind], int(rng.integers(1, 5)), whole)
    written = f"({tree}) + x" if rng.random() < 0.5 else f"x - ({tree})"
    machine = machine_of(written, (kind,) * 4, kind, kind)
    m, n = (int(e) for e in rng.integers(1, 70, 2))
    kernel = tg.emit(tg.space(machine, m=m, n=n, device=OLDEST.get(kind, "a100")))
    arrays = []
    for shape in ((m, n), (m, n), (n,), (m,)):
        drawn = rng.integers(-50, 50, shape) if whole else rng.normal(size=shape) * 2.0 ** rng.integers(-3, 4)
        arrays.append(np.abs(drawn).astype(dtype(kind).numpy) if kind == "u32" else drawn.astype(dtype(kind).numpy))
    x, z, b, c = arrays
    wanted = evaluated(written, x.dtype.type, x=x, z=z, b=b[None, :], c=c[:, None])
    for found in (tg.emulate(kernel, *arrays, s=2.0), tg.run(kernel, *arrays, s=2.0)):
        assert found.dtype == x.dtype
        same = (found == wanted) | ((found != found) & (wanted != wanted))
        assert np.all(same), f"{written} of {kind}, {m} x {n}, seed {seed}"


def within_bounds(seed: int) -> None:
    """Of any types, computed in f32: verification's bounds hold, which follow the expression as the reference."""
    rng = np.random.default_rng([seed, 99])
    kinds = tuple(rng.choice(("f32", "f16", "bf16", "s8", "u8", "e4m3"), 4))
    result = str(rng.choice(("f32", "f16", "bf16")))
    tree = expression(rng, BOUNDED, int(rng.integers(1, 4)), False)
    written = f"({tree}) + x" if rng.random() < 0.5 else f"x * ({tree})"
    machine = machine_of(written, kinds, result, "f32", "f32", bool(rng.integers(2)))
    m, n = (int(e) for e in rng.integers(1, 70, 2))
    space = tg.space(machine, m=m, n=n, device="h100")
    assert space.size, tg.explain(space)
    found = tg.verify(tg.emit(space))
    assert found.passed, f"{written} of {kinds} to {result}, seed {seed}: {found}"


@pytest.mark.parametrize("kind", ROUNDED)
@pytest.mark.end_to_end
def test_an_expression_of_tiles_is_numpys_bit_for_bit(kind: str) -> None:
    rounded_as_numpy(kind, 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.end_to_end
def test_an_expression_of_mixed_types_is_within_its_bounds(seed: int) -> None:
    within_bounds(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
@pytest.mark.parametrize("kind", ROUNDED)
def test_expressions_of_tiles_are_numpys_bit_for_bit(kind: str, seed: int) -> None:
    rounded_as_numpy(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 250))
def test_expressions_of_mixed_types_are_within_their_bounds(seed: int) -> None:
    within_bounds(seed)
