"""Pipelines that the threads of one role fill and read: what is proved for all stages holds for each number of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import z3
from breaks import breaks
from structures import PROOFS, STRUCTURES, protocol, structure

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.execution import roles
from tinygpu.ptx.protocol.family import Family, family
from tinygpu.ptx.protocol.filling import HEADS, FillingProof
from tinygpu.ptx.protocol.progress import Irregular
from tinygpu.ptx.protocol.sequence import sequence
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

COPIED = "ampere, 3 stages"
STORED = "ampere, through registers"
AHEAD = [name for name in STRUCTURES if "loads ahead" in name]
IN_TURN = [name for name in STRUCTURES if name.startswith("slots in turn")]


def own(of: sync.Protocol) -> tuple[sync.Ring, ...]:
    return tuple(ring for ring in of.rings if ring.completion in ("barrier", "commit group"))


def bodies(of: sync.Protocol) -> Iterator[tuple[sync.Ring, tuple[sync.Step, ...], int]]:
    """(a pipeline within a role, the role's text, its threads)."""
    for role in roles(of) or (sync.RoleBody("all", 0, False, (0, 1), of.body),):
        meetings = [s.threads for s in steps_of(role.body) if isinstance(s, sync.Meet)]
        threads = 32 * role.warps or max(meetings, default=0)
        touched = {s.pipeline for s in steps_of(role.body) if isinstance(s, sync.Touch)}
        yield from ((ring, role.body, threads) for ring in own(of) if ring.name in touched)


def families(of: sync.Protocol) -> list[Family]:
    return [family(ring, own(of), body, threads) for ring, body, threads in bodies(of)]


def is_proved(of: Family) -> bool:
    try:
        return PROOFS.prove(FillingProof(of)) > 0
    except Irregular:
        return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [COPIED, STORED, "parts of slots", *AHEAD, *IN_TURN])
@pytest.mark.end_to_end
def test_lowering_writes_one_text_for_all_stages(name: str) -> None:
    """So that what is proved of one number of stages is said of the text that any other number has."""
    sizes = {"parts of slots": (2, 3), **dict.fromkeys(IN_TURN, (2, 3, 4))}.get(name, (2, 3, 4, 5))
    found = [families(structure(name, stages=stages)) for stages in sizes]
    assert found[0]
    assert all(other == found[0] for other in found)
    assert all(is_proved(one) for one in found[0])


@pytest.mark.parametrize("stages", [3, 2, 4, 6])
@pytest.mark.parametrize("name", [COPIED, STORED, "ampere, staged", "filled meanwhile", *AHEAD, *IN_TURN])
@pytest.mark.sampled(12)
@pytest.mark.end_to_end
def test_what_is_broken_is_never_proved(name: str, stages: int) -> None:
    """By the law of all breaks: what has a wrong state for these stages is not proved for all."""
    left = []
    for broken in breaks(structure(name, stages=stages)):
        rings = own(broken.protocol)
        wrong, shown = False, True
        for ring, body, threads in bodies(broken.protocol):
            try:
                wrong |= sequence(rings, body, threads).violation is not None
                shown &= is_proved(family(ring, rings, body, threads))
            except Irregular:
                shown = False
        if wrong and shown:
            left.append(f"{broken.kind}: {broken.what}")
    assert not left


@pytest.mark.parametrize(
    ("kind", "number", "sentence"),
    [
        (
            "a group too few waited for", 0,
            "refuted: ring of a, b: round 0 of ring: slot 0 is read while copies into it may be under way",
        ),
        (
            "a missing barrier", 0,
            "refuted: ring of a, b: round 0 of ring: slot 0 is read before its readers have met those who wrote it",
        ),
        (
            "a slot that begins elsewhere", 0,
            "refuted: ring of a, b: round 0 of ring: slot 1 is read, and holds another round or none",
        ),
        (
            "a slot that begins elsewhere", 1,
            "refuted: ring of a, b: round 0 of ring: slot 3 is used, and there are 3",
        ),
        ("a slot that stands still", 1, "refuted: ring of a, b: round 1 of ring: slot 2 is written before it was read"),
    ],
)  # fmt: skip
def test_a_broken_pipeline_within_a_role_is_refuted_with_its_round(kind: str, number: int, sentence: str) -> None:
    broken = [b for b in breaks(structure(COPIED)) if b.kind == kind][number]
    assert str(certify(broken.protocol, PROOFS)).splitlines()[0] == sentence


@pytest.mark.parametrize("name", [COPIED, STORED, *AHEAD, "hopper, staged", "two rings", *IN_TURN[:2]])
@pytest.mark.sampled(2)
def test_what_is_assumed_of_a_pipeline_within_a_role_can_be(name: str) -> None:
    """Without what it is to show, each question has an answer: so that nothing is shown of what cannot be."""
    for one in families(structure(name)):
        for question in FillingProof(one).questions():
            context = z3.Context()
            (wrong,) = question.build(context)
            cases = wrong.children() if z3.is_or(wrong) else [wrong]
            assert len(cases) > 1
            for case in cases[:: 10 if question.claim == HEADS else 1]:
                solver = z3.Solver(ctx=context)
                solver.add(*case.children()[:-1])
                assert solver.check() == z3.sat, (question.claim, case.children()[-1])


class Few(Machine):
    """y = the sum of the first two tiles of x"""

    m, n, w = Dim(), Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, w)
    stages = Param(1, 2, 3, 4, 6)
    cp, ld, st, add = isa.CpAsync(1), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        who, shape = blocked((8, 32), threads=32, across=32), (8, 32)
        with (
            p.grid((self.m, 8)) as (i,),
            p.pipeline("ring", self.stages, x=p.smem("f32", shape)) as ring,
            p.role("all", warps=1),
        ):
            total = p.full(who, "f32")
            with p.loop(2) as k, ring.produce() as s:
                p.copy(self.cp, self.x.tile(i, k * 32, shape=shape), s.x, who)
            with p.loop(2) as k, ring.consume() as s:
                p.apply(self.add, total, p.load(self.ld, s.x, who), into=total)
            p.store(self.st, self.y.tile(i, 0, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x[:, :32] + x[:, 32:64]


@pytest.mark.parametrize("stages", [1, 2, 3])
def test_slots_that_are_filled_while_others_are_used_are_proved(stages: int) -> None:
    """Each for its own number of stages at least; threads meet where they drain a slot, and nowhere else."""
    of = structure("filled meanwhile", stages=stages)
    assert certify(of, PROOFS).proved
    (loop,) = (s for s in steps_of(of.body) if isinstance(s, sync.Rounds))
    assert sum(isinstance(s, sync.Meet) for s in steps_of(loop.body)) == 2


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_a_loop_may_have_fewer_rounds_than_there_are_stages(stages: int) -> None:
    problem = Few.problem(m=19, n=64, w=32)
    space = build_space(Few, problem, device("h100"))
    (point,) = space.space.restrict({"stages": stages}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Few, problem, orders=("late",), random_inputs=False)
    assert found.passed, found


def test_what_is_proved_for_its_own_stages_alone_says_why() -> None:
    """Of the slots that are filled ahead of a loop of two rounds, the third is none of its rounds'."""
    sentence = str(certify(protocol(Few, (16, 64, 32), {"stages": 4}), PROOFS)).splitlines()[0]
    assert re.fullmatch(
        r"proved: ring of x \(for 4 stages and all rounds, tiles and CTAs; in all of [0-9,]+ states, and not for all "
        r"stages: the slots of ring that are filled ahead are not all filled in the same way\): no slot is overwritten "
        r"before it was read; no slot is read before it was filled; no wait lasts for ever",
        sentence,
    ), sentence
