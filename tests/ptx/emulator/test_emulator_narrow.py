"""Conversions to and from packed narrow floats, with random bits, and cvt.pack: ml_dtypes and fractions agree."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import run_instruction
from numpy.typing import NDArray

Array = NDArray[Any]
EXAMPLES = settings(max_examples=12, deadline=None)
NARROW: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip
HALVES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def floats(count: int, seed: int) -> NDArray[np.float32]:
    """Values of every size up to some 2^20, with zeros, infinities and NaN among them."""
    chance = np.random.default_rng(seed)
    values = (chance.standard_normal(count) * 2.0 ** chance.integers(-20, 20, count)).astype(np.float32)
    values[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 448.0, -6.0, 0.25]
    return values


def codes_of(values: Array, lane: str) -> NDArray[np.uint32]:
    """Saturated codes by ml_dtypes; NaN gives PTX's code."""
    dtype = NARROW[lane]
    top = float(ml_dtypes.finfo(dtype).max)
    codes = np.clip(np.nan_to_num(values, nan=0.0, posinf=top, neginf=-top), -top, top).astype(dtype).view(np.uint8)
    width = ml_dtypes.finfo(dtype).bits
    codes = codes & ((1 << width) - 1)
    nan = 0x7F if width == 8 else (1 << (width - 1)) - 1
    return np.where(np.isnan(values), nan, codes).astype(np.uint32)


def register_of(lane: str) -> tuple[Any, int]:
    """(NumPy type of a pair, bits from one element to the next)."""
    return (np.uint8, 4) if lane == "e2m1" else (np.uint16, 8)


def pair(high: Array, low: Array, bits: int) -> Array:
    return (high.astype(np.uint32) << bits) | low.astype(np.uint32)


@pytest.mark.parametrize("lane", NARROW)
@pytest.mark.parametrize("relu", ["", ".relu"])
@EXAMPLES
@given(st.integers(0, 2**32 - 1))
def test_two_singles_become_a_packed_pair(lane: str, relu: str, seed: int) -> None:
    x, y = floats(64, seed), floats(64, seed + 1)
    dtype, bits = register_of(lane)
    move = ".reg .b8 %n; cvt.rn.satfinite{}.{}x2.f32 %n, %a0, %a1; mov.b16 %d0, {{%n, %n}};" if bits == 4 else (
        "cvt.rn.satfinite{}.{}x2.f32 %d0, %a0, %a1;"
    )
    (d,) = run_instruction(move.format(relu, lane), [x, y], [np.uint16])
    keep = (lambda v: np.where(v < 0, np.float32(0), v)) if relu else (lambda v: v)
    assert dtype in (np.uint8, np.uint16)
    high, low = (codes_of(np.where(np.signbit(v) & (v == 0), 0, v) if relu else v, lane) for v in (keep(x), keep(y)))
    assert (d & ((1 << 2 * bits) - 1) == pair(high, low, bits)).all()


@pytest.mark.parametrize("lane", NARROW)
@pytest.mark.parametrize("half", HALVES)
def test_every_code_becomes_a_half_and_comes_back(lane: str, half: str) -> None:
    width = ml_dtypes.finfo(NARROW[lane]).bits
    _, bits = register_of(lane)
    codes = np.arange(256, dtype=np.uint16) & ((1 << width) - 1)
    other = codes[::-1].copy()
    packed = ((codes << bits) | other).astype(np.uint16)
    into = f".reg .b8 %n, %m; mov.b16 {{%n, %m}}, %a0; cvt.rn.{half}x2.{lane}x2 %d0, %n;" if bits == 4 else (
        f"cvt.rn.{half}x2.{lane}x2 %d0, %a0;"
    )
    (d,) = run_instruction(into, [packed], [np.uint32])
    for shift, code in ((16, codes), (0, other)):
        got = (d >> shift).astype(np.uint16).view(HALVES[half]).astype(np.float32)
        want = code.astype(np.uint8).view(NARROW[lane]).astype(np.float32)
        assert np.array_equal(got, want, equal_nan=True)
    back = f".reg .b8 %n; cvt.rn.satfinite.{lane}x2.{half}x2 %n, %a0; mov.b16 %d0, {{%n, %n}};" if bits == 4 else (
        f"cvt.rn.satfinite.{lane}x2.{half}x2 %d0, %a0;"
    )
    (e,) = run_instruction(back, [d], [np.uint16])
    for shift, code in ((bits, codes), (0, other)):
        value = code.astype(np.uint8).view(NARROW[lane]).astype(np.float32)
        assert ((e >> shift) & ((1 << width) - 1) == codes_of(value, lane)).all()


@EXAMPLES
@given(st.integers(0, 2**32 - 1))
def test_scales_are_powers_of_two_without_sign(seed: int) -> None:
    x, y = floats(64, seed), floats(64, seed + 1)
    for mode, suffix in (("rz", ""), ("rp", ""), ("rz", ".satfinite"), ("rp", ".satfinite")):
        (d,) = run_instruction(f"cvt.{mode}{suffix}.ue8m0x2.f32 %d0, %a0, %a1;", [x, y], [np.uint16])
        for shift, values in ((8, x), (0, y)):
            for code, value in zip((d >> shift) & 255, values, strict=True):
                if np.isnan(value):
                    assert code == 255
                elif np.isinf(value):
                    assert code == (254 if suffix else 255)
                elif value == 0:
                    assert code == 0
                else:
                    size = abs(Fraction(float(value)))
                    low = Fraction(2) ** (int(code) - 127)
                    assert (low <= size < 2 * low) if mode == "rz" else (low / 2 < size <= low)
    codes = np.arange(256, dtype=np.uint16)
    (e,) = run_instruction("cvt.rn.bf16x2.ue8m0x2 %d0, %a0;", [codes], [np.uint32])
    assert np.array_equal(
        e.astype(np.uint16).view(ml_dtypes.bfloat16).astype(np.float32),
        codes.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32), equal_nan=True,
    )  # fmt: skip


@pytest.mark.parametrize("half", HALVES)
def test_random_bits_round_up_in_proportion_to_what_is_dropped(half: str) -> None:
    chance = np.random.default_rng(7)
    # For one value all 2^16 random halves are too many: every 64th, from a random start.
    for value in (chance.standard_normal(6) * 2.0 ** chance.integers(-10, 10, 6)).astype(np.float32):
        random = (np.arange(1024, dtype=np.uint32) * 64 + int(chance.integers(64))).astype(np.uint32)
        x = np.full(1024, value, np.float32)
        (d,) = run_instruction(
            f"cvt.rs.{half}x2.f32 %d0, %a0, %a0, %a1;", [x, (random << 16) | (65535 - random)], [np.uint32]
        )
        for shift in (16, 0):
            got = (d >> shift).astype(np.uint16).view(HALVES[half]).astype(np.float64)
            sizes = sorted({abs(float(v)) for v in got})
            exact = abs(float(value))
            assert len(sizes) <= 2
            assert sizes[0] <= exact <= sizes[-1]
            if len(sizes) == 2:
                share = (exact - sizes[0]) / (sizes[1] - sizes[0])
                assert abs(np.mean(np.abs(got) == sizes[1]) - share) <= 1 / 1024 + 1e-9


@pytest.mark.parametrize("lane", NARROW)
def test_four_singles_share_the_random_bits_by_bytes(lane: str) -> None:
    width = ml_dtypes.finfo(NARROW[lane]).bits
    _, bits = register_of(lane)
    chance = np.random.default_rng(5)
    top = float(ml_dtypes.finfo(NARROW[lane]).max)
    values = [np.full(256, v, np.float32) for v in (chance.uniform(-top, top, 4))]
    byte = np.arange(256, dtype=np.uint32)
    random = byte << 24 | (byte * 3 & 255) << 16 | (byte * 5 & 255) << 8 | (byte * 7 & 255)
    register = np.uint16 if lane == "e2m1" else np.uint32
    (d,) = run_instruction(
        f"cvt.rs.satfinite.{lane}x4.f32 %d0, {{%a0, %a1, %a2, %a3}}, %a4;", [*values, random], [register]
    )
    for position, value in enumerate(values):
        code = (d.astype(np.uint32) >> (bits * (3 - position))) & ((1 << width) - 1)
        got = code.astype(np.uint8).view(NARROW[lane]).astype(np.float64)
        exact = Fraction(float(value[0]))
        sizes = sorted({abs(Fraction(float(v))) for v in got})
        assert sizes[0] <= abs(exact) <= sizes[-1]
        assert len(sizes) == 2
        # All 256 bytes occur once: so many of them carry as the dropped part has 256ths.
        part = (abs(exact) - sizes[0]) / (sizes[1] - sizes[0])
        assert int((np.abs(got) == float(sizes[1])).sum()) == int(part * 256)


@pytest.mark.parametrize("to", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
@EXAMPLES
@given(st.integers(0, 2**32 - 1))
def test_saturated_integers_are_packed_above_each_other(to: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    a, b = (chance.integers(-300, 300, 32).astype(np.int32) * chance.integers(1, 400, 32, np.int32) for _ in range(2))
    c = chance.integers(0, 2**32, 32, np.uint32)
    width = int(to[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if to[0] == "s" else (0, (1 << width) - 1)
    rest = ", %a2" if width < 16 else ""
    name = f"cvt.pack.sat.{to}.s32{'.b32' if rest else ''}"
    (d,) = run_instruction(f"{name} %d0, %a0, %a1{rest};", [a, b, c], [np.uint32])
    for k in range(32):
        fields = [min(max(int(v), low), high) & ((1 << width) - 1) for v in (a[k], b[k])]
        want = fields[0] << width | fields[1] | (int(c[k]) << 2 * width if rest else 0)
        assert int(d[k]) == want & 0xFFFFFFFF


@EXAMPLES
@given(st.integers(0, 2**32 - 1))
def test_subnormal_halves_are_flushed(seed: int) -> None:
    chance = np.random.default_rng(seed)
    x, y = (chance.integers(0, 0x0900, 32).astype(np.uint16) | chance.choice([0, 0x8000], 32).astype(np.uint16)
            for _ in range(2))  # fmt: skip

    def flush(v: Array) -> Array:
        return np.where((v & 0x7C00) == 0, v & 0x8000, v).astype(np.uint16)

    (d, p) = run_instruction(
        "add.ftz.f16 %d0, %a0, %a1; setp.lt.ftz.f16 %d1, %a0, %a1;", [x, y], [np.uint16, np.bool_]
    )
    fx, fy = flush(x).view(np.float16), flush(y).view(np.float16)
    assert (d == flush((fx + fy).view(np.uint16))).all()
    assert (p == (fx < fy)).all()


def test_a_quotient_of_a_huge_divisor_is_zero() -> None:
    x = np.array([1, -3, np.inf, np.nan, 1e30, 1, 1, 1], np.float32).repeat(4)
    y = np.array([2.0**127, 2.0**127, 2.0**127, 2.0**127, -3e38, 2.0**126, np.inf, 3], np.float32).repeat(4)
    (d,) = run_instruction("div.approx.f32 %d0, %a0, %a1;", [x, y], [np.float32])
    want = np.array([0, -0.0, np.nan, np.nan, -0.0, 2.0**-126, 0, np.float32(1) / np.float32(3)], np.float32).repeat(4)
    assert np.array_equal(d, want, equal_nan=True)


def test_the_coarse_reciprocal_has_an_empty_lower_half() -> None:
    x = np.array([3.0, -7.0, 1e300, 5e-324, np.inf, 0.1, 2.0, -0.0] * 4)
    (d,) = run_instruction("rcp.approx.ftz.f64 %d0, %a0;", [x], [np.float64])
    (r,) = run_instruction("rsqrt.approx.ftz.f64 %d0, %a0;", [x], [np.float64])
    assert not (d.view(np.uint64) & 0xFFFFFFFF).any()
    assert (d[3::8] == np.inf).all()
    assert (d[7::8] == -np.inf).all()
    finite = np.isin(np.arange(32) % 8, (0, 1, 2, 5, 6))
    assert (np.abs(d[finite] * x[finite] - 1) < 2.0**-18).all()
    positive = np.isin(np.arange(32) % 8, (0, 2, 5, 6))
    assert (np.abs(r[positive] * np.sqrt(x[positive]) - 1) < 2.0**-18).all()
