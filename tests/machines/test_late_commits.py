"""Commits that reach another CTA behind all that it waits for; what both CTAs of a pair store and one multiplies."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from copied_rows import HeldByPairs, HeldInClusters
from proving import right_and_proved
from stored_cells import NegatedByPairs

from tinygpu.devices import device
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.protocol.execution import Instance
from tinygpu.ptx.protocol.exploration import explore
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ORDERS = ("late", "early", "random")
SIZES: dict[type[Any], dict[str, int]] = {
    HeldByPairs: {"m": 300, "n": 200},
    HeldInClusters: {"m": 300, "n": 200},
    NegatedByPairs: {"m": 300, "n": 136, "k": 168},
}


def drawn(machine: type[Any], seed: int) -> tuple[Any, Any]:
    space = build_space(machine, machine.problem(**SIZES[machine]), device("b200"))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    return space, point


@cache
def small(machine: type[Any]) -> Kernel:
    space, point = drawn(machine, 0)
    return build(space.program(point), space.problem, point, SolverCache()).kernel


@cache
def protocol(machine: type[Any]) -> sync.Protocol:
    space, point = drawn(machine, 0)
    program = space.program(point)
    return lowered(program, space.problem, point, solve_buffers(program, SolverCache()).swizzles).protocol


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("machine", SIZES)
@pytest.mark.sampled(1)
@pytest.mark.end_to_end
def test_random_candidates_are_right_in_every_order_and_proved(machine: type[Any], seed: int) -> None:
    right_and_proved(*drawn(machine, seed), ORDERS)


def refused(machine: type[Any], text: str) -> str:
    kernel = small(machine)
    assert text != kernel.ptx
    found = verify(replace(kernel, ptx=text), machine, machine.problem(**SIZES[machine]), orders=ORDERS)
    assert not found.passed
    return str(found)


@pytest.mark.parametrize("machine", [HeldByPairs, HeldInClusters])
def test_a_cta_that_does_not_wait_for_late_commits_leaves_too_early(machine: type[Any]) -> None:
    text = small(machine).ptx
    found = re.search(r"(?s)role producer.*?(tiles_done\d+:\n)(.*?)(?=\s+bra \$end)", text)
    assert found is not None
    tails = [s.pipe for role in _roles(protocol(machine)) for s in role.body if isinstance(s, sync.Tail)]
    assert {pipe.name for pipe in tails} == ({"ring", "brought"} if machine is HeldByPairs else {"ring"})
    assert found[2].count("try_wait") == sum(pipe.stages for pipe in tails)
    said = refused(machine, text[: found.start(2)] + text[found.end(2) :])
    assert "this CTA exits, but tensor core work of warp" in said


def test_sums_that_are_committed_last_need_no_wait() -> None:
    assert not any(isinstance(s, sync.Tail) for role in _roles(protocol(NegatedByPairs)) for s in role.body)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the warps of one CTA are enough
        (r"(mbarrier\.init\.shared\.b64 \[%r\d+\]), 8;", r"\1, 4;"),
        # each CTA's warps say so to their own CTA
        (r"(role filler(?:.*\n)*?.*)mbarrier\.arrive\.release\.cluster(.*)_, \[%r\d+\];", r"\1bar.warp.sync -1;"),
        # a warp says so while its stores are under way
        (r"tcgen05\.wait::st\.sync\.aligned;", "bar.warp.sync -1;"),
    ],
)
def test_wrong_kernels_of_stores_by_both_ctas_are_refused(old: str, new: str) -> None:
    refused(NegatedByPairs, re.sub(old, new, small(NegatedByPairs).ptx))


def _roles(of: sync.Protocol) -> list[sync.RoleBody]:
    return [step for step in of.body if isinstance(step, sync.RoleBody)]


def _with(of: sync.Protocol, role: str, body: Any) -> sync.Protocol:
    changed = (replace(s, body=body(s.body)) if s in _roles(of) and s.role == role else s for s in of.body)
    return replace(of, body=tuple(changed))


def _without(step: Any, kind: type, side: str, ring: str) -> Any:
    """The same without arrivals of a kind; where a loop did so, not at all."""
    if not hasattr(step, "body"):
        return step
    left = (s for s in step.body if not (isinstance(s, kind) and (s.barrier.side, s.barrier.pipeline) == (side, ring)))
    return replace(step, body=tuple(_without(s, kind, side, ring) for s in left))


def test_waits_for_all_slots_are_proved_and_found_wrong_where_they_are() -> None:
    right = protocol(HeldByPairs)
    assert certify(right).proved
    (tail, *_) = (s for role in _roles(right) for s in role.body if isinstance(s, sync.Tail))
    producer = next(role.role for role in _roles(right) if tail in role.body)
    instance = Instance((2, 2))
    assert explore(right, instance, 20_000).violation is None

    # a role that goes on behind it
    early = _with(right, producer, lambda body: (*body[:2], tail, *body[2:]))
    assert not certify(early).proved
    # one that waits twice: the second time there is nothing to come
    twice = _with(right, producer, lambda body: (*body, tail))
    assert not certify(twice).proved
    # one whose parity is another's
    start = next(s for role in _roles(right) for s in role.body if isinstance(s, sync.Start) and s.pipe == tail.pipe)
    flipped = _with(right, producer, lambda body: tuple(replace(s, parity=0) if s == start else s for s in body))
    assert not certify(flipped).proved
    # nobody gives the slots back
    kept = replace(right, body=tuple(_without(s, sync.CommitAt, "empty", tail.pipe.name) for s in right.body))
    assert kept != right
    assert not certify(kept).proved
