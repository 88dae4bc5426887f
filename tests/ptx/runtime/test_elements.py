"""Element types by hand against the NumPy types that ml_dtypes brings: values, rounding and order."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.ptx.runtime.elements import ELEMENTS, Element, element

# signalling NaNs become quiet ones
pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow):RuntimeWarning")
FLOATS = [e for e in ELEMENTS if e.is_float and e.name not in ("tf32",)]
NARROW = [e for e in FLOATS if e.bits <= 16]


def every_code(e: Element) -> np.ndarray:
    return np.arange(1 << e.bits, dtype=np.int64).astype(e.storage)


@pytest.mark.parametrize("e", ELEMENTS, ids=str)
def test_facts_agree_with_the_language(e: Element) -> None:
    other = dtype(e.name)
    assert (e.bits, e.kind) == (other.bits, other.kind)
    if e.is_float and e.name != "tf32":
        assert (e.mantissa, e.exponent) == (other.mantissa, other.exponent)
    assert e.storage.itemsize == other.numpy.itemsize


@pytest.mark.parametrize("e", NARROW, ids=lambda e: e.name)
def test_every_code_decodes_to_the_value_that_ml_dtypes_gives(e: Element) -> None:
    codes = every_code(e)
    expected = codes.view(dtype(e.name).numpy).astype(np.float64)
    np.testing.assert_array_equal(e.decode(codes).astype(np.float64), expected)


@pytest.mark.parametrize("e", NARROW, ids=lambda e: e.name)
def test_every_value_encodes_to_its_own_code(e: Element) -> None:
    codes = every_code(e)
    values = e.decode(codes).astype(np.float64)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(e.encode(values)[numbers], codes[numbers])
    assert np.isnan(e.decode(e.encode(values[~numbers])).astype(np.float64)).all()


@given(
    st.sampled_from(FLOATS),
    st.lists(st.floats(width=32), min_size=1, max_size=20),
)
@example(element("e2m1"), [float("nan")])
def test_rounding_agrees_with_ml_dtypes(e: Element, numbers: list[float]) -> None:
    values = np.array(numbers, dtype=np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(dtype(e.name).numpy).astype(np.float64)
    if e.bits == 4:  # it has no NaN: cvt makes the largest of it, ml_dtypes a zero
        expected[np.isnan(values)] = 6.0
    for given_ in (values, values.astype(np.float64)):
        np.testing.assert_array_equal(e.decode(e.encode(given_)).astype(np.float64), expected)


@given(st.sampled_from([e for e in NARROW if e.name != "f16"]), st.floats(-1e3, 1e3))
def test_rounding_of_doubles_is_to_the_nearest_ties_to_even(e: Element, value: float) -> None:
    """One rounding, not two: the neighbours of every double are looked through."""
    if abs(value) > 400:
        value /= 4
    codes = every_code(e)
    numbers = e.decode(codes).astype(np.float64)
    finite = np.isfinite(numbers)
    distance = np.abs(numbers - value)
    nearest = distance[finite].min()
    candidates = codes[finite & (distance == nearest)]
    got = e.encode(np.array([value]))[0]
    assert got in candidates
    if len({float(abs(v)) for v in e.decode(candidates)}) > 1:
        assert got % 2 == 0


@given(st.sampled_from(ELEMENTS), st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=30))
def test_keys_are_in_the_order_of_values_and_come_back(e: Element, numbers: list[int]) -> None:
    bits = np.array([n % (1 << e.bits) for n in numbers], dtype=e.storage)
    keys = e.keys(bits)
    np.testing.assert_array_equal(e.bits_of(keys), bits)
    values = e.decode(bits).astype(np.float64)
    for i in range(len(bits)):
        for j in range(len(bits)):
            if values[i] < values[j]:
                assert keys[i] < keys[j]


def test_an_unknown_type_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError) as error:
        element("ue8m0")
    assert str(error.value) == (
        "there is no element type 'ue8m0' at run time; there are f64, f32, tf32, f16, bf16, e4m3, e5m2, s32, u32, s8, "
        "u8, s4, u4, e2m3, e3m2, e2m1"
    )
