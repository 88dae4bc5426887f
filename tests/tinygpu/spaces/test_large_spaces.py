"""Spaces that nobody lists: exact counts against independent counts, and uniform draws."""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
from space_construction import GEMM, GEMM_WIDE, build_ours, declare, large_space

from tinygpu.constraints import Constraint
from tinygpu.expressions import all_of, maximum, symbol
from tinygpu.spaces import Axis, Part, Space, SpaceError, TooLarge, elimination


def rule(name, condition):
    return Constraint(name, condition, f"{name} must hold")


def valid_gemm(listed):
    """The valid points of the GEMM kernel, by one NumPy filter over the whole product."""
    grid = dict(zip(listed.values, np.meshgrid(*listed.values.values(), indexing="ij"), strict=True))
    g = {n: c.ravel() for n, c in grid.items()}
    threads = g["MDIMC"] * g["NDIMC"]
    inside = (
        (g["KWG"] % g["KWI"] == 0)
        & (g["MWG"] % (g["MDIMC"] * g["VWM"]) == 0)
        & (g["NWG"] % (g["NDIMC"] * g["VWN"]) == 0)
        & (g["MWG"] % (g["MDIMA"] * g["VWM"]) == 0)
        & (g["NWG"] % (g["NDIMB"] * g["VWN"]) == 0)
        & (g["KWG"] % (threads // g["MDIMA"]) == 0)
        & (g["KWG"] % (threads // g["NDIMB"]) == 0)
    )
    return np.stack([g[n][inside] for n in listed.values])


def test_the_gemm_space_is_the_published_one():
    assert GEMM.raw_size == 82944
    assert declare(GEMM).size == 17956


@pytest.mark.parametrize("listed", [GEMM, GEMM_WIDE], ids=lambda s: s.name)
def test_the_gemm_space_is_the_same_set_as_one_filter_over_the_product(listed):
    columns = build_ours(listed)
    ours = np.stack([columns[n] for n in listed.values])
    expected = valid_gemm(listed)
    for points in (ours, expected):
        points[:] = points[:, np.lexsort(points)]
    assert np.array_equal(ours, expected)


def tiles_by_hand(space, m=4096, n=4096, k=12288, smem=101376):
    """The size of the tile space, by loops over five axes and one array over the others."""
    axes = {a.name: np.array(a.values) for a in space.parts[0].axes}
    stages, va, vb, pa, pb, split = np.meshgrid(
        *(axes[x] for x in ("stages", "va", "vb", "pa", "pb", "split")), indexing="ij", sparse=True
    )
    total = 0
    for bm, bn, wm, wn in itertools.product(*(axes[x].tolist() for x in ("bm", "bn", "wm", "wn"))):
        threads = (bm // wm) * (bn // wn) * 32
        if bm % wm or bn % wn or not 64 <= threads <= 1024 or wm * wn // 32 + wm // 2 + wn // 2 > 220:
            continue
        tiles = math.ceil(m / bm) * math.ceil(n / bn) * split
        groups = sum(1 for g in axes["group"].tolist() if g <= math.ceil(m / bm))
        for bk in axes["bk"].tolist():
            inside = (
                (stages * (bm * (bk + pa) + bn * (bk + pb)) * 2 <= smem)
                & (k % (bk * split) == 0)
                & ((bm * bk) % (threads * va) == 0)
                & ((bn * bk) % (threads * vb) == 0)
                & ((bk + pa) % va == 0)
                & ((bk + pb) % vb == 0)
                & (tiles <= 65535)
                & (tiles >= 100)
                & (split * stages <= k // bk)
            )
            total += groups * int(np.count_nonzero(inside))
    return total


@pytest.mark.end_to_end
def test_seven_billion_points_are_counted_exactly_and_drawn_from():
    space = large_space()
    assert space.raw_size == 7_046_430_720 > 10**9
    assert len(space.parts[0].constraints) == 15
    assert space.size == tiles_by_hand(space)
    assert space.raw_size - space.size == sum(r.removed for r in space.funnel)
    drawn = space.sample(4000, np.random.default_rng(3))
    part = space.parts[0]
    assert all(part.offers(p) and part.admits(p) for p in drawn[:300])
    # The share of each value among the draws against its exact share.
    for axis in part.axes:
        shares = {v: space.count({axis.name: v}) / space.size for v in axis.values}
        assert math.isclose(sum(shares.values()), 1)
        for value, share in shares.items():
            seen = sum(1 for p in drawn if p[axis.name] == value)
            assert abs(seen - 4000 * share) <= 5 * (4000 * share * (1 - share)) ** 0.5 + 1


def chain(length, values, limit):
    names = [f"x{i}" for i in range(length)]
    links = [symbol(a) + symbol(b) <= limit for a, b in itertools.pairwise(names)]
    rules = tuple(rule(f"link {i}", link) for i, link in enumerate(links))
    return Space("chain", (Part({}, tuple(Axis(n, values) for n in names), rules),))


def test_counts_beyond_64_bits_are_exact():
    values, limit, length = tuple(range(10)), 9, 40
    space = chain(length, values, limit)
    assert space.raw_size == 10**40
    # Paths in a graph: a power of its adjacency matrix, in Python's own integers.
    after = [1] * len(values)
    for _ in range(length - 1):
        after = [sum(after[j] for j, y in enumerate(values) if x + y <= limit) for x in values]
    assert space.size == sum(after) > 2**64
    assert space.count({"x0": 3}) == after[3]
    rng = np.random.default_rng(11)
    drawn = space.sample(3000, rng)
    assert all(space.index(space.at(i)) == i for i in (0, 1, space.size // 7, space.size - 1))
    for value in values:
        share = after[value] / space.size
        seen = sum(1 for p in drawn if p["x0"] == value)
        assert abs(seen - 3000 * share) <= 5 * (3000 * share * (1 - share)) ** 0.5 + 1
    assert space.legal_values({"x7": 8}, "x8") == (0, 1)
    assert space.raw_size - space.size == sum(r.removed for r in space.funnel)


@pytest.mark.parametrize("axes", [62, 63, 64])
def test_as_many_points_as_64_bits_number_or_more_are_numbered_one_by_one(axes):
    free = Space("bits", (Part({}, tuple(Axis(f"x{i}", (0, 1)) for i in range(axes)), ()),))
    tied = [rule(f"tie {i}", symbol(f"x{i}") <= symbol(f"x{i + 1}")) for i in range(0, axes - 1, 2)]
    pairs = Space("pairs", (Part({}, free.parts[0].axes, tuple(tied)),))
    assert (free.size, pairs.size) == (2**axes, 3 ** (axes // 2) * 2 ** (axes % 2))
    for space in (free, pairs):
        ranks = [0, 1, space.size // 2, space.size - 2, space.size - 1]
        points = [space.at(i) for i in ranks]
        assert [space.index(point) for point in points] == ranks
        assert len({tuple(point.values()) for point in points}) == len(ranks)
        drawn = space.sample(8, np.random.default_rng(axes))
        assert all(point in space for point in drawn)
        assert space.count({"x0": 0}) + space.count({"x0": 1}) == space.size


def test_values_up_to_64_bits_and_beyond_are_kept_and_compared_exactly():
    for end in (2**62, 2**63 - 1, 2**63, 2**64):
        values = (1, end - 1, end)
        part = Part({}, (Axis("a", values), Axis("b", values)), (rule("order", symbol("a") < symbol("b")),))
        space = Space("ends", (part,))
        wanted = [(a, b) for a in values for b in values if a < b]
        assert [tuple(p.values()) for p in space.points()] == wanted
        columns = space.columns()
        assert [(int(a), int(b)) for a, b in zip(columns["a"], columns["b"], strict=True)] == wanted
        assert part.axes[0].array().dtype == (np.int64 if end < 2**63 else object)


def test_an_axis_may_have_more_values_than_16_bits_number():
    part = Part(
        {}, (Axis("a", tuple(range(70_000))), Axis("b", (1, 2))), (rule("few", symbol("a") * symbol("b") >= 69_999),)
    )
    space = Space("long", (part,))
    assert space.size == 1 + 70_000 - 35_000
    assert sorted(p["a"] for p in space.points()) == sorted([69_999, *range(35_000, 70_000)])


def test_a_sum_over_all_axes_is_counted_by_its_partial_sums():
    length, values, total = 16, tuple(range(10)), 61
    names = [f"x{i}" for i in range(length)]
    weights = [1 + i % 3 for i in range(length)]
    weighted = reduce(lambda a, b: a + b, [symbol(n) * w for n, w in zip(names, weights, strict=True)])
    space = Space("sum", (Part({}, tuple(Axis(n, values) for n in names), (rule("total", weighted == total),)),))
    ways = [1] + [0] * total
    for w in weights:
        ways = [sum(ways[s - w * v] for v in values if s >= w * v) for s in range(total + 1)]
    assert space.raw_size == 10**16
    assert space.size == ways[total]
    for point in space.sample(50, np.random.default_rng(0)):
        assert sum(point[n] * w for n, w in zip(names, weights, strict=True)) == total


def test_extremes_and_products_over_all_axes():
    length, values = 9, (1, 2, 3, 4, 6, 8)
    symbols = [symbol(f"x{i}") for i in range(length)]
    product = reduce(lambda a, b: a * b, symbols)
    rules = (rule("product", product == 2**9 * 3**3), rule("greatest", maximum(*symbols) >= 6))
    space = Space("product", (Part({}, tuple(Axis(f"x{i}", values) for i in range(length)), rules),))
    grid = np.array(list(itertools.product(values, repeat=length - 4)))
    tail = np.array(list(itertools.product(values, repeat=4)))
    left, right = grid.prod(axis=1), tail.prod(axis=1)
    total = 0
    for number, greatest in zip(right.tolist(), tail.max(axis=1).tolist(), strict=True):
        if (2**9 * 3**3) % number == 0:
            high = np.maximum(grid.max(axis=1), greatest) >= 6
            total += int(np.count_nonzero((left * number == 2**9 * 3**3) & high))
    assert space.size == total


def test_free_axes_multiply_and_never_enter_the_rows():
    a, b = symbol("a"), symbol("b")
    free = tuple(Axis(f"free{i}", tuple(range(100))) for i in range(12))
    axes = (Axis("a", (1, 2, 3)), Axis("b", (1, 2, 3)), *free)
    space = Space("free", (Part({}, axes, (rule("order", a < b),)),), row_budget=200)
    assert space.size == 3 * 100**12
    assert [r.removed for r in space.funnel] == [6 * 100**12]
    assert len(space.sample(3, np.random.default_rng(0))) == 3


def test_what_is_too_large_to_count_says_so():
    names = [f"x{i}" for i in range(6)]
    pairs = [symbol(a) * 7 + symbol(b) for a, b in itertools.combinations(names, 2)]
    rules = tuple(rule(f"pair {i}", pair % 5 != 3) for i, pair in enumerate(pairs))
    space = Space("dense", (Part({}, tuple(Axis(n, tuple(range(9))) for n in names), rules),), row_budget=1000)
    with pytest.raises(TooLarge) as caught:
        _ = space.size
    assert str(caught.value) == (
        "[dense] counting exactly needs more than the budget of 1,000 rows (reached at x1); raise the budget, offer "
        "fewer values, or add a constraint that reads few parameters"
    )
    assert space.raw_size == 9**6


@pytest.mark.parametrize("budget", [39, 40, 41])
def test_sums_are_kept_instead_of_axes_only_where_more_rows_are_allowed_than_without(budget, monkeypatch):
    asked = []
    summarise = elimination.summarise
    monkeypatch.setattr(elimination, "_PLAIN_ROWS", 40)
    monkeypatch.setattr(elimination, "summarise", lambda *plan: asked.append(plan) or summarise(*plan))
    total = reduce(lambda a, b: a + b, [symbol(f"x{i}") for i in range(6)])
    axes = tuple(Axis(f"x{i}", tuple(range(6))) for i in range(6))
    with pytest.raises(TooLarge) as refused:
        _ = Space("sum", (Part({}, axes, (rule("total", total == 9),)),), row_budget=budget).size
    assert f"budget of {budget:,} rows" in str(refused.value)
    assert len(asked) == (budget > 40)


def test_what_is_too_large_to_list_says_so():
    space = chain(12, tuple(range(10)), 9)
    with pytest.raises(SpaceError) as caught:
        space.columns(limit=1000)
    assert str(caught.value) == (
        f"[chain] {space.size:,} points are too many to list (the limit is 1,000); sample them instead"
    )
    first = list(itertools.islice(space.points(), 3))
    assert first == [space.at(i) for i in range(3)]


def test_numbers_beyond_64_bits_are_judged_exactly():
    a, n = symbol("a"), symbol("n")
    part = Part({}, (Axis("a", (1, 2, 3)),), (rule("wide", all_of([a * n <= 2**70, a * n > 2**69])),), {"n": 2**69})
    assert [p["a"] for p in Space("wide", (part,)).points()] == [2]
