"""Narrow floating-point formats against ml_dtypes: every code, and rounding of values between codes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS, NarrowFloat, truncate_tf32

ORACLES: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn, "ue8m0": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
SIGNED = [name for name in ORACLES if name != "ue8m0"]


@pytest.mark.parametrize("name", ORACLES)
def test_every_code_has_the_value_that_ml_dtypes_gives_it(name: str) -> None:
    form = NARROW_FLOATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    want = codes.view(ORACLES[name]).astype(np.float32)
    np.testing.assert_array_equal(form.decode(codes), want)
    np.testing.assert_array_equal(np.signbit(form.decode(codes)), np.signbit(want))


def test_ue4m3_is_the_positive_half_of_e4m3() -> None:
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(
        NARROW_FLOATS["ue4m3"].decode(codes), NARROW_FLOATS["e4m3"].decode(codes & np.uint8(0x7F))
    )


@pytest.mark.parametrize("name", NARROW_FLOATS)
def test_every_number_encodes_to_its_own_code(name: str) -> None:
    form = NARROW_FLOATS[name]
    codes = np.arange(1 << form.bits, dtype=np.uint8)
    finite = np.isfinite(form.decode(codes))
    for rounding in ("rn", "rz", "rp"):
        np.testing.assert_array_equal(form.encode(form.decode(codes), rounding)[finite], codes[finite])


def between(form: NarrowFloat) -> np.ndarray[Any, Any]:
    """Every value, every midpoint, and the floats next to each, of both signs."""
    values = form.values[np.isfinite(form.values)].astype(np.float64)
    values = np.unique(np.abs(values))
    points = np.unique(np.concatenate([values, (values[1:] + values[:-1]) / 2])).astype(np.float32)
    points = np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(0))])
    return np.concatenate([points, -points])


@pytest.mark.parametrize("name", SIGNED)
def test_rounding_to_nearest_even_agrees_with_ml_dtypes_on_all_midpoints(name: str) -> None:
    form = NARROW_FLOATS[name]
    points = between(form)
    largest = form.values[form.largest_code]
    inside = points[np.abs(points) <= largest]
    want = inside.astype(ORACLES[name]).view(np.uint8)
    np.testing.assert_array_equal(form.encode(inside), want)
    # Beyond the largest value: the largest with satfinite, infinity or NaN without (ml_dtypes' 8-bit casts).
    beyond = np.array([largest * 1.01, largest * 4, np.inf, -largest * 4, -np.inf], np.float32)
    signs = np.signbit(beyond) * (1 << (form.bits - 1))
    np.testing.assert_array_equal(form.encode(beyond), form.largest_code | signs)
    if form.bits == 8:
        with np.errstate(over="ignore"):
            want = beyond.astype(ORACLES[name]).view(np.uint8)
        np.testing.assert_array_equal(form.encode(beyond, saturate=False), want)


@pytest.mark.parametrize("name", NARROW_FLOATS)
@given(value=st.floats(width=32, allow_nan=False))
def test_roundings_enclose_the_value(name: str, value: float) -> None:
    form = NARROW_FLOATS[name]
    size = abs(value)
    ladder = [Fraction(float(v)) for v in form.values[: form.largest_code + 1]]
    if np.isinf(value):
        down = up = nearest = form.largest_code
    else:
        exact = Fraction(size)
        down = max((k for k, v in enumerate(ladder) if v <= exact), default=0)
        up = min((k for k, v in enumerate(ladder) if v >= exact), default=form.largest_code)
        gap = (exact - ladder[down], ladder[up] - exact)
        nearest = down if gap[0] < gap[1] else up if gap[0] > gap[1] else down if down % 2 == 0 else up
        if exact < ladder[0]:
            nearest = 0
    sign = (1 << (form.bits - 1)) if form.signed and np.signbit(value) else 0
    one = np.array([value], np.float32)
    assert [int(form.encode(one, mode)[0]) for mode in ("rz", "rp", "rn")] == [sign | c for c in (down, up, nearest)]


def test_nan_becomes_the_code_of_ptx() -> None:
    nan = np.array([np.nan, -np.nan], np.float32)
    got = {name: form.encode(nan).tolist() for name, form in NARROW_FLOATS.items()}
    assert got == {
        "e4m3": [0x7F, 0x7F], "e5m2": [0x7F, 0x7F], "e2m3": [0x1F, 0x1F], "e3m2": [0x1F, 0x1F], "e2m1": [7, 7],
        "ue8m0": [0xFF, 0xFF], "ue4m3": [0x7F, 0x7F],
    }  # fmt: skip


def test_ue8m0_without_saturation_overflows_to_nan() -> None:
    form = NARROW_FLOATS["ue8m0"]
    big = np.array([2.0**127 * 1.5, np.inf, 2.0**127], np.float32)
    assert form.encode(big, "rp", saturate=False).tolist() == [255, 255, 254]
    assert form.encode(big, "rz", saturate=False).tolist() == [254, 255, 254]
    assert form.encode(big, "rp").tolist() == [254, 254, 254]


@given(st.integers(0, 2**32 - 1))
def test_tf32_keeps_nineteen_bits(word: int) -> None:
    got = truncate_tf32(np.array([word], np.uint32)).view(np.uint32)[0]
    assert int(got) == word >> 13 << 13
