"""Register tiles that are combined, and the threads of roles: what the rules admit is what each thread can do alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from negation import Program, refused, thing

from tinygpu.dtypes import dtype
from tinygpu.expressions import evaluate
from tinygpu.language import DeclarationError, E, Layout, Param, Partition, blocked
from tinygpu.language.declared import Declared
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import UnknownLayout
from tinygpu.language.partition import expr
from tinygpu.language.tile import Tile
from tinygpu.language.trace import trace
from tinygpu.language.tracing.operand_checks import OperandChecks
from tinygpu.language.verb import KINDS, verb
from tinygpu.layouts.step import Step
from tinygpu.ptx import isa

SHAPE = (expr(8), expr(16))


def places(who: Partition, axes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per thread, where it stands along some axes."""
    out = []
    for thread in range(int(who.thread_count)):
        at, rest = [0, 0], thread
        for size, stride in who.threads.steps:
            rest, digit = divmod(rest, int(size))
            for axis, count in stride.terms if isinstance(stride, Step) else ():
                at[int(axis)] += digit * int(count)
        out.append(tuple(at[a] for a in axes))
    return out


def dealt(*threads: tuple[int, int | None, int]) -> Partition:
    digits = [(size, 0 if axis is None else steps * E(axis)) for size, axis, steps in threads]
    return Partition(SHAPE, Layout.of(digits, []))


@st.composite
def partitions(draw: st.DrawFn) -> Partition:
    """32 threads over 8 x 16 elements, in any two digits along the axes or along none."""
    across = draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    axes = draw(st.sampled_from([(0, 1), (1, 0), (0, 1), (1, 0), (0, 0), (None, 1), (0, None)]))
    strides = [0 if axis is None else draw(st.sampled_from([1, 1, 2])) for axis in axes]
    return dealt((across, axes[0], strides[0]), (32 // across, axes[1], strides[1]))


FLAT = dealt((16, 1, 1), (2, 0, 1))


def same_threads(mine: Partition, wanted: Partition, kept: int | None) -> bool:
    """By the digits: alike but for those of one value, once all but the kept axis is left out."""
    wanted = wanted if kept is None else wanted.along(kept)
    pairs = zip(mine.threads.steps, wanted.threads.steps, strict=True)
    return all(have == want or have[0] == want[0] == 1 for have, want in pairs)


@settings(max_examples=45)
@given(partitions(), partitions(), st.sampled_from([None, 0, 1]))
@example(FLAT, FLAT, None)
@example(FLAT, FLAT, 0)
@example(FLAT, dealt((16, 0, 1), (2, 1, 1)), None)
@example(FLAT, dealt((16, 1, 2), (2, 0, 1)), None)
@example(FLAT, dealt((16, 1, 2), (2, 0, 1)), 0)
@example(dealt((32, 1, 1), (1, 0, 1)), dealt((32, 1, 1), (1, 1, 4)), None)
@example(dealt((32, 1, 1), (1, 0, 1)), dealt((32, 1, 1), (1, 0, 4)), None)
def test_what_is_combined_is_held_by_the_same_threads(whole: Partition, other: Partition, kept: int | None) -> None:
    """The other is whole too, or stands for all along the axis that is not kept."""
    other = other if kept is None else other.along(kept)
    checks = OperandChecks(Declared())
    tiles = [
        Tile(f"v{number}", RMEM, dtype("f32"), who.shape, (expr(0), expr(0)), partition=who)
        for number, who in enumerate((whole, other))
    ]
    checks._broadcasts("add", (*tiles, 1.0), tiles[0])
    holds = all(bool(c.condition.sympy) for c in checks.constraints)
    assert holds == same_threads(other, whole, kept)
    assert {(c.name, c.sentence) for c in checks.constraints} <= {
        ("threads of v1", "each thread holds the values of v1 that add combines with its own")
    }
    if holds:
        axes = (0, 1) if kept is None else (kept,)
        assert places(whole, axes) == places(other, axes)


def of_a_role(warps: int | None, threads: int, constant: bool) -> Program:
    """A role that fills a tile of as many elements as threads, from x or with a constant."""

    def program(self: Any, p: Any) -> None:
        who = blocked((threads,), threads=threads)
        with p.grid((self.n, threads)) as (i,), p.role("all", warps=warps or self.warps):
            value = p.full(who, "f32") if constant else p.load(self.ld, self.x.tile(i, shape=who.shape), who)
            p.store(self.st, self.y.tile(i, shape=who.shape), value)

    return program


@pytest.mark.parametrize(("constant", "named"), [(False, "x"), (True, "the constant")])
def test_a_role_has_the_threads_that_its_tiles_are_divided_among(constant: bool, named: str) -> None:
    rule = f"the role has the threads among which {named} is divided"
    impossible = f"Thing.program: it can never work, whatever the parameters: {rule}"
    refused(lambda: thing(of_a_role(1, 64, constant)), impossible)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("across", "tall"), [(1, 32), (4, 8), (8, 8), (2, 32), (32, 2), (16, 4), (64, 1), (1, 64)])
def test_what_is_reduced_lies_in_lanes_of_one_warp(across: int, tall: int, axis: int) -> None:
    def program(self: Any, p: Any) -> None:
        who = blocked((tall, across), threads=across * tall, across=across)
        with p.grid((self.n, 1)) as (i,), p.role("all", warps=2):
            row = p.reduce(isa.Max("f32"), p.full(who, "f32"), axis=axis, by=isa.ShflBfly())
            window = self.y.row(i, across) if axis == 0 else self.y.column(i, tall)
            p.store(self.st, window, row)

    reach = across * tall if axis == 0 else across  # lanes between which values go
    if reach <= 32 or (tall, across)[axis] == 1:
        assert thing(program).dim_names() == ("n",)
    else:
        sentence = "the threads along the reduced axis are lanes of one warp"
        refused(lambda: thing(program), f"Thing.program: it can never work, whatever the parameters: {sentence}")


@pytest.mark.parametrize(("warps", "asked"), [(2, False), (4, False), (None, True)])
def test_a_role_may_have_more_threads_than_a_tile_needs(warps: int | None, asked: bool) -> None:
    made = thing(of_a_role(warps, 64, False))
    rules = {c.name: c.condition for c in trace(made, made.problem(n=1), ()).constraints}
    assert ("threads for x" in rules) == asked
    if asked:
        assert [evaluate(rules["threads for x"], {"warps": w}) for w in (1, 2, 4)] == [False, True, True]


def test_a_role_with_a_budget_is_made_of_whole_warpgroups() -> None:
    def program(self: Any, p: Any) -> None:
        who = blocked((32,), threads=32)
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=self.warps, first=self.warps * 2, registers=24):
            p.store(self.st, self.y.tile(i, shape=(32,)), p.load(self.ld, self.x.tile(i, shape=(32,)), who))

    made = thing(program)
    rules = [c for c in trace(made, made.problem(n=1), ()).constraints if c.name.startswith("warpgroups of all")]
    assert {c.sentence for c in rules} == {"role all is made of whole warpgroups, which a register budget takes"}
    found = [[evaluate(c.condition, {"warps": w}) for w in (1, 2, 4)] for c in rules]
    assert found == [[False, False, True], [False, True, True]]


SAMPLES: dict[str, Any] = {
    "tile": Tile("v", RMEM, dtype("f32"), (expr(1),), (expr(0),)),
    "partition": FLAT,
    "expression": expr(3),
    "whole number": 3,
    "number": 0.5,
    "truth": True,
    "name": "ring",
    "type": dtype("f32"),
    "type's name": "f32",
    "pair": (1, expr(2)),
    "list": [1, 2],
    "three": (1, 2, 3),
    "one": (1,),
    "none of it": (),
    "names": ("a", "b"),
    "halves": (0.5, 0.5),
    "nothing": None,
    "layout": UnknownLayout(),
}
OPERANDS, TUPLES = {"expression", "whole number"}, {"pair", "list", "three", "one", "none of it"}
HOLDS: dict[str, set[str]] = {
    "Tile": {"tile"},
    "Tile | None": {"tile", "nothing"},
    "Partition": {"partition"},
    "Partition | None": {"partition", "nothing"},
    "TileScheduler | None": {"nothing"},
    "Operand": OPERANDS,
    "Operand | None": OPERANDS | {"nothing"},
    "Operand | tuple[Operand, ...]": OPERANDS | TUPLES,
    "tuple[Operand, ...]": TUPLES,
    "tuple[Operand, Operand]": {"pair", "list"},
    "tuple[Expr | int, Operand] | tuple[Expr | int, Operand, Operand]": {"pair", "list", "three"},
    "str | DType": {"type", "type's name", "name"},  # a name that there is not is refused by the verb, which lists all
    "DType | str": {"type", "type's name", "name"},
    "float": {"whole number", "number"},
    "int": {"whole number"},
    "int | None": {"whole number", "nothing"},
    "bool": {"truth"},
    "str": {"name", "type's name"},
}


def test_a_verb_takes_values_of_the_kind_that_it_names_and_no_others() -> None:
    assert set(HOLDS) == set(KINDS)
    for kind, expected in HOLDS.items():
        assert {name for name, value in SAMPLES.items() if KINDS[kind].holds(value)} == expected, kind


def test_a_verb_says_what_it_takes() -> None:
    @verb("p.take")
    def take(one: int, *others: int, last: float = 0.0, **named: str) -> int:
        return one + sum(others)

    @verb("p.nothing")
    def nothing() -> None:
        return

    size = Param(1, 2)
    size.bind_name("size")
    assert take(1, 2, 3, last=1, a="b") == 6
    wrong: list[tuple[Any, str]] = [
        (lambda: take("a"), "p.take: one must be a whole number, not 'a'"),
        (lambda: take(1, 2, ("a", expr(3))), "p.take: others must be a whole number, not ('a', 3)"),
        (lambda: take(1, last=[2]), "p.take: last must be a number, not (2,)"),
        (lambda: take(1, a="b", b=size), "p.take: named must be a name, as a string, not size"),
        (lambda: take(), "p.take: missing a required argument: 'one'; it takes one, *others, last=, name=..."),
        (lambda: nothing(1), "p.nothing: too many positional arguments; it takes nothing"),
    ]
    for call, sentence in wrong:
        with pytest.raises(DeclarationError) as error:
            call()
        assert str(error.value) == sentence
