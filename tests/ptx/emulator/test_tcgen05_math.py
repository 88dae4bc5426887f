"""Numbers of tcgen05.mma: containers against ml_dtypes, exact small integers, accumulators and their scaling."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS
from tinygpu.ptx.emulator.units.tcgen05_math import (
    accumulate,
    accumulator_values,
    decode_rows,
    expand_copy,
    expand_sparse,
    multiply,
    slice_bytes,
    stored_bits,
)

FORMATS: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn, "e3m2": ml_dtypes.float6_e3m2fn, "e2m1": ml_dtypes.float4_e2m1fn,
    "u8": np.uint8, "s8": np.int8,
}  # fmt: skip
BITS = {"e2m3": 6, "e3m2": 6, "e2m1": 4}
seeds = st.integers(0, 2**32 - 1)


def stored(codes: list[int], kind: str, element: str, in_tmem: bool) -> bytes:
    """Sixteen elements as the manual stores them, by string arithmetic on bits."""
    bits = BITS.get(element)
    if bits is None:
        width = 2 if element in ("f16", "bf16") else 1
        return b"".join(c.to_bytes(width, "little") for c in codes)
    if kind in ("mxf4", "mxf4nvf4"):
        return bytes(codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2))
    if in_tmem:
        return bytes(c << 2 if bits == 4 else c << 1 for c in codes)
    result = b""
    for start in range(0, len(codes), 16):
        number = sum(c << bits * i for i, c in enumerate(codes[start : start + 16]))
        result += number.to_bytes(16, "little")
    return result


@pytest.mark.parametrize("in_tmem", [False, True])
@pytest.mark.parametrize(("kind", "element"), [(k.name, t) for k in KINDS.values() for t in k.types.values()])
def test_every_code_is_decoded_from_its_container(kind: str, element: str, in_tmem: bool) -> None:
    if element == "tf32":
        words = np.random.default_rng(3).integers(0, 2**32, 64, dtype=np.uint32)
        words = np.where(words >> 23 & 255 == 255, words & 0xFF7FFFFF, words).astype(np.uint32)
        found = decode_rows(words.view(np.uint8)[None], kind, element, in_tmem)[0]
        assert (found == (words & 0xFFFFE000).view(np.float32)).all()
        return
    width = BITS.get(element, 16 if element in ("f16", "bf16") else 8)
    count = 1 << width
    codes = list(range(count)) if count >= 32 else list(range(count)) * 2
    raw = np.frombuffer(stored(codes, kind, element, in_tmem), np.uint8)
    assert raw.size == slice_bytes(kind, element, len(codes))
    assert stored_bits(kind, element) == raw.size * 8 // len(codes)
    found = decode_rows(raw[None], kind, element, in_tmem)[0]
    bytes_per = 2 if width == 16 else 1
    with np.errstate(invalid="ignore"):
        wanted = np.array(codes, f"u{bytes_per}").view(FORMATS[element]).astype(np.float64)
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize(("source", "element"), [("b6x16_p32", "e2m3"), ("b6x16_p32", "e3m2"), ("b4x16_p64", "e2m1")])
def test_a_copy_that_decompresses_writes_the_containers_of_tensor_memory(source: str, element: str) -> None:
    codes = list(np.random.default_rng(7).integers(0, 1 << BITS[element], 64))
    shared = np.frombuffer(stored([int(c) for c in codes], "f8f6f4", element, False), np.uint8).reshape(2, 32)
    expanded = expand_copy(shared, source)
    assert expanded.tobytes() == stored([int(c) for c in codes], "f8f6f4", element, True)
    assert np.array_equal(
        decode_rows(shared, "f8f6f4", element), decode_rows(expanded, "f8f6f4", element, in_tmem=True)
    )


@settings(max_examples=40, deadline=None)
@given(seeds, st.sampled_from(["f32", "f16", "s32"]), st.booleans())
def test_small_integers_are_exact(seed: int, d_type: str, keep: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-4, 5, (8, 32)), rng.integers(-3, 4, (16, 32))
    old = rng.integers(-500, 500, (8, 16))
    words = accumulate(old.astype(np.float64), None, d_type)
    found = accumulate(multiply(a.astype(float), b.astype(float)), words if keep else None, d_type)
    assert found.dtype == np.uint32
    assert (accumulator_values(found, d_type) == a @ b.T + (old if keep else 0)).all()
    if d_type == "f16":
        assert (found >> 16 == 0).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 15), st.floats(-(2.0**90), 2.0**90))
def test_the_old_accumulator_is_scaled_by_a_power_of_two(old: float, s: int, product: float) -> None:
    words = np.array([old], np.float32).view(np.uint32)
    found = accumulate(np.array([product]), words, "f32", s)
    with np.errstate(over="ignore"):
        assert found.view(np.float32)[0] == np.float64(product + old / 2**s).astype(np.float32)


def test_integer_accumulators_wrap_or_saturate() -> None:
    old = np.array([2**31 - 5, -(2**31) + 5], np.int32).view(np.uint32)
    product = np.array([10.0, -10.0])
    assert accumulate(product, old, "s32").view(np.int32).tolist() == [-(2**31) + 5, 2**31 - 5]
    assert accumulate(product, old, "s32", saturate=True).view(np.int32).tolist() == [2**31 - 1, -(2**31)]


def test_sums_round_once_into_the_accumulator() -> None:
    """1 + 2^-24 + 2^-24 is more than half a step above 1 in binary32; rounding after each addition would lose both."""
    small = 2.0**-12
    product = multiply(np.array([[1.0, small, small]]), np.array([[1.0, small, small]]))
    assert accumulate(product, None, "f32").view(np.float32)[0, 0] == np.float32(1 + 2.0**-23)


def test_unknown_accumulators_are_refused() -> None:
    with pytest.raises(ValueError) as caught:
        accumulate(np.zeros(1), None, "bf16")
    assert str(caught.value) == "accumulators are f32, f16 or s32, not bf16"


@settings(max_examples=30, deadline=None)
@given(seeds)
def test_sparse_rows_have_their_elements_at_the_positions_given(seed: int) -> None:
    rng = np.random.default_rng(seed)
    positions = np.stack([np.sort(rng.permutation(16)[:8]) for _ in range(4)])
    values = rng.integers(1, 9, (4, 8)).astype(np.float64)
    dense = expand_sparse(values, positions, 16)
    for row in range(4):
        assert {i: v for i, v in enumerate(dense[row]) if v} == dict(zip(positions[row], values[row], strict=True))
