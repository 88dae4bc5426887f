"""Proofs by induction about pipelines within a role: for all stages, rounds and tiles, by Z3.

One slot is looked at, any of them, and what the threads have done with it since they last met: the round that it holds,
counted from the one that the loop is in; whether copies into it are under way, and how many groups were closed since
theirs; whether stores or reads of it are known to the thread alone that has made them. A wait that leaves n groups
under way is over for a slot when n groups at least were closed since.

At the head of a loop that goes through slots, the slot lies `d` slots behind the one that is read in round c. If it is
filled ahead (d < fewer than the stages, and round c + d is one of the loop's), it holds round d, and for every slot
between, a group was closed since its own: `closed >= ahead - 1 - d`. What holds at the head of a loop is looked for
among such sentences, as Houdini does (Flanagan and Leino, FME 2001): those that do not hold at first, or are not kept
by a round, are dropped, until those that are left hold each other. That they do, and that with them nothing that is
written is in use and nothing that is read is missing, are the questions of the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

from tinygpu.ptx.protocol import family as f
from tinygpu.ptx.protocol.induction import OVERWRITTEN, RLIMIT, UNFILLED, Question
from tinygpu.ptx.protocol.one_slot import HEADS, Goal, Holding, OneSlot
from tinygpu.ptx.protocol.progress import Irregular


@dataclass(frozen=True, slots=True)
class FillingProof:
    """The questions about one pipeline of one role: equal for all kernels whose texts are of one family."""

    family: f.Family

    @property
    def ring(self) -> str:
        return self.family.ring

    def questions(self) -> Iterator[Question]:
        """Raises Irregular where Z3 cannot tell which sentences hold."""
        holding = _houdini(self.family)
        for claim in (HEADS, OVERWRITTEN, UNFILLED):
            yield Question(claim, "in every round", partial(self._asked, holding, claim))

    def _asked(self, holding: Holding, claim: str, context: Any) -> list[Any]:
        """Some place of the text, and that there something holds that must not."""
        goals = [g for g in OneSlot(self.family, context, holding).goals() if g.claim == claim]
        wrong = [z3.And(*g.facts, z3.Not(g.term)) for g in goals]
        return [z3.Or(*wrong) if wrong else z3.BoolVal(False, context)]


def _houdini(family: f.Family) -> Holding:
    """The most that holds at the head of every loop."""
    context = z3.Context()
    run = OneSlot(family, context)
    groups: dict[tuple[int, str], dict[str, Goal]] = {}
    for goal in run.goals():
        if goal.head is not None:
            number, when, name = goal.head
            groups.setdefault((number, when), {})[name] = goal
    holding = [set(names) for names in run.names]
    solvers = {key: _solver(context, next(iter(group.values())).facts) for key, group in groups.items()}
    waiting = list(groups)
    while waiting:
        key = waiting.pop(0)
        wanted = {name: goal.term for name, goal in groups[key].items() if name in holding[key[0]]}
        if not wanted:
            continue
        said = [run.said(head, name) for head, names in enumerate(holding) for name in sorted(names)]
        solver = solvers[key]
        solver.push()
        solver.add(*said, z3.Not(z3.And(*wanted.values())))
        verdict, lost = solver.check(), set()
        if verdict == z3.sat:
            model = solver.model()
            lost = {name for name, term in wanted.items() if not z3.is_true(model.eval(term, model_completion=True))}
        if verdict == z3.unknown or (verdict == z3.sat and not lost):
            raise Irregular(f"Z3 does not know what holds at the head of a loop ({solver.reason_unknown()})")
        solver.pop()
        if lost:
            holding[key[0]] -= lost
            waiting = [key, *(other for other in groups if other != key)]
    return tuple(frozenset(names) for names in holding)


def _solver(context: Any, facts: tuple[Any, ...]) -> Any:
    solver = z3.SolverFor("QF_LIA", ctx=context)
    solver.set("rlimit", RLIMIT)
    solver.set("random_seed", 1)
    solver.add(*facts)
    return solver
