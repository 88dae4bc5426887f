"""Branch and bound finds the optimum and proves it, as far as the bounds are bounds."""

import itertools
import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import TableSpace, least, problems

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.search import Evaluation, Point, Result, minimize
from tinygpu.search.bounded import Region
from tinygpu.search.branch_and_bound import shapes
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.predicted_bound import PredictedBound
from tinygpu.spaces import Axis, Part, Space
from tinygpu.spaces.build import MachineSpace, build_space

Table = dict[tuple[object, ...], Evaluation]


class Bounded:
    """Values of a table; the bound of a region is its least value, less a slack that depends on the region."""

    def __init__(self, space: TableSpace, table: Table, slack: Sequence[float]) -> None:
        self.space = space
        self.table = table
        self.slack = slack
        self.asked = 0

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        self.asked += len(points)
        return [self.table[self.space.key(point)] for point in points]

    def bound(self, region: Region, /) -> float:
        names = tuple(region)
        inside = [
            self.table[self.space.key(point)].cost
            for point in self.space.listed
            if set(point) == set(names) and all(point[name] in region[name] for name in names)
        ]
        return min(inside, default=math.inf) - self.slack[sum(map(len, region.values())) % len(self.slack)]


@given(problems(), st.lists(st.floats(0, 5), min_size=1, max_size=4), st.integers(1, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_the_optimum_is_found_and_proved(
    problem: tuple[TableSpace, Table], slack: list[float], batch: int, data: st.DataObject
) -> None:
    space, table = problem
    warm = data.draw(st.lists(st.sampled_from(space.listed), max_size=3))
    objective = Bounded(space, table, slack)
    result = minimize(space, objective, strategy="branch_and_bound", batch=batch, warm_start=warm)
    optimum = least(table)
    assert result.value == (None if optimum is None else pytest.approx(optimum, rel=1e-12))
    assert result.ended in ("proof", "every point")
    assert result.proof is not None
    assert objective.asked == len(result.history)


@given(problems(failing=False))
@settings(max_examples=80, deadline=None)
def test_with_exact_bounds_no_point_is_tried_in_vain(problem: tuple[TableSpace, Table]) -> None:
    space, table = problem
    result = minimize(space, Bounded(space, table, [0.0]), strategy="branch_and_bound")
    assert len(result.history) == 1
    assert result.value == least(table)


def test_a_space_too_large_to_list_is_searched_with_a_proof() -> None:
    axes = tuple(Axis(f"p{i}", tuple(range(1, 33))) for i in range(8))
    space = Space("large", (Part({}, axes, ()),))
    assert space.size == 32**8 > 10**12

    class Sum:
        def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
            return [Evaluation(float(sum((int(v) - 7) ** 2 for v in point.values()))) for point in points]

        def bound(self, region: Region, /) -> float:
            return float(sum(min((int(v) - 7) ** 2 for v in values) for values in region.values()))

    result = minimize(space, Sum())  # auto: nothing else ends without a budget
    assert (result.strategy, result.ended, result.value) == ("branch_and_bound", "proof", 0.0)
    assert set(result.best.values()) == {7} if result.best else False
    assert result.proof == (
        "1 of 1,099,511,627,776 points were evaluated, and the objective's bounds leave no lesser value to any other"
    )
    assert str(result).endswith(", proved: bounds leave no lesser value to any other point")


def test_a_budget_ends_it_without_a_proof() -> None:
    space = TableSpace({"a": a, "b": b} for a, b in itertools.product(range(4), range(4)))
    table = {space.key(point): Evaluation(float(i)) for i, point in enumerate(reversed(space.listed))}
    result = minimize(space, Bounded(space, table, [100.0]), strategy="branch_and_bound", evaluations=5)
    assert (result.ended, result.proof, len(result.history)) == ("evaluations", None, 5)


def test_results_keep_their_proof_in_files(tmp_path: object) -> None:
    space = TableSpace({"a": a} for a in range(4))
    table = {space.key(point): Evaluation(float(i)) for i, point in enumerate(space.listed)}
    result = minimize(space, Bounded(space, table, [0.0]), strategy="branch_and_bound")
    assert Result.from_json(result.to_json()).proof == result.proof is not None


def test_an_objective_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError) as refused:
        minimize(TableSpace([{"a": 1}]), lambda points: [Evaluation(1.0)], strategy="branch_and_bound")
    assert str(refused.value) == (
        "strategy='branch_and_bound' needs an objective that bounds regions (a method 'bound'), as predicted times do; "
        "a proof of the optimum is not possible with this one"
    )


def test_a_bound_that_is_no_number_is_refused() -> None:
    space = TableSpace([{"a": 1}, {"a": 2}])

    class Wrong(Bounded):
        def bound(self, region: Region, /) -> float:
            return math.nan

    with pytest.raises(ValueError) as refused:
        minimize(space, Wrong(space, {}, [0.0]), strategy="branch_and_bound")
    assert str(refused.value) == "the objective's bound of {'a': (1, 2)} is not a number"


# --- predicted times ----------------------------------------------------------------------------------------------


PRODUCTS = [(640, 512, 256, "a100"), (4096, 4096, 512, "l40s")]


@cache
def ampere(m: int, n: int, k: int, name: str) -> MachineSpace:
    return build_space(MatmulAmpere, MatmulAmpere.problem(m=m, n=n, k=k, dtypes={"a": "bf16"}), device(name))


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize("product", PRODUCTS, ids=["small problem", "large problem"])
def test_no_candidate_is_predicted_below_the_bound_of_its_region(product: tuple[int, int, int, str]) -> None:
    space = ampere(*product)
    # regions that grow around random candidates, up to the whole space; each bound against the candidates in it
    rng = np.random.default_rng(0)
    objective = PredictedTime(space)
    sample = space.space.sample(400, rng)
    seconds = [evaluation.cost for evaluation in objective(sample)]
    relaxed = PredictedBound(space, objective.score_columns)
    (names,) = shapes(space.space)
    domains = {name: tuple(space.space.legal_values({}, name)) for name in names}
    held, tightest = 0, 0.0
    for point in sample[:5]:
        region = {name: (point[name],) for name in names}
        for name in rng.permutation(names).tolist():
            region[name] = domains[name]
            inside = [s for p, s in zip(sample, seconds, strict=True) if all(p[n] in region[n] for n in names)]
            relaxation = relaxed._relaxation(space.structure_index(point))
            assert objective.bound(region) <= min(inside) * (1 + 1e-12)
            if all(len(region[choice.name]) == 1 for choice in space.machine.choices()):
                assert relaxation.seconds(region) <= min(inside) * (1 + 1e-12)
                tightest = max(tightest, relaxation.seconds(region) / min(inside))
            held += len(inside) > 1
    assert held > 10
    # a bound of nothing would hold too
    assert tightest > 0.6


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("machine", "sizes", "name"),
    [
        pytest.param(MatmulSkinny, {"m": 64, "n": 64, "k": 512}, "h100", id="tile after tile"),
        pytest.param(MatmulSimt, {"m": 256, "n": 256, "k": 256}, "a100", id="one tile for each CTA"),
        pytest.param(
            MatmulHopper, {"m": 256, "n": 256, "k": 1024}, "h100", id="rounds shared evenly", marks=pytest.mark.slow
        ),
    ],
)
def test_bounds_hold_for_every_kind_of_grid_and_are_exact_where_a_region_is_listed(
    machine: type[Machine], sizes: dict[str, int], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions of some values of every parameter, around candidates that are in them, against all that is sampled."""
    rng = np.random.default_rng(4)
    space = build_space(machine, machine.problem(**sizes), device(name))
    objective = PredictedTime(space)
    sample = space.space.sample(100, rng)
    seconds = np.array([evaluation.cost for evaluation in objective(sample)])
    for point, cost in zip(sample[:4], seconds, strict=False):
        assert objective.bound({key: (value,) for key, value in point.items()}) == cost
    names = tuple(sample[0])
    domains = {key: tuple(dict.fromkeys(p[key] for p in sample)) for key in names}
    regions = []
    for point in sample[:8]:
        share = rng.choice([0.4, 0.8, 1.0])
        regions.append({k: tuple(v for v in domains[k] if v == point[k] or rng.random() < share) for k in names})
    monkeypatch.setattr("tinygpu.search.predicted_bound._LISTED", 0)
    bounds = []
    for combinations in (1 << 14, 1):  # by every combination of values, and by intervals
        monkeypatch.setattr("tinygpu.search.predicted_bound._COMBINATIONS", combinations)
        relaxed = PredictedBound(space, objective.score_columns)
        bounds.append([relaxed(region) for region in regions])
        for region, bound in zip(regions, bounds[-1], strict=True):
            inside = [s for p, s in zip(sample, seconds, strict=True) if all(p[k] in region[k] for k in names)]
            assert 0 < bound <= min(inside) * (1 + 1e-12)
        whole = relaxed(domains)
        assert all(whole <= bound for bound in bounds[-1])  # of a region that lies inside
        single = np.array([relaxed({key: (value,) for key, value in point.items()}) for point in sample[:8]])
        assert np.all(single <= seconds[:8] * (1 + 1e-12))
        assert np.max(single / seconds[:8]) > 0.4  # a bound of nothing would hold too
    exact, rough = map(np.mean, bounds)  # both are bounds of each region; intervals are the looser ones on the whole
    assert rough <= exact


def test_a_listed_region_bounds_those_inside_it_by_their_own_candidates() -> None:
    space = build_space(MatmulSkinny, MatmulSkinny.problem(m=8, n=64, k=512), device("h100"))
    objective, rng = PredictedTime(space), np.random.default_rng(1)
    listed = list(space.space)
    names = tuple(listed[0])
    for key in names:  # the candidates with the first one's values, until they are few enough to be listed
        if len(listed) > 1000:
            listed = [p for p in listed if p[key] == listed[0][key]]
    seconds = np.array([evaluation.cost for evaluation in objective(listed)])
    assert len(listed) > 100
    domains = {key: tuple(dict.fromkeys(p[key] for p in listed)) for key in names}
    whole = objective.bound(domains)  # type: ignore[arg-type]
    assert whole == seconds.min()
    for _ in range(20):
        around = listed[int(rng.integers(len(listed)))]
        region = {k: tuple(v for v in domains[k] if v == around[k] or rng.random() < 0.6) for k in names}
        inside = [s for p, s in zip(listed, seconds, strict=True) if all(p[k] in region[k] for k in names)]
        assert objective.bound(region) == min(inside)


@pytest.mark.end_to_end
def test_the_optimum_under_the_predictor_is_proved_by_a_few_evaluations() -> None:
    space = build_space(MatmulSimt, MatmulSimt.problem(m=256, n=256, k=256), device("a100"))
    objective = PredictedTime(space)
    proved = minimize(space.space, objective, strategy="branch_and_bound")
    listed = minimize(space.space, objective, strategy="exhaustive")
    assert proved.value == pytest.approx(listed.value, rel=1e-12)
    assert proved.ended in ("proof", "every point")


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS, ids=["small problem", "large problem"])
def test_the_optimum_of_a_matrix_product_is_proved(product: tuple[int, int, int, str]) -> None:
    space = ampere(*product)
    objective = PredictedTime(space)
    proved = minimize(space.space, objective, strategy="branch_and_bound")
    listed = minimize(space.space, objective, strategy="exhaustive")
    assert proved.value == pytest.approx(listed.value, rel=1e-12)
    assert proved.ended == "proof"
    assert len(proved.history) < 100 < space.space.size
