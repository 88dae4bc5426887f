"""Little programs of a few threads that access one word and hand messages on, and what the memory model says of them.

A program is a list of statements per thread. Its verdict comes from a graph of its events: what a thread does stands in
order, and a message adds an edge from what releases it (the write, or a fence before it) to what acquires it (the read,
or a fence behind it), where the scopes of both reach. Two accesses are ordered if a path leads from one to the other.
Nothing here knows of clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from instruction_bench import module

from tinygpu.ptx.emulator import Order, Report, emulate

Scope = Literal["cta", "cluster", "gpu"]
SCOPES: tuple[Scope, ...] = ("cta", "cluster", "gpu")
Space = Literal["global", "shared"]
Semantics = Literal["relaxed", "release", "acquire"]

UNFENCED = "acquire without a fence"
UNMET = "release for other lanes without bar.warp.sync"
NARROW = "scope narrower than its users"
PLAIN_READ = "plain read of what atomics change"
CROSSED = "asynchronous write over generic accesses"


@dataclass(frozen=True, slots=True)
class Thread:
    """A lane of a warp of a CTA."""

    cta: int
    warp: int
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Fence:
    scope: Scope


@dataclass(frozen=True, slots=True)
class Meet:
    """bar.warp.sync."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """bar.sync of two warps of a CTA, each of which has it among its steps."""


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """fence.proxy.async."""


@dataclass(frozen=True, slots=True)
class Before:
    """An own write that the thread's access follows: an atomic, or a store of what was never initialised."""

    kind: Literal["red", "undefined"]


@dataclass(frozen=True, slots=True)
class Send:
    """Raises a flag. `by` is the instruction: a store, a reduction, an atomic."""

    message: int
    semantics: Semantics
    scope: Scope
    by: Literal["st", "red", "atom"] = "st"


@dataclass(frozen=True, slots=True)
class Receive:
    """Waits until a flag is raised."""

    message: int
    semantics: Semantics
    scope: Scope


@dataclass(frozen=True, slots=True)
class Access:
    """An access to the word; "" is no semantics: a plain one.

    A bulk copy writes 16 bytes of the own CTA's shared memory, and its thread waits until it has come.
    """

    kind: Literal["ld", "st", "red", "bulk"]
    semantics: Literal["", "relaxed"] = ""
    scope: Scope = "gpu"

    @property
    def writes(self) -> bool:
        return self.kind != "ld"

    @property
    def strong(self) -> bool:
        return self.semantics == "relaxed"


Statement = Fence | Meet | Barrier | ProxyFence | Before | Send | Receive | Access


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be found.

    rules  rules of advisories that must be there
    word   others on the word: any of them is enough
    """

    race: bool
    rules: frozenset[str]
    word: frozenset[str]

    def agrees(self, race: bool, rules: frozenset[str]) -> bool:
        enough = not self.word or bool(rules & self.word)
        return race == self.race and self.rules <= rules <= self.rules | self.word and enough


@dataclass(frozen=True, slots=True)
class Litmus:
    """What each warp does, statement by statement with the lane that does it, in the order of the messages.

    ctas       CTAs of the launch
    clustered  they are one cluster
    word       where the word lies, and of which CTA, where it is shared
    flags      the same for the flags
    """

    ctas: int
    clustered: bool
    word: tuple[Space, int]
    flags: tuple[Space, int]
    steps: tuple[tuple[Thread, Statement], ...]

    def near(self, one: Thread, other: Thread) -> Scope:
        """The narrowest scope that holds both."""
        if one.cta == other.cta:
            return "cta"
        return "cluster" if self.clustered else "gpu"

    def reaches(self, scope: Scope, one: Thread, other: Thread) -> bool:
        return SCOPES.index(scope) >= SCOPES.index(self.near(one, other))

    # ---- the memory model -----------------------------------------------------------------------------------------

    def ordered(self, first: int, second: int, *, lanes: bool, fences: bool) -> bool:
        """Whether a path leads from one step to another.

        lanes   lanes of a warp are threads of their own until they meet; else what a warp does is in order
        fences  who reads a flag knows what it says from .acquire or a fence on only; else at once
        """
        edges: list[set[int]] = [set() for _ in self.steps]
        for early, (one, before) in enumerate(self.steps):
            for late in range(early + 1, len(self.steps)):
                other, after = self.steps[late]
                warps = (one.cta, one.warp) == (other.cta, other.warp)
                # What was acquired by one lane, the emulator takes for acquired by all: only releases are asked.
                met = isinstance(before, Meet | Barrier | Receive) or isinstance(after, Meet | Barrier)
                met |= not _releases(after)
                if isinstance(before, Barrier) and isinstance(after, Barrier) and one.cta == other.cta:
                    edges[early].add(late)
                    edges[late].add(early)
                if warps and (one.lane == other.lane or not lanes or met):
                    edges[early].add(late)
        for write, read in self._messages():
            for start in self._releases(write, read, lanes):
                edges[start].update(self._acquires(write, read, fences))
        reached, new = {first}, {first}
        while new:
            new = set().union(*(edges[n] for n in new)) - reached
            reached |= new
        return second in reached

    def _messages(self) -> list[tuple[int, int]]:
        sends = {s.message: n for n, (_, s) in enumerate(self.steps) if isinstance(s, Send)}
        return [(sends[s.message], n) for n, (_, s) in enumerate(self.steps) if isinstance(s, Receive)]

    def _said(self, write: int, read: int) -> bool:
        """Whether the scopes of both accesses to a flag reach each other."""
        (writer, sends), (reader, receives) = self.steps[write], self.steps[read]
        assert isinstance(sends, Send)
        assert isinstance(receives, Receive)
        return self.reaches(sends.scope, writer, reader) and self.reaches(receives.scope, writer, reader)

    def _releases(self, write: int, read: int, lanes: bool) -> list[int]:
        if not self._said(write, read):
            return []
        (writer, sends), (reader, _) = self.steps[write], self.steps[read]
        assert isinstance(sends, Send)
        fences = self._fences(writer, reader, range(write))
        fences = [n for n in fences if not lanes or self.steps[n][0].lane == writer.lane or self._met(writer, n, write)]
        return fences + [write] * (sends.semantics == "release")

    def _met(self, thread: Thread, start: int, end: int) -> bool:
        """Whether the lanes of a warp meet between two steps."""
        between = self.steps[start + 1 : end]
        return any(isinstance(s, Meet) and (t.cta, t.warp) == (thread.cta, thread.warp) for t, s in between)

    def _acquires(self, write: int, read: int, fences: bool) -> list[int]:
        (writer, _), (reader, receives) = self.steps[write], self.steps[read]
        assert isinstance(receives, Receive)
        behind = self._fences(reader, writer, range(read + 1, len(self.steps)))
        # What a warp knows of another cluster without a fence, it does not hand on.
        handed = any(isinstance(s, Send) for mine, s in self.steps[read:] if mine == reader)
        loose = not fences and not (handed and self.near(self.steps[0][0], reader) == "gpu")
        return behind + [read] * (receives.semantics == "acquire" or loose)

    def _fences(self, thread: Thread, other: Thread, steps: range) -> list[int]:
        found = []
        for n in steps:
            mine, statement = self.steps[n]
            same = (mine.cta, mine.warp) == (thread.cta, thread.warp)
            if same and isinstance(statement, Fence) and self.reaches(statement.scope, thread, other):
                found.append(n)
        return found

    def verdict(self) -> Verdict:
        """What the memory model says of the two accesses, and of the flags."""
        (first, second) = (n for n, (_, s) in enumerate(self.steps) if isinstance(s, Access))
        narrow = any(not self._said(*message) for message in self._messages()) and self.flags[0] == "global"
        race, rules = self._conflict(first, second)
        crossed = not race and self._crossed(first, second)
        return Verdict(race, frozenset([NARROW] * narrow + [CROSSED] * crossed), rules)

    def _crossed(self, first: int, second: int) -> bool:
        """Whether a bulk copy goes over what threads accessed, and no proxy fence lies between."""
        kinds = [s.kind for _, s in self.steps if isinstance(s, Access)]
        if kinds[1] != "bulk" or kinds[0] == "bulk":
            return False
        between = [n for n, (_, s) in enumerate(self.steps) if isinstance(s, ProxyFence)]
        loose = {"lanes": False, "fences": False}
        return not any(self.ordered(first, n, **loose) and self.ordered(n, second, **loose) for n in between)

    def _conflict(self, first: int, second: int) -> tuple[bool, frozenset[str]]:
        (one, before), (other, after) = self.steps[first], self.steps[second]
        assert isinstance(before, Access)
        assert isinstance(after, Access)
        strong = before.strong and after.strong
        reach = self.reaches(before.scope, one, other) and self.reaches(after.scope, one, other)
        if not before.writes and (not after.writes or strong):
            return False, frozenset()
        if strong and (reach or self.word[0] == "shared"):
            return False, frozenset()
        # That asynchronous work is over, the emulator takes for known to the whole warp that has waited for it.
        apart = before.kind != "bulk"
        if self.ordered(first, second, lanes=apart, fences=True):
            return False, frozenset()
        if self.ordered(first, second, lanes=False, fences=False):
            met = self.ordered(first, second, lanes=apart, fences=False)
            fenced = self.ordered(first, second, lanes=False, fences=True)
            return False, frozenset([UNMET] if fenced else [UNFENCED] if met else [UNMET, UNFENCED])
        if strong:
            return False, frozenset([NARROW])
        if not before.writes and not before.strong and after.strong and self.near(one, other) == "gpu":
            return False, frozenset([PLAIN_READ])
        return True, frozenset()

    # ---- PTX ------------------------------------------------------------------------------------------------------

    def text(self) -> str:
        warps = 1 + max(thread.warp for thread, _ in self.steps)
        roles = {(cta, warp): "" for cta in range(self.ctas) for warp in range(warps)}
        for number, (thread, statement) in enumerate(self.steps):
            roles[thread.cta, thread.warp] += _lines(self, thread, statement, number)
        body = _HEAD.replace("{meet}", _CLUSTER if self.clustered else "bar.sync 0;\n")
        body = body.replace("{rank}", "%cluster_ctarank" if self.clustered else "%ctaid.x")
        for cta, warp in roles:
            body += f"setp.eq.u32 %p, %r2, {cta}; setp.eq.and.u32 %p, %r3, {warp}, %p; @%p bra ROLE_{cta}_{warp};\n"
        body += "bra OVER;\n"
        for (cta, warp), lines in roles.items():
            body += f"ROLE_{cta}_{warp}:\n{lines}bra OVER;\n"
        body += "OVER:\n" + (_CLUSTER if self.clustered else "") + "ret;\n"
        return module(body, [".param .u64 y"], target="sm_90a")

    def run(self, order: Order = "late", seed: int = 0) -> Report:
        warps = 1 + max(thread.warp for thread, _ in self.steps)
        return emulate(
            self.text(), grid=self.ctas, block=32 * warps, cluster=self.ctas if self.clustered else 1,
            args=[np.zeros(64, np.uint32)], order=order, seed=seed, check="collect",
        )  # fmt: skip

    def found(self, order: Order = "late", seed: int = 0) -> tuple[bool, frozenset[str]]:
        """What the emulator says: whether there is a race, and the rules of all advisories."""
        report = self.run(order, seed)
        assert {fault.kind for fault in report.faults} <= {"race"}, report.faults
        return bool(report.faults), frozenset(advisory.rule for advisory in report.advisories)


def _releases(statement: Statement) -> bool:
    return isinstance(statement, Fence | Send)


_CLUSTER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
_HEAD = """
.reg .pred %p, %q; .reg .b32 %r<16>; .reg .b32 %undefined; .reg .b64 %rd<4>;
.shared .align 16 .b32 word[4]; .shared .align 16 .b32 flags[8]; .shared .align 8 .b64 bars[2];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, {rank}; shr.u32 %r3, %r1, 5; and.b32 %r4, %r1, 31;
mov.u32 %r5, word; mov.u32 %r6, flags;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
st.shared.v4.u32 [%r5], {0, 0, 0, 0};
mbarrier.init.shared.b64 [bars], 1; mbarrier.init.shared.b64 [bars+8], 1;
st.shared.v4.u32 [%r6], {0, 0, 0, 0}; st.shared.v4.u32 [%r6+16], {0, 0, 0, 0};
READY:
{meet}
fence.proxy.async;
"""


_BULK = """{first}@%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [{bar}], 16;
@%p cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r5], [%rd1+128], 16, [{bar}];
COME_{number}: setp.eq.u32 %q, %r1, %r1; @%p mbarrier.try_wait.parity.shared::cta.b64 %q, [{bar}], 0;
@!%q bra COME_{number};
"""


def _lines(litmus: Litmus, thread: Thread, statement: Statement, number: int) -> str:
    if isinstance(statement, Meet):
        return "bar.warp.sync 0xffffffff;\n"
    if isinstance(statement, Barrier):
        return "bar.sync 1, 64;\n"
    lead = f"setp.eq.u32 %p, %r4, {thread.lane};\n"
    if isinstance(statement, ProxyFence):
        return lead + "@%p fence.proxy.async;\n"
    if isinstance(statement, Fence):
        return lead + f"@%p fence.acq_rel.{statement.scope};\n"
    flag = isinstance(statement, Send | Receive)
    space, owner = litmus.flags if flag else litmus.word
    at = "[%rd1]" if space == "global" else "[%r7]"
    if isinstance(statement, Send | Receive):
        at = f"[{'%rd1' if space == 'global' else '%r7'}+{4 * statement.message + 64 * (space == 'global')}]"
    where = space
    if space == "shared":
        base = "%r6" if flag else "%r5"
        lead += f"mov.u32 %r7, {base};\n"
        if litmus.clustered:
            lead += f"mapa.shared::cluster.u32 %r7, {base}, {owner};\n"
            where = "shared::cluster"
    if isinstance(statement, Receive):
        load = f"ld.{statement.semantics}.{statement.scope}.{where}.u32 %r8, {at};"
        return lead + f"mov.u32 %r8, 1;\nTRY_{number}: @%p {load}\nsetp.eq.u32 %q, %r8, 0; @%q bra TRY_{number};\n"
    if isinstance(statement, Send):
        how = f"{statement.semantics}.{statement.scope}.{where}"
        if statement.by == "st":
            return lead + f"@%p st.{how}.u32 {at}, 1;\n"
        if statement.by == "red":
            return lead + f"@%p red.{how}.add.u32 {at}, 1;\n"
        return lead + f"@%p atom.{how}.exch.b32 %r9, {at}, 1;\n"
    if isinstance(statement, Before):
        if statement.kind == "undefined":
            return lead + f"@%p st.{where}.u32 {at}, %undefined;\n"
        return lead + f"@%p red.relaxed.gpu.{where}.add.u32 {at}, 3;\n"
    if statement.kind == "bulk":
        last = number == len(litmus.steps) - 1
        text = _BULK.replace("{number}", str(number)).replace("{bar}", "bars+8" if last else "bars")
        return lead + text.replace("{first}", "" if last else "@%p fence.proxy.async;\n")
    how = f".{statement.semantics}.{statement.scope}" if statement.strong else ""
    if statement.kind == "ld":
        return lead + f"@%p ld{how}.{where}.u32 %r9, {at};\n"
    if statement.kind == "st":
        return lead + f"@%p st{how}.{where}.u32 {at}, {number + 2};\n"
    return lead + f"@%p red.relaxed.{statement.scope}.{where}.add.u32 {at}, 1;\n"


@dataclass
class Draw:
    """Draws programs: a chain of messages from the one access to the other, with what orders it, or nearly."""

    rng: np.random.Generator
    steps: list[tuple[Thread, Statement]] = field(default_factory=list)

    def pick(self, choices: Sequence[object]) -> object:
        return choices[int(self.rng.integers(len(choices)))]

    def litmus(self) -> Litmus:
        ctas = int(self.rng.integers(1, 3))
        clustered = ctas == 2 and bool(self.rng.integers(2))
        shared_word = ctas == 1 or (clustered and bool(self.rng.integers(2)))
        shared_flags = ctas == 1 or clustered
        word = ("shared" if shared_word and self.rng.integers(2) else "global", int(self.rng.integers(ctas)))
        flags = ("shared" if shared_flags and self.rng.integers(2) else "global", int(self.rng.integers(ctas)))
        warps = [(cta, warp) for cta in range(ctas) for warp in range(2 if ctas == 2 else 3)]
        hops = int(self.rng.integers(1, 3))
        order = self.rng.permutation(len(warps))[: hops + 1]
        chain = [warps[n] for n in order]
        # Of the own shared memory, the word may also be written by a bulk copy.
        first, second = self.accesses(*(word == ("shared", chain[n][0]) for n in (0, -1)))
        self.steps = []
        for number, (cta, warp) in enumerate(chain):
            mine = Thread(cta, warp)
            if number:
                self.receive(mine, number - 1)
            if number == 0:
                other = Thread(cta, warp, int(self.rng.integers(4) == 0 and first.kind != "bulk"))
                if self.rng.integers(3) == 0 and first.kind in ("st", "bulk"):
                    kind = self.pick(("red", "undefined") if word[0] == "shared" else ("red",))
                    self.steps.append((other, Before(kind)))  # type: ignore[arg-type]
                self.steps.append((other, first))
                if self.rng.integers(2):
                    self.steps.append((mine, Meet()))
            if number < hops:
                self.send(mine, number)
            else:
                self.steps += [(mine, ProxyFence())] * int(second.kind == "bulk" and self.rng.integers(2))
                self.steps.append((mine, second))
        return Litmus(ctas, clustered, word, flags, tuple(self.steps))  # type: ignore[arg-type]

    def accesses(self, first_bulk: bool, second_bulk: bool) -> tuple[Access, Access]:
        while True:
            first = self.access(("ld", "st", "st", "red", *["bulk"] * first_bulk))
            second = self.access(("ld", "ld", "st", "red", *["bulk"] * second_bulk))
            if first.writes or second.writes:
                return first, second

    def access(self, kinds: Sequence[str]) -> Access:
        kind, scope = self.pick(kinds), self.scope()
        strong = kind == "red" or (kind != "bulk" and not self.rng.integers(3))
        return Access(kind, "relaxed" if strong else "", scope)  # type: ignore[arg-type]

    def scope(self) -> Scope:
        return self.pick(("cta", "cluster", "gpu", "gpu"))  # type: ignore[return-value]

    def send(self, thread: Thread, message: int) -> None:
        if self.rng.integers(2):
            fence = replace(thread, lane=int(self.rng.integers(3) == 0 and message == 0))
            met = isinstance(self.steps[-1][1], Meet)
            self.steps.append((fence, Fence(self.scope())))
            if self.rng.integers(3) == 0:
                self.steps.append((thread, Meet()))
            elif met:
                # A fence of another lane than the one that releases is told of only where accesses are as recent.
                thread = fence
        semantics = self.pick(("relaxed", "release"))
        by = self.pick(("st", "red", "atom"))
        self.steps.append((thread, Send(message, semantics, self.scope(), by)))  # type: ignore[arg-type]

    def receive(self, thread: Thread, message: int) -> None:
        self.steps.append((thread, Receive(message, self.pick(("relaxed", "acquire")), self.scope())))  # type: ignore[arg-type]
        if self.rng.integers(2):
            self.steps.append((thread, Fence(self.scope())))
