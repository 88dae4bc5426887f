"""A space that is a list of points: what every strategy is tested on."""

import itertools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from hypothesis import strategies as st

from tinygpu.search import Columns, Evaluation, Failure, Point
from tinygpu.search.searchable import rows


class TableSpace:
    """Listed points, one part per set of parameters; neighbours differ in one parameter."""

    def __init__(self, points: Iterable[Point]) -> None:
        groups: dict[tuple[str, ...], list[dict[str, int | str]]] = {}
        for point in points:
            groups.setdefault(tuple(point), []).append(dict(point))
        self.groups = groups
        self.listed = [point for group in groups.values() for point in group]
        self.keys = {self.key(point) for point in self.listed}

    @staticmethod
    def key(point: Point) -> tuple[object, ...]:
        return tuple(sorted(point.items()))

    @property
    def size(self) -> int:
        return len(self.listed)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for group in self.groups for name in group))

    def legal_values(self, partial: Point, name: str) -> Sequence[int | str]:
        fitting = [p for p in self.listed if name in p and all(p.get(n) == v for n, v in partial.items() if n != name)]
        return list(dict.fromkeys(point[name] for point in fitting))

    def __contains__(self, point: object) -> bool:
        return isinstance(point, dict) and self.key(point) in self.keys

    def columns_by_part(self) -> Iterable[tuple[object, Columns]]:
        for names, group in self.groups.items():
            yield names, {name: np.array([point[name] for point in group]) for name in names}

    def sample(self, count: int, rng: np.random.Generator) -> Sequence[Point]:
        return [self.listed[i] for i in rng.integers(len(self.listed), size=count)]

    def neighbours(self, point: Point) -> Iterable[Point]:
        others = self.groups[tuple(point)]
        return [other for other in others if sum(other[name] != value for name, value in point.items()) == 1]


class Recording:
    """An objective from a table of evaluations, which keeps every point that it was asked for."""

    def __init__(self, space: TableSpace, table: dict[tuple[object, ...], Evaluation]) -> None:
        self.space = space
        self.table = table
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        self.asked += [self.space.key(point) for point in points]
        return [self.table[self.space.key(point)] for point in points]


class RecordingColumns(Recording):
    """The same, as arrays."""

    def score_columns(self, columns: Columns, /) -> np.ndarray:
        keys = [self.space.key(point) for point in rows(columns)]
        values = [self.table[key].value for key in keys]
        self.asked += [key for key, value in zip(keys, values, strict=True) if value is not None]
        return np.array([math.nan if value is None else value for value in values])


def evaluations() -> st.SearchStrategy[Evaluation]:
    value = st.one_of(st.integers(0, 5).map(float), st.floats(-1e6, 1e6, allow_nan=False))
    failure = st.sampled_from(["assembler", "timeout"]).map(lambda kind: Failure(kind, f"it ended in {kind}"))
    return st.one_of(value.map(Evaluation), value.map(Evaluation), failure.map(lambda f: Evaluation(failure=f)))


@st.composite
def problems(draw: st.DrawFn, failing: bool = True) -> tuple[TableSpace, dict[tuple[object, ...], Evaluation]]:
    """Random subsets of one or two small products, with a random evaluation for each point."""
    product = []
    for part in draw(st.sampled_from([["bm"], ["bm load"], ["load bn bm"], ["bm load", "bm bn"], ["bm", "bm bn"]])):
        domains: dict[str, list[int | str]] = {}
        for name in part.split():
            values = st.sampled_from(["direct", "staged", "bulk"]) if name == "load" else st.integers(0, 9)
            domains[name] = draw(st.lists(values, min_size=1, max_size=4, unique=True))
        product += [dict(zip(domains, row, strict=True)) for row in itertools.product(*domains.values())]
    kept = draw(st.lists(st.booleans(), min_size=len(product), max_size=len(product)).filter(any))
    space = TableSpace(point for point, keep in zip(product, kept, strict=True) if keep)
    table = {space.key(point): draw(evaluations()) for point in space.listed}
    if not failing:
        table = {key: given if given.value is not None else Evaluation(7.0) for key, given in table.items()}
    return space, table


def least(table: dict[tuple[object, ...], Evaluation]) -> float | None:
    return min((given.value for given in table.values() if given.value is not None), default=None)
