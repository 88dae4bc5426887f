"""Statements of classes that nothing here knows: every walker goes by their children, reads and writes, or refuses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tests.tinygpu.simulator.stretches import stretches
from tinygpu.cost.counting import count
from tinygpu.devices import device
from tinygpu.expressions import Expr, symbol
from tinygpu.language import DeclarationError, Machine, Problem
from tinygpu.language.buffer_space import buffer_bytes
from tinygpu.language.handover import check_handover
from tinygpu.language.heuristic import HEURISTICS
from tinygpu.language.live_registers import live_registers, registers_estimate
from tinygpu.language.memories import RMEM, SMEM
from tinygpu.language.tile import Tile
from tinygpu.language.under_way import check_sums_under_way
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.program import nodes as n
from tinygpu.program.access import accesses
from tinygpu.program.placement import place
from tinygpu.program.program import Program
from tinygpu.program.saved import load_program, save_program
from tinygpu.program.tree import executions, expressions, leaves, places, replace_expressions, transform, walk
from tinygpu.program.windows import unrolled_statements
from tinygpu.ptx.lowering import rounds
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.lowering.lower import lower
from tinygpu.simulator.script import Asked, script
from tinygpu.spaces.build import build_space
from tinygpu.testing.coverage import store_fault, stores
from tinygpu.testing.coverage import value as number
from tinygpu.testing.repairs import repairs


@dataclass(frozen=True, slots=True, eq=False)
class OnCondition(n.Statement):
    """A block that stands for a branch: `then` where the condition holds."""

    condition: Expr
    then: tuple[n.Statement, ...]

    @property
    def children(self) -> tuple[n.Body, ...]:
        return (n.Body("then", self.then),)


@dataclass(frozen=True, slots=True, eq=False)
class Mix(n.Statement):
    """A leaf that reads one register tile and makes another."""

    taken: Tile
    made: Tile

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.taken,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.made,)


PROBLEMS: dict[type[Machine], tuple[Problem, str]] = {
    MatmulSimt: (MatmulSimt.problem(m=70, n=90, k=40, options={"with_bias": True, "activation": "gelu"}), "a100"),
    MatmulAmpere: (MatmulAmpere.problem(m=100, n=96, k=64), "a100"),
    MatmulSkinny: (MatmulSkinny.problem(m=1, n=4096, k=4096), "a100"),
    MatmulHopper: (MatmulHopper.problem(m=256, n=256, k=256), "h100"),
}
SLOW = (MatmulAmpere, MatmulSkinny)
MACHINES = [pytest.param(m, marks=pytest.mark.slow if m in SLOW else (), id=m.__name__) for m in PROBLEMS]


def drawn(machine: type[Machine], seed: int) -> tuple[Program, Program, Problem, dict[str, Any]]:
    """(a candidate's program, its structure's with parameters as symbols, the problem, the point)."""
    problem, name = PROBLEMS[machine]
    space = build_space(machine, problem, device(name))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    return space.program(point), space.traces[space.structure_index(point)].program, problem, dict(point)


def wrapped(body: tuple[n.Statement, ...], rng: np.random.Generator, ahead: bool = False) -> tuple[n.Statement, ...]:
    """The body with some of its statements in a block of the new class.

    Not copies that run ahead of their round, or that fill a slot, which TMA alone does.
    """
    out: list[n.Statement] = []
    for s in body:
        inside = [wrapped(inner.statements, rng, inner.ahead or bool(inner.produces)) for inner in s.children]
        s = s.with_children(*inside)
        out.append(OnCondition(symbol("m") > 0, (s,)) if not ahead and rng.random() < 0.3 else s)
    return tuple(out)


def unwrapped(body: tuple[n.Statement, ...]) -> tuple[n.Statement, ...]:
    """The body without blocks of the new class."""
    out: list[n.Statement] = []
    for s in body:
        inside = tuple(unwrapped(inner.statements) for inner in s.children)
        out.extend(inside[0] if isinstance(s, OnCondition) else [s.with_children(*inside)])
    return tuple(out)


@pytest.mark.end_to_end
@pytest.mark.parametrize("machine", MACHINES)
def test_a_new_block_is_gone_through_by_everything(machine: type[Machine]) -> None:
    filled, traced, problem, point = drawn(machine, 5)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        changed = replace(filled, body=wrapped(filled.body, rng))
        assert any(isinstance(s, OnCondition) for s in walk(changed.body))
        assert list(leaves(changed.body)) == list(leaves(filled.body))
        assert [p.role for p in places(changed.body) if not p.statement.children] == [
            p.role for p in places(filled.body) if not p.statement.children
        ]
        assert place(changed, {}) == place(filled, {})
        assert rounds.rings(changed) == rounds.rings(filled)
        assert rounds.steps(changed) == rounds.steps(filled)
        assert [(p.statement, p.indices) for p in unrolled_statements(changed.body)] == [
            (p.statement, p.indices) for p in unrolled_statements(filled.body)
        ]
        at = {**problem.environment(), n.PART: 0, **{a.index: 0 for a in filled.grid.axes}}
        assert list(executions(changed.body, at, number)) == list(executions(filled.body, at, number))
        assert stores(changed) == stores(filled)
        assert [r.says for r in repairs(changed)] == [r.says for r in repairs(filled)]
        with pytest.raises(LoweringError, match=r"^there is no PTX for the statement 'oncondition:'$"):
            lower(changed, problem, point)
        assert str(replace(changed, body=unwrapped(changed.body))) == str(filled)
        whole = replace(traced, body=wrapped(traced.body, rng))
        assert buffer_bytes(whole, whole.body, SMEM).same(buffer_bytes(traced, traced.body, SMEM))
        assert registers_estimate(whole).same(registers_estimate(traced))
        assert stretches_of(whole) == stretches_of(traced)
        counted = zip(count(whole).expressions, count(traced).expressions, strict=True)
        assert all(one.same(other) for one, other in counted)
        check_handover(whole)
        check_sums_under_way(whole)


def stretches_of(program: Program) -> list[tuple[str, Asked, float]]:
    """What each role does for a tile, and how often, where every loop is gone round twice."""
    written = script(program, HEURISTICS)
    trips = dict.fromkeys(written.trips, 2.0)
    return [
        (part.role, asked, times)
        for part in written.parts
        for asked, times in [*stretches(program.body, part.stops, trips), *((last, 1.0) for last in part.last)]
    ]


def test_stores_in_a_new_block_are_counted() -> None:
    filled, _, problem, _ = drawn(MatmulSimt, 1)
    changed = replace(filled, body=wrapped(filled.body, np.random.default_rng(0)))
    assert store_fault(changed, problem) == ""
    twice = transform(filled.body, lambda s: OnCondition(symbol("m") > 0, (s, s)) if isinstance(s, n.Store) else s)
    assert "is stored 2 times by" in store_fault(replace(filled, body=twice), problem)


def mixed(program: Program) -> tuple[Program, Mix]:
    """The program with a statement of the new class behind the first that makes registers."""
    made = next(t for s in leaves(program.body) for t in s.writes if t.memory is RMEM)
    mix = Mix(made, replace(made, name="mixed"))
    done: list[n.Statement] = []

    def with_mix(body: tuple[n.Statement, ...]) -> tuple[n.Statement, ...]:
        out: list[n.Statement] = []
        for s in body:
            out.append(s.with_children(*(with_mix(inner.statements) for inner in s.children)))
            if not done and made in s.writes:
                done.append(mix)
                out.append(mix)
        return tuple(out)

    return replace(program, body=with_mix(program.body)), mix


@pytest.mark.parametrize("machine", MACHINES)
def test_a_new_leaf_is_taken_by_what_it_reads_and_writes(machine: type[Machine]) -> None:
    filled, traced, problem, point = drawn(machine, 3)
    changed, mix = mixed(filled)
    assert list(leaves(changed.body)).count(mix) == 1
    assert f"{mix.made} = mix {mix.taken}" in str(changed)
    assert list(accesses(mix)) == []
    assert any(p.statement is mix for p in unrolled_statements(changed.body))
    whole, new = mixed(traced)
    assert {e.sympy for e in expressions(new)} <= {e.sympy for e in expressions(whole)}
    assert replace_expressions(new, lambda e: e) is new
    assert len(script(whole, HEURISTICS).parts) == len(script(traced, HEURISTICS).parts)
    assert count(whole).names == count(traced).names
    sentence = f"there is no PTX for the statement '{mix.made} = mix {mix.taken}'"
    with pytest.raises(LoweringError, match=f"^{re.escape(sentence)}$"):
        lower(changed, problem, point)


def test_what_a_new_leaf_makes_takes_registers_for_as_long_as_it_is_read() -> None:
    filled, _, _, _ = drawn(MatmulSimt, 2)
    made = next(t for s in leaves(filled.body) for t in s.writes if t.memory is RMEM)
    held = replace(made, name="held")
    roles = [s for s in walk(filled.body) if isinstance(s, n.InRole)]
    inside = (n.Constant(made, 0.0), Mix(made, held), *roles[0].body, Mix(held, replace(held, name="end")))
    more = int(live_registers(inside)) - int(live_registers(roles[0].body))
    assert held.partition is not None
    assert more == int(held.partition.value_count)


def test_sums_that_a_new_leaf_reads_while_they_are_worked_on_are_refused() -> None:
    _, traced, _, _ = drawn(MatmulHopper, 0)
    product = next(s for s in walk(traced.body) if isinstance(s, n.Multiply) and s.token is not None)
    read = Mix(product.accumulator, replace(product.accumulator, name="early"))
    early = transform(traced.body, lambda s: OnCondition(symbol("m") > 0, (s, read)) if s is product else s)
    with pytest.raises(DeclarationError, match=r"^MatmulHopper\.program: %v\d+ is used in the block that consumes "):
        check_sums_under_way(replace(traced, body=early))


def test_slots_that_are_consumed_in_a_new_block_are_counted() -> None:
    _, traced, _, _ = drawn(MatmulHopper, 0)
    twice = transform(traced.body, lambda s: OnCondition(symbol("m") > 0, (s, s)) if isinstance(s, n.Produce) else s)
    with pytest.raises(DeclarationError, match=r"^MatmulHopper\.program: pipeline '\w+' is produced .* times a tile "):
        check_handover(replace(traced, body=twice))


def test_new_statements_are_saved_by_the_path_of_their_class() -> None:
    filled, _, _, _ = drawn(MatmulSimt, 1)
    changed, _ = mixed(replace(filled, body=wrapped(filled.body, np.random.default_rng(1))))
    again = load_program(json.loads(json.dumps(save_program(changed))))
    assert str(again) == str(changed)
    assert {type(s) for s in walk(again.body)} == {type(s) for s in walk(changed.body)} >= {OnCondition, Mix}


def test_a_statement_takes_as_many_bodies_as_it_has() -> None:
    sentence = "a Mix has 0 bodies, and is given 1"
    filled, _, _, _ = drawn(MatmulSimt, 1)
    _, mix = mixed(filled)
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        mix.with_children(())
