"""All hand-overs of the machines that ship are proved; what is broken in one is refuted, with the round that fails."""

from __future__ import annotations

from collections import Counter

import pytest
from breaks import Break, breaks, early_releases
from structures import PROOFS, STRUCTURES, CopiedInBulk, protocol, structure

from tinygpu.devices import device
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.protocol.certificate import Certificate, Proofs, certify
from tinygpu.ptx.protocol.execution import Instance
from tinygpu.ptx.protocol.exploration import explore
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

PROVED = (
    "no slot is overwritten before it was read; no slot is read before it was filled; no phase is missed; "
    "no wait lasts for ever"
)
ASSUMED = (
    "assumed: mbarriers do what the PTX ISA says, bytes that were issued land, every warp that does not wait goes on, "
    "and loops of the same trip count have the same number of rounds in all roles"
)
# In the quick suite: turns and tiles passed over; a cluster; threads as readers. Pipelines within a role: test_filling.
QUICK = ("sums in turn", "hopper, stream-K", "2 readers")


def certificate(name: str) -> Certificate:
    return certify(structure(name), PROOFS)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.sampled(24)
@pytest.mark.end_to_end
def test_every_ring_between_roles_is_proved(name: str) -> None:
    found = certificate(name)
    assert found.rings
    assert found.proved, str(found)
    assert all(ring.asked and not ring.states for ring in found.rings)


@pytest.mark.end_to_end
def test_a_certificate_says_what_is_proved_for_what_and_what_is_assumed() -> None:
    """A slot that wgmma reads is given back a round later: with one stage its producer would wait for ever."""
    assert str(certificate("hopper, pingpong in clusters")).splitlines() == [
        f"proved: ring of a, b (for all stages from 2 on, rounds, tiles and CTAs): {PROVED}",
        "proved: turns of math (for all rounds, tiles and CTAs): roles take their turns one at a time, in their order; "
        "no phase is missed; no wait lasts for ever",
        ASSUMED,
    ]
    for name in ("ampere, 3 stages", "ampere, 2 stages"):
        ring, *_ = str(certificate(name)).splitlines()
        assert ring == (
            "proved: ring of a, b (for all stages from 2 on, rounds, tiles and CTAs): no slot is overwritten before it "
            "was read; no slot is read before it was filled; no wait lasts for ever"
        )
    ring, *_ = str(certificate("ampere, 1 stage")).splitlines()
    assert ring.startswith("proved: ring of a, b (for 1 stage and all rounds, tiles and CTAs): no slot is overwritten")
    assert str(certificate("2 readers")).splitlines() == [
        f"proved: ring of x (for all stages, rounds, tiles and CTAs): {PROVED}",
        ASSUMED,
    ]


def test_what_a_solver_does_not_know_is_unknown_with_what_was_enumerated() -> None:
    found = certify(structure("1 readers"), Proofs(rlimit=1))
    (ring,) = found.rings
    assert (ring.verdict, found.proved, found.refuted) == ("unknown", False, ())
    sentence = str(found).splitlines()[0]
    assert sentence.startswith(
        "unknown: ring of x: no slot is overwritten before it was read, no slot is read before it was filled, "
        "no phase is missed, no wait lasts for ever: Z3 does not know whether no wait lasts for ever (a producer and a "
        "consumer wait: max. resource limit exceeded); nothing is wrong in 1 tile of 7 rounds, "
    )
    assert sentence.endswith(" states")


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("across", [1, 2])
def test_a_slot_that_bulk_copies_read_is_given_back_by_all_warps_when_they_have(
    stages: int, warps: int, across: int
) -> None:
    found = certify(protocol(CopiedInBulk, (40, 200), {"stages": stages, "warps": warps, "across": across}), PROOFS)
    assert found.proved, str(found)


@pytest.mark.parametrize("warps", [1, 4])
def test_what_bulk_copies_bring_and_take_away_is_right(warps: int) -> None:
    problem = CopiedInBulk.problem(m=40, n=200)
    point = {"stages": 2, "warps": warps, "across": 2}
    program = build_space(CopiedInBulk, problem, device("h100")).program(point)
    kernel = build(program, problem, point, SolverCache()).kernel
    found = verify(kernel, CopiedInBulk, problem, orders=("late",), random_inputs=False)
    assert found.passed, str(found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("groups", ["2 in turns", "3 in turns"])
@pytest.mark.parametrize("overlapped", [0, 1])
def test_roles_of_one_tile_take_turns_round_after_round_with_slots_in_their_hands(groups: str, overlapped: int) -> None:
    found = certify(structure("attention, in turns", groups=groups, overlapped=overlapped), PROOFS)
    assert found.proved, str(found)
    turns = "proved: turns of turns (for all rounds, tiles and CTAs): roles take their turns one at a time, in their "
    assert any(line.startswith(turns) for line in str(found).splitlines())


# ---- what is broken -------------------------------------------------------------------------------------------------


# Breaks that break nothing, by kind: how many there are.
HARMLESS = {
    # the second ring lies in memory of its own, and its first slots are written by who has read the first ring
    ("two rings", "a missing barrier"): 1,
    # the only slot is its own neighbour
    ("attention", "a wait for the neighbour's slot"): 1,
    ("attention, overlapped", "a wait for the neighbour's slot"): 1,
    # a slot of keys is filled anew behind one of values, which is given back when both products are complete
    ("attention, overlapped", "a missing group"): 1,
    ("attention, overlapped", "a group too few waited for"): 1,
    ("attention, overlapped", "an early release"): 1,
    # behind it the columns of tensor memory are freed, which no ring is about
    ("basic blackwell", "a missing barrier"): 1,
    ("blackwell, staged", "a missing barrier"): 1,
    # the same of both roles; and when the second one has its turn, the first has waited for what is full
    ("attention, in turns", "a wait for the neighbour's slot"): 1,
    ("attention, in turns", "a missing group"): 2,
    ("attention, in turns", "a group too few waited for"): 2,
    ("attention, in turns", "an early release"): 2,
    ("attention, in turns", "a missing wait"): 2,
}


def unrefuted(name: str) -> list[str]:
    """Breaks of a structure that are not refuted with a round."""
    seeded = (*breaks(structure(name)), *early_releases(structure(name)))
    left = [b for b in seeded if not _fails(certify(b.protocol, PROOFS))]
    harmless = Counter({kind: count for (of, kind), count in HARMLESS.items() if of == name})
    return [] if Counter(b.kind for b in left) == harmless else [f"{b.kind}: {b.what}" for b in left]


def _fails(found: Certificate) -> bool:
    return not found.proved and bool(found.refuted) and all(ring.round is not None for ring in found.refuted)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", QUICK)
@pytest.mark.end_to_end
def test_a_broken_hand_over_is_refuted_with_its_round(name: str) -> None:
    assert not unrefuted(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_broken_hand_over_is_refuted_with_its_round(name: str) -> None:
    assert not unrefuted(name)


def first(name: str, kind: str, number: int = 0) -> Break:
    return [b for b in (*breaks(structure(name)), *early_releases(structure(name))) if b.kind == kind][number]


@pytest.mark.parametrize(
    ("kind", "number", "sentence"),
    [
        ("a missing release", 0, "stuck"),
        ("an arrival too many", 0, "stuck"),
        ("an inverted first parity", 0, "stuck"),
        ("wrong expected bytes", 0, "stuck"),
        ("an early release", 0, "overwritten"),
        ("a missing wait", 0, "arrivals"),
        ("a missing wait", 1, "unfilled"),
        ("a place in the ring kept for one tile only", 0, "missed"),
    ],
)
def test_the_first_wrong_state_is_of_the_kind_that_a_break_brings(kind: str, number: int, sentence: str) -> None:
    broken = first("1 readers", kind, number).protocol
    found = explore(broken, Instance((7, 7))).violation
    assert (found.kind if found else "") == sentence, found


@pytest.mark.end_to_end
def test_a_refuted_ring_names_its_round_and_who_does_what() -> None:
    assert str(certify(first("1 readers", "an early release").protocol)).splitlines()[0] == (
        "refuted: ring of x: round 2 of ring: producer overwrites slot 0, which reader0 is reading for round 0"
    )
    assert str(certify(first("1 readers", "a missing release").protocol)).splitlines()[0] == (
        "refuted: ring of x: round 2 of ring: nobody can go on: producer in round 2 until slot 0 is empty; "
        "reader0 in round 2 until slot 0 is full"
    )


@pytest.mark.end_to_end
def test_breaks_are_of_every_kind() -> None:
    protocols = [structure(name) for name in STRUCTURES]
    assert {b.kind for p in protocols for b in (*breaks(p), *early_releases(p))} == {
        "an arrival too few", "an arrival too many", "an inverted first parity",
        "a place in the ring kept for one tile only", "a missing wait", "a wait for the neighbour's slot",
        "a missing arrival", "wrong expected bytes", "a missing copy", "a missing release",
        "a release of the neighbour's slot", "a release of the own CTA only", "a group too few waited for",
        "slots that end elsewhere", "a parity that does not flip", "a slot that stands still",
        "slots that are not passed over", "an early release", "a missing barrier", "a missing wait for copies",
        "a missing group", "a slot that begins elsewhere", "a neighbour's slot is written",
    }  # fmt: skip
