"""What is proved holds in every state of small instances, which are looked at one by one."""

from __future__ import annotations

import pytest
from structures import STRUCTURES, protocol, readers, structure

from tinygpu.ptx.protocol.execution import Instance, events, roles
from tinygpu.ptx.protocol.exploration import explore


@pytest.mark.parametrize("rounds", range(0, 14, 3))
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.sampled(14)
def test_nothing_is_wrong_in_any_state_of_a_small_ring(count: int, stages: int, rounds: int) -> None:
    """Up to three turns of the slots and one round more, in one tile and in two."""
    of = protocol(readers(count), (40, 200), {"stages": stages})
    for instance in (Instance((min(rounds, 3 * stages + 1),)), Instance((rounds // 2, rounds // 2))):
        found = explore(of, instance)
        assert found.violation is None, (instance, found.violation)
        assert found.whole


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_nothing_is_wrong_in_any_state_of_a_structure(name: str) -> None:
    for instance in (Instance((5, 5)), Instance((3, 1, 2))):
        assert explore(structure(name), instance, 100_000).violation is None


def test_what_is_left_out_is_said() -> None:
    found = explore(structure("2 readers"), Instance((7,)), 50)
    assert (found.whole, found.violation) == (False, None)
    assert str(found) == f"1 tile of 7 rounds, {found.states} states of more"


def test_a_role_uses_the_slots_one_after_the_other_and_its_parity_flips_when_they_begin_again() -> None:
    """By the law of the ring: use r is of slot r mod stages, and the parities of its waits alternate every `stages`."""
    of = structure("sums in turn", stages=2)
    waited = {}
    for role in roles(of):
        for e in events(of, role, Instance((5, 5, 5))):
            if e.kind == "wait" and e.pipeline == "ring":
                assert e.slot == e.round % 2
                assert e.value == (e.round // 2 + (e.side == "empty")) % 2
                waited.setdefault(e.side, []).append(e.round)
    assert waited["empty"] == list(range(15))
    assert sorted(waited["full"]) == list(range(15))  # of two roles: each passes over what the other consumes
