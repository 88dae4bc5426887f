"""What is known of a kernel's hand-overs: proved, refuted with the round that fails, or unknown, and what was tried."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tinygpu.constraints.query import Notebook
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.automaton import Automaton, Irregular, automaton
from tinygpu.ptx.protocol.counting import Count, ahead, passed, used
from tinygpu.ptx.protocol.execution import Instance, roles
from tinygpu.ptx.protocol.exploration import Explored, explore
from tinygpu.ptx.protocol.induction import CLAIMS, RLIMIT, STUCK, Question, RingProof, answer
from tinygpu.ptx.protocol.turns import ONE_AT_A_TIME, TurnProof, in_order

Verdict: TypeAlias = Literal["proved", "refuted", "unknown"]
# States that are looked at where nothing is proved.
EXPLORED_STATES = 60_000
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
    asked     questions that Z3 has answered
    """

    ring: sync.Ring
    verdict: Verdict
    claims: tuple[str, ...] = ()
    least: int = 1
    reason: str = ""
    round: int | None = None
    open: tuple[str, ...] = ()
    explored: tuple[Explored, ...] = ()
    asked: int = 0

    @property
    def what(self) -> str:
        buffers = ", ".join(name.split(".")[-1] for name in self.ring.buffers)
        return f"{self.ring.name} of {buffers}" if buffers else f"turns of {self.ring.name}"

    def __str__(self) -> str:
        if self.verdict == "refuted":
            return f"refuted: {self.what}: {self.reason}"
        unknown = f"unknown: {self.what}: {', '.join(self.open)}: {self.reason}"
        if self.explored:
            unknown += f"; nothing is wrong in {' and '.join(map(str, self.explored))}"
        if self.verdict == "unknown" and not self.claims:
            return unknown
        stages = f"all stages{f' from {self.least} on' if self.least > 1 else ''}, " if self.ring.buffers else "all "
        proved = f"proved: {self.what} (for {stages}rounds, tiles and CTAs): {'; '.join(self.claims)}"
        return f"{proved}\n{unknown}" if self.open else proved


@dataclass(frozen=True, slots=True)
class Certificate:
    """All pipelines of a kernel that are handed over between roles."""

    rings: tuple[RingCertificate, ...]

    @property
    def proved(self) -> bool:
        return all(ring.verdict == "proved" for ring in self.rings)

    @property
    def refuted(self) -> tuple[RingCertificate, ...]:
        return tuple(ring for ring in self.rings if ring.verdict == "refuted")

    def __str__(self) -> str:
        if not self.rings:
            return "no pipeline is handed over between roles"
        return "\n".join([*map(str, self.rings), f"assumed: {ASSUMED}"])


@dataclass(frozen=True, slots=True)
class _Solver:
    notebook: Notebook | None
    rlimit: int

    def ask(self, questions: Iterable[Question], ring: str) -> int:
        """How many questions were asked. Raises Irregular where Z3 does not say that the claims hold."""
        asked = list(questions)
        for question in asked:
            said = answer(question, ring, self.notebook, self.rlimit)
            if said.verdict == "unknown":
                raise Irregular(f"Z3 does not know whether {question.claim} ({question.name}: {said.reason})")
            if said.verdict == "sat":
                raise Irregular(f"that {question.claim} does not follow ({question.name})")
        return len(asked)


def certify(protocol: sync.Protocol, notebook: Notebook | None = None, rlimit: int = RLIMIT) -> Certificate:
    """Proves the hand-overs of a kernel; what cannot be proved is explored.

    notebook  where answers of Z3 are kept: kernels of one structure ask the same questions
    rlimit    of each question, in Z3's own units
    """
    ask = _Solver(notebook, rlimit)
    rings = [ring for ring in protocol.rings if ring.completion in ("mbarrier", "turn")]
    try:
        automata = tuple(automaton(protocol, role) for role in roles(protocol))
    except Irregular as why:
        return Certificate(_explored(protocol, rings, str(why)))
    found = {}
    for ring in rings:
        try:
            found[ring.name] = _certified(protocol, ring, automata, ask)
        except Irregular as why:
            return Certificate(_explored(protocol, rings, str(why)))
    return Certificate(tuple(found.values()))


def _explored(protocol: sync.Protocol, rings: list[sync.Ring], why: str) -> tuple[RingCertificate, ...]:
    """What is known of rings of which nothing is proved."""
    looked = _look(protocol)
    violation = next((e.violation for e in looked if e.violation), None)
    out = []
    for ring in rings:
        if violation and violation.pipeline == ring.name:
            failed = RingCertificate(ring, "refuted", (), 1, violation.sentence, violation.round, (), looked)
            out.append(failed)
        elif violation:
            reason = f"{violation.pipeline} fails, which it is used with"
            out.append(RingCertificate(ring, "unknown", reason=reason, open=CLAIMS))
        else:
            out.append(RingCertificate(ring, "unknown", reason=why, open=CLAIMS, explored=looked))
    return tuple(out)


def _look(protocol: sync.Protocol) -> tuple[Explored, ...]:
    """Instances with one tile of many rounds, and with tiles that end at other slots than they begin."""
    stages = max((ring.stages for ring in protocol.rings if ring.completion == "mbarrier"), default=1)
    every = math.lcm(*(role.share[1] for role in roles(protocol)))
    rounds = ((3 * stages + 1,) * every, (stages + 1, 1, stages) * every)
    looked = []
    for instance in map(Instance, rounds):
        looked.append(explore(protocol, instance, EXPLORED_STATES))
        if looked[-1].violation:
            break
    return tuple(looked)


# ---- one ring -------------------------------------------------------------------------------------------------------


def _certified(
    protocol: sync.Protocol, ring: sync.Ring, automata: tuple[Automaton, ...], solver: _Solver
) -> RingCertificate:
    mine = tuple(a for a in automata if a.of(ring.name))
    if ring.completion == "turn":
        order = in_order(protocol, ring.name, mine)
        asked = solver.ask(TurnProof(ring.name, len(order)).questions(), ring.name)
        return RingCertificate(ring, "proved", (ONE_AT_A_TIME, *CLAIMS[2:]), asked=asked)
    producers = tuple(a for a in mine if any(m.side == "empty" and m.kind == "wait" for m in a.of(ring.name)))
    consumers = tuple(a for a in mine if a not in producers)
    apart = _check_counts(protocol, ring, producers, consumers)
    for group, verb in ((producers, "produce"), (consumers, "consume")):
        _check_turns(protocol, ring.name, group, automata, verb)
    _check_slots(ring.name, producers, consumers)
    asked = 0
    for least in (1, 2):
        proof = RingProof(ring.name, producers, consumers, least, apart)
        try:
            asked += solver.ask(proof.questions(), ring.name)
            break
        except Irregular:
            if least == 2 or ring.stages < 2:
                raise
    others = {m.ring for a in mine for m in a.moves} - {ring.name}
    several = sorted(name for name in others if _ring(protocol, name).completion == "mbarrier")
    if several:
        reason = f"its roles wait in {' and '.join(several)} as well, and who waits for whom through both is not proved"
        return RingCertificate(ring, "unknown", CLAIMS[:-1], least, reason, None, (STUCK,), _look(protocol), asked)
    return RingCertificate(ring, "proved", CLAIMS, least, asked=asked)


def _ring(protocol: sync.Protocol, name: str) -> sync.Ring:
    return next(ring for ring in protocol.rings if ring.name == name)


def _check_counts(
    protocol: sync.Protocol, ring: sync.Ring, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]
) -> bool:
    """Whether CTAs fill each other's slots. Raises Irregular unless a phase completes when all have arrived."""
    for machine in producers:
        _check_kinds(machine, ring.name, ("wait", "expect", "bring"))
    for machine in consumers:
        _check_kinds(machine, ring.name, ("wait", "arrive"))
    axes: set[tuple[int, int]] = set()
    for machine in producers:
        for name, expected, boxes in machine.loads:
            if name == ring.name:
                comes = sum(count * ctas for count, ctas, _ in boxes)
                if comes != expected:
                    raise Irregular(f"{machine.role.role} expects {expected} bytes of a slot, and {comes} come")
                axes |= {(axis, ctas) for _, ctas, axis in boxes if axis is not None and ctas > 1}
    if any(protocol.cluster[axis] != ctas for axis, ctas in axes):
        raise Irregular("boxes go to other CTAs than those of the cluster along an axis")
    sources = 1 + sum(ctas - 1 for _, ctas in axes)
    along = tuple(sorted(axis for axis, _ in axes))
    for machine in consumers:
        for move in machine.of(ring.name):
            if move.kind == "arrive" and (move.ctas, move.axes if move.ctas > 1 else ()) != (sources, along):
                raise Irregular(f"{machine.role.role} gives slots back to {move.ctas} CTAs, and {sources} fill them")
    inits = [s for s in protocol.body if isinstance(s, sync.Init) and s.barrier.pipeline == ring.name]
    made = Counter((s.barrier.side, s.barrier.slot) for s in inits)
    if made != Counter((side, slot) for side in ("full", "empty") for slot in range(ring.stages)):
        raise Irregular(f"the {ring.stages} slots of {ring.name} have not one barrier for full and one for empty each")
    for step in inits:
        group = producers if step.barrier.side == "full" else consumers
        for tile in range(math.lcm(*(a.role.share[1] for a in group))):
            taking = [a.role for a in group if tile % a.role.share[1] == a.role.share[0]]
            if step.barrier.side == "full":
                come = len(taking)
            else:
                come = sources * sum(1 if role.one else role.warps for role in taking)
            if come != step.arrivals:
                raise Irregular(
                    f"a phase of the {step.barrier.side} barrier of slot {step.barrier.slot} completes with "
                    f"{step.arrivals} arrivals, and {come} come"
                )
    return sources > 1


def _check_kinds(machine: Automaton, ring: str, needs: tuple[str, ...]) -> None:
    kinds = {m.kind for m in machine.of(ring)} - {"read"}
    if kinds != set(needs):
        odd = " and ".join(sorted(set(needs) ^ kinds))
        raise Irregular(f"of what {machine.role.role} does in {ring}, {odd} is missing or too much")


def _check_turns(
    protocol: sync.Protocol, ring: str, group: tuple[Automaton, ...], automata: tuple[Automaton, ...], verb: str
) -> None:
    """Roles of different tiles follow each other: all that they do in the ring stands in their turn."""
    shares = {a.role.share for a in group if a.role.share[1] > 1}
    if not shares:
        return
    turns = {m.turn for a in group if a.role.share[1] > 1 for m in a.of(ring)}
    if turns == {""} or len(turns) > 1:
        raise Irregular(f"roles of different tiles {verb} {ring}, and not all that they do there is in their turn")
    (turn,) = turns
    order = in_order(protocol, turn, tuple(a for a in automata if a.of(turn)))
    if [a.role.share for a in order] != [(place, len(order)) for place in range(len(order))]:
        raise Irregular(f"roles {verb} {ring} in another order than that of their tiles")


def _check_slots(ring: str, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...]) -> None:
    """All use the same slots of each tile, and pass over those of other roles' tiles."""
    each = used(producers[0].role, ring) if producers else Counter()
    for machine in (*producers, *consumers):
        role = machine.role
        if used(role, ring) != each:
            raise Irregular(f"{role.role} uses other slots of a tile than {producers[0].role.role}")
        first, every = role.share
        expected = _sum(each, range(first)), _sum(each, range(1, every))
        if passed(role, ring) != expected:
            raise Irregular(f"{role.role} passes over other slots than those that others use")


def _sum(each: Count, tiles: range) -> Count:
    total: Count = Counter()
    for tile in tiles:
        total.update(ahead(each, tile))
    return total
