"""The questions of a proof: none is answered by assumptions that contradict each other, and each takes few steps."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from breaks import breaks
from structures import structure

from tinygpu.constraints.query import Query, ask
from tinygpu.ptx.protocol.automaton import automaton
from tinygpu.ptx.protocol.execution import roles
from tinygpu.ptx.protocol.induction import STUCK, Question, RingProof, answer
from tinygpu.ptx.protocol.progress import Irregular

STEPS = 200_000  # of Z3, for each question: some hundredths of a second


def proof(name: str) -> RingProof:
    of = structure(name)
    automata = tuple(automaton(of, role) for role in roles(of))
    producers = tuple(a for a in automata if any(m.kind == "bring" for m in a.of("ring")))
    consumers = tuple(a for a in automata if a.of("ring") and a not in producers)
    return RingProof.of("ring", producers, consumers, 2, any(extent > 1 for extent in of.cluster))


@pytest.mark.parametrize("name", ["hopper, stream-K", "2 readers"])
def test_what_is_assumed_of_a_move_can_be(name: str) -> None:
    """Without what it is to show, each question has an answer: so that nothing is shown of what cannot be."""
    asked = [q for q in proof(name).questions() if q.claim != STUCK and q.name != "at first"]
    assert len(asked) > 8
    for question in asked:
        assert ask(Query(question.name, partial(_assumed, question))).verdict == "sat", question.name


def _assumed(question: Question, context: Any) -> list[Any]:
    return question.build(context)[:-1]


@pytest.mark.parametrize("name", ["hopper, stream-K", "2 readers"])
def test_every_question_is_answered_in_few_steps(name: str) -> None:
    for question in proof(name).questions():
        assert answer(question, "ring", None, STEPS).verdict == "unsat", question.name


@pytest.mark.end_to_end
def test_a_role_of_which_nothing_is_a_function_of_the_round_is_told() -> None:
    of = structure("1 readers")
    told = set()
    for broken in breaks(of):
        for role in roles(broken.protocol):
            try:
                automaton(broken.protocol, role)
            except Irregular as why:
                told.add(str(why))
    assert {
        "slots begin again behind 1 of 2",
        "it begins anew in ring, where it has been before",
        "it waits for use n+0, and the next one to wait for is n+1",
        "it waits with the parity of another use",
        "bytes are expected for a slot that is not the one that was waited for",
        "it reads a slot that it has not waited for, or has given back",
    } <= told, told
