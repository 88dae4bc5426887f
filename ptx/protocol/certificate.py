"""What is known of a kernel's hand-overs: proved, refuted with the round that fails, or unknown, and what was tried."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from tinygpu.constraints.query import Notebook
from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.roles import HANDED_OVER
from tinygpu.program.order import Blocked
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.asking import check_answers, parts
from tinygpu.ptx.protocol.automaton import automaton
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.execution import Instance, roles
from tinygpu.ptx.protocol.exploration import Explored, explore
from tinygpu.ptx.protocol.family import family
from tinygpu.ptx.protocol.filling import FillingProof
from tinygpu.ptx.protocol.induction import (
    CLAIMS,
    OVERWRITTEN,
    RLIMIT,
    STUCK,
    UNFILLED,
    Question,
    RingProof,
    answer,
)
from tinygpu.ptx.protocol.order import OrderProof, order
from tinygpu.ptx.protocol.premises import check_counts, check_slots, check_turns
from tinygpu.ptx.protocol.progress import Automaton, Irregular
from tinygpu.ptx.protocol.sequence import sequence
from tinygpu.ptx.protocol.turns import ONE_AT_A_TIME, TurnProof, in_order

Proof: TypeAlias = "RingProof | TurnProof | OrderProof | FillingProof"
Verdict: TypeAlias = Literal["proved", "refuted", "unknown"]
# What tells that a slot is full where the threads of a role fill it themselves.
BY_THREADS = ("barrier", "commit group")
# What is proved of these; their threads meet at barriers, all of them as often.
WITHIN = (OVERWRITTEN, UNFILLED, STUCK)
# States that are looked at where nothing is proved.
EXPLORED_STATES = 60_000
# States of threads of one role that are looked at first, for what is wrong.
FIRST_STATES = 2_000
ASSUMED = (
    "mbarriers do what the PTX ISA says, bytes that were issued land, every warp that does not wait goes on, and loops "
    "of the same trip count have the same number of rounds in all roles"
)


@dataclass(frozen=True, slots=True)
class RingCertificate:
    """One pipeline of a kernel.

    claims    what is proved
    least     stages that there have to be: it is proved for these and any more
    reason    why it is not proved; of what is refuted, the sentence of the first violation
    round     in which it fails
    open      claims that are not known
    explored  what was enumerated instead
    trace     what roles have done before it fails
    asked     questions that Z3 has answered
    states    of pipelines within a role that are not proved for all stages: there are finitely many, all were looked at
    """

    ring: sync.Ring
    verdict: Verdict
    claims: tuple[str, ...] = ()
    least: int = 1
    reason: str = ""
    round: int | None = None
    open: tuple[str, ...] = ()
    explored: tuple[Explored, ...] = ()
    trace: tuple[str, ...] = ()
    asked: int = 0
    states: int = 0

    @property
    def what(self) -> str:
        buffers = ", ".join(name.split(".")[-1] for name in self.ring.buffers)
        return f"{self.ring.name} of {buffers}" if buffers else f"turns of {self.ring.name}"

    def __str__(self) -> str:
        if self.verdict == "refuted":
            trace = f"\n  before it: {'; '.join(self.trace)}" if self.trace else ""
            return f"refuted: {self.what}: {self.reason}{trace}"
        unknown = f"unknown: {self.what}: {', '.join(self.open)}: {self.reason}"
        if self.explored:
            unknown += f"; nothing is wrong in {' and '.join(map(str, self.explored))}"
        if self.verdict == "unknown" and not self.claims:
            return unknown
        proved = f"proved: {self.what} ({self._scope}): {'; '.join(self.claims)}"
        return f"{proved}\n{unknown}" if self.open else proved


    @property
    def _scope(self) -> str:
        """For what it is proved."""
        within = self.ring.completion in BY_THREADS
        if self.states or (within and self.ring.stages == 1):
            stages = f"{self.ring.stages} stage{'s' if self.ring.stages > 1 else ''}"
            looked = f"; in all of {self.states:,} states, and not for all stages: {self.reason}" if self.states else ""
            return f"for {stages} and all rounds, tiles and CTAs{looked}"
        least = f" from {self.least} on" if self.least > 1 else ""
        return f"for all {f'stages{least}, ' if self.ring.buffers else ''}rounds, tiles and CTAs"


    def to_json(self) -> dict[str, Any]:
        return {
            "pipeline": self.ring.name,
            "verdict": self.verdict,
            "claims": list(self.claims),
            "open": list(self.open),
            "for": self._scope,
            "reason": self.reason,
            "round": self.round,
            "trace": list(self.trace),
            "sentence": str(self),
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """All pipelines of a kernel."""

    rings: tuple[RingCertificate, ...]

    @property
    def proved(self) -> bool:
        return all(ring.verdict == "proved" for ring in self.rings)

    @property
    def refuted(self) -> tuple[RingCertificate, ...]:
        return tuple(ring for ring in self.rings if ring.verdict == "refuted")

    def __str__(self) -> str:
        if not self.rings:
            return "there is no pipeline"
        return "\n".join([*map(str, self.rings), f"assumed: {ASSUMED}"])


@dataclass(slots=True, eq=False)
class Proofs:
    """What is proved already, by the moves that it is about: kernels of one structure make the same ones.

    rlimit  of each question, in Z3's own units
    """

    rlimit: int = RLIMIT
    notebook: Notebook = field(default_factory=Notebook)
    known: dict[Proof, int | str] = field(default_factory=dict)

    def prove(self, proof: Proof) -> int:
        """How many questions it took. Raises Irregular where Z3 does not say that the claims hold."""
        if proof not in self.known:
            try:
                self.known[proof] = self._ask(list(proof.questions()), proof.ring)
            except Irregular as why:
                self.known[proof] = str(why)
        found = self.known[proof]
        if isinstance(found, str):
            raise Irregular(found)
        return found

    def _ask(self, questions: list[Question], ring: str) -> int | str:
        for question in questions:
            said = answer(question, ring, self.notebook, self.rlimit)
            if said.verdict == "unknown":
                return f"Z3 does not know whether {question.claim} ({question.name}: {said.reason})"
            if said.verdict == "sat":
                return f"that {question.claim} does not follow ({question.name})"
        return len(questions)


def certify(protocol: sync.Protocol, proofs: Proofs | None = None) -> Certificate:
    """Proves the hand-overs of a kernel; what cannot be proved is explored. `proofs` keeps what is proved."""
    proofs = proofs or Proofs()
    found = {c.ring.name: c for c in (*_within_roles(protocol, proofs), *_between_roles(protocol, proofs))}
    return Certificate(tuple(found[ring.name] for ring in protocol.rings if ring.name in found))


def _between_roles(protocol: sync.Protocol, proofs: Proofs) -> tuple[RingCertificate, ...]:
    rings = [ring for ring in protocol.rings if ring.completion in (*HANDED_OVER, sync.ANSWERED, "turn")]
    if not rings:
        return ()
    if not _made_for_all(protocol):
        sentence = "round 0: a role may use barriers that are not made yet; all meet behind the fence that follows them"
        return tuple(RingCertificate(ring, "refuted", reason=sentence, round=0) for ring in rings)
    try:
        automata = tuple(automaton(protocol, part) for role in roles(protocol) for part in parts(role))
    except Irregular as why:
        return _explored(protocol, rings, str(why))
    try:
        apart = tuple(_certified(protocol, ring, automata, proofs) for ring in rings)
        groups = _coupled(apart, automata)
        return tuple(found for group in groups for found in _together(protocol, group, automata, proofs))
    except Irregular as why:
        return _explored(protocol, rings, str(why))


def _within_roles(protocol: sync.Protocol, proofs: Proofs) -> Iterator[RingCertificate]:
    """Pipelines that the warps of one role fill and read themselves."""
    own = tuple(ring for ring in protocol.rings if ring.completion in BY_THREADS)
    alone = sync.RoleBody("all", 0, False, (0, 1), protocol.body)
    using: dict[str, list[str]] = {}
    for role in roles(protocol) or (alone,):
        for ring in own:
            if any(isinstance(s, sync.Touch) and s.pipeline == ring.name for s in steps_of(role.body)):
                using.setdefault(ring.name, []).append(role.role)
    for role in roles(protocol) or (alone,):
        meetings = {s.threads for s in steps_of(role.body) if isinstance(s, sync.Meet)}
        threads = 32 * role.warps or max(meetings, default=0)
        for together in _sharing([ring for ring in own if using.get(ring.name) == [role.role]]):
            yield from _followed(together, own, role.body, threads, proofs)
    for ring in own:
        if len(names := using.get(ring.name, [])) > 1:
            reason = f"{' and '.join(names)} share its slots, each between barriers of its own"
            yield RingCertificate(ring, "unknown", reason=reason, open=WITHIN)


def _sharing(rings: list[sync.Ring]) -> list[tuple[sync.Ring, ...]]:
    """The rings in groups: those of a group have memory in common."""
    groups: list[tuple[sync.Ring, ...]] = []
    for ring in rings:
        near = [group for group in groups if any(ring.overlaps(other) for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append((*(other for group in near for other in group), ring))
    return groups


def _followed(
    rings: tuple[sync.Ring, ...], own: tuple[sync.Ring, ...], body: tuple[sync.Step, ...], threads: int, proofs: Proofs
) -> Iterator[RingCertificate]:
    """Of rings that have memory in common: a wrong state, a proof for all stages, or all states of these stages.

    own  all rings that the role fills and reads itself
    """
    try:
        wrong = sequence(rings, body, threads, FIRST_STATES).violation
    except Irregular:
        wrong = None
    if wrong is None:
        try:
            asked = [proofs.prove(FillingProof(family(ring, own, body, threads))) for ring in rings]
        except Irregular as why:
            yield from _enumerated(rings, body, threads, str(why))
            return
        for ring, number in zip(rings, asked, strict=True):
            yield RingCertificate(ring, "proved", WITHIN, min(ring.stages, 2), asked=number)
        return
    for ring in rings:
        if wrong.pipeline == ring.name:
            yield RingCertificate(ring, "refuted", reason=wrong.sentence, round=wrong.round)
        else:
            reason = f"{wrong.pipeline} fails, which it shares memory with"
            yield RingCertificate(ring, "unknown", reason=reason, open=WITHIN)


def _enumerated(
    rings: tuple[sync.Ring, ...], body: tuple[sync.Step, ...], threads: int, why: str
) -> Iterator[RingCertificate]:
    """What all states say where nothing is proved for all stages."""
    try:
        found = sequence(rings, body, threads)
    except Irregular as many:
        yield from (RingCertificate(ring, "unknown", reason=f"{why}; {many}", open=WITHIN) for ring in rings)
        return
    wrong = found.violation
    for ring in rings:
        if wrong is None:
            yield RingCertificate(ring, "proved", WITHIN, reason=why, states=found.states)
        elif wrong.pipeline == ring.name:
            yield RingCertificate(ring, "refuted", reason=wrong.sentence, round=wrong.round)
        else:
            reason = f"{wrong.pipeline} fails, which it shares memory with"
            yield RingCertificate(ring, "unknown", reason=reason, open=WITHIN)


def _made_for_all(protocol: sync.Protocol) -> bool:
    """Whether the threads that may use barriers meet between the fence behind their making and all roles."""
    fenced = False
    for step in protocol.body:
        match step:
            case sync.Init():
                fenced = False
            case sync.Fence(text):
                fenced |= text.startswith("fence.mbarrier_init")
            case sync.MeetCluster():
                if fenced:
                    return True
            case sync.Meet():
                if fenced and math.prod(protocol.cluster) == 1:
                    return True
            case sync.RoleBody():
                return False
    return False


def _explored(protocol: sync.Protocol, rings: list[sync.Ring], why: str) -> tuple[RingCertificate, ...]:
    """What is known of rings of which nothing is proved."""
    looked = _look(protocol)
    violation = next((e.violation for e in looked if e.violation), None)
    out = []
    for ring in rings:
        if violation and violation.pipeline == ring.name:
            told = violation.sentence, violation.round, (), looked, violation.trace
            out.append(RingCertificate(ring, "refuted", (), 1, *told))
        elif violation:
            reason = f"{violation.pipeline} fails, which it is used with"
            out.append(RingCertificate(ring, "unknown", reason=reason, open=CLAIMS))
        else:
            out.append(RingCertificate(ring, "unknown", reason=why, open=CLAIMS, explored=looked))
    return tuple(out)


def _look(protocol: sync.Protocol) -> tuple[Explored, ...]:
    """Instances with one tile of many rounds, and with tiles that end at other slots, and turns, than they begin."""
    stages = max((ring.stages for ring in protocol.rings if ring.completion in HANDED_OVER), default=1)
    every = math.lcm(*(role.share[1] for role in roles(protocol)))
    rounds = [(3 * stages + 1,) * every, (stages + 1, 1, stages) * every]
    if any(ring.completion == "turn" for ring in protocol.rings):
        rounds.append((2, 2) * every)
    if summed := [ring.stages for ring in protocol.rings if ring.completion == COMMIT]:  # a slot for each tile
        rounds.append((1,) * (2 * max(summed) + 1))
    if asked := [ring.stages for ring in protocol.rings if ring.completion == sync.ANSWERED]:
        rounds.append((1,) * (2 * max(asked) + 1))
    looked = []
    for instance in map(Instance, rounds):
        looked.append(explore(protocol, instance, EXPLORED_STATES))
        if looked[-1].violation:
            break
    return tuple(looked)


# ---- one ring -------------------------------------------------------------------------------------------------------


def _certified(
    protocol: sync.Protocol, ring: sync.Ring, automata: tuple[Automaton, ...], proofs: Proofs
) -> RingCertificate:
    mine = tuple(a for a in automata if a.of(ring.name))
    if ring.completion == "turn":
        order = in_order(protocol, ring.name, mine)
        asked = proofs.prove(TurnProof(ring.name, len(order)))
        return RingCertificate(ring, "proved", (ONE_AT_A_TIME, *CLAIMS[2:]), asked=asked)
    producers = tuple(a for a in mine if any(m.side == "empty" and m.kind == "wait" for m in a.of(ring.name)))
    consumers = tuple(a for a in mine if a not in producers)
    answers, apart = ring.completion == sync.ANSWERED, False
    if answers:
        check_answers(protocol, ring, producers, consumers)
    else:
        apart = check_counts(protocol, ring, producers, consumers)
    for group, verb in ((producers, "produce"), (consumers, "consume")):
        check_turns(protocol, ring.name, group, automata, verb)
    check_slots(ring.name, producers, consumers)
    asked = 0
    for least in (1, 2):
        try:
            asked += proofs.prove(RingProof.of(ring.name, producers, consumers, least, apart))
            break
        except Irregular:
            if least == 2 or ring.stages < 2:
                raise
    return RingCertificate(ring, "proved", CLAIMS, least, asked=asked)


def _coupled(
    found: tuple[RingCertificate, ...], automata: tuple[Automaton, ...]
) -> list[tuple[RingCertificate, ...]]:
    """The rings in groups: those of a group have roles in common."""
    groups: list[tuple[RingCertificate, ...]] = []
    for one in found:
        using = [a for a in automata if a.of(one.ring.name)]
        near = [group for group in groups if any(a.of(other.ring.name) for a in using for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append((*(other for group in near for other in group), one))
    return groups


def _together(
    protocol: sync.Protocol, group: tuple[RingCertificate, ...], automata: tuple[Automaton, ...], proofs: Proofs
) -> Iterator[RingCertificate]:
    """Of each ring by itself all is proved: and that nobody waits for ever through several of them?"""
    if len(group) == 1:
        yield from group
        return
    rings = tuple(one.ring for one in group)
    stages = {one.ring.name: one.ring.stages for one in group if one.ring.buffers}
    try:
        asked = proofs.prove(order(rings, automata, protocol, stages))
        for one in group:
            for fewer in range(one.least, stages.get(one.ring.name, 0)):
                try:
                    asked += proofs.prove(order(rings, automata, protocol, stages | {one.ring.name: fewer}))
                except (Blocked, Irregular):
                    continue
                stages[one.ring.name] = fewer
                break
    except (Blocked, Irregular) as why:
        looked = _look(protocol)
        if any(explored.violation for explored in looked):
            raise Irregular(str(why)) from None
        for one in group:
            others = " and ".join(sorted(ring.name for ring in rings if ring is not one.ring))
            reason = f"its roles wait in {others} as well, and who waits for whom is not proved: {why}"
            claims = tuple(claim for claim in one.claims if claim != STUCK)
            yield replace(one, verdict="unknown", claims=claims, reason=reason, open=(STUCK,), explored=looked)
        return
    for one in group:
        yield replace(one, least=max(one.least, stages.get(one.ring.name, 1)), asked=one.asked + asked)
