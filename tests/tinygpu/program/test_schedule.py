"""Scheduling against carrying out: the same warps do the same things, each slot is filled before it is drained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.expressions import Expr, expr, symbol
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import role
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.schedule import drained_by, schedule
from tinygpu.program.tree import walk

Event = tuple[str, int]


def mark(name: str, at: Expr | None = None) -> n.Statement:
    """Something that a program does, at a place that may depend on an index."""
    from tinygpu.dtypes import dtype

    return n.Constant(Tile(name, RMEM, dtype("f32"), (expr(1),), (at if at is not None else expr(0),)), 0.0)


def program(*body: n.Statement) -> Program:
    roles = (role("all", 4), role("others", 1, 4))
    return Program("M", (), (), (), Any, roles, (), body)  # type: ignore[arg-type]


def events(body: tuple[n.Statement, ...], known: dict[str, int]) -> Iterator[Event]:
    """What is done, in order: (name, place), and (fill or drain of a pipeline, 0)."""
    for s in body:
        if isinstance(s, n.Constant):
            yield s.result.name, int(s.result.offset[0].substitute(known))
        elif isinstance(s, n.Loop):
            for index in range(int(s.first), int(s.first) + int(s.trips)):
                yield from events(s.body, {**known, s.index: index})
        elif isinstance(s, n.Pipelined):
            for index in range(int(s.first), int(s.first) + int(s.trips)):
                inside = {**known, s.index: index}
                yield f"fill {s.pipeline}", 0
                yield from events(s.fill, inside)
                yield f"drain {s.pipeline}", 0
                yield from events(s.drain, inside)
        elif isinstance(s, (n.Fill, n.Drain)):
            yield f"{'fill' if isinstance(s, n.Fill) else 'drain'} {s.pipeline}", 0
            yield from events(s.body, known)
        elif isinstance(s, (n.Scope, n.FixUp)):
            yield from events(s.body, known)


def done_by(found: Program, name: str) -> list[Event]:
    return [e for s in walk(found.body) if isinstance(s, n.InRole) and s.role == name for e in events(s.body, {})]


@st.composite
def work(draw: st.DrawFn, prefix: str, depth: int = 0, looped: bool = False) -> list[n.Statement]:
    """What one role does, block by block, with rings of its own and one that others drain.

    looped  in a loop, which is refused where it fills and drains and does more
    """
    out: list[n.Statement] = []
    for number in range(draw(st.integers(1, 3))):
        name = f"{prefix}{number}"
        trips, first = expr(draw(st.integers(1, 3))), expr(draw(st.integers(0, 2)))
        divided = draw(st.booleans())
        i, j = symbol(f"i{name}"), symbol(f"j{name}")
        fill = n.Fill(name, (mark(f"filled {name}", i * 2), mark("also", symbol("outer") * 0)))
        kinds = ["mark", "apart", "between", "both", "unrolled", "away", *([] if looped else ["pair"])]
        kind = draw(st.sampled_from([*kinds, *(["loop", "scope", "fix_up"] if depth < 2 else [])]))
        if kind == "mark":
            out.append(mark(f"mark {name}"))
        elif kind in ("apart", "between"):
            out.append(n.Loop(f"i{name}", trips, False, (fill,), first, divided))
            if kind == "between":
                out.append(mark(f"between {name}"))
            drained = n.Drain(name, (mark(f"drained {name}", j),))
            out.append(n.Loop(f"j{name}", trips, False, (drained,), first, divided))
        elif kind == "both":
            drained = n.Drain(name, (mark(f"drained {name}", i),))
            out.append(n.Loop(f"i{name}", trips, False, (fill, drained), first, divided))
        elif kind == "pair":
            out += [n.Fill(name, (mark(f"filled {name}"),)), n.Drain(name, (mark(f"drained {name}"),))]
        elif kind == "away":
            out.append(n.Loop(f"i{name}", trips, False, (n.Fill("others' ", (mark(f"given {name}", i),)),), first))
        elif kind in ("loop", "unrolled"):
            inner = draw(work(f"{name}.", depth + 1, True)) if kind == "loop" else [mark(f"round {name}", i)]
            out.append(n.Loop(f"i{name}", trips, kind == "unrolled", tuple(inner), first))
        else:
            inner = tuple(draw(work(f"{name}.", depth + 1, looped)))
            out.append(n.Scope((name,), inner) if kind == "scope" else n.FixUp("g", *[Any] * 5, inner))  # type: ignore[arg-type]
    return out


@settings(max_examples=60)
@given(st.data())
def test_a_schedule_does_the_same_with_every_slot_filled_before_it_is_drained(data: Any) -> None:
    first, second = data.draw(work("a")), data.draw(work("b"))
    cut = data.draw(st.integers(0, len(first)))
    blocks = [n.InRole("all", tuple(first[:cut])), n.InRole("all", tuple(first[cut:])), n.InRole("all", tuple(second))]
    taken = n.InRole("others", (n.Drain("others' ", (mark("taken"),)),))
    given_program = program(*[b for b in blocks if b.body], taken)
    made = schedule(given_program)
    assert [s.role for s in made.body if isinstance(s, n.InRole)] == ["all", "others"]
    before, after = done_by(given_program, "all"), done_by(made, "all")
    assert sorted(before) == sorted(after)
    assert done_by(made, "others") == done_by(given_program, "others")
    own = [e for e in before if not e[0].startswith(("fill", "filled", "also"))]
    assert [e for e in after if not e[0].startswith(("fill", "filled", "also"))] == own  # only filling moves
    full: dict[str, int] = {}
    for name, _ in after:
        if name.startswith(("fill ", "drain ")):
            verb, ring = name.split(" ", 1)
            full[ring] = full.get(ring, 0) + (1 if verb == "fill" else -1)
            assert ring == "others' " or full[ring] in (0, 1)
    for s in walk(made.body):  # nothing is left that fills in one loop and drains in another
        if isinstance(s, n.Loop) and not s.unrolled:
            assert all(not isinstance(f, n.Fill) or f.pipeline == "others' " or len(s.body) > 2 for f in s.body) or any(
                isinstance(d, n.Drain) for d in s.body
            )


def test_one_loop_takes_the_index_and_the_rounds_of_the_loop_that_drains() -> None:
    filling = n.Loop("i", expr(3), False, (n.Fill("ring", (mark("x", symbol("i") + 1),)),), expr(2), True)
    draining = n.Loop("j", expr(3), False, (n.Drain("ring", (mark("y", symbol("j")),)),), expr(2), True)
    (role_body,) = schedule(program(n.InRole("all", (filling, mark("between"), draining)))).body
    assert isinstance(role_body, n.InRole)
    between, one = role_body.body
    assert isinstance(between, n.Constant)
    assert isinstance(one, n.Pipelined)
    assert (one.pipeline, one.index, int(one.trips), int(one.first), one.divided) == ("ring", "j", 3, 2, True)
    assert list(events((one,), {}))[:4] == [("fill ring", 0), ("x", 3), ("drain ring", 0), ("y", 2)]


def test_blocks_of_a_role_that_follow_each_other_are_one() -> None:
    """What another role does between them keeps them apart, in a scope as at the top."""
    names = ("all", "others", "others", "all", "all", "others")
    blocks = [n.InRole(name, (mark(f"{name} {number}"),)) for number, name in enumerate(names)]
    scope = n.Scope(("ring",), tuple(blocks))
    *top, inside = schedule(program(*blocks, scope)).body
    assert isinstance(inside, n.Scope)
    for found in (tuple(top), inside.body):
        said = [[m.result.name for m in b.body if isinstance(m, n.Constant)] for b in found if isinstance(b, n.InRole)]
        assert said == [["all 0"], ["others 1", "others 2"], ["all 3", "all 4"], ["others 5"]]


def test_what_a_role_drains() -> None:
    body = n.Loop("i", expr(2), False, (n.Drain("a", (n.Drain("b", ()),)), n.Fill("c", ())))
    made = program(n.InRole("all", (body,)), n.InRole("others", (n.Drain("c", ()),)))
    assert drained_by(made, "all") == {"a", "b"}
    assert drained_by(made, "others") == {"c"}


def loop(index: str, *body: n.Statement, trips: int = 3, first: int = 0) -> n.Loop:
    return n.Loop(index, expr(trips), False, body, expr(first))


F, D = n.Fill("ring", ()), n.Drain("ring", ())
ELSEWHERE = (
    "M.program: 'ring' is filled in one block and drained in another{}, by the same warps; there, drain each slot "
    "right behind its fill, or let another role fill it"
)
BEHIND = (
    "M.program: the warps that fill 'ring' also drain it, so the drain loop follows the fill loop with nothing but the "
    "drain in it"
)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([loop("i", F), loop("j", D, trips=4)], "M.program: 'ring' is filled 3 times and drained 4 times"),
        ([loop("i", F), loop("j", D, first=1)], "M.program: 'ring' is filled 3 times and drained 3 times"),
        (
            [loop("i", F), loop("j", D, mark("x"))],
            "M.program: the loop that drains 'ring' does nothing beside; move the other statements into the drain",
        ),
        (
            [loop("i", F, D, mark("x"))],
            "M.program: a loop that fills and drains 'ring' does nothing beside; move the other statements into one of "
            "the two",
        ),
        ([loop("i", F), D], BEHIND),
        ([loop("j", D), loop("i", F)], BEHIND),
        ([F, F, D], ELSEWHERE.format("")),
        ([D, F], ELSEWHERE.format("")),
        ([F, loop("i", mark("x")), D, F], ELSEWHERE.format("")),
        ([F, loop("j", D)], ELSEWHERE.format("")),
        ([n.Fill("outer", (F,)), n.Drain("outer", (D,))], ELSEWHERE.format(" inside the fill of 'outer'")),
        ([n.Fill("outer", ()), n.Drain("outer", (D, F))], ELSEWHERE.format(" inside the drain of 'outer'")),
        (
            [loop("i", n.Fill("outer", (F,)), n.Drain("outer", (D,)))],
            ELSEWHERE.format(" inside the fill of 'outer'"),
        ),
        (
            [loop("i", n.Fill("outer", (F, D)), n.Drain("outer", (F,)))],
            ELSEWHERE.format(" inside the drain of 'outer'"),
        ),
        ([n.Scope(("ring",), (F,)), D], ELSEWHERE.format("")),
    ],
)
def test_slots_that_the_same_warps_fill_and_drain_apart_are_refused(body: list[n.Statement], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        schedule(program(n.InRole("all", tuple(body))))
    assert str(refused.value) == sentence


def test_the_statement_in_a_fill_loop_is_the_fill_alone() -> None:
    """A loop that does more than fill keeps its own place, and its slots are then filled without a drain behind."""
    with pytest.raises(DeclarationError) as refused:
        schedule(program(n.InRole("all", (loop("i", F, mark("x")), loop("j", D)))))
    assert str(refused.value) == ELSEWHERE.format("")
