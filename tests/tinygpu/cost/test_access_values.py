"""Accesses: the closed form that an access picks equals the count by definition; vectors are as wide as is legal."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.cost.access import Access, Lanes, LinearLanes, ListedLanes, StridedLanes, recognise
from tinygpu.cost.vectors import linear_vector, strided_vector
from tinygpu.layouts.f2 import images


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    memory = draw(st.sampled_from(("smem", "gmem")))
    kind = draw(st.sampled_from(("ldst", "ldmatrix"))) if memory == "smem" else "ldst"
    width = 16 if kind == "ldmatrix" else draw(st.sampled_from((1, 2, 4, 8, 16)))
    lane_bits = draw(st.sampled_from((3, 4, 5))) if kind == "ldmatrix" else 5
    unit = st.integers(0, 300).map(lambda n: n * width)
    lanes: Lanes
    form = draw(st.sampled_from(("linear", "one stride", "strides", "powers", "listed")))
    if form == "linear":
        columns = draw(st.lists(unit, min_size=lane_bits, max_size=lane_bits))
        lanes = LinearLanes(tuple(columns), draw(unit), draw(unit))
    elif form == "one stride":
        stride = draw(st.integers(-90, 90)) * width
        lanes = StridedLanes((1 << lane_bits,), (stride,), 90 * width * 32 + draw(unit))
    elif form == "strides":
        inner = draw(st.integers(0, lane_bits))
        lanes = StridedLanes((1 << inner, 1 << (lane_bits - inner)), (draw(unit), draw(unit)), draw(unit))
    elif form == "powers":
        inner = draw(st.integers(1, lane_bits - 1))
        first = width << draw(st.integers(0, 5))
        lanes = StridedLanes((1 << inner, 1 << (lane_bits - inner)), (first, first << inner + 1), draw(unit))
    else:
        count = 1 << lane_bits
        least = 0 if draw(st.booleans()) else -1
        units = draw(st.lists(st.integers(least, 200), min_size=count, max_size=count))
        lanes = ListedLanes(tuple(n * width if n >= 0 else -1 for n in units))
    return Access("it", lanes, width, memory, kind)


@given(accesses())
@settings(max_examples=400)
def test_cost_equals_the_count_by_definition(access: Access) -> None:
    cost = access.cost()
    assert cost.count == access.counted()
    assert cost.ideal <= cost.count
    assert 0 < cost.efficiency <= 1
    assert Access.from_json(json.loads(json.dumps(access.to_json()))) == access
    assert eval(repr(access)) == access
    if isinstance(access.lanes, StridedLanes):
        joined = access.lanes.coalesced()
        assert np.array_equal(joined.addresses(), access.addresses())
        modes = list(zip(joined.shape, joined.strides_bytes, strict=True))
        assert all(extent > 1 for extent, _ in modes)
        assert not any(outer == extent * inner for (extent, inner), (_, outer) in itertools.pairwise(modes))


@given(accesses())
@settings(max_examples=150)
def test_a_recognised_list_has_the_same_addresses(access: Access) -> None:
    assert np.array_equal(recognise(access.addresses()).addresses(), access.addresses())


@pytest.mark.parametrize("count", [2, 3, 8, 32])
def test_the_shortest_form_is_recognised(count: int) -> None:
    for first, step in ((0, 4), (0, 0), (0, 5), (96, -3), (7, 12)):
        lanes = StridedLanes((count,), (step,), first)
        assert recognise(lanes.addresses()) == lanes
    if count & (count - 1) == 0 and count > 2:
        columns = (1, 64, 4, 256, 1024)[: count.bit_length() - 1]
        for constant in (0, 1, 2048):
            assert recognise(images(columns, constant)) == LinearLanes(columns, constant)
    if count > 2:
        odd = (5, 0, *range(1, count - 1))
        assert recognise(np.array(odd)) == ListedLanes(odd)
    inactive = (*range(count - 1), -1)
    assert recognise(np.array(inactive)) == ListedLanes(inactive)
    assert recognise(np.array([12])) == ListedLanes((12,))


def test_closed_forms_are_picked_where_they_apply() -> None:
    linear = LinearLanes((128, 256, 512, 1024, 2048))
    assert str(Access("column", linear, 4, "smem").cost()) == (
        "32 wavefronts (ideal 1), closed form: 1 phase x 2^(rank(W P) - rank(B P)) = 1 x 2^5"
    )
    assert str(Access("column", StridedLanes((32,), (136,)), 8, "smem").cost()) == (
        "2 wavefronts (ideal 2), closed form: 2 phases x gcd(17, 16)"
    )
    assert str(Access("one word", StridedLanes((32,), (0,), 8), 4, "smem").cost()) == (
        "1 wavefront (ideal 1), closed form: stride 0 B of 4-byte lanes"
    )
    assert str(Access("halves", StridedLanes((32,), (2,)), 2, "smem").cost()) == (
        "1 wavefront (ideal 1), closed form: stride 2 B of 2-byte lanes"
    )
    assert str(Access("pairs", StridedLanes((32,), (0,)), 8, "smem").cost()) == (
        "2 wavefronts (ideal 2), closed form: stride 0 B of 8-byte lanes"
    )
    assert str(Access("rows", StridedLanes((8, 4), (16, 4096)), 16, "gmem").cost()) == (
        "16 sectors (ideal 16), closed form: 2^rank(A >> 5) = 2^4"
    )
    assert str(Access("row", StridedLanes((32,), (4,), 4), 4, "gmem").cost()) == (
        "5 sectors (ideal 4), closed form: stride 4 B from byte 4 of a sector"
    )
    assert str(Access("gather", ListedLanes((0,) * 31 + (-1,)), 4, "gmem").cost()) == (
        "1 sector (ideal 1), counted: the lanes fit no closed form"
    )


def test_a_base_inside_a_sector_is_counted_and_not_guessed() -> None:
    access = Access("off", LinearLanes((8, 64, 256, 512, 1024), 0, 28), 4, "gmem")
    assert access.cost().how == "counted"
    assert access.cost().count == access.counted()


@given(
    st.permutations([1, 2, 4, 8]).map(lambda bits: bits[:3]) | st.lists(st.integers(0, 31), max_size=4),
    st.lists(st.integers(0, 7).map(lambda n: n * 4) | st.integers(0, 31), max_size=4),
    st.sampled_from((4, 8, 16, 32, 64)),
    st.sampled_from((1, 2, 4, 8, 16)),
)
@settings(max_examples=300)
def test_linear_vector_is_the_widest_that_enumeration_finds(
    registers: list[int], others: list[int], bits: int, alignment: int
) -> None:
    rest = images(others)
    widest = 0
    for count in range(len(registers) + 1):
        size = (1 << count) * bits
        if size % 8 or size > 128 or size > 8 * alignment:
            continue
        for chosen in itertools.permutations(range(len(registers)), count):
            left = images([c for i, c in enumerate(registers) if i not in chosen])
            starts = rest[:, None] ^ left[None, :]
            vector = images([registers[i] for i in chosen])
            inside = starts[..., None] ^ vector
            runs = starts[..., None] + np.arange(1 << count)
            if np.array_equal(inside, runs) and np.all(starts % (1 << count) == 0):
                widest = 1 << count
                break
    assert linear_vector(registers, others, bits, base_alignment_bytes=alignment) == widest


@given(
    st.integers(1, 24),
    st.lists(st.integers(0, 40), max_size=2),
    st.sampled_from((4, 8, 16, 32)),
    st.integers(1, 2),
    st.integers(0, 16),
    st.sampled_from((1, 4, 16)),
)
@settings(max_examples=300)
def test_strided_vector_is_the_widest_that_enumeration_finds(
    extent: int, strides: list[int], bits: int, stride: int, offset: int, alignment: int
) -> None:
    own = np.arange(extent) * stride
    origins = offset + np.array([sum(c) for c in itertools.product(*((0, d, 2 * d) for d in strides))])
    widest = 0
    for vector in (1, 2, 4, 8, 16, 32):
        size = vector * bits
        if size % 8 or size > 8 * min(16, alignment) or extent % vector:
            continue
        offsets = (origins[:, None] + own).reshape(-1, vector)
        if vector > 1 and offset % vector:
            continue  # the tile's first vector starts at the offset
        starts = offsets[:, 0] - (0 if vector > 1 else offsets[:, 0])
        if np.array_equal(offsets, offsets[:, :1] + np.arange(vector)) and np.all(starts % vector == 0):
            widest = vector
    assert strided_vector(extent, strides, bits, stride=stride, offset=offset, base_alignment_bytes=alignment) == widest


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Access("load", LinearLanes((4, 8, 16, 32)), 4, "smem"),
            "[load] 32 lanes give an address, but 16 are mapped",
        ),
        (
            lambda: Access("load", LinearLanes((2, 8, 16, 32, 64)), 4, "gmem"),
            "[coalescing] address 2 is not a multiple of the 4 bytes that a lane moves",
        ),
        (
            lambda: Access("load", LinearLanes((4, 8, 16, 32, 64)), 4, "tmem"),  # type: ignore[arg-type]
            "[load] the memory of an access is smem or gmem, not 'tmem'",
        ),
        (
            lambda: Access("load", LinearLanes((16, 32, 64)), 8, "smem", "ldmatrix"),
            "[load] ldmatrix moves rows of 16 bytes of smem, not 8 bytes of smem",
        ),
        (
            lambda: LinearLanes((4, -8)),
            "[access] bit columns, constant and base are non-negative bytes, not "
            "LinearLanes(columns=(4, -8), constant=0, base_bytes=0)",
        ),
        (
            lambda: StridedLanes((8, 4), (1,)),
            "[access] shape (8, 4) and strides (1,) must have equal length",
        ),
        (lambda: StridedLanes((0,), (1,)), "[access] the extents of (0,) must be positive"),
        (
            lambda: StridedLanes((32,), (-4,), 100),
            "[access] the lowest address is -24; raise the offset so that none is negative",
        ),
        (lambda: recognise(np.zeros((2, 2))), "[access] one address for each lane is needed, not the shape (2, 2)"),
        (
            lambda: linear_vector([1], [], 32, base_alignment_bytes=12),
            "[vector width] the alignment of the base must be a power of two of bytes, not 12",
        ),
        (lambda: linear_vector([1], [], 0), "[vector width] an element has at least one bit, not 0"),
        (lambda: strided_vector(0, [], 8), "[vector width] a thread owns at least one element along a mode, not 0"),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message


def test_importing_the_closed_forms_loads_no_solver() -> None:
    code = (
        "import sys, tinygpu.cost.access, tinygpu.cost.divergence, tinygpu.cost.vectors\n"
        "print(sorted({'z3', 'cuda'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
