"""Random small spaces, and their survivors by plain enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tinygpu.constraints import Constraint
from tinygpu.expressions import Expr, all_of, any_of, ceil_div, maximum, symbol, where
from tinygpu.spaces import Axis, Choice, Part, Space

NUMERIC = ("a", "b", "c", "d", "e")
WORD = "mode"


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Constraint):
    """A constraint that also carries its meaning in plain Python."""

    meaning: Callable[[Mapping[str, int]], bool] = field(default=lambda values: True, kw_only=True)


Meaning = Callable[[Mapping[str, int]], int]


@st.composite
def terms(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Expr, Meaning]:
    i, j = (draw(st.sampled_from(names)) for _ in range(2))
    x, y = symbol(i), symbol(j)
    return draw(
        st.sampled_from(
            [
                (x, lambda v: v[i]),
                (x + y, lambda v: v[i] + v[j]),
                (x * y, lambda v: v[i] * v[j]),
                (x * 2, lambda v: v[i] * 2),
                (x * y + x, lambda v: v[i] * v[j] + v[i]),
                (maximum(x, y), lambda v: max(v[i], v[j])),
                (x // (y + 1), lambda v: v[i] // (v[j] + 1)),
                (ceil_div(x, y + 1), lambda v: -(-v[i] // (v[j] + 1))),
                (where(x > 2, x, y), lambda v: v[i] if v[i] > 2 else v[j]),
            ]
        )
    )


@st.composite
def relations(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Expr, Meaning]:
    (left, f), (right, g) = draw(terms(names)), draw(terms(names))
    limit = draw(st.integers(0, 20))
    return draw(
        st.sampled_from(
            [
                (left <= limit, lambda v: f(v) <= limit),
                (left >= limit, lambda v: f(v) >= limit),
                (left <= right, lambda v: f(v) <= g(v)),
                (left % (right + 1) == 0, lambda v: f(v) % (g(v) + 1) == 0),
                (left != right, lambda v: f(v) != g(v)),
                (left == right, lambda v: f(v) == g(v)),
            ]
        )
    )


@st.composite
def rules(draw: st.DrawFn, names: tuple[str, ...], most: int = 6) -> tuple[Rule, ...]:
    out = []
    for i in range(draw(st.integers(0, most))):
        parts = draw(st.lists(relations(names), min_size=1, max_size=2))
        join, judge = draw(st.sampled_from([(all_of, all), (any_of, any)]))
        kind = draw(st.sampled_from(["legality", "dominance"]))
        condition, meanings = join([c for c, _ in parts]), [m for _, m in parts]
        out.append(
            Rule(f"rule {i}", condition, f"rule {i} must hold", kind=kind, meaning=_joined(judge, meanings))
        )
    return tuple(out)


def _joined(judge: Callable[[Any], bool], meanings: list[Meaning]) -> Callable[[Mapping[str, int]], bool]:
    return lambda values: judge(m(values) for m in meanings)


@st.composite
def parts(draw: st.DrawFn, fixed: Mapping[str, Choice], most_rules: int = 6) -> Part:
    names = draw(st.lists(st.sampled_from(NUMERIC), unique=True, min_size=1, max_size=5))
    values = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=4).map(tuple)
    axes = [Axis(name, draw(values)) for name in names]
    if draw(st.booleans()):
        axes.insert(draw(st.integers(0, len(axes))), Axis(WORD, ("row", "column")))
    environment = {"m": draw(st.integers(0, 30)), "device.limit": draw(st.integers(0, 30))}
    known = (*names, *environment, *(n for n, v in fixed.items() if isinstance(v, int)))
    return Part(fixed, tuple(axes), draw(rules(known, most_rules)), environment)


@st.composite
def spaces(draw: st.DrawFn, most_rules: int = 6) -> Space:
    count, deeper = draw(st.integers(1, 3)), draw(st.booleans())  # two fixed choices or one tell parts apart
    fixed = [{"way": f"w{i}", "depth": i * deeper} for i in range(count)]
    return Space("random", tuple(draw(parts(own, most_rules)) for own in fixed))


def combinations(part: Part) -> Iterator[dict[str, Choice]]:
    """Every combination of a part, in plain nested loops."""
    for values in itertools.product(*(a.values for a in part.axes)):
        yield {**part.fixed, **dict(zip((a.name for a in part.axes), values, strict=True))}


def number_of(part: Part, point: Mapping[str, Choice]) -> dict[str, int]:
    return {**part.environment, **{n: v for n, v in point.items() if isinstance(v, int)}}


def admitted(part: Part, point: Mapping[str, Choice], constraints: Iterable[Constraint] | None = None) -> bool:
    """Whether the point satisfies the constraints, by their meaning in plain Python."""
    values = number_of(part, point)
    return all(c.meaning(values) for c in (part.constraints if constraints is None else constraints))


def survivors(part: Part) -> list[dict[str, Choice]]:
    return [p for p in combinations(part) if admitted(part, p)]


def as_key(point: Mapping[str, Choice]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((n, repr(v)) for n, v in point.items()))
