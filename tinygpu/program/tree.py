"""Walking a program: its statements, the blocks around them, and the expressions inside any of its values.

All of it goes by what statements say of themselves (`tinygpu.program.statement`), never by their classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar

from tinygpu.expressions import Expr
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n

T = TypeVar("T")


# Bodies of which is remembered what stands in them: a program is asked time and again while it is traced, counted and
# lowered, and neither it nor its statements ever change.
REMEMBERED = 1 << 10


@lru_cache(maxsize=REMEMBERED)
def walk(body: tuple[n.Statement, ...]) -> tuple[n.Statement, ...]:
    """All statements, nested ones included, in order."""
    return tuple(place.statement for place in places(body))


def leaves(body: tuple[n.Statement, ...]) -> Iterator[n.Statement]:
    """The statements that contain no others."""
    return (s for s in walk(body) if not s.children)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A statement where it stands.

    around  the blocks that contain it, each with the one of its bodies that does, the outermost first
    """

    statement: n.Statement
    around: tuple[tuple[n.Statement, n.Body], ...]

    @property
    def role(self) -> str:
        """The role that carries it out; "" outside of all."""
        return next((block.role for block, _ in reversed(self.around) if isinstance(block, n.InRole)), "")

    @property
    def loops(self) -> tuple[n.Repeated, ...]:
        """The blocks around it that are carried out in rounds, the outermost first."""
        return tuple(block for block, _ in self.around if isinstance(block, n.Repeated))

    @property
    def consumes(self) -> frozenset[str]:
        """The pipelines that have a slot consumed meanwhile."""
        return frozenset(name for _, body in self.around if body.consumes for name in (body.consumes, *body.along))


@lru_cache(maxsize=REMEMBERED)
def places(body: tuple[n.Statement, ...]) -> tuple[Place, ...]:
    """All statements in order, each with the blocks around it."""
    found = []
    ahead = [Place(s, ()) for s in reversed(body)]
    while ahead:
        place = ahead.pop()
        found.append(place)
        for inner in reversed(place.statement.children):
            around = (*place.around, (place.statement, inner))
            ahead += [Place(s, around) for s in reversed(inner.statements)]
    return tuple(found)


Does = Literal["produce", "consume"]


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A body in which a slot of a pipeline is produced or consumed, and the place of the statement that has it."""

    place: Place
    body: n.Body
    does: Does

    @property
    def loops(self) -> tuple[n.Repeated, ...]:
        """The blocks of rounds around the body, the outermost first: its own statement may be one."""
        own = self.place.statement
        return (*self.place.loops, own) if isinstance(own, n.Repeated) else self.place.loops


def uses(body: tuple[n.Statement, ...], pipeline: str) -> tuple[Use, ...]:
    """Every body in which a slot of the pipeline is produced or consumed."""
    return _uses(body).get(pipeline, ())


@lru_cache(maxsize=REMEMBERED)
def _uses(body: tuple[n.Statement, ...]) -> Mapping[str, tuple[Use, ...]]:
    """The same of every pipeline, by its name."""
    found: dict[str, tuple[Use, ...]] = {}
    for place in places(body):
        for inner in place.statement.children:
            for name in dict.fromkeys((inner.produces, *inner.along)) if inner.produces else ():
                found[name] = (*found.get(name, ()), Use(place, inner, "produce"))
            for name in dict.fromkeys((inner.consumes, *inner.along)) if inner.consumes else ():
                found[name] = (*found.get(name, ()), Use(place, inner, "consume"))
    return found


def fold(
    body: tuple[n.Statement, ...], combine: Callable[[n.Statement, tuple[tuple[T, ...], ...]], T]
) -> tuple[T, ...]:
    """What `combine` makes of every statement of a body and of what it made of its children's, from the leaves up."""
    return tuple(combine(s, tuple(fold(inner.statements, combine) for inner in s.children)) for s in body)


def transform(
    body: tuple[n.Statement, ...], function: Callable[[n.Statement], n.Statement]
) -> tuple[n.Statement, ...]:
    """The body with every statement replaced, from the leaves up; what does not change stays the same object."""

    def changed(s: n.Statement, inner: tuple[tuple[n.Statement, ...], ...]) -> n.Statement:
        before = tuple(b.statements for b in s.children)
        same = all(a is b for old, new in zip(before, inner, strict=True) for a, b in zip(old, new, strict=True))
        return function(s if same else s.with_children(*inner))

    return fold(body, changed)


def executions(
    body: tuple[n.Statement, ...],
    known: Mapping[str, int],
    number: Callable[[Expr, Mapping[str, int]], int],
    idle: frozenset[str] = frozenset(),
) -> Iterator[tuple[n.Statement, Mapping[str, int]]]:
    """Every statement that contains no others, once per round of every loop around it, with the values of the indices.

    number  the value of an expression, or whether a condition holds
    idle    roles that are left out

    Numbers that data say are what they are taken for where nothing is known of the data.
    """
    for s in body:
        if isinstance(s, n.InRole) and s.role in idle:
            continue
        if s.taken_where is not None and not number(s.taken_where, known):
            continue
        if s.defines:
            known = {**known, **{name: number(taken_for, known) for name, taken_for in s.defines.items()}}
        if not s.children:
            yield s, known
        elif isinstance(s, n.Repeated):
            first = number(s.first, known)
            for index in range(first, first + number(s.trips, known)):
                for inner in s.children:
                    yield from executions(inner.statements, {**known, s.index: index}, number, idle)
        else:
            for inner in s.children:
                yield from executions(inner.statements, known, number, idle)


@lru_cache(maxsize=256)
def field_names(kind: type) -> tuple[str, ...]:
    """The fields that values of this class are made of; none of a class that is no dataclass."""
    return tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()


def expressions(value: Any) -> Iterator[Expr]:
    """All expressions inside a value; those of a part that stands in several places once."""
    found: list[Expr] = []
    _gather(value, found, set())
    return iter(found)


def _gather(value: Any, found: list[Expr], seen: set[int]) -> None:
    """Adds the expressions of a value, except those of parts that were `seen`: they have the same identity."""
    if isinstance(value, Expr):
        found.append(value)
        return
    if isinstance(value, tuple):
        for item in value:
            _gather(item, found, seen)
        return
    kind: type = type(value)
    names = field_names(kind)
    if not names or id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Layout):
        found += value.expressions
    else:
        for name in names:
            _gather(getattr(value, name), found, seen)


def replace_expressions(value: T, function: Callable[[Expr], Expr]) -> T:
    """The same value with every expression replaced.

    What does not change stays the same object, and what is one object in several places is one object afterwards:
    where a tile is written and where it is read it has the same partition, which remembers what it was asked.
    """
    made: T = _replaced(value, function, {})
    return made


def _replaced(value: Any, function: Callable[[Expr], Expr], known: dict[int, Any]) -> Any:
    """As `replace_expressions`; `known` has what was made of a part, by its identity."""
    if isinstance(value, Expr):
        return function(value)
    if isinstance(value, tuple):
        new = tuple([_replaced(v, function, known) for v in value])
        return value if all(a is b for a, b in zip(value, new, strict=True)) else new
    kind: type = type(value)
    names = field_names(kind)
    if not names:
        return value
    if id(value) not in known:
        if isinstance(value, Layout):
            made: Any = value.replaced(function)
        else:
            old = [getattr(value, name) for name in names]
            new = tuple([_replaced(v, function, known) for v in old])
            same = all(a is b for a, b in zip(old, new, strict=True))
            made = value if same else kind(**dict(zip(names, new, strict=True)))
        known[id(value)] = made
    return known[id(value)]
