"""Plans of relayouts: every lane gets what it wants, in the fewest rounds; simulated lane by lane."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.layouts import Layout, LayoutError, f2
from tinygpu.layouts.relayout import RelayoutPlan, binary, matching, relayout
from tinygpu.layouts.relayout.planning import registers_of
from tinygpu.layouts.relayout.subspace import images
from tinygpu.layouts.relayout.words import packed

Held = NDArray[np.int64]
LANES = 32


def brought(plan: RelayoutPlan, a: Held, b: Held, value_bytes: int, packing: tuple[int, int]) -> bool:
    """Whether every lane gets the bytes of the values that it wants; the numbers of bytes go through in parts."""
    have, want = packed(a, packing[0], value_bytes), packed(b, packing[1], value_bytes)
    got = np.zeros(want.shape, dtype=np.int64)
    for plane in range(3):
        part = np.where(have < 0, 0xEE, have >> 8 * plane & 255).astype(np.uint8)
        out = plan.carried_out(np.ascontiguousarray(part).view("<u4")[:, :, 0])
        got |= np.ascontiguousarray(out).view(np.uint8).reshape(want.shape).astype(np.int64) << 8 * plane
    return bool((got == want)[want >= 0].all())


def held(columns: binary.Columns) -> Held:
    return images(columns.lanes)[:, None] ^ images(columns.values)[None]


# -- powers of two -----------------------------------------------------------------------------------------------------


def linear_pair(rng: random.Random) -> tuple[binary.Columns, binary.Columns]:
    """Two distributions of 2^n coordinates over a warp, by bits or by sums of bits; some values have more holders."""
    registers = rng.randrange(6), rng.randrange(6)
    if rng.random() < 0.3:
        registers = registers[0], registers[0]
    n = rng.randrange(max(registers), min(registers) + 6)
    by_bits = rng.random() < 0.5

    def one(count: int) -> binary.Columns:
        while True:
            if by_bits:
                bits = rng.sample([1 << k for k in range(n)], n)
                lanes = [*bits[count:], *[0] * (5 - (n - count))]
                rng.shuffle(lanes)
                values = bits[:count]
            else:
                values, lanes = ([rng.randrange(1 << n) for _ in range(k)] for k in (count, 5))
            if f2.rank(values) == count and f2.rank([*values, *lanes]) == n:
                return binary.Columns(tuple(lanes), tuple(values))

    a = one(registers[0])
    near = [*a.lanes, *a.values]
    for _ in range(rng.randrange(1, 4)):
        i, j = rng.randrange(len(near)), rng.randrange(len(near))
        if i != j:
            near[i], near[j] = (near[j], near[i]) if rng.random() < 0.5 else (near[i] ^ near[j], near[j])
    if rng.random() < 0.4 and f2.rank(near[5:]) == registers[0]:
        return a, binary.Columns(tuple(near[:5]), tuple(near[5:]))
    return a, one(registers[1])


def least_by_counting(a: Held, b: Held, word_values: int) -> int:
    """What no plan can do without: the values that some lane lacks, as many at a time as one lane has of them."""
    together = max(len(set(x.tolist()) & set(y.tolist())) for x in a for y in b)
    lacks = max(len(set(y.tolist()) - set(x.tolist())) for x, y in zip(a, b, strict=True))
    return -(-lacks // min(together, word_values))


@pytest.mark.parametrize(("seed", "count"), [(0, 60), pytest.param(1, 3000, marks=pytest.mark.slow)])
def test_linear_plans_bring_every_value_in_the_fewest_rounds(seed: int, count: int) -> None:
    rng = random.Random(seed)
    kinds: Counter[str] = Counter()
    for _ in range(count):
        a, b = linear_pair(rng)
        value_bytes = rng.choice([1, 2, 4])
        before, after = held(a), held(b)
        packing = registers_of(before.shape[1], value_bytes), registers_of(after.shape[1], value_bytes)
        plan = binary.plan(a, b, value_bytes, packing)
        assert plan is not None
        assert brought(plan, before, after, value_bytes, packing), (a, b, value_bytes)
        assert plan.shuffles == binary.least_rounds(a, b, 4 // value_bytes) == least_by_counting(
            before, after, 4 // value_bytes
        ), (a, b, value_bytes)
        kinds[plan.kind] += 1
    assert kinds["shuffles"] > count // 2


# -- any extents -------------------------------------------------------------------------------------------------------


def shuffled_holders(rng: np.random.Generator, values: int, value_bytes: int) -> tuple[Held, Held, bool]:
    """Two distributions of as many coordinates as a warp holds, at random; or some coordinates with more holders."""
    count = LANES * values
    if rng.random() < 0.5:
        a, b = (rng.permutation(count).reshape(LANES, values) for _ in range(2))
        return a, b, True
    some = rng.integers(1, count + 1)
    a = np.concatenate([rng.permutation(some), rng.integers(0, some, count - some)]).reshape(LANES, values)
    return a, rng.integers(0, some, (LANES, rng.integers(1, 7))), False


@pytest.mark.parametrize(("seed", "count"), [(0, 12), pytest.param(1, 400, marks=pytest.mark.slow)])
def test_any_holders_get_their_values_and_single_words_in_the_fewest_rounds(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        values, value_bytes = int(rng.integers(1, 7)), int(rng.choice([1, 2, 4]))
        a, b, once = shuffled_holders(rng, values, value_bytes)
        packing = registers_of(a.shape[1], value_bytes), registers_of(b.shape[1], value_bytes)
        plan = matching.plan(a, b, value_bytes, packing)
        assert plan is not None
        assert brought(plan, a, b, value_bytes, packing)
        if once and packing[0] == 1:
            lane_of = {value: lane for lane, row in enumerate(a.tolist()) for value in row}
            moved = [(lane_of[v], t) for t, row in enumerate(b.tolist()) for v in row if lane_of[v] != t]
            gives, takes = Counter(g for g, _ in moved), Counter(t for _, t in moved)
            assert plan.shuffles == max([*gives.values(), *takes.values()])


# -- layouts -----------------------------------------------------------------------------------------------------------

C16X8 = "((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"
C16X16 = "((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1))"
C16X32 = "((4,8),(2,2,4)):((2@1,1@0),(1@1,8@0,8@1))"
WGMMA = "((4,8,4),(2,2,8)):((2@1,1@0,16@0),(1@1,8@0,8@1))"

# (source, target, extents, bits, the plan, lane bits that are exchanged with register bits, whether lanes are permuted)
EXAMPLES = {
    "C 16x16 to A of k16": (C16X16, C16X16, (16, 16), 16, "nothing", 0, False),
    "C 16x32 to A of k32": (
        C16X32,
        "((4,8),(4,2,2)):((4@1,1@0),(1@1,8@0,16@1))",
        (16, 32),
        8,
        "shuffles: 4 shuffles, 4 selects, 4 byte permutations",
        1,
        True,
    ),
    "C 16x8 to A of k8, tf32": (
        C16X8,
        "((4,8),(2,2)):((1@1,1@0),(8@0,4@1))",
        (16, 8),
        32,
        "shuffles: 4 shuffles, 8 selects",
        1,
        True,
    ),
    "C 16x8 to rows in vectors of 4": (
        C16X8,
        "((2,16),4):((4@1,1@0),1@1)",
        (16, 8),
        32,
        "shuffles: 4 shuffles, 8 selects",
        1,
        True,
    ),
    "C 16x16 to rows in vectors of 8": (
        C16X16,
        "((2,16),8):((8@1,1@0),1@1)",
        (16, 16),
        16,
        "shuffles: 4 shuffles, 16 selects",
        2,
        True,
    ),
    "A with exchanged registers": (
        C16X16,
        "((4,8),(2,2,2)):((2@1,1@0),(1@1,8@1,8@0))",
        (16, 16),
        16,
        "registers",
        0,
        False,
    ),
    "32x32b.x16 to 16x256b": (
        "(32,16):(1@0,1@1)",
        "((4,8),(2,2,2,2)):((2@1,1@0),(1@1,8@0,8@1,16@0))",
        (32, 16),
        32,
        "shuffles: 16 shuffles, 64 selects",
        2,
        True,
    ),
    "wgmma C 64x64 to rows of the warp": (
        WGMMA,
        "((16,2,4),(4,8)):((4@1,1@0,16@0),(1@1,2@0))",
        (64, 64),
        32,
        "shuffles: 32 shuffles, 192 selects",
        3,
        True,
    ),
    "wgmma C 64x64 to rows of all warps": (
        WGMMA,
        "((16,8),(4,8)):((4@1,1@0),(1@1,8@0))",
        (64, 64),
        32,
        "shared",
        0,
        False,
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_the_page_have_these_plans(name: str) -> None:
    source, target, extents, bits, said, exchanged, permuted = EXAMPLES[name]
    plan = relayout(Layout.parse(source), Layout.parse(target), extents, bits)
    assert str(plan) == said
    registers = Layout.parse(source)[1].size * bits // 32
    published = registers if permuted else registers - registers // 2**exchanged
    assert plan.kind == "shared" or plan.shuffles <= published


def tile(rng: random.Random, extents: tuple[int, int], threads: int) -> Layout:
    """A random distribution of a tile: its factors are dealt to threads and values in any order."""
    factors = []
    for axis, extent in enumerate(extents):
        left = extent
        for prime in (2, 3, 5, 7):
            while left % prime == 0:
                factors.append((prime, axis))
                left //= prime
    rng.shuffle(factors)
    below, lanes, values, count = [1, 1], [], [], 1
    for size, axis in factors:
        digit = f"{below[axis]}@{axis}"
        below[axis] *= size
        if count * size <= threads and threads % (count * size) == 0 and rng.random() < 0.8:
            lanes.append((size, digit))
            count *= size
        else:
            values.append((size, digit))
    if count < threads:
        lanes.insert(rng.randrange(len(lanes) + 1), (threads // count, "0"))

    def mode(digits: list[tuple[int, str]]) -> tuple[str, str]:
        digits = digits or [(1, "0")]
        return f"({','.join(str(s) for s, _ in digits)},1)", f"({','.join(d for _, d in digits)},0)"

    (ls, ld), (vs, vd) = mode(lanes), mode(values)
    return Layout.parse(f"({ls},{vs}):({ld},{vd})")


@pytest.mark.parametrize(("seed", "count"), [(0, 40), pytest.param(1, 1000, marks=pytest.mark.slow)])
def test_layouts_of_any_extents_get_their_values_or_need_memory(seed: int, count: int) -> None:
    """Odd extents, several warps, replicated values and all types; where a plan says memory, values change warps."""
    rng = random.Random(seed)
    kinds: Counter[str] = Counter()
    for _ in range(count):
        extents = rng.choice([(16, 8), (16, 16), (8, 24), (96, 4), (32, 12), (5, 32), (8, 8)])
        threads, bits = rng.choice([32, 32, 64]), rng.choice([8, 16, 32, 64])
        a, b = tile(rng, extents, threads), tile(rng, extents, threads)
        if max(a[1].size, b[1].size) > 32:
            continue
        plan = relayout(a, b, extents, bits)
        kinds[plan.kind] += 1
        have, want = ((lambda c: c[..., 0] * 512 + c[..., 1])(_coordinates(x)) for x in (a, b))
        if bits == 64:
            have, want = (np.stack([2 * x, 2 * x + 1], axis=2).reshape(threads, -1) for x in (have, want))
        value_bytes = min(bits // 8, 4)
        packing = registers_of(have.shape[1], value_bytes), registers_of(want.shape[1], value_bytes)
        if plan.kind == "shared":
            continue
        for warp in range(0, threads, LANES):
            lanes = slice(warp, warp + LANES)
            assert brought(plan, have[lanes], want[lanes], value_bytes, packing), (a, b, extents, bits)
    assert len(kinds) >= 2


def _coordinates(layout: Layout) -> Held:
    threads, values = (mode.coordinates((0, 1)) for mode in layout.modes)
    return threads[:, None] + values[None]


def test_what_a_relayout_refuses() -> None:
    rows = Layout.parse("(32,2):(1@0,1@1)")
    with pytest.raises(LayoutError, match=r"^a relayout moves elements of 8, 16, 32 or 64 bits, not of 4$"):
        relayout(rows, rows, (32, 2), 4)
    with pytest.raises(LayoutError, match=r"^\(32,2\):\(1@0,1@1\): axis 1 reaches 1, outside \[0, 1\) of the tile$"):
        relayout(rows, rows, (32, 1), 32)
    half = Layout.parse("(32,1):(1@0,0)")
    with pytest.raises(
        LayoutError,
        match=r"^\(32,2\):\(1@0,1@1\) holds coordinates that \(32,1\):\(1@0,0\) does not, 32 of them$",
    ):
        relayout(half, rows, (32, 2), 32)
