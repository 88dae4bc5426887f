"""Roles that wait in several rings: what is proved never to lock up does so in no state of small instances."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from structures import PROOFS, SHAPE, protocol, two_rings

from tinygpu.expressions import evaluate
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, ceil_div
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.trace import trace
from tinygpu.language.waiting import waiting
from tinygpu.program.order import Blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.automaton import automaton
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.protocol.execution import Instance, roles
from tinygpu.ptx.protocol.exploration import explore
from tinygpu.ptx.protocol.induction import STUCK, answer
from tinygpu.ptx.protocol.order import order

INSTANCES = ((1,), (2,), (5,), (2, 1, 2))


@dataclass(frozen=True, slots=True)
class Uses:
    """What a role does with rings: uses of some in a row, "a" or "b"; a loop of such; slots that are held meanwhile.

    kind  "use" of a ring, "loop" over n, "rest" of such a loop behind its first round, or "hold" a slot of a ring while
          the rest is done
    """

    kind: str
    ring: str = ""
    inside: tuple[Uses, ...] = ()

    def __str__(self) -> str:
        inside = "".join(map(str, self.inside))
        loops = {"loop": f"({inside})*", "rest": f"({inside})+"}
        return loops.get(self.kind) or (f"{self.ring}[{inside}]" if inside else self.ring)


def machine(produced: tuple[Uses, ...], consumed: tuple[tuple[Uses, ...], ...]) -> type[Machine]:
    """Two rings that one role produces and others consume, in these orders."""

    with patch("tinygpu.language.trace.waiting", return_value=[]):  # also what locks up is declared, and lowered
        return _machine(produced, consumed)


def _machine(produced: tuple[Uses, ...], consumed: tuple[tuple[Uses, ...], ...]) -> type[Machine]:
    class Waits(Machine):
        """y = x, as far as it goes"""

        m, n = Dim(), Dim()
        x = Input("f32", m, n)
        y = Output("f32", m, n)
        stages, others = Param(1, 2, 3), Param(1, 2, 3)
        tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            who = blocked(SHAPE, threads=32, across=32)
            with (
                p.grid((self.m, 8), persistent=True) as (i,),
                p.pipeline("a", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as a,
                p.pipeline("b", self.others, x=p.smem("f32", SHAPE, swizzle=128)) as b,
            ):
                rings = {"a": a, "b": b}

                def carry_out(uses: tuple[Uses, ...], produces: bool) -> None:
                    for one in uses:
                        if one.kind in ("loop", "rest"):
                            rounds = ceil_div(self.n, 32) if one.kind == "loop" else ceil_div(self.n, 32) - 1
                            with p.loop(rounds):
                                carry_out(one.inside, produces)
                        elif produces:
                            with rings[one.ring].produce() as s:
                                p.copy(self.tma, self.x.tile(i, 0, shape=SHAPE), s.x)
                        else:
                            with rings[one.ring].consume() as s:
                                carry_out(one.inside, produces)
                                p.store(self.st, self.y.tile(i, 0, shape=SHAPE), p.load(self.ld, s.x, who))

                with p.role("producer", warps=1):
                    carry_out(produced, True)
                for number, uses in enumerate(consumed):
                    with p.role(f"reader{number}", warps=1, first=1 + number):
                        carry_out(uses, False)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Waits


def drawn(seed: int) -> tuple[tuple[Uses, ...], tuple[tuple[Uses, ...], ...]]:
    """What is produced, and what one reader or two consume: as often, in orders of their own."""
    rng = np.random.default_rng(seed)
    produced: list[Uses] = []
    readers: list[list[Uses]] = [[] for _ in range(int(rng.integers(1, 3)))]
    both = len(readers) == 1 or bool(rng.integers(2))
    for _ in range(int(rng.integers(1, 3))):
        rings = ["a", "b", *(str(r) for r in rng.choice(["a", "b"], int(rng.integers(0, 3))))]
        loops = bool(rng.integers(2))
        apart = loops and rng.integers(5) == 0  # the rings of a loop in loops of their own, for somebody
        for who, out in enumerate((produced, *readers)):
            mine = [r for r in rings if both or not who or r == "ab"[who - 1]]
            mixed = [mine[k] for k in rng.permutation(len(mine))] if rng.integers(2) else mine
            groups = [[r for r in mixed if r == name] for name in "ab"] if apart and rng.integers(2) else [mixed]
            for group in groups:
                uses = _held(group, rng) if who else tuple(Uses("use", r) for r in group)
                if uses and loops and rng.integers(4) == 0:
                    out += _turned(uses, int(rng.integers(len(uses) + 1)))
                elif uses:
                    out += [Uses("loop", "", uses)] if loops else uses
    return tuple(produced), tuple(tuple(uses) for uses in readers if uses)


def _turned(uses: tuple[Uses, ...], by: int) -> tuple[Uses, ...]:
    """As often and in the same order as in a loop, whose rounds begin with other uses: the first stand before it."""
    return (*uses[:by], Uses("rest", "", uses[by:] + uses[:by]), *uses[by:])


def _held(rings: list[str], rng: np.random.Generator) -> tuple[Uses, ...]:
    """Uses one after another, or some inside of one that is not released before."""
    if len(rings) > 1 and rings[0] != rings[1] and rng.integers(3) == 0:
        return (Uses("hold", rings[0], (Uses("use", rings[1]),)), *_held(rings[2:], rng))
    return (Uses("use", rings[0]), *_held(rings[1:], rng)) if rings else ()


def deadlock(of: sync.Protocol) -> str:
    """What goes wrong in the smallest instance in which something does; "" where nothing is found."""
    for rounds in INSTANCES:
        found = explore(of, Instance(rounds), 20_000)
        if found.violation:
            return f"{found.violation} in {found.instance}"
    return ""


def admitted(made: type[Machine], stages: dict[str, int]) -> bool | None:
    """Whether so many slots satisfy what the declaration demands; None where it refuses any number of them."""
    try:
        constraints = waiting(trace(made, made.problem(m=20, n=100), ()).program)
    except DeclarationError:
        return None
    return all(evaluate(c.condition, stages) for c in constraints)


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.sampled(30)
def test_several_rings_are_admitted_with_as_many_slots_as_they_need(seed: int) -> None:
    """What is admitted is proved, and locks up in no small instance; what is not admitted does in one of them."""
    produced, consumed = drawn(seed)
    made = machine(produced, consumed)
    what = f"{' '.join(map(str, produced))}, read as {' and '.join(' '.join(map(str, c)) for c in consumed)}"
    for stages, others in ((3, 3), (1, 3), (2, 1), (1, 1)):
        of = protocol(made, (20, 100), {"stages": stages, "others": others})
        found = certify(of, PROOFS)
        wrong = deadlock(of)
        told = f"{what}, {stages} and {others} stages: {wrong}\n{found}"
        assert bool(found.refuted) == bool(wrong), told
        may = admitted(made, {"stages": stages, "others": others})
        assert found.proved == bool(may), told
        assert bool(wrong) == (may is False) or may is None, told


def use(text: str) -> tuple[Uses, ...]:
    return tuple(Uses("use", ring) for ring in text)


@pytest.mark.parametrize(
    ("produced", "consumed", "stages", "round_number", "sentence", "trace"),
    [
        (
            # two roles come to two rings in opposite orders, with too few slots
            use("aab"), use("baa"), 1, 0,
            "round 0 of b: nobody can go on: reader0 in round 0 until slot 0 is full; "
            "producer in round 1 until slot 0 is empty",
            "producer acquires slot 0 of a in round 0; producer fills slot 0 of a in round 0",
        ),
        (
            use("aaab"), use("baaa"), 2, 0,
            "round 0 of b: nobody can go on: reader0 in round 0 until slot 0 is full; "
            "producer in round 2 until slot 0 is empty",
            "producer acquires slot 0 of a in round 0; producer fills slot 0 of a in round 0; "
            "producer acquires slot 1 of a in round 1; producer fills slot 1 of a in round 1",
        ),
        (
            # a consumer waits for b before it has released a
            use("aab"), (Uses("hold", "a", use("b")), *use("a")), 1, 0,
            "round 0 of b: nobody can go on: reader0 in round 0 until slot 0 is full; "
            "producer in round 1 until slot 0 is empty",
            "producer acquires slot 0 of a in round 0; producer fills slot 0 of a in round 0; "
            "reader0 waits for slot 0 of a in round 0",
        ),
        (
            # one ring is filled in a loop of its own before the other, and both are read in one loop
            (Uses("loop", "", use("a")), Uses("loop", "", use("b"))), (Uses("loop", "", use("ab")),), 2, 0,
            "round 0 of b: nobody can go on: reader0 in round 0 until slot 0 is full; "
            "producer in round 3 until slot 1 is empty",
            "producer acquires slot 0 of a in round 0; producer fills slot 0 of a in round 0; "
            "producer acquires slot 1 of a in round 1; producer fills slot 1 of a in round 1; "
            "reader0 waits for slot 0 of a in round 0; reader0 releases slot 0 of a in round 0; "
            "producer acquires slot 0 of a in round 2; producer fills slot 0 of a in round 2",
        ),
    ],
)  # fmt: skip
def test_a_deadlock_is_refuted_with_its_round_and_what_leads_to_it(
    produced: tuple[Uses, ...], consumed: tuple[Uses, ...], stages: int, round_number: int, sentence: str, trace: str
) -> None:
    found = certify(protocol(machine(produced, (consumed,)), (20, 100), {"stages": stages, "others": 1}), PROOFS)
    (ring,) = found.refuted
    assert (ring.reason, ring.round, "; ".join(ring.trace)) == (sentence, round_number, trace)
    assert f"refuted: b of x: {sentence}\n  before it: {trace}" in str(found)


def test_more_slots_make_room_and_the_certificate_says_from_how_many_on() -> None:
    for produced, consumed, least in (("aab", "baa", 2), ("aaab", "baaa", 3), ("aabb", "abab", 1), ("abab", "abab", 1)):
        found = certify(protocol(two_rings(produced, consumed), (40, 256), {"stages": 3}), PROOFS)
        assert found.proved
        assert [ring.least for ring in found.rings] == [least, 1], produced


def test_a_release_moved_behind_another_wait_is_refuted() -> None:
    """By an edit of the values: a is released when b was waited for, and the producer fills a twice before b."""
    of = protocol(two_rings("aab", "aba"), (40, 256), {"stages": 1})
    assert certify(of, PROOFS).proved
    found = certify(replace(of, body=_moved(of.body)), PROOFS)
    (ring,) = found.refuted
    assert ring.reason == (
        "round 0 of b: nobody can go on: reader in round 0 until slot 0 is full; "
        "producer in round 1 until slot 0 is empty"
    )


def _moved(body: tuple[sync.Step, ...]) -> tuple[sync.Step, ...]:
    """With the first release of a behind the wait for b that follows it, in the same list."""
    out = [replace(s, body=_moved(s.body)) if isinstance(s, (sync.RoleBody, sync.Tiles)) else s for s in body]
    releases = [s for s in out if isinstance(s, sync.Arrive) and s.barrier.pipeline == "a"]
    waits = [s for s in out if isinstance(s, sync.Wait) and (s.barrier.pipeline, s.barrier.side) == ("b", "full")]
    if releases and waits:
        out.remove(releases[0])
        out.insert(out.index(waits[0]) + 1, releases[0])
    return tuple(out)


def test_what_z3_is_asked_fails_where_there_are_fewer_slots_than_the_order_needs() -> None:
    of = protocol(two_rings("aab", "baa"), (40, 256), {"stages": 2})
    automata = tuple(automaton(of, role) for role in roles(of))
    proof = order(of.rings, automata, of, {"a": 2, "b": 2})
    assert [answer(q, "a and b", None).verdict for q in proof.questions()] == ["unsat"] * len(proof.stretches)
    fewer = replace(proof, rings=(("a", 1), ("b", 2)))
    assert "sat" in [answer(q, "a and b", None).verdict for q in fewer.questions()]
    with pytest.raises(Blocked, match=r"^producer to acquire a; reader to wait b$"):
        order(of.rings, automata, of, {"a": 1, "b": 2})


def test_loops_that_are_not_gone_through_together_are_refused_and_unknown_with_what_was_enumerated() -> None:
    apart = (Uses("loop", "", use("a")), Uses("loop", "", use("b")))
    with pytest.raises(DeclarationError) as refused:
        _machine(apart, ((Uses("loop", "", use("ab")),),))
    assert str(refused.value).splitlines()[0] == (
        "Waits.program: in the pipelines 'a' and 'b' roles wait for each other, and producer and reader0 come to loops "
        "that roles do not go through together; let all that use a ring go through loops of as many rounds"
    )
    produced = (Uses("loop", "", use("a")), Uses("loop", "", use("a")), *use("b"))
    consumed = ((Uses("loop", "", use("aa")), *use("b")),)
    with pytest.raises(DeclarationError) as refused:
        _machine(produced, consumed)
    assert str(refused.value).splitlines()[0] == (
        "Waits.program: in the pipelines 'a' and 'b' roles wait for each other, and in one round of a loop nobody can "
        "go on: reader0 to wait a; let all that use a ring go through loops of as many rounds"
    )
    made = machine(produced, consumed)
    found = certify(protocol(made, (20, 100), {"stages": 2, "others": 2}), PROOFS)
    assert [(ring.verdict, ring.open) for ring in found.rings] == [("unknown", (STUCK,))] * 2
    proved, unknown, *_ = str(found).splitlines()
    assert proved.endswith(
        ": no slot is overwritten before it was read; no slot is read before it was filled; no phase is missed"
    )
    assert re.fullmatch(
        r"unknown: a of x: no wait lasts for ever: its roles wait in b as well, and who waits for whom is not proved: "
        r"[a-z0-9 :]+; nothing is wrong in 1 tile of 7 rounds, [0-9,]+ states and 3 tiles of 3 and 1 and 2 rounds, "
        r"[0-9,]+ states",
        unknown,
    ), unknown
