"""Slots that are handed over wrongly between producers, consumers, roles and turns: told when the class is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from negation import Program, refused, thing

from tinygpu.language import blocked
from tinygpu.ptx import isa

SHARED = {"put": isa.StShared(1), "get": isa.LdShared(1), "add": isa.Add("f32"), "ahead": isa.CpAsync(1)}


class Stage:
    """Inside a grid and a pipeline `ring` with one buffer t: what a role may do with it."""

    def __init__(self, machine: Any, p: Any, i: Any, ring: Any) -> None:
        self.machine, self.p, self.ring = machine, p, ring
        self.shape = (32,)
        self.x, self.y = machine.x.tile(i, shape=self.shape), machine.y.tile(i, shape=self.shape)
        self.who = blocked(self.shape, threads=32)

    def load(self) -> Any:
        return self.p.load(self.machine.ld, self.x, self.who)

    def produce(self) -> None:
        with self.ring.produce() as s:
            self.p.store(self.machine.put, s.t, self.load())

    def consume(self) -> None:
        with self.ring.consume() as s:
            self.p.store(self.machine.st, self.y, self.p.load(self.machine.get, s.t, self.who))

    def role(self, name: str = "all", first: int = 0, **more: Any) -> Any:
        return self.p.role(name, warps=1, first=first, **more)


def pipelined(inner: Callable[[Stage], None], persistent: bool = False) -> Program:
    def program(self: Any, p: Any) -> None:
        with (
            p.grid((self.n, 32), persistent=persistent) as (i,),
            p.pipeline("ring", 2, t=p.smem("f32", (32,))) as ring,
        ):
            inner(Stage(self, p, i, ring))

    return program


def well(s: Stage) -> None:
    with s.role():
        s.produce()
        s.consume()


def well_in_loops(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.produce()
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.consume()


def well_apart(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.produce()
    with s.role("b", first=1), s.p.loop(s.machine.n, step=32):
        s.consume()


@pytest.mark.parametrize("inner", [well, well_in_loops, well_apart])
def test_slots_that_are_produced_and_consumed_are_declared(inner: Callable[[Stage], None]) -> None:
    thing(pipelined(inner), **SHARED)


def copied_apart(s: Stage) -> None:
    with s.role("a"), s.ring.produce() as slot:
        s.p.copy(s.machine.ahead, s.x, slot.t, s.who)
    with s.role("b", first=1):
        s.consume()


def never_consumed(s: Stage) -> None:
    with s.role():
        s.produce()


def never_produced(s: Stage) -> None:
    with s.role():
        s.consume()


def unequal_loops(s: Stage) -> None:
    with s.role(), s.p.loop(s.machine.n, step=32):
        s.produce()
    with s.role(), s.p.loop(s.machine.n, step=64):
        s.consume()


def unequal_roles(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.produce()
    with s.role("b", first=1):
        s.consume()


def one_of_two_consumes(s: Stage) -> None:
    with s.role("a"), s.p.loop(s.machine.n, step=32):
        s.produce()
    with s.role("b", first=1, share=(1, 2)), s.p.loop(s.machine.n, step=32):
        s.consume()


def two_produce(s: Stage) -> None:
    for number, name in enumerate(("a", "b")):
        with s.role(name, first=number), s.p.loop(s.machine.n, step=32):
            s.produce()
    with s.role("c", first=2), s.p.unroll(2), s.p.loop(s.machine.n, step=32):
        s.consume()


def changed_where_consumed(s: Stage) -> None:
    with s.role():
        total = s.p.full(s.who, "f32")
        with s.p.loop(s.machine.n, step=32), s.ring.produce() as slot:
            s.p.store(s.machine.put, slot.t, total)
        with s.p.loop(s.machine.n, step=32), s.ring.consume() as slot:
            s.p.apply(s.machine.add, total, s.p.load(s.machine.get, slot.t, s.who), into=total)


def after_the_produce(s: Stage) -> None:
    with s.role():
        with s.ring.produce() as slot:
            s.p.store(s.machine.put, slot.t, s.load())
        s.p.store(s.machine.put, slot.t, s.load())
        s.consume()


def read_in_the_produce(s: Stage) -> None:
    with s.role(), s.ring.produce() as slot:
        s.p.store(s.machine.put, slot.t, s.p.load(s.machine.get, slot.t, s.who))


def written_in_the_consume(s: Stage) -> None:
    with s.role():
        s.produce()
        with s.ring.consume() as slot:
            s.p.store(s.machine.put, slot.t, s.p.load(s.machine.get, slot.t, s.who))


def consumed_in_the_produce(s: Stage) -> None:
    with s.role(), s.ring.produce(), s.ring.consume():
        pass


def produced_by_nobody(s: Stage) -> None:
    s.produce()


def a_turn_of_buffers(s: Stage) -> None:
    with s.role(), s.ring.turn():
        pass


def wrong_buffer(s: Stage) -> None:
    with s.role(), s.ring.produce() as slot:
        s.p.store(s.machine.put, slot.z, s.load())


def by_threads_of_nobody(s: Stage) -> None:
    with s.role(), s.ring.produce() as slot:
        s.p.copy(s.machine.ahead, s.x, slot.t)


def value_of_another_role(s: Stage) -> None:
    with s.role("a"):
        value = s.load()
    with s.role("b", first=1):
        s.p.store(s.machine.st, s.y, value)


def two_pipelines(s: Stage) -> None:
    with s.p.pipeline("ring", 1, t=s.p.smem("f32", (32,))):
        pass


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        (never_consumed, "pipeline 'ring' is never consumed: its buffers are handed to nobody"),
        (never_produced, "pipeline 'ring' is never produced: its buffers are handed to nobody"),
        (
            unequal_loops,
            "pipeline 'ring' is produced (n + 31) // 32 times a tile by all, "
            "and consumed (n + 63) // 64 times by all",
        ),
        (
            copied_apart,
            "pipeline 'ring' is produced by cp.async in a and consumed in b; from role to role what TMA brings, or "
            "what threads store for others alone, is handed over",
        ),
        (unequal_roles, "pipeline 'ring' is produced (n + 31) // 32 times a tile by a, and consumed once by b"),
        (
            two_produce,
            "pipeline 'ring' is produced by a and b for the same tile, and each of them would begin with the first "
            "slot; let one role produce all slots of a tile",
        ),
        (
            changed_where_consumed,
            "'ring' is produced in a loop of its own, from or into %v1, which the loop that consumes it uses in other "
            "rounds; produce and consume it in one loop",
        ),
        (after_the_produce, "put touches ring.t after its slot was handed on; do it inside produce() or consume()"),
        (read_in_the_produce, "get reads ring.t where 'ring' is produced; do it where it is consumed"),
        (written_in_the_consume, "put writes ring.t where 'ring' is consumed; do it where it is produced"),
        (consumed_in_the_produce, "pipeline 'ring' is consumed inside its own produce()"),
        (
            produced_by_nobody,
            "pipeline 'ring' is produced outside a role; say which warps do it with `with p.role(...)`",
        ),
        (a_turn_of_buffers, "pipeline 'ring' hands over ring.t: write produce() and consume() instead of turn()"),
        (wrong_buffer, "the pipeline hands over t; there is no 'z'"),
        (by_threads_of_nobody, "ahead moves thread by thread: say who moves what, with a partition"),
        (
            value_of_another_role,
            "%v1 lies in the registers of role 'a', and role 'b' uses it; hand it over through a pipeline",
        ),
        (two_pipelines, "two pipelines are called 'ring'"),
    ],
)
def test_a_wrong_handover_is_explained(inner: Callable[[Stage], None], sentence: str) -> None:
    refused(lambda: thing(pipelined(inner), **SHARED), f"Thing.program: {sentence}")


def test_a_share_of_tiles_leaves_none_out() -> None:
    sentence = "Thing.program: pipeline 'ring' is consumed by no role for tile 0 of every 2"
    refused(lambda: thing(pipelined(one_of_two_consumes, persistent=True), **SHARED), sentence)


@pytest.mark.parametrize("in_turn", [(), ("a",), ("b",), ("a", "b")])
def test_roles_of_different_tiles_consume_one_ring_in_turn(in_turn: tuple[str, ...]) -> None:
    """Else the one of the later tile may be a whole ring ahead, and takes a phase that is over for its own."""

    def inner(s: Stage) -> None:
        with s.p.pipeline("order", 1) as order:
            with s.role("bring"), s.p.loop(s.machine.n, step=32):
                s.produce()
            for number, name in enumerate(("a", "b")):
                with s.role(name, first=1 + number, share=(number, 2)):
                    if name in in_turn:
                        with order.turn(), s.p.loop(s.machine.n, step=32):
                            s.consume()
                    else:
                        with order.turn():
                            pass
                        with s.p.loop(s.machine.n, step=32):
                            s.consume()

    if len(in_turn) == 2:
        thing(pipelined(inner, persistent=True), **SHARED)
        return
    sentence = (
        "Thing.program: roles a and b take different tiles and consume 'ring' at the same time; let them take turns, "
        "`with order.turn():` around what they consume"
    )
    refused(lambda: thing(pipelined(inner, persistent=True), **SHARED), sentence)


def overlapping(s: Stage) -> None:
    with s.role("a"):
        s.produce()
        s.consume()
    with s.role("b"):
        s.p.store(s.machine.st, s.y, s.load())


def test_roles_that_share_warps_can_never_work() -> None:
    sentence = "Thing.program: it can never work, whatever the parameters: the roles a and b have different warps"
    refused(lambda: thing(pipelined(overlapping), **SHARED), sentence)


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ({"share": (0, 2)}, "role 'a' takes a share of one tile per CTA; make the grid persistent"),
        ({"share": (2, 2)}, "role 'a' takes the share (2, 2); (r, n) has 0 <= r < n"),
        ({"registers": 41}, "role 'a' has a budget of 41 registers; it is a multiple of 8 from 24 to 256"),
        ({"registers": 264}, "role 'a' has a budget of 264 registers; it is a multiple of 8 from 24 to 256"),
        ({"registers": 40}, "role 'a' has 1 warps, and a register budget takes whole warpgroups of 4 warps"),
    ],
)
def test_a_wrong_role_is_explained(role: dict[str, Any], sentence: str) -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.role("a", warps=1, **role):
            pass

    refused(lambda: thing(program), f"Thing.program: {sentence}")


@pytest.mark.parametrize(
    ("takers", "sentence"),
    [
        ((), "pipeline 'order' has no buffers and nobody takes a turn in it"),
        (("a",), "only role a takes turns in 'order'; turns are for two roles or more"),
        (("a", "b", "b"), "role a takes its turn once a tile in 'order', and role b 2 times"),
    ],
)
def test_wrong_turns_are_explained(takers: tuple[str, ...], sentence: str) -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.pipeline("order", 1) as order:
            for name in takers:
                with p.role(name, warps=1, first="ab".index(name)), order.turn():
                    pass

    refused(lambda: thing(program), f"Thing.program: {sentence}")


def test_a_pipeline_without_buffers_is_not_produced() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)), p.pipeline("order", 1) as order, p.role("a", warps=1), order.produce():
            pass

    sentence = "Thing.program: pipeline 'order' hands over no buffers: write turn() instead of produce()"
    refused(lambda: thing(program), sentence)
