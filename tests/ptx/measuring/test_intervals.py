"""Intervals of right results: their ends against a search through every element; the kernel that compares with them."""

import numpy as np
import pytest
from fake_cuda import FakeCuda
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinygpu.ptx.bounds.answers import Answer
from tinygpu.ptx.bounds.stored import ends, stored
from tinygpu.ptx.measuring.comparer import Comparer, comparing_ptx
from tinygpu.ptx.measuring.intervals import GUARD_ELEMS, intervals
from tinygpu.ptx.runtime.calls import Driver
from tinygpu.ptx.runtime.context import open_context
from tinygpu.ptx.runtime.elements import ELEMENTS, Element, element
from tinygpu.ptx.runtime.launch import Tensor

# signalling NaNs become quiet ones
pytestmark = pytest.mark.filterwarnings("ignore:(invalid|overflow):RuntimeWarning")
NARROW = [e for e in ELEMENTS if e.bits <= 16]
# Of results in types of 4 bits a GPU compares none: bundles take no such outputs.
COMPARED = [e for e in ELEMENTS if e.bits % 8 == 0]
numbers = st.floats(-200, 200) | st.integers(-127, 127).map(float) | st.sampled_from([0.0, -0.0, 1e-8])


def answer(*values: float) -> Answer:
    value, low, high = (np.array([v]) for v in (values * 3 if len(values) == 1 else values))
    return Answer(value, low, high)


@given(st.sampled_from(NARROW), numbers, st.floats(0, 64), st.floats(0, 64))
def test_ends_hold_exactly_what_rounding_makes_of_what_lies_between(
    e: Element, want: float, below: float, above: float
) -> None:
    low, high = ends(e, answer(want, want - below, want + above), (1,))
    codes = np.arange(1 << e.bits, dtype=np.int64).astype(e.storage)
    values = e.decode(codes).astype(np.float64)
    # a number between the ends that rounds to each element, or an end itself
    between = np.concatenate([np.clip(values[np.isfinite(values)], want - below, want + above), [want]])
    right = set(stored(e, between).tolist())
    keys = e.keys(codes)
    inside = (keys >= e.keys(low)[0]) & (keys <= e.keys(high)[0])
    # the sign of a zero is not compared
    zeros = set(codes[values == 0].tolist())
    assert set(codes[inside].tolist()) - zeros == right - zeros
    assert zeros <= set(codes[inside].tolist()) or not zeros & (right | set(codes[inside].tolist()))


@given(st.sampled_from(NARROW), st.integers(-15, 15))
def test_without_error_one_value_is_right(e: Element, want: int) -> None:
    want = abs(want) if e.kind == "unsigned" else want
    assume(e.bits >= 8 or want in e.decode(np.arange(1 << e.bits).astype(e.storage)))
    low, high = ends(e, answer(float(want)), (1,))
    codes = np.arange(1 << e.bits, dtype=np.int64).astype(e.storage)
    keys = e.keys(codes)
    inside = e.decode(codes[(keys >= e.keys(low)[0]) & (keys <= e.keys(high)[0])])
    assert set(inside.tolist()) == set(e.decode(e.encode(np.array([float(want)]))).tolist())
    assert len(inside) == (2 if e.is_float and want == 0 else 1)


@pytest.mark.parametrize("e", [e for e in COMPARED if e.is_float], ids=lambda e: e.name)
def test_what_is_not_a_number_must_be_none(e: Element) -> None:
    low, high = ends(e, answer(np.nan), (1,))
    assert np.isnan(e.decode(low)).all()
    assert np.isnan(e.decode(high)).all()
    assert e.keys(low)[0] <= e.keys(high)[0]
    if e.bits > 8:
        least, most = ends(e, answer(np.inf), (1,))
        assert e.decode(least)[0] == e.decode(most)[0] == np.inf


@pytest.mark.parametrize(("name", "largest"), [("e4m3", 448.0), ("e5m2", 57344.0), ("s8", 127.0), ("u8", 255.0)])
def test_narrow_results_saturate(name: str, largest: float) -> None:
    """PTX ISA, cvt: .satfinite is the only form for 8-bit floats, and integers are clamped; e5m2 has infinities, which
    stay where nothing is converted.
    """
    e = element(name)
    for value in (largest, 1.5 * largest, 1e30, np.inf):
        least, greatest = (e.decode(end)[0] for end in ends(e, answer(value), (1,)))
        moved = name == "e5m2" and value == np.inf
        assert (least, greatest) == (largest, np.inf if moved else largest)


def test_where_anything_is_right_a_number_and_a_nan_are() -> None:
    e = element("f32")
    low, high = ends(e, answer(1.0, -np.inf, np.inf), (1,))
    keys = e.keys(np.array([-np.inf, 0, np.inf, np.nan], np.float32).view(np.uint32))
    assert ((keys >= e.keys(low)) & (keys <= e.keys(high))).all()


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Element, np.ndarray, np.ndarray, np.ndarray]:
    e = draw(st.sampled_from(COMPARED))
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


@pytest.mark.parametrize("e", COMPARED, ids=lambda e: e.name)
def test_the_assembler_takes_the_comparing_kernel(e: Element) -> None:
    from tinygpu.ptx.assembling.assembler import assemble

    assert not assemble(comparing_ptx(e), "sm_90").spills
    assert not assemble(comparing_ptx(e), "sm_120").spills


def test_gaps_and_the_guard_behind_the_end_must_stay_poisoned() -> None:
    tensor = Tensor("c", "f16", (3, 5), (8, 1), 16, "out")
    expected = np.arange(15.0).reshape(3, 5)
    low, high = intervals(tensor, Answer(expected, expected, expected))
    assert low.shape == high.shape == (2 * 8 + 5 + GUARD_ELEMS,)
    gaps = np.ones(len(low), dtype=bool)
    gaps[:21].reshape(-1)[[8 * r + c for r in range(3) for c in range(5)]] = False
    assert (low[gaps] == 0xFFFF).all()
    assert (high[gaps] == 0xFFFF).all()
    assert low[~gaps].view(np.float16)[1:].tolist() == list(range(1, 15))


