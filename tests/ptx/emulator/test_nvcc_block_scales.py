"""mma.sync with block scales as CuTe lays its factors and scales out for SM120: a witness for who gives which scale."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import run

from tinygpu.dtypes import dtype
from tinygpu.layouts.layout import Layout
from tinygpu.ptx import isa

E4M3, E5M2, E2M1 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn
F32, U8 = np.float32, np.uint8
# entry, types of a and b, K, elements to a scale
FORMS = (("mxfp8", E4M3, E5M2, 32, 32), ("mxfp4", E2M1, E2M1, 64, 32), ("nvfp4", E2M1, E2M1, 64, 16))


@pytest.mark.parametrize(("entry", "first", "second", "k", "block"), FORMS)
def test_scales_reach_the_rows_and_columns_that_cute_gives_them(
    entry: str, first: Any, second: Any, k: int, block: int
) -> None:
    rng = np.random.default_rng(k + block)
    a, b = rng.integers(-4, 5, (16, k)).astype(first), rng.integers(-4, 5, (8, k)).astype(second)
    if block == 32:
        codes = [rng.integers(120, 135, (rows, k // block)).astype(U8) for rows in (16, 8)]
        numbers = [np.ldexp(1.0, c.astype(int) - 127) for c in codes]
    else:
        scales = [rng.integers(1, 9, (rows, k // block)).astype(E4M3) for rows in (16, 8)]
        codes, numbers = [s.view(U8) for s in scales], [s.astype(np.float64) for s in scales]
    c = np.zeros((16, 8), F32)
    run("sm_120a/block_scales", entry, 1, 32, a.view(U8), b.view(U8), *codes, c)
    x, y = (v.astype(np.float64) * np.repeat(s, block, axis=1) for v, s in zip((a, b), numbers, strict=True))
    np.testing.assert_array_equal(c, (x @ y.T).astype(F32))


def test_scales_are_held_as_cute_says() -> None:
    """SFALayout and SFBLayout of cute/atom/mma_traits_sm120.hpp, (lane, element along k) -> row + 16 or 8 times it."""
    for layout, rows, text, axis in (
        (isa.MmaScaled().scales(dtype("e4m3"), dtype("e4m3")).a, 16, "(2,2,8):(8,0,1)", 0),
        (isa.MmaScaled().scales(dtype("e4m3"), dtype("e4m3")).b, 8, "(4,8):(0,1)", 1),
    ):
        theirs = Layout.parse(text).offsets()
        ours = [int(at[axis]) for at in layout.modes[0].coordinates((0, 1))]
        assert ours == [int(t) % rows for t in np.ravel(theirs)]
