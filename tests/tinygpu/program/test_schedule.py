"""Scheduling against carrying out: the same warps do the same things, each slot is produced before it is consumed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tinygpu.expressions import Expr, expr, symbol
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.roles import Pipeline, role
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.schedule import consumed_by, schedule
from tinygpu.program.tree import walk

Event = tuple[str, int]


def mark(name: str, at: Expr | None = None) -> n.Statement:
    """Something that a program does, at a place that may depend on an index."""
    from tinygpu.dtypes import dtype

    return n.Constant(Tile(name, RMEM, dtype("f32"), (expr(1),), (at if at is not None else expr(0),)), 0.0)


def program(*body: n.Statement) -> Program:
    """With a pipeline of each name in it, all of three slots but those that are called deep."""
    roles = (role("all", 4), role("others", 1, 4))
    names = {s.pipeline for s in walk(body) if isinstance(s, (n.Produce, n.Consume))}
    pipelines = tuple(Pipeline(name, expr(4 if "deep" in name else 3), (), "barrier") for name in sorted(names))
    return Program("M", (), (), (), Any, roles, pipelines, body)  # type: ignore[arg-type]


def events(body: tuple[n.Statement, ...], known: dict[str, int]) -> Iterator[Event]:
    """What is done, in order: (name, place), and (produce or consume of a pipeline, 0)."""
    for s in body:
        if isinstance(s, n.Constant):
            yield s.result.name, int(s.result.offset[0].substitute(known))
        elif isinstance(s, n.Loop):
            for index in range(int(s.first), int(s.first) + int(s.trips)):
                yield from events(s.body, {**known, s.index: index})
        elif isinstance(s, n.Pipelined):
            for index in range(int(s.first), int(s.first) + int(s.trips)):
                inside = {**known, s.index: index}
                yield from ((f"produce {name}", 0) for name in s.pipelines)
                yield from events(s.produce, inside)
                yield from ((f"consume {name}", 0) for name in s.pipelines)
                yield from events(s.consume, inside)
        elif isinstance(s, (n.Produce, n.Consume)):
            yield f"{'produce' if isinstance(s, n.Produce) else 'consume'} {s.pipeline}", 0
            yield from events(s.body, known)
        elif isinstance(s, (n.Scope, n.FixUp)):
            yield from events(s.body, known)


def done_by(found: Program, name: str) -> list[Event]:
    return [e for s in walk(found.body) if isinstance(s, n.InRole) and s.role == name for e in events(s.body, {})]


@st.composite
def work(draw: st.DrawFn, prefix: str, depth: int = 0, looped: bool = False) -> list[n.Statement]:
    """What one role does, block by block, with rings of its own and one that others consume.

    looped  in a loop
    """
    out: list[n.Statement] = []
    for number in range(draw(st.integers(1, 3))):
        name = f"{prefix}{number}"
        trips, first = expr(draw(st.integers(1, 3))), expr(draw(st.integers(0, 2)))
        divided = draw(st.booleans())
        i, j = symbol(f"i{name}"), symbol(f"j{name}")
        produce = n.Produce(name, (mark(f"produced {name}", i * 2), mark("also", symbol("outer") * 0)))
        kinds = ["mark", "apart", "between", "both", "beside", "several", "unrolled", "away"]
        kinds += [] if looped else ["pair"]
        kind = draw(st.sampled_from([*kinds, *(["loop", "scope", "fix_up"] if depth < 2 else [])]))
        if kind == "mark":
            out.append(mark(f"mark {name}"))
        elif kind in ("apart", "between"):
            out.append(n.Loop(f"i{name}", trips, False, (produce,), first, divided))
            if kind == "between":
                out.append(mark(f"between {name}"))
            consumed = n.Consume(name, (mark(f"consumed {name}", j),))
            out.append(n.Loop(f"j{name}", trips, False, (consumed,), first, divided))
        elif kind == "both":
            consumed = n.Consume(name, (mark(f"consumed {name}", i),))
            out.append(n.Loop(f"i{name}", trips, False, (produce, consumed), first, divided))
        elif kind == "beside":  # other statements, before, between and behind
            consumed = n.Consume(name, (mark(f"consumed {name}", i),))
            inside = [produce, consumed]
            for place in range(3):
                if draw(st.booleans()):
                    inside.insert(2 * place if place < 2 else len(inside), mark(f"beside {name} {place}", i))
            out.append(n.Loop(f"i{name}", trips, False, tuple(inside), first, divided))
        elif kind == "several":  # rings side by side, filled in the loop or in loops before it
            rings, before = [f"{name}.r{k}" for k in range(draw(st.integers(2, 3)))], list[n.Statement]()
            fills = [n.Produce(ring, (mark(f"produced {ring}", i * 2),)) for ring in rings]
            uses = [n.Consume(ring, (mark(f"consumed {ring}", i),)) for ring in rings]
            early = draw(st.integers(0, len(rings)))
            if early:
                before = [n.Loop(f"i{name}", trips, False, tuple(fills[:early]), first, divided)]
            body = (*fills[early:], mark(f"beside {name}", i), *uses)
            out += [*before, n.Loop(f"i{name}", trips, False, body, first, divided)]
        elif kind == "pair":
            out += [n.Produce(name, (mark(f"produced {name}"),)), n.Consume(name, (mark(f"consumed {name}"),))]
        elif kind == "away":
            out.append(n.Loop(f"i{name}", trips, False, (n.Produce("others' ", (mark(f"given {name}", i),)),), first))
        elif kind in ("loop", "unrolled"):
            inner = draw(work(f"{name}.", depth + 1, True)) if kind == "loop" else [mark(f"round {name}", i)]
            out.append(n.Loop(f"i{name}", trips, kind == "unrolled", tuple(inner), first))
        else:
            inner = tuple(draw(work(f"{name}.", depth + 1, looped)))
            out.append(n.Scope((name,), inner) if kind == "scope" else n.FixUp("g", *[Any] * 5, inner))  # type: ignore[arg-type]
    return out


@settings(max_examples=60)
@given(st.data())
def test_a_schedule_does_the_same_with_every_slot_produced_before_it_is_drained(data: Any) -> None:
    first, second = data.draw(work("a")), data.draw(work("b"))
    cut = data.draw(st.integers(0, len(first)))
    blocks = [n.InRole("all", tuple(first[:cut])), n.InRole("all", tuple(first[cut:])), n.InRole("all", tuple(second))]
    taken = n.InRole("others", (n.Consume("others' ", (mark("taken"),)),))
    given_program = program(*[b for b in blocks if b.body], taken)
    made = schedule(given_program)
    assert [s.role for s in made.body if isinstance(s, n.InRole)] == ["all", "others"]
    before, after = done_by(given_program, "all"), done_by(made, "all")
    assert sorted(before) == sorted(after)
    assert done_by(made, "others") == done_by(given_program, "others")
    moved = ("produce", "produced", "also", "consume ")
    own = [e for e in before if not e[0].startswith(moved)]
    assert [e for e in after if not e[0].startswith(moved)] == own  # only producing moves, and where a slot is taken
    full: dict[str, int] = {}
    for name, _ in after:
        if name.startswith(("produce ", "consume ")):
            verb, ring = name.split(" ", 1)
            full[ring] = full.get(ring, 0) + (1 if verb == "produce" else -1)
            assert ring == "others' " or full[ring] in (0, 1)
    for s in walk(made.body):  # nothing is left that produces in one loop and consumes in another
        if isinstance(s, n.Loop) and not s.unrolled:
            produced = [f for f in s.body if isinstance(f, n.Produce) and f.pipeline != "others' "]
            assert not produced or len(s.body) > 2 or any(isinstance(d, n.Consume) for d in s.body)


def test_one_loop_takes_the_index_and_the_rounds_of_the_loop_that_consumes() -> None:
    producing = n.Loop("i", expr(3), False, (n.Produce("ring", (mark("x", symbol("i") + 1),)),), expr(2), True)
    consuming = n.Loop("j", expr(3), False, (n.Consume("ring", (mark("y", symbol("j")),)),), expr(2), True)
    (role_body,) = schedule(program(n.InRole("all", (producing, mark("between"), consuming)))).body
    assert isinstance(role_body, n.InRole)
    between, one = role_body.body
    assert isinstance(between, n.Constant)
    assert isinstance(one, n.Pipelined)
    assert (one.pipeline, one.index, int(one.trips), int(one.first), one.divided) == ("ring", "j", 3, 2, True)
    assert list(events((one,), {}))[:4] == [("produce ring", 0), ("x", 3), ("consume ring", 0), ("y", 2)]


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


def test_what_a_role_consumes() -> None:
    body = n.Loop("i", expr(2), False, (n.Consume("a", (n.Consume("b", ()),)), n.Produce("c", ())))
    made = program(n.InRole("all", (body,)), n.InRole("others", (n.Consume("c", ()),)))
    assert consumed_by(made, "all") == {"a", "b"}
    assert consumed_by(made, "others") == {"c"}


def loop(index: str, *body: n.Statement, trips: int = 3, first: int = 0) -> n.Loop:
    return n.Loop(index, expr(trips), False, body, expr(first))


F, D = n.Produce("ring", ()), n.Consume("ring", ())
ELSEWHERE = (
    "M.program: 'ring' is produced in one block and consumed in another{}, by the same warps; there, consume each slot "
    "right behind what produces it, or let another role produce it"
)
BEHIND = (
    "M.program: the warps that produce 'ring' also consume it; let the loop that produces be followed, in the same "
    "block, by one that consumes"
)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([loop("i", F), loop("j", D, trips=4)], "M.program: 'ring' is produced 3 times and consumed 4 times"),
        ([loop("i", F), loop("j", D, first=1)], "M.program: 'ring' is produced 3 times and consumed 3 times"),
        (
            [loop("i", n.Produce("ring", (mark("x"),))), loop("j", D, mark("x"))],
            "M.program: 'ring' is produced in a loop of its own, from or into %x, which the loop that consumes it uses "
            "in other rounds; produce and consume it in one loop",
        ),
        ([loop("i", D, F)], ELSEWHERE.format("")),
        ([loop("i", F), D], BEHIND),
        ([loop("j", D), loop("i", F)], BEHIND),
        ([F, F, D], ELSEWHERE.format("")),
        ([D, F], ELSEWHERE.format("")),
        ([F, loop("i", mark("x")), D, F], ELSEWHERE.format("")),
        ([F, loop("j", D)], ELSEWHERE.format("")),
        ([n.Produce("outer", ()), n.Consume("outer", (D, F))], ELSEWHERE.format(" inside consume() of 'outer'")),
        (
            [loop("i", n.Produce("outer", (F, D)), n.Consume("outer", (F,)))],
            ELSEWHERE.format(" inside consume() of 'outer'"),
        ),
        ([n.Produce("outer", (loop("i", F, mark("x")),)), D], ELSEWHERE.format(" inside produce() of 'outer'")),
        ([F, loop("i", D, F)], ELSEWHERE.format("")),
        ([n.Scope(("ring",), (F,)), D], ELSEWHERE.format("")),
    ],
)
def test_slots_that_the_same_warps_use_apart_are_refused(body: list[n.Statement], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        schedule(program(n.InRole("all", tuple(body))))
    assert str(refused.value) == sentence


@st.composite
def in_order(draw: st.DrawFn, depth: int = 0) -> tuple[n.Statement, ...]:
    """Blocks that use slots of two pipelines, in loops and in each other; most of them are not in turn."""
    out: list[n.Statement] = []
    for number in range(draw(st.integers(0, 4 - depth))):
        name, inside = draw(st.sampled_from(("a", "b"))), draw(in_order(depth + 1)) if depth < 3 else ()
        match draw(st.sampled_from(("produce", "consume", "loop"))):
            case "produce":
                out.append(n.Produce(name, inside))
            case "consume":
                out.append(n.Consume(name, inside))
            case _:  # with something beside what it fills, so that it is filled in its round
                out.append(loop(f"i{depth}{number}", mark("x"), *inside, trips=draw(st.integers(0, 2))))
    return tuple(out)


def is_in_turn(body: tuple[n.Statement, ...], own: set[str], rounds: tuple[int, ...]) -> bool:
    """Whether slots are produced before they are consumed, and consumed before they are produced again, and at last.

    own     pipelines that are produced and consumed
    rounds  of the loops, the outermost first
    """
    full: set[str] = set()

    def carried_out(body: tuple[n.Statement, ...], depth: int) -> bool:
        for s in body:
            if isinstance(s, n.Loop):
                if not all(carried_out(s.body, depth + 1) for _ in range(rounds[depth])):
                    return False
            elif isinstance(s, n.InSlot):
                ready = s.pipeline not in own or (s.pipeline in full) == isinstance(s, n.Consume)
                if not (ready and carried_out(s.body, depth)):
                    return False
                if s.pipeline in own:
                    full.symmetric_difference_update({s.pipeline})
        return True

    return carried_out(body, 0) and not full


def within_itself(body: tuple[n.Statement, ...]) -> bool:
    """Whether a slot is used where another one of its pipeline is, which the language refuses."""
    slots = [s for s in walk(body) if isinstance(s, n.InSlot)]
    return any(isinstance(i, n.InSlot) and i.pipeline == s.pipeline for s in slots for i in walk(s.body))


A, B = n.Consume("a", (n.Produce("b", ()),)), n.Consume("b", (n.Produce("a", ()),))


@settings(max_examples=300)
@example((n.Produce("a", ()), loop("i", A, mark("x"), B), n.Consume("a", ())))
@example((n.Produce("a", ()), loop("i", mark("x"), n.Produce("a", ()), n.Consume("a", ())), n.Consume("a", ())))
@example((n.Consume("a", ()), loop("i", mark("x"), n.Produce("a", ()), n.Consume("a", ()))))
@given(in_order())
def test_slots_are_in_turn_however_many_rounds_loops_have(body: tuple[n.Statement, ...]) -> None:
    """A slot may be full where a round begins, if it is full where the round ends."""
    assume(not within_itself(body))
    produced, consumed = ({s.pipeline for s in walk(body) if isinstance(s, kind)} for kind in (n.Produce, n.Consume))
    wanted = all(is_in_turn(body, produced & consumed, rounds) for rounds in itertools.product(range(3), repeat=4))
    if wanted:
        schedule(program(n.InRole("all", body)))
    else:
        with pytest.raises(DeclarationError, match="is produced in one block and consumed in another"):
            schedule(program(n.InRole("all", body)))


def test_a_loop_of_a_producer_holds_nothing_else() -> None:
    """A loop that does more keeps its own place, and its slots are then produced with no consumer behind."""
    with pytest.raises(DeclarationError) as refused:
        schedule(program(n.InRole("all", (loop("i", F, mark("x")), loop("j", D)))))
    assert str(refused.value) == ELSEWHERE.format("")


def rings_ahead(*body: n.Statement) -> list[tuple[str, ...]]:
    """The pipelines of each loop that fills ahead."""
    found = schedule(program(n.InRole("all", body)))
    return [s.pipelines for s in walk(found.body) if isinstance(s, n.Pipelined)]


def fill(name: str, *inside: n.Statement) -> n.Produce:
    return n.Produce(name, inside)


def test_rings_of_one_loop_that_are_as_deep_run_ahead_together() -> None:
    a, b, deep = (n.Consume(name, (mark(f"of {name}"),)) for name in ("a", "b", "deep"))
    assert rings_ahead(loop("i", fill("a"), fill("b"), a, mark("x"), b)) == [("a", "b")]
    assert rings_ahead(loop("i", fill("a"), a, fill("b"), b)) == [("a", "b")]
    assert rings_ahead(loop("i", fill("a"), fill("b")), loop("j", a, b)) == [("a", "b")]
    assert rings_ahead(loop("i", fill("b")), loop("h", fill("a")), loop("j", a, b)) == [("a", "b")]
    assert rings_ahead(loop("i", fill("a")), loop("j", fill("b"), b, a)) == [("a", "b")]
    # one that has another number of slots is filled in its round
    assert rings_ahead(loop("i", fill("a"), fill("deep"), fill("b"), a, deep, b)) == [("a", "b")]


def test_a_fill_that_depends_on_its_round_stays_in_it() -> None:
    """It reads what the loop changes, or makes what the loop uses: ahead, it would be that of another round."""
    of_a = n.Consume("a", (mark("y"),))
    assert rings_ahead(loop("i", mark("x"), fill("a"), of_a)) == [("a",)]
    assert rings_ahead(loop("i", mark("x"), fill("a", mark("x")), of_a)) == []
    assert rings_ahead(loop("i", fill("a", mark("y")), of_a)) == []
    assert rings_ahead(loop("i", mark("x"), fill("a", mark("x")), fill("b"), of_a, n.Consume("b", ()))) == [("b",)]
    # nor is a slot ahead where a round has two
    assert rings_ahead(loop("i", fill("a"), of_a, fill("a"), of_a)) == []
