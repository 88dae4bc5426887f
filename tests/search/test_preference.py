"""Which candidate is taken: in any order of listing, the one that strains the device least among those as fast."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.devices import device
from tinygpu.language.problem import Problem
from tinygpu.machines.gradients import SoftmaxBackward
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.search.history import History
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime, counted_at
from tinygpu.search.preference import RESOLUTION, alike, division, judge, ranked, scored, strain_at
from tinygpu.search.result import Result
from tinygpu.search.searchable import Point
from tinygpu.spaces.build import MachineSpace, build_space

DEVICES = ("a100", "rtx3090", "rtx4090", "rtx5090", "l40s", "h100", "h200", "b200")
KINDS = ("f16", "tf32", "e4m3", "s8")


def drawn(seed: int) -> tuple[str, str, dict[str, int], str]:
    """A machine, a device, sizes that are multiples of 64, and a type that the device has."""
    rng = np.random.default_rng(seed)
    gpu = str(rng.choice(DEVICES))
    machine = str(rng.choice(("matmul_ampere", "matmul_hopper") if device(gpu).cc == 90 else ("matmul_ampere",)))
    dims = {name: 64 * int(2 ** rng.uniform(0, 6)) for name in ("m", "n", "k")}
    kind = str(rng.choice([k for k in KINDS if k != "e4m3" or device(gpu).cc >= 89]))
    return machine, gpu, dims, kind


@cache
def searched(machine: str, gpu: str, sizes: tuple[int, int, int], kind: str) -> tuple[MachineSpace, Result | None]:
    (chosen,) = family(machine).machines
    posed: Problem = chosen.problem(**dict(zip(("m", "n", "k"), sizes, strict=True)), dtypes={"a": kind})
    space = build_space(chosen, posed, device(gpu))
    return space, minimize(space.space, PredictedTime(space)) if space.space.size else None


def case(seed: int) -> tuple[MachineSpace, PredictedTime, Result]:
    """The first of a row of draws whose space is not empty."""
    for attempt in itertools.count():
        machine, gpu, dims, kind = drawn(1000 * attempt + seed)
        space, result = searched(machine, gpu, (dims["m"], dims["n"], dims["k"]), kind)
        if result is not None:
            return space, PredictedTime(space), result
    raise AssertionError("unreachable")


def shuffled(result: Result, seed: int) -> Result:
    """The same trials in another order, with the parameters in another order too."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(result.history))
    names = rng.permutation(sorted(result.history.columns)).tolist()
    columns = {name: np.asarray(result.history.columns[name])[order] for name in names}
    history = History(columns, result.history.values[order], {})
    return Result("", "exhaustive", 0, result.space_size, history, 0.0, "every point")


@pytest.mark.end_to_end
@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_listing_plays_no_part(seed: int) -> None:
    _, objective, result = case(seed)
    expected = [[dict(r.point) for r in group] for group in ranked(objective, result, 6, 10)]
    for again in range(3):
        found = ranked(objective, shuffled(result, again), 6, 10)
        assert [[dict(r.point) for r in group] for group in found] == expected


@pytest.mark.end_to_end
@pytest.mark.sampled(30)
@pytest.mark.parametrize("seed", range(30))
def test_what_is_ranked_is_what_sorting_all_candidates_gives(seed: int) -> None:
    space, objective, result = case(seed)
    columns = {name: np.asarray(column) for name, column in result.history.columns.items()}
    strains, kinds = judge(objective, columns, len(result.history))
    totals = result.history.values + strains
    assert (strains >= 0).all()
    groups = ranked(objective, result, 4, 8)
    assert groups[0][0].score == pytest.approx(np.nanmin(totals), rel=1e-9)
    assert all(a[0].score <= b[0].score * (1 + 1e-9) for a, b in itertools.pairwise(groups))
    seen = set()
    for group in groups:
        kind = division(counted_at(space, group[0].point))
        assert tuple(kind.tolist()) not in seen
        seen.add(tuple(kind.tolist()))
        mine = np.sort(totals[(kinds == kind).all(axis=1)])[: len(group)]
        assert [r.score for r in group] == pytest.approx(mine.tolist(), rel=1e-9)
    # no other way to divide the work is better than the last of these
    others = np.isfinite(totals) & [tuple(k) not in seen for k in kinds.tolist()]
    assert totals[others].min(initial=np.inf) >= groups[-1][0].score * (1 - 1e-9)


def widths(space: MachineSpace, point: Point) -> tuple[int, ...]:
    """What an expert would have wide: bytes of copies and stores, swizzles."""
    bits = {o.name: o.dtype.bits for o in space.problem.operands}
    found = [int(point[name]) * bits[t] // 8 for name, t in (("va", "a"), ("vb", "b")) if name in point]
    return (*found, *(int(point[name]) for name in ("swizzle", "swizzle_c") if name in point))


@pytest.mark.end_to_end
@pytest.mark.sampled(48)
@pytest.mark.parametrize("seed", range(48))
def test_no_first_choice_is_narrower_than_an_equal_one(seed: int) -> None:
    """Of the same tile, warps and structure, as fast as far as the model can tell: none has wider copies or swizzles.

    Problems are aligned, so that nothing but the candidate itself forbids the width.
    """
    space, objective, result = case(seed)
    first = ranked(objective, result, 1, 1)[0][0].point
    seconds = float(objective.prediction(first).seconds)
    same = [p for p in ("bm", "bn", "warps_m", "warps_n", "schedule", "store", "copy_a", "copy_b") if p in first]
    history = result.history
    near = np.abs(history.values - seconds) <= NARROW * seconds
    for name in same:
        near &= np.asarray(history.columns[name]) == first[name]
    for number in np.flatnonzero(near).tolist():
        other = history[number].point
        wider = [b > a for a, b in zip(widths(space, first), widths(space, other), strict=True)]
        narrower = [b < a for a, b in zip(widths(space, first), widths(space, other), strict=True)]
        assert not any(wider) or any(narrower), (dict(first), dict(other))


SHAPES = (*((m, 4096, 4096) for m in (1, 16, 64, 512, 4096)), (1000, 1000, 1000))
OFFERS = (
    ("matmul_skinny", ("h100", "b200", "rtx5090", "thor")),
    ("matmul_hopper", ("h100", "h200", "h20", "h100-pcie")),
    ("matmul_ampere", ("a100", "a10", "l40s", "rtx4090", "rtx5090", "orin", "b200")),
)


@pytest.mark.end_to_end
@pytest.mark.sampled(51)
@pytest.mark.parametrize("seed", range(51))
def test_first_choices_are_what_an_expert_would_pick(seed: int) -> None:
    """No cluster beyond the tiles, no turns at one tile, data in time, and few SMs idle where tiles can be shared."""
    rng = np.random.default_rng(seed)
    name, devices = OFFERS[seed % len(OFFERS)]
    gpu = str(rng.choice(devices))
    shapes = [s for s in SHAPES if s[0] <= 64 or name != "matmul_skinny"]
    sizes = shapes[int(rng.integers(len(shapes)))]
    space, result = searched(name, gpu, sizes, "f16")
    if result is None:
        return
    objective = PredictedTime(space)
    first = ranked(objective, result, 1, 1)[0][0].point
    found = objective.prediction(first)
    m, n, k = sizes
    tiles = -(-m // int(first["bm"])), -(-n // int(first["bn"]))
    for axis, count in zip(("cluster_m", "cluster_n"), tiles, strict=True):
        assert int(first.get(axis, 1)) <= count, dict(first)
    if first.get("schedule") == "pingpong":
        assert float(found.waves) > 1, dict(first)
    assert float(found.reads_s) <= float(found.seconds), dict(first)
    if {"split_k", "stream_k"} & set(first) and k >= 2048:
        ctas = int(division(counted_at(space, first))[0])
        assert int(first.get("stream_k", 0)) or ctas >= 0.6 * space.device.sm_count, dict(first)


@pytest.mark.end_to_end
def test_rings_grow_deeper_and_use_more_sms_among_equals() -> None:
    """Of candidates with the same time and counts, the one with more bytes under way, and the one with more CTAs."""
    space, result = searched("matmul_skinny", "h100", (16, 4096, 4096), "f16")
    assert result is not None
    objective = PredictedTime(space)
    first = ranked(objective, result, 1, 1)[0][0].point
    for stages in sorted({int(s) for s in np.asarray(result.history.columns["stages"])}):
        other = {**first, "stages": stages}
        if stages > int(first["stages"]) and other in space.space:
            # deeper than the first choice only costs CTAs that fit beside each other
            crowd = [int(objective.prediction(p).occupancy.ctas_per_sm) for p in (first, other)]
            assert crowd[1] < crowd[0]


# Closer than this, narrow copies bring nothing that the model could know of.
NARROW = RESOLUTION / 5


@pytest.mark.slow
def test_the_5090_copies_sixteen_bytes_at_a_time() -> None:
    """Rows of 32 bytes in copies of 8 once were its first choice: they take as many accesses of L2 as rows of 64."""
    space, result = searched("matmul_ampere", "rtx5090", (4096, 4096, 4096), "f16")
    first = ranked(PredictedTime(space), result, 1, 1)[0][0].point
    assert widths(space, first) == (16, 16)
    assert int(first["bk"]) >= 32


@pytest.mark.end_to_end
@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_alike_divides_the_work_alike_and_takes_as_long(seed: int) -> None:
    space, objective, result = case(seed)
    point = ranked(objective, result, 1, 1)[0][0].point
    count, differ = alike(objective, result, point)
    seconds = float(objective.prediction(point).seconds)
    expected = []
    for trial in result.history:
        if trial.value is not None and abs(trial.value - seconds) <= RESOLUTION * seconds:
            ways = [division(counted_at(space, p)).tolist() for p in (point, trial.point)]
            if ways[0] == ways[1] and dict(trial.point) != dict(point):
                expected.append(trial.point)
    assert count == len(expected)
    assert set(differ) == {name for p in expected for name in p if name in point and p[name] != point[name]}


# Of a product of 8192 cubed on a B200, what an expert has and what differs from it in one thing, or in one trade: equal
# to the model within its resolution, or slower.
EXPERT: dict[str, int | str] = {
    "store": "staged", "bm": 128, "ctas": "pairs", "tiles": 2, "cluster_m": 2, "cluster_n": 1, "raster": 8,
    "split_k": 1, "stream_k": 0, "launch_control": 0, "outs": 2, "swizzle_c": 128, "vc": 8, "bn": 256, "bk": 64,
    "stages": 6, "swizzle": 128, "piece": 64,
}  # fmt: skip
WORSE: dict[str, dict[str, int | str]] = {
    "one slot of sums": {"tiles": 1},
    "half of the ring": {"stages": 3},
    "two CTAs on an SM, each with half of the ring": {"tiles": 1, "stages": 3, "outs": 1, "piece": 32, "swizzle_c": 64},
    "short rounds under a narrow swizzle": {"bk": 32, "stages": 12, "swizzle": 64},
    "a cluster of 16": {"cluster_m": 4, "cluster_n": 4},
    "tiles that CTAs share": {"stream_k": 1},
    "tiles of one CTA": {"ctas": "one", "stages": 4},
}


@pytest.mark.parametrize("seed", [0, 1])
def test_points_are_scored_together_as_each_is_alone(seed: int) -> None:
    problem = MatmulBlackwell.problem(m=4096, n=4096, k=4096, dtypes={"a": "bf16"})
    space = build_space(MatmulBlackwell, problem, device("b200"))
    objective = PredictedTime(space)
    points = list(space.space.sample(30, np.random.default_rng(seed)))
    found = scored(objective, points)
    assert [r.score for r in found] == pytest.approx(sorted(r.score for r in found), rel=1e-9)
    assert len(found) == sum(np.isfinite(float(objective.prediction(p).seconds)) for p in points)
    for r in found:
        alone = objective.prediction(r.point)
        assert r.score == pytest.approx(float(alone.seconds) + strain_at(space, r.point, alone), rel=1e-12)


@pytest.mark.parametrize("what", WORSE)
def test_preference_among_equals_is_an_experts(what: str) -> None:
    problem = MatmulBlackwell.problem(m=8192, n=8192, k=8192, dtypes={"a": "bf16"})
    space = build_space(MatmulBlackwell, problem, device("b200"))
    objective = PredictedTime(space)
    scores = []
    for point in (EXPERT, EXPERT | WORSE[what]):
        assert point in space.space, point
        found = objective.prediction(point)
        scores.append(float(found.seconds) + strain_at(space, point, found))
    assert scores[0] < scores[1]


def test_the_first_choice_into_tensor_memory_is_what_an_expert_would_pick() -> None:
    """Of pairs of 256 x 256: a deep ring of wide rows, two slots of sums, one CTA on an SM, the smallest cluster."""
    problem = MatmulBlackwell.problem(m=8192, n=8192, k=8192, dtypes={"a": "bf16"})
    space = build_space(MatmulBlackwell, problem, device("b200"))
    objective = PredictedTime(space)
    tile = {name: EXPERT[name] for name in ("bm", "bn", "ctas", "piece", "launch_control", "store")}
    first = ranked(objective, minimize(space.space.restrict(tile), objective), 1, 1)[0][0].point
    wanted = ("tiles", "cluster_m", "cluster_n", "split_k", "stream_k", "swizzle", "bk", "stages")
    assert {name: first[name] for name in wanted} == {name: EXPERT[name] for name in wanted}
    assert int(objective.prediction(first).occupancy.ctas_per_sm) == 1


def test_rows_are_not_read_twice_where_that_takes_all_of_l2() -> None:
    """Of rows of 8192, `y` and `dy` of all CTAs are as large as what an H100's L2 keeps: a cluster reads them once."""
    space = build_space(SoftmaxBackward, SoftmaxBackward.problem(m=8192, n=8192), device("h100"))
    objective = PredictedTime(space)
    first = ranked(objective, minimize(space.space, objective), 1, 1)[0][0].point
    assert first["reads"] == "once"
    assert float(counted_at(space, first).crowded_bytes(space.device)) == 0
