"""What single strategies promise beyond the laws of every search."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_space import Recording, TableSpace, problems

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import symbol
from tinygpu.search import STRATEGIES, Columns, Evaluation, Failure, Point, minimize
from tinygpu.search.candidates import Candidates, by_names
from tinygpu.search.encoding import learn_encoding
from tinygpu.search.evolutionary import crossed, nearest
from tinygpu.search.gaussian_process import GaussianProcess, _matern, log_expected_improvement
from tinygpu.search.searchable import Searchable, rows
from tinygpu.spaces import Axis, Part, Space

SEARCHES = sorted(set(STRATEGIES) - {"exhaustive"})


def tiles(stages: Sequence[int] = (1, 2, 3, 4)) -> Space:
    """Two structures; points with many parameters and points with few."""
    bm, bn, depth = symbol("bm"), symbol("bn"), symbol("stages")
    axes = (Axis("bm", (16, 32, 48, 64, 128)), Axis("bn", (16, 32, 64, 96)))
    fits = Constraint("smem capacity", depth * (bm + bn) * 128 <= 49_152, "the stages must fit")
    even = Constraint("whole tiles", bm * bn % 1024 == 0, "a CTA needs whole warps of work")
    return Space(
        "tiles",
        (
            Part({"load": "direct"}, axes, (even,)),
            Part({"load": "staged"}, (*axes, Axis("stages", stages)), (fits, even)),
        ),
    )


def key(point: Point) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(point.items()))


# --- uniform draws ------------------------------------------------------------------------------------------------


def test_points_of_a_constrained_space_are_drawn_uniformly() -> None:
    space = tiles()
    listed = [point for _, columns in space.columns_by_part() for point in rows(columns)]
    assert 30 < len(listed) == space.size < space.raw_size
    draws = 200 * len(listed)
    counts = Counter(key(point) for point in space.sample(draws, np.random.default_rng(11)))
    assert set(counts) <= {key(point) for point in listed}
    chi_square = sum((counts[key(point)] - 200) ** 2 / 200 for point in listed)
    freedom = len(listed) - 1
    # mean `freedom`, variance 2 `freedom`; six standard deviations
    assert abs(chi_square - freedom) < 6 * math.sqrt(2 * freedom)


@given(st.integers(0, 10_000), st.data())
@settings(max_examples=20, deadline=None)
def test_uniform_draws_of_random_constrained_spaces(seed: int, data: st.DataObject) -> None:
    modulus = data.draw(st.integers(2, 5))
    a, b, c = symbol("a"), symbol("b"), symbol("c")
    axes = tuple(Axis(name, tuple(range(1, data.draw(st.integers(2, 5)) + 1))) for name in "abc")
    space = Space("random", (Part({}, axes, (Constraint("rule", (a * b + c) % modulus == 0, "a rule"),)),))
    if not space.size:
        return
    counts = Counter(key(point) for point in space.sample(100 * space.size, np.random.default_rng(seed)))
    chi_square = sum((counts[key(point)] - 100) ** 2 / 100 for point in space.points())
    assert chi_square < space.size - 1 + 6 * math.sqrt(2 * space.size)
    assert sum(counts.values()) == 100 * space.size


# --- spaces that cannot be listed ---------------------------------------------------------------------------------


class Unlisted:
    """A space that refuses to be listed."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def __getattr__(self, name: str) -> Any:
        return getattr(self.space, name)

    def __contains__(self, point: object) -> bool:
        return point in self.space

    def columns_by_part(self) -> Iterator[tuple[object, Columns]]:
        raise AssertionError("a space beyond a billion points must not be listed")


@pytest.mark.end_to_end
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "rl"])
def test_a_space_beyond_a_billion_points_is_searched_and_never_listed(name: str) -> None:
    axes = tuple(Axis(f"p{i}", tuple(range(1, 33))) for i in range(8))
    rules = tuple(
        Constraint(f"rule {i}", symbol(f"p{i}") * symbol(f"p{i + 1}") <= 256, "neighbours must fit") for i in range(7)
    )
    space = Space("large", (Part({}, axes, rules),))
    assert space.raw_size > 10**12
    assert space.size > 10**9

    def bowl(points: Sequence[Point]) -> list[Evaluation]:
        assert all(point in space for point in points)
        return [Evaluation(float(1 + sum((int(v) - 6) ** 2 for v in point.values()))) for point in points]

    # a proposal of the surrogate costs more than one of the others, and is worth more
    budget = 60 if name == "surrogate" else 250
    searched = minimize(Unlisted(space), bowl, strategy=name, evaluations=budget, seed=1)
    assert len(searched.history) == budget
    if name != "random":
        plain = minimize(Unlisted(space), bowl, strategy="random", evaluations=budget, seed=1)
        assert (searched.value or 0) < (plain.value or 0)


# --- crossover ----------------------------------------------------------------------------------------------------


@given(problems(), st.integers(0, 100), st.data())
@settings(max_examples=80, deadline=None)
def test_children_are_admitted_and_have_their_mothers_parameters(
    problem: tuple[TableSpace, dict], seed: int, data: st.DataObject
) -> None:
    space, _ = problem
    mother, father = data.draw(st.sampled_from(space.listed)), data.draw(st.sampled_from(space.listed))
    child = crossed(space, mother, father, np.random.default_rng(seed))
    assert child in space
    assert set(child) == set(mother)


def test_children_take_after_both_parents() -> None:
    space = tiles()
    mother = {"load": "staged", "bm": 64, "bn": 32, "stages": 2}
    father = {"load": "staged", "bm": 32, "bn": 64, "stages": 4}
    children = [crossed(space, mother, father, np.random.default_rng(seed)) for seed in range(60)]
    # values of either parent are there together, which neither has
    assert any(child["bm"] == 64 and child["stages"] == 4 for child in children)
    assert any(child["bm"] == 32 and child["stages"] == 2 for child in children)
    # and now and then a value that neither has
    assert any(child["stages"] in (1, 3) for child in children)


@given(st.lists(st.integers(1, 1000), min_size=1, unique=True), st.integers(1, 1000))
def test_the_nearest_value_has_the_least_ratio(legal: list[int], wanted: int) -> None:
    found = nearest(legal, wanted)
    assert found in legal
    if wanted in legal:
        assert found == wanted
    ratios = [max(v + 1, wanted + 1) / min(v + 1, wanted + 1) for v in legal]
    assert max(int(found) + 1, wanted + 1) / min(int(found) + 1, wanted + 1) == pytest.approx(min(ratios))


# --- walks --------------------------------------------------------------------------------------------------------


class Line(TableSpace):
    """Points in a row; a step goes to the next one."""

    def __init__(self, count: int) -> None:
        super().__init__({"p0": i} for i in range(count))

    def neighbours(self, point: Point) -> list[Point]:
        return [{"p0": int(point["p0"]) + d} for d in (-1, 1) if {"p0": int(point["p0"]) + d} in self]


def test_the_tabu_leads_a_walk_out_of_a_small_valley() -> None:
    # down to 3, three steps up, then down to the optimum at 14
    values = [6, 4, 2, 1, 2, 3, 4, 3, 2.5, 2, 1.5, 1.2, 0.8, 0.5, 0.0, 5, 9, 9, 9, 9]
    space = Line(len(values))

    def valley(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(float(values[int(p["p0"])])) for p in points]

    found = [minimize(space, valley, strategy="local", evaluations=18, seed=seed).value for seed in range(20)]
    assert sum(value == 0.0 for value in found) >= 18


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in SEARCHES if name not in ("random", "rl")])
def test_every_search_beats_random_draws_where_neighbours_are_alike(name: str) -> None:
    space = TableSpace({f"p{i}": v for i, v in enumerate(row)} for row in itertools.product(range(10), repeat=3))

    def bowl(points: Sequence[Point]) -> list[Evaluation]:
        return [Evaluation(float(1 + sum((int(v) - 3) ** 2 for v in point.values()))) for point in points]

    budget, seeds = (25, 4) if name == "surrogate" else (100, 8)

    def mean(strategy: str) -> float:
        found = [minimize(space, bowl, strategy=strategy, evaluations=budget, seed=s).value or 0 for s in range(seeds)]
        return sum(found) / seeds

    assert mean(name) < 0.8 * mean("random")


# --- the model ----------------------------------------------------------------------------------------------------


@given(problems(), st.data())
@settings(max_examples=60, deadline=None)
def test_different_points_have_different_vectors(problem: tuple[TableSpace, dict], data: st.DataObject) -> None:
    space, _ = problem
    encoding = learn_encoding([columns for _, columns in space.columns_by_part()])
    vectors = encoding.encode(space.listed)
    assert vectors.shape == (space.size, encoding.width) == (space.size, len(encoding.groups))
    assert len({tuple(row) for row in vectors.round(9).tolist()}) == space.size
    assert vectors.size == 0 or (vectors.min() >= 0 and vectors.max() <= 1)


@given(problems(), st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_drawn_candidates_are_points_with_their_vectors(problem: tuple[TableSpace, dict], count: int) -> None:
    space, _ = problem
    candidates = Candidates(space, np.random.default_rng(0))
    drawn = candidates.draw(count)
    points = [drawn.point(number) for number in range(len(drawn.vectors))]
    assert len({space.key(point) for point in points}) == len(points) == min(count, space.size)
    assert all(point in space for point in points)
    assert np.array_equal(candidates.given(points).vectors, drawn.vectors)


def test_points_with_the_same_parameters_come_together() -> None:
    groups = by_names([{"a": 1}, {"a": 2, "b": "x"}, {"a": 3}])
    assert [{name: column.tolist() for name, column in group.items()} for group in groups] == [
        {"a": [1, 3]},
        {"a": [2], "b": ["x"]},
    ]


def test_predictions_are_those_of_the_textbook() -> None:
    # with its own lengths and noise, the conditional of a joint normal distribution, computed by solving
    rng = np.random.default_rng(3)
    vectors, others = rng.random((25, 3)), rng.random((7, 3))
    values = np.sin(5 * vectors[:, 0]) + vectors[:, 1] ** 2
    values = (values - values.mean()) / values.std()
    model = GaussianProcess(np.array([0, 1, 1]))
    model.fit(vectors, values)
    scale = 1 / model.lengths[[0, 1, 1]]

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return _matern(np.linalg.norm((a[:, None] - b[None]) * scale, axis=2))[0]

    covariance = kernel(vectors, vectors) + (math.exp(model._theta[-1]) + 1e-8) * np.eye(25)
    amplitude = values @ np.linalg.solve(covariance, values) / 25
    mean, deviation = model.predict(others)
    across = kernel(others, vectors)
    assert mean == pytest.approx(across @ np.linalg.solve(covariance, values), abs=1e-6)
    explained = np.einsum("ij,ji->i", across, np.linalg.solve(covariance, across.T))
    assert deviation == pytest.approx(np.sqrt(amplitude * (1 - explained)), rel=1e-3)


def test_a_parameter_that_does_not_matter_gets_a_long_length() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.random((60, 2))
    values = np.sin(9 * vectors[:, 0])
    model = GaussianProcess(np.array([0, 1]))
    model.fit(vectors, (values - values.mean()) / values.std())
    assert model.lengths[1] > 3 * model.lengths[0]
    mean, _ = model.predict(vectors)
    assert mean == pytest.approx((values - values.mean()) / values.std(), abs=0.1)


def test_a_value_tells_as_much_of_other_points_however_many_parameters_there_are() -> None:
    # before anything is fitted: of a point that is 0.4 of the range away in every parameter
    told = []
    for parameters in (1, 6, 24):
        model = GaussianProcess(np.arange(parameters))
        model.condition(np.zeros((1, parameters)), np.ones(1))
        told.append(float(model.predict(np.full((1, parameters), 0.4))[0][0]))
    assert told == pytest.approx([told[0]] * 3)
    assert 0.2 < told[0] < 0.5
    # a second coordinate of a parameter is no further parameter
    encoding = learn_encoding([{"a": np.array([8, 12, 16, 24]), "b": np.array([1, 2, 4, 4])}])
    assert (len(encoding.coordinates), encoding.parameters) == (3, 2)
    model = GaussianProcess(encoding.groups, encoding.parameters)
    assert model.lengths == pytest.approx([GaussianProcess(np.arange(2)).lengths[0]] * 3)


@pytest.mark.parametrize("z", [3.0, 0.5, 0.0, -1.0, -4.0, -5.0, -8.0, -15.0])
def test_expected_improvement_agrees_with_an_integral(z: float) -> None:
    # E[max(0, best - X)] for X normal with deviation 2, best = mean + 2 z, over 0 < improvement
    gain = np.linspace(0, 12 + abs(z), 400_001)
    density = np.exp(-((z - gain) ** 2) / 2 + (z * z / 2 if z < 0 else 0)) / math.sqrt(2 * math.pi)
    integral = math.log(np.trapezoid(gain * density, gain)) - (z * z / 2 if z < 0 else 0) + math.log(2)
    found = log_expected_improvement(np.array([0.0]), np.array([2.0]), 2 * z)[0]
    assert found == pytest.approx(integral, abs=0.02)


def test_the_surrogate_learns_which_points_fail() -> None:
    # the better half of the space fails; a search that does not learn it goes on there
    space = TableSpace({"x": x, "y": y} for x in range(20) for y in range(20))

    def measured(points: Sequence[Point]) -> list[Evaluation]:
        failure = Failure("launch", "too many registers")
        return [
            Evaluation(failure=failure)
            if int(p["x"]) > 9
            else Evaluation(100.0 - int(p["x"]) * 5 + abs(int(p["y"]) - 7))
            for p in points
        ]

    for seed in range(3):
        result = minimize(space, measured, strategy="surrogate", evaluations=45, seed=seed)
        assert result.value == 55.0
        assert sum(result.failures().values()) < 20


@given(problems(), st.sampled_from(SEARCHES), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_no_evaluation_is_spent_on_a_point_outside_or_twice(
    problem: tuple[TableSpace, dict], name: str, seed: int
) -> None:
    space, table = problem
    objective = Recording(space, table)
    searched: Searchable = space
    minimize(searched, objective, strategy=name, evaluations=20, seed=seed)
    assert len(objective.asked) == len(set(objective.asked))
    assert set(objective.asked) <= space.keys
