"""Floating-point instructions against exact fractions, rounded digit by digit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from exact_rounding import BF16, F16, F32, F64, Format, decode, encode
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import run_instruction

LANES = 32
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


def bits_dtype(f: Format) -> str:
    return f"u{f.bits // 8}"


def finite(f: Format) -> st.SearchStrategy[int]:
    """Bit patterns of finite numbers, with many near each other, subnormal, or at powers of two."""
    fraction_bits = f.precision - 1
    top = (1 << (f.bits - 1 - fraction_bits)) - 2
    middle = top // 2
    exponent = st.one_of(
        st.integers(0, top), st.integers(max(0, middle - 3), middle + 3), st.integers(0, 2), st.integers(top - 1, top)
    )
    fraction = st.one_of(
        st.integers(0, (1 << fraction_bits) - 1),
        st.sampled_from([0, 1, (1 << fraction_bits) - 1, 1 << (fraction_bits - 1)]),
    )
    return st.builds(
        lambda s, e, m: s << (f.bits - 1) | e << fraction_bits | m, st.integers(0, 1), exponent, fraction
    )


def lanes(f: Format) -> st.SearchStrategy[list[int]]:
    return st.lists(finite(f), min_size=LANES, max_size=LANES)


def value(pattern: int, f: Format) -> Fraction:
    result = decode(pattern, f)
    assert result is not None
    return result


def sign_of(pattern: int, f: Format) -> int:
    return pattern >> (f.bits - 1)


def expect(got: list[int], want: list[int], f: Format, inputs: Sequence[tuple[int, ...]]) -> None:
    for g, w, row in zip(got, want, inputs, strict=True):
        assert g == w, f"{[hex(v) for v in row]}: got {g:#x}, want {w:#x}"


def zero_sign(mode: str, sign_x: int, sign_y: int) -> int:
    """Sign of an exact zero sum of two terms with these signs (IEEE 754, 6.3)."""
    return sign_x if sign_x == sign_y else int(mode == "rm")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_add_mul_fma_round_once_in_every_mode(name: str, mode: str, data: st.DataObject) -> None:
    f = FORMATS[name]
    x, y, z = (data.draw(lanes(f)) for _ in range(3))
    # Addends that cancel, and addends far below half a unit: where double rounding would show.
    z[:4] = x[:4]
    arrays = [np.array(v, bits_dtype(f)) for v in (x, y, z)]
    text = (
        f"add.{mode}.{name} %d0, %a0, %a1; mul.{mode}.{name} %d1, %a0, %a1; fma.{mode}.{name} %d2, %a0, %a1, %a2;"
        f"sub.{mode}.{name} %d3, %a0, %a1;"
    )
    total, product, fused, difference = (
        [int(v) for v in r] for r in run_instruction(text, arrays, [bits_dtype(f)] * 4)
    )
    rows = list(zip(x, y, z, strict=True))
    sx, sy = [sign_of(v, f) for v in x], [sign_of(v, f) for v in y]
    sz = [sign_of(v, f) for v in z]
    vx, vy, vz = ([value(p, f) for p in v] for v in (x, y, z))
    terms = list(zip(vx, vy, vz, sx, sy, sz, strict=True))
    expect(total, [encode(p + q, f, mode, zero_sign(mode, a, b)) for p, q, _, a, b, _ in terms], f, rows)
    expect(difference, [encode(p - q, f, mode, zero_sign(mode, a, 1 - b)) for p, q, _, a, b, _ in terms], f, rows)
    expect(product, [encode(p * q, f, mode, a ^ b) for p, q, _, a, b, _ in terms], f, rows)
    fmas = [encode(p * q + r, f, mode, zero_sign(mode, a ^ b, c)) for p, q, r, a, b, c in terms]
    expect(fused, fmas, f, rows)


@pytest.mark.parametrize("name", ["f16", "bf16"])
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_half_arithmetic_rounds_once(name: str, data: st.DataObject) -> None:
    f = FORMATS[name]
    x, y, z = (data.draw(lanes(f)) for _ in range(3))
    arrays = [np.array(v, np.uint16) for v in (x, y, z)]
    text = f"add.rn.{name} %d0, %a0, %a1; mul.rn.{name} %d1, %a0, %a1; fma.rn.{name} %d2, %a0, %a1, %a2;"
    total, product, fused = ([int(v) for v in r] for r in run_instruction(text, arrays, [np.uint16] * 3))
    rows = list(zip(x, y, z, strict=True))
    sums, products, fmas = [], [], []
    for row in rows:
        p, q, r = (value(v, f) for v in row)
        a, b, c = (sign_of(v, f) for v in row)
        sums.append(encode(p + q, f, "rn", zero_sign("rn", a, b)))
        products.append(encode(p * q, f, "rn", a ^ b))
        fmas.append(encode(p * q + r, f, "rn", zero_sign("rn", a ^ b, c)))
    expect(total, sums, f, rows)
    expect(product, products, f, rows)
    expect(fused, fmas, f, rows)


@pytest.mark.parametrize("name", ["f16x2", "bf16x2"])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_packed_arithmetic_is_the_scalar_one_on_both_halves(name: str, data: st.DataObject) -> None:
    scalar = name[:-2]
    f = FORMATS[scalar]
    low, high = [[data.draw(lanes(f)) for _ in range(3)] for _ in range(2)]
    packed = [np.array(a, np.uint32) | np.array(b, np.uint32) << 16 for a, b in zip(low, high, strict=True)]
    table = {"add.rn": 2, "mul.rn": 2, "fma.rn": 3, "min": 2, "max.NaN": 2, "neg": 1, "abs": 1, "fma.rn.relu": 3}
    for op, count in table.items():
        operands = ", ".join(f"%a{k}" for k in range(count))
        (both,) = run_instruction(f"{op}.{name} %d0, {operands};", packed[:count], [np.uint32])
        for half, shift in ((low, 0), (high, 16)):
            arrays = [np.array(v, np.uint16) for v in half[:count]]
            (one,) = run_instruction(f"{op}.{scalar} %d0, {operands};", arrays, [np.uint16])
            assert ((both >> shift) & 0xFFFF).tolist() == one.tolist(), op


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f32", "f64"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_div_rcp_sqrt_round_once(name: str, mode: str, data: st.DataObject) -> None:
    f = FORMATS[name]
    # Within the range where no result is subnormal, so that one exact comparison decides.
    bias = f.greatest_exponent
    fraction = st.integers(0, (1 << (f.precision - 1)) - 1)
    narrow = st.builds(lambda e, m: (bias + e) << (f.precision - 1) | m, st.integers(-20, 20), fraction)
    x, y = (data.draw(st.lists(narrow, min_size=LANES, max_size=LANES)) for _ in range(2))
    arrays = [np.array(v, bits_dtype(f)) for v in (x, y)]
    text = f"div.{mode}.{name} %d0, %a0, %a1; rcp.{mode}.{name} %d1, %a0; sqrt.{mode}.{name} %d2, %a0;"
    quotient, reciprocal, root = ([int(v) for v in r] for r in run_instruction(text, arrays, [bits_dtype(f)] * 3))
    rows = list(zip(x, y, strict=True))
    vx, vy = ([value(p, f) for p in v] for v in (x, y))
    expect(quotient, [encode(p / q, f, mode) for p, q in zip(vx, vy, strict=True)], f, rows)
    expect(reciprocal, [encode(1 / p, f, mode) for p in vx], f, rows)
    expect(root, [encode(square_root(p), f, mode) for p in vx], f, rows)


def square_root(x: Fraction) -> Fraction:
    """The root to 200 bits, and one more bit set where it is not exact."""
    scale = 1 << 400
    number = x * scale
    whole = math.isqrt(number.numerator // number.denominator)
    exact = Fraction(whole * whole) == number
    return Fraction(2 * whole + (0 if exact else 1), 2 * (1 << 200))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_fma_of_f32_near_halfway_sums(data: st.DataObject) -> None:
    """c is a number whose half unit is reached by the product, give or take the smallest amount."""
    a = data.draw(st.lists(st.integers(1 << 23, (1 << 24) - 1), min_size=LANES, max_size=LANES))
    x = np.array([v * 2.0**-23 for v in a], np.float32)
    y = np.array([2.0**-24 * (1 + (k % 3 - 1) * 2.0**-23) for k in range(LANES)], np.float32)
    z = np.array([1.0 + 2.0 * k * 2.0**-23 for k in range(LANES)], np.float32)
    (got,) = run_instruction("fma.rn.f32 %d0, %a0, %a1, %a2;", [x, y, z], [np.float32])
    for k in range(LANES):
        want = encode(Fraction(float(x[k])) * Fraction(float(y[k])) + Fraction(float(z[k])), F32, "rn")
        assert int(got[k : k + 1].view(np.uint32)[0]) == want


FLOAT_TO_FLOAT = [
    ("f16", "f32", "rn"), ("f16", "f32", "rz"), ("bf16", "f32", "rn"), ("bf16", "f32", "rz"), ("f32", "f64", "rn"),
    ("f32", "f64", "rz"), ("f32", "f64", "rm"), ("f32", "f64", "rp"), ("f16", "f64", "rn"),
]  # fmt: skip


@pytest.mark.parametrize(("to", "name", "mode"), FLOAT_TO_FLOAT)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_narrowing_cvt_rounds_once(to: str, name: str, mode: str, data: st.DataObject) -> None:
    f, g = FORMATS[name], FORMATS[to]
    x = data.draw(lanes(f))
    (got,) = run_instruction(f"cvt.{mode}.{to}.{name} %d0, %a0;", [np.array(x, bits_dtype(f))], [bits_dtype(g)])
    want = [encode(value(p, f), g, mode, sign_of(p, f)) for p in x]
    expect([int(v) for v in got], want, g, [(p,) for p in x])


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_widening_cvt_is_exact(name: str) -> None:
    f = FORMATS[name]
    patterns = np.arange(0, 1 << f.bits, 1 << (f.bits - 7), dtype=np.uint64)
    x = patterns.astype(bits_dtype(f))
    for to in ("f32", "f64"):
        if to == name:
            continue
        (got,) = run_instruction(f"cvt.{to}.{name} %d0, %a0;", [x], [NUMPY[to]])
        want = x.view(NUMPY[name]).astype(NUMPY[to])
        np.testing.assert_array_equal(got, want)


INTEGERS = [("s8", 8), ("u8", 8), ("s16", 16), ("u16", 16), ("s32", 32), ("u32", 32), ("s64", 64), ("u64", 64)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "bits"), INTEGERS)
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_float_to_integer_rounds_and_clamps(name: str, bits: int, data: st.DataObject) -> None:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)
    x = data.draw(lanes(F32))
    x[:6] = [int(np.array([v], np.float32).view(np.uint32)[0]) for v in (0.5, 1.5, -0.5, -2.5, 2.0**31, -(2.0**63))]
    width = max(bits, 16)
    for mode in ("rni", "rzi", "rmi", "rpi"):
        (got,) = run_instruction(f"cvt.{mode}.{name}.f32 %d0, %a0;", [np.array(x, np.uint32)], [f"u{width // 8}"])
        for pattern, result in zip(x, got, strict=True):
            exact = value(pattern, F32)
            rounding: dict[str, Callable[[Fraction], int]] = {
                "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil
            }  # fmt: skip
            whole = rounding[mode](exact)
            assert int(result) == max(low, min(high, whole)) & ((1 << width) - 1)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_integer_to_float_rounds_once(data: st.DataObject) -> None:
    wide = st.one_of(st.integers(0, 2**64 - 1), st.integers(2**53 - 4, 2**53 + 4), st.integers(2**24 - 3, 2**24 + 3),
                     st.builds(lambda a, b: (1 << a) + b, st.integers(25, 62), st.integers(-2, 2)))  # fmt: skip
    x = data.draw(st.lists(wide, min_size=LANES, max_size=LANES))
    array = np.array(x, np.uint64)
    for to, f in (("f32", F32), ("f64", F64), ("f16", F16)):
        for mode in ("rn", "rz", "rm", "rp"):
            for kind in "us":
                (got,) = run_instruction(f"cvt.{mode}.{to}.{kind}64 %d0, %a0;", [array], [bits_dtype(f)])
                for source, result in zip(x, got, strict=True):
                    exact = source - (1 << 64) if kind == "s" and source >> 63 else source
                    assert int(result) == encode(Fraction(exact), f, mode), (to, mode, kind, source)


def test_the_first_source_of_a_packing_cvt_is_the_upper_half() -> None:
    x = np.arange(32, dtype=np.float32)
    y = np.arange(32, dtype=np.float32) + 100
    for name, dtype in (("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)):
        (got,) = run_instruction(f"cvt.rn.{name}.f32 %d0, %a0, %a1;", [x, y], [np.uint32])
        pairs = got.view(dtype).reshape(32, 2).astype(np.float32)
        np.testing.assert_array_equal(pairs[:, 1], x)
        np.testing.assert_array_equal(pairs[:, 0], y)


@pytest.mark.parametrize("name", ["e4m3x2", "e5m2x2"])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_fp8_conversions_agree_with_nearest_even_and_saturate(name: str, data: st.DataObject) -> None:
    dtype = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}[name]
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    codes = {float(v): k for k, v in enumerate(every) if np.isfinite(v)}
    ordered = sorted(codes)
    limit = ordered[-1]
    x = data.draw(st.lists(st.floats(-2 * limit, 2 * limit, width=32), min_size=LANES, max_size=LANES))
    (got,) = run_instruction(f"cvt.rn.satfinite.{name}.f32 %d0, %a0, %a0;", [np.array(x, np.float32)], [np.uint16])
    for source, result in zip(x, got, strict=True):
        assert int(result) >> 8 == int(result) & 255
        rounded = float(every[int(result) & 255])
        best = min(abs(v - max(-limit, min(limit, source))) for v in ordered)
        assert abs(rounded - max(-limit, min(limit, source))) == best
    (back,) = run_instruction(f"cvt.rn.f16x2.{name} %d0, %a0;", [np.arange(128, dtype=np.uint16) * 257], [np.uint32])
    np.testing.assert_array_equal((back & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64), every[:128])


def test_tf32_conversion_rounds_half_away_from_zero() -> None:
    half = 2.0**-11
    x = np.array([1.0, 1.0 + half, 1.0 + 3 * half, -1.0 - half, 1.0 + half / 2, np.inf, np.nan, 0.0] * 4, np.float32)
    (got,) = run_instruction("cvt.rna.tf32.f32 %d0, %a0;", [x], [np.float32])
    want = np.array([1.0, 1.0 + 2.0**-10, 1.0 + 2.0**-9, -1.0 - 2.0**-10, 1.0, np.inf, np.nan, 0.0] * 4, np.float32)
    np.testing.assert_array_equal(got, want)


def test_min_and_max_follow_ptx_on_nan_and_signed_zero() -> None:
    nan = np.float32(np.nan)
    x = np.array([nan, 1, nan, 0.0, -0.0, 3, -np.inf, 2] * 4, np.float32)
    y = np.array([1, nan, nan, -0.0, 0.0, -3, 5, 2] * 4, np.float32)
    low, high, low_nan = run_instruction(
        "min.f32 %d0, %a0, %a1; max.f32 %d1, %a0, %a1; min.NaN.f32 %d2, %a0, %a1;", [x, y], [np.float32] * 3
    )
    np.testing.assert_array_equal(low[:8], [1, 1, nan, -0.0, -0.0, -3, -np.inf, 2])
    np.testing.assert_array_equal(high[:8], [1, 1, nan, 0.0, 0.0, 3, 5, 2])
    assert np.signbit(low[3:5]).all()
    assert not np.signbit(high[3:5]).any()
    assert np.isnan(low_nan[:3]).all()
    assert low_nan.view(np.uint32)[0] == 0x7FFFFFFF


def test_ftz_sat_and_relu() -> None:
    tiny = np.float32(1e-40)
    x = np.array([tiny, -tiny, 0.5, 2.0, -1.0, np.nan, 1.0, 0.0] * 4, np.float32)
    one = np.ones(32, np.float32)
    flushed, kept, clamped = run_instruction(
        "mul.ftz.f32 %d0, %a0, %a1; mul.f32 %d1, %a0, %a1; mul.sat.f32 %d2, %a0, %a1;", [x, one], [np.float32] * 3
    )
    assert flushed[:2].tolist() == [0.0, 0.0]
    assert np.signbit(flushed[1])
    np.testing.assert_array_equal(kept, x)
    np.testing.assert_array_equal(clamped[:8], np.array([tiny, 0, 0.5, 1, 0, 0, 1, 0], np.float32))
    (relu,) = run_instruction(
        "{ .reg .b32 %z, %o; mov.b32 %z, 0; mov.b32 %o, 0x3C003C00; fma.rn.relu.f16x2 %d0, %a0, %o, %z; }",
        [np.array([0xBC003C00, 0x40004000] * 16, np.uint32)], [np.uint32],
    )  # fmt: skip
    assert relu[:2].tolist() == [0x00003C00, 0x40004000]


FUNCTIONS = [
    ("ex2.approx.f32", np.exp2, -100.0, 100.0, 1e-6), ("lg2.approx.f32", np.log2, 1e-3, 1e5, 1e-6),
    ("sin.approx.f32", np.sin, -3.0, 3.0, 1e-6), ("cos.approx.f32", np.cos, -3.0, 3.0, 1e-6),
    ("tanh.approx.f32", np.tanh, -5.0, 5.0, 1e-6), ("rsqrt.approx.f32", lambda v: 1 / np.sqrt(v), 1e-5, 1e5, 1e-6),
    ("rcp.approx.ftz.f32", lambda v: 1 / v, 1e-5, 1e5, 1e-6), ("sqrt.approx.f32", np.sqrt, 0.0, 1e8, 1e-6),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "low", "high", "error"), FUNCTIONS, ids=[row[0] for row in FUNCTIONS])
def test_functions_lie_within_the_error_of_ptx(name, function, low, high, error) -> None:  # type: ignore[no-untyped-def]
    x = np.random.default_rng(3).uniform(low, high, 128).astype(np.float32)
    (got,) = run_instruction(f"{name} %d0, %a0;", [x], [np.float32])
    want = function(x.astype(np.float64))
    assert (np.abs(got - want) <= error * np.maximum(np.abs(want), 1e-3)).all()


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_float_comparisons_are_ordered_or_not_as_named(data: st.DataObject) -> None:
    numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, float("nan"), float("inf"), 1.0]))
    x, y = (data.draw(st.lists(numbers, min_size=LANES, max_size=LANES)) for _ in range(2))
    y[:8] = x[:8]
    arrays = [np.array(x, np.float32), np.array(y, np.float32)]
    ordered = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
    for name, symbol in ordered.items():
        plain, unordered = run_instruction(
            f"setp.{name}.f32 %d0, %a0, %a1; setp.{name}u.f32 %d1, %a0, %a1;", arrays, [np.bool_, np.bool_]
        )
        for k, (p, q) in enumerate(zip(x, y, strict=True)):
            nan = math.isnan(p) or math.isnan(q)
            holds = eval(f"p {symbol} q", {"p": p, "q": q})
            assert bool(plain[k]) == (holds and not nan)
            assert bool(unordered[k]) == (holds or nan)
    number, not_a_number = run_instruction(
        "setp.num.f32 %d0, %a0, %a1; setp.nan.f32 %d1, %a0, %a1;", arrays, [np.bool_, np.bool_]
    )
    for k, (p, q) in enumerate(zip(x, y, strict=True)):
        nan = math.isnan(p) or math.isnan(q)
        assert (bool(number[k]), bool(not_a_number[k])) == (not nan, nan)
