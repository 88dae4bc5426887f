"""Least slots of rings in which roles wait for each other: constraints, and what no number of slots mends."""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

import tinygpu as tg
from tinygpu.expressions import evaluate
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, handover
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.trace import trace
from tinygpu.language.waiting import waiting
from tinygpu.ptx import isa

SHAPE = (8, 32)


@cache
def machine(**does: str) -> type[Machine]:
    """Roles and what they do, in order: +a fills a slot of a, -a takes one."""

    class Several(Machine):
        """y = x, as far as it goes"""

        m, n = Dim(), Dim()
        x = Input("f32", m, n)
        y = Output("f32", m, n)
        of_a, of_b, of_c, of_d = Param(1, 2, 3), Param(1, 2, 3), Param(1, 2, 3), Param(1, 2, 3)
        tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            who = blocked(SHAPE, threads=32, across=32)
            slot = p.smem("f32", SHAPE, swizzle=128)
            used = sorted({name for deeds in does.values() for name in deeds[1::2]})
            slots = {"a": self.of_a, "b": self.of_b, "c": self.of_c, "d": self.of_d}
            with p.grid((self.m, 8)) as (i,), ExitStack() as opened:
                rings = {name: opened.enter_context(p.pipeline(name, slots[name], x=slot)) for name in used}
                for number, (role, deeds) in enumerate(does.items()):
                    with p.role(role, warps=1, first=number):
                        for deed, name in zip(deeds[::2], deeds[1::2], strict=True):
                            if deed == "+":
                                with rings[name].produce() as s:
                                    p.copy(self.tma, self.x.tile(i, 0, shape=SHAPE), s.x)
                            else:
                                with rings[name].consume() as s:
                                    p.store(self.st, self.y.tile(i, 0, shape=SHAPE), p.load(self.ld, s.x, who))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Several


def conditions(made: type[Machine]) -> list[str]:
    return [str(c.condition) for c in waiting(trace(made, made.problem(m=8, n=32), ()).program)]


def test_rings_that_are_used_in_other_orders_need_more_slots() -> None:
    assert conditions(machine(one="+a+b+c", two="-a-b-c")) == []
    assert conditions(machine(one="+a+a+b+c", two="-b-a-a-c")) == ["of_a >= 2"]
    assert conditions(machine(one="+a+a+a+b+b+c", two="-c-b-a-b-a-a")) == ["of_a >= 3", "of_b >= 2"]


@pytest.fixture
def filling_from_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roles may fill a ring from what another one brings, which lowering cannot do: the rule is of any roles."""
    monkeypatch.setattr(handover, "_check_agents", lambda program, pipeline: None)


@pytest.mark.usefixtures("filling_from_rings")
def test_rings_that_are_used_apart_need_no_more() -> None:
    """A role in between cannot keep those beside it from each other: they have one ring each."""
    assert conditions(machine(one="+a+a+a", two="-a+b-a+b-a+b+c", three="-b-b-b-c")) == []


def test_slots_of_one_ring_or_of_another_are_enough() -> None:
    made = machine(one="+a+a+c", two="+b+b+d", three="-c-b-b", four="-d-a-a")
    (constraint,) = waiting(trace(made, made.problem(m=8, n=32), ()).program)
    assert constraint.name == "slots of a, b, c and d"
    assert constraint.sentence == (
        "one, two, three and four have slots enough of a, b, c and d together not to wait for each other for ever"
    )
    enough = {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a > 1 or b > 1}
    for a in (1, 2, 3):
        for b in (1, 2, 3):
            assert evaluate(constraint.condition, {"of_a": a, "of_b": b, "of_c": 1, "of_d": 1}) == ((a, b) in enough)


def test_a_point_with_too_few_slots_is_out_and_says_why() -> None:
    made = machine(one="+a+a+b+c", two="-b-a-a-c")
    found = tg.explain(tg.space(made, m=8, n=32, device="h100"), of_a=1, of_b=1, of_c=1, of_d=1)
    assert found.sentences[0] == (
        "slots of a (pipelines): one and two, which use a, b and c in different orders, have slots enough of a not to "
        "wait for each other for ever; of_a = 1 < 2"
    )


@pytest.mark.usefixtures("filling_from_rings")
def test_roles_that_wait_for_each_other_whatever_the_slots_are_refused() -> None:
    with pytest.raises(DeclarationError) as refused:
        machine(one="-b+a", two="-a+b")
    assert str(refused.value).splitlines()[0] == (
        "Several.program: in the pipelines 'a' and 'b' roles wait for each other, however many slots there are: "
        "one to wait b; two to wait a"
    )
