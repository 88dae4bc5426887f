"""Filling numbers into programs: nothing is overlooked, and what is one thing before is one thing after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.expressions import Expr
from tinygpu.language.declared import Declared
from tinygpu.language.machine import Machine
from tinygpu.language.parameters import Param
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import Step
from tinygpu.machines.elementwise import Axpby
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, places, replace_expressions, uses, walk
from tinygpu.spaces.build import MachineSpace, build_space

MACHINES = (Axpby, MatmulAmpere, MatmulHopper)


@cache
def space_of(machine: type[Machine]) -> MachineSpace:
    problem = machine.problem(**dict.fromkeys(machine.dim_names(), 256))
    return build_space(machine, problem, device("h100" if machine is MatmulHopper else "a100"))


def traced(machine: type[Machine]) -> Program:
    """The program of the last structure."""
    return space_of(machine).traces[-1].program


def occurrences(value: Any) -> Iterator[tuple[Any, ...]]:
    """Every value inside a value, however often it stands there, with the path of fields that leads to it."""
    yield (value,)
    inner = ()
    if isinstance(value, tuple):
        inner = tuple(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        inner = tuple((f.name, getattr(value, f.name)) for f in fields(value))
    for step, part in inner:
        for found, *path in occurrences(part):
            yield found, step, *path


def leaves(layout: Layout) -> Iterator[Expr]:
    for size, stride in layout.steps:
        counts = [count for _, count in stride.terms] if hasattr(stride, "terms") else [stride]
        yield from (leaf for leaf in (size, *counts) if isinstance(leaf, Expr))


@pytest.mark.parametrize("machine", MACHINES)
def test_every_expression_is_found_wherever_it_stands(machine: type[Machine]) -> None:
    program = traced(machine)
    every = [v for v, *_ in occurrences(program)]
    expected = {v.sympy for v in every if isinstance(v, Expr)}
    expected |= {e.sympy for v in every if isinstance(v, Layout) for e in leaves(v)}
    found = [e.sympy for e in expressions(program)]
    assert set(found) == expected
    assert len(found) < len(every)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_one_object_before_is_one_object_after(machine: type[Machine]) -> None:
    space = space_of(machine)
    (point,) = space.sample(1)
    index = space.structure_index(point)
    program, filled = space.traces[index].program, space.program(point)
    assert not {name for e in expressions(filled) for name in e.symbols} & {*space.traces[index].axes}
    # the leaves of a layout are its own
    before = {tuple(path): v for v, *path in occurrences(program) if is_dataclass(v) and not isinstance(v, Step)}
    after = {tuple(path): v for v, *path in occurrences(filled)}
    shared = 0
    first: dict[int, Any] = {}
    for path, value in before.items():
        shared += id(value) in first
        assert first.setdefault(id(value), after[path]) is after[path], path
    assert shared > 10


@pytest.mark.parametrize("machine", MACHINES)
def test_what_does_not_change_stays_itself(machine: type[Machine]) -> None:
    program = traced(machine)
    assert replace_expressions(program, lambda e: e) is program


@pytest.mark.parametrize("machine", MACHINES)
def test_statements_come_in_the_order_of_their_places(machine: type[Machine]) -> None:
    program = traced(machine)
    assert [id(s) for s in walk(program.body)] == [id(p.statement) for p in places(program.body)]


def plainly(body: Any, around: Any = ()) -> Iterator[tuple[Any, Any]]:
    """(statement, the blocks around it) of all statements, by going down into each."""
    for s in body:
        yield s, around
        for inner in s.children:
            yield from plainly(inner.statements, (*around, (s, inner)))


def named(around: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Blocks by what they are, and which of their bodies is meant by its statements."""
    return [(id(block), tuple(map(id, inner.statements))) for block, inner in around]


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_remembered_of_a_body_is_what_going_through_it_finds(machine: type[Machine]) -> None:
    """Asked twice, of the whole and of every body in it."""
    program = traced(machine)
    bodies = [program.body, *(inner.statements for s, _ in plainly(program.body) for inner in s.children)]
    for body in (*bodies, *bodies):
        plain = list(plainly(body))
        assert [(id(p.statement), named(p.around)) for p in places(body)] == [(id(s), named(a)) for s, a in plain]
        assert [id(s) for s in walk(body)] == [id(s) for s, _ in plain]
        for name in [p.name for p in program.pipelines]:
            wanted = [
                (id(s), named(around), tuple(map(id, inner.statements)), does)
                for s, around in plain
                for inner in s.children
                for does, slot in (("produce", inner.produces), ("consume", inner.consumes))
                if slot and name in (slot, *inner.along)
            ]
            found = [
                (id(u.place.statement), named(u.place.around), tuple(map(id, u.body.statements)), u.does)
                for u in uses(body, name)
            ]
            assert found == wanted


def test_declarations_are_those_of_all_classes_less_the_names_given_anew() -> None:
    class Base(Declared):
        first, second, third = Param(1), Param(2), Param(3)

    class Other(Declared):
        third, fourth = Param(4), Param(5)

    class Derived(Base, Other):
        fifth = Param(6)
        first = None
        second = Param(7)

    def declared(machine: type[Declared]) -> list[tuple[str, tuple[int, ...]]]:
        return [(p.name, p.values) for p in machine.params()]

    assert declared(Base) == [("first", (1,)), ("second", (2,)), ("third", (3,))]
    assert declared(Derived) == [("fourth", (5,)), ("third", (3,)), ("fifth", (6,)), ("second", (7,))]
    assert (Derived().attribute_of(Derived.second), Derived().attribute_of(Base.third)) == ("second", "third")
