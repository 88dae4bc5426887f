"""Intervals of right results: their ends against a search through every element; the kernel that compares with them."""

import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.measuring.comparer import Comparer, comparing_ptx
from tinygpu.ptx.measuring.intervals import GUARD_ELEMS, Rounding, interval, intervals
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.elements import ELEMENTS, Element
from tinygpu.ptx.runtime.launch import Tensor

# signalling NaNs become quiet ones
pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow):RuntimeWarning")
NARROW = [e for e in ELEMENTS if e.bits <= 16]
numbers = st.floats(-200, 200) | st.integers(-127, 127).map(float) | st.sampled_from([0.0, -0.0, 1e-8])


@given(st.sampled_from(NARROW), numbers, st.integers(0, 64), st.sampled_from([0.0, 2.0**-10, 0.1]))
def test_an_interval_holds_exactly_what_is_within_the_bound(e: Element, want: float, terms: int, off: float) -> None:
    if not e.is_float:
        want = float(np.clip(round(want), 0 if e.kind == "unsigned" else -128, 127))
    if e.name == "e4m3":
        want = float(np.clip(want, -100, 100))
    rounding = Rounding(False, terms, off)
    expected, magnitude = np.array([want]), np.array([abs(want)])
    low, high = interval(e, expected, magnitude, rounding)
    codes = np.arange(1 << e.bits, dtype=np.int64).astype(e.storage)
    values = e.decode(codes).astype(np.float64)
    bound = rounding.bound(e, expected, magnitude)[0]
    nearest = e.encode(expected)[0]
    with np.errstate(invalid="ignore"):
        right = (np.abs(values - want) <= bound) | (codes == nearest)
    keys = e.keys(codes)
    inside = (keys >= e.keys(low)[0]) & (keys <= e.keys(high)[0])
    # the sign of a zero is not compared
    assert set(codes[inside & (values != 0)]) == set(codes[right & (values != 0)])
    assert len(set(inside[values == 0])) == 1
    assert inside[values == 0].all() == right[values == 0].any()


@given(st.sampled_from(NARROW), st.integers(-15, 15))
def test_an_exact_interval_holds_one_value(e: Element, want: int) -> None:
    want = abs(want) if e.kind == "unsigned" else want
    low, high = interval(e, np.array([float(want)]), np.array([float(abs(want))]), Rounding(True, 1, 0.0))
    codes = np.arange(1 << e.bits, dtype=np.int64).astype(e.storage)
    keys = e.keys(codes)
    inside = e.decode(codes[(keys >= e.keys(low)[0]) & (keys <= e.keys(high)[0])])
    assert set(inside.tolist()) == set(e.decode(e.encode(np.array([float(want)]))).tolist())
    assert len(inside) == (2 if e.is_float and want == 0 else 1)


@pytest.mark.parametrize("e", [e for e in ELEMENTS if e.is_float], ids=lambda e: e.name)
def test_what_is_not_a_number_must_be_none(e: Element) -> None:
    low, high = interval(e, np.array([np.nan]), np.array([1.0]), Rounding(True, 1, 0.0))
    assert np.isnan(e.decode(low)).all()
    assert np.isnan(e.decode(high)).all()
    assert e.keys(low)[0] <= e.keys(high)[0]
    if e.infinities:
        least, most = interval(e, np.array([np.inf]), np.array([np.inf]), Rounding(False, 1, 0.0))
        assert e.decode(least)[0] == e.decode(most)[0] == np.inf


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Element, np.ndarray, np.ndarray, np.ndarray]:
    e = draw(st.sampled_from(ELEMENTS))
    count = draw(st.integers(1, 600))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    low, high = (rng.integers(0, 1 << 63, count, dtype=np.uint64).astype(e.storage) for _ in range(2))
    keys = np.sort(np.stack([e.keys(low), e.keys(high)]), axis=0)
    got = e.bits_of(rng.integers(0, 1 << 63, count, dtype=np.uint64).astype(e.storage))
    inside = rng.random(count) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    return e, np.where(inside, e.bits_of(keys[0]), got), e.bits_of(keys[0]), e.bits_of(keys[1])


@settings(max_examples=25)
@given(arrays())
def test_the_kernel_counts_what_lies_outside(case: tuple[Element, np.ndarray, np.ndarray, np.ndarray]) -> None:
    e, got, low, high = case
    context = open_context(Driver(FakeCuda()))
    comparer = Comparer(context)
    memories = [context.allocate(a.nbytes) for a in (got, low, high)]
    for memory, array in zip(memories, (got, low, high), strict=True):
        memory.write(array)
    found = comparer.outside(e, *[m.address for m in memories], len(got))
    keys = [e.keys(a) for a in (got, low, high)]
    outside = (keys[0] < keys[1]) | (keys[0] > keys[2])
    assert found.count == outside.sum()
    assert found.first == (int(np.argmax(outside)) if outside.any() else -1)


@pytest.mark.parametrize("e", ELEMENTS, ids=lambda e: e.name)
def test_the_assembler_takes_the_comparing_kernel(e: Element) -> None:
    from tinygpu.ptx.assembler import assemble

    assert not assemble(comparing_ptx(e), "sm_90").spills
    assert not assemble(comparing_ptx(e), "sm_120").spills


def test_gaps_and_the_guard_behind_the_end_must_stay_poisoned() -> None:
    tensor = Tensor("c", "f16", (3, 5), (8, 1), 16, "out")
    expected = np.arange(15.0).reshape(3, 5)
    low, high = intervals(tensor, expected, expected, Rounding(True, 1, 0.0))
    assert low.shape == high.shape == (2 * 8 + 5 + GUARD_ELEMS,)
    gaps = np.ones(len(low), dtype=bool)
    gaps[:21].reshape(-1)[[8 * r + c for r in range(3) for c in range(5)]] = False
    assert (low[gaps] == 0xFFFF).all()
    assert (high[gaps] == 0xFFFF).all()
    assert low[~gaps].view(np.float16)[1:].tolist() == list(range(1, 15))


