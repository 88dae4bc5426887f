"""A script: what each role of a CTA does, in order, and what it waits for. The arrow from Program to the simulator.

Statements between two waits are one `Do`: the units work on them side by side, as the assembler interleaves unrolled
rounds. Copies into a pipeline are `Fetch`: the role issues them and goes on. Amounts are those of the predictor's
counts, statement by statement (`tinygpu.cost.operations`), so that a script and a Demand ask for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tinygpu.cost.counting import PROLOGUE_INSTRUCTIONS, ROUND_INSTRUCTIONS
from tinygpu.cost.operations import CHAIN, WORK, Operations, Tally
from tinygpu.expressions import Expr, ceil_div, compile_scalars, expr, where
from tinygpu.language.heuristic import Heuristic
from tinygpu.language.memories import GMEM, SMEM
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# acquire: wait for a free slot; publish: hand a filled one over; wait: for a filled slot; release: give it back;
# take and give: the turn of roles that alternate.
Verb = Literal["acquire", "publish", "wait", "release", "take", "give"]


@dataclass(frozen=True, slots=True)
class Do:
    """Work that the role waits for.

    amounts   index of its numbers: those of Work, then those of Chain
    main      it belongs to the main loop
    together  its loads from global memory are under way together; otherwise one waits for the other
    """

    label: str
    amounts: int
    main: bool = False
    together: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """A copy from global memory into a slot of a pipeline; the role goes on while it is under way."""

    label: str
    amounts: int
    pipeline: str


@dataclass(frozen=True, slots=True)
class Hand:
    """A step of handing a pipeline over."""

    verb: Verb
    pipeline: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """`trips` rounds, by the index of their number."""

    trips: int
    body: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Ring:
    """Rounds in which the same warps drain one slot, and fill the one `stages - 1` rounds ahead."""

    pipeline: str
    trips: int
    fill: tuple[Action, ...]
    drain: tuple[Action, ...]


Action: TypeAlias = "Do | Fetch | Hand | Repeat | Ring"


@dataclass(frozen=True, slots=True)
class Part:
    """What one role does for a tile.

    share  (r, n): it takes the tiles of its CTA whose number leaves r when divided by n
    warps  index of their number
    """

    role: str
    warps: int
    share: tuple[int, int]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """The scripts of all roles of one structure.

    stages   pipeline -> index of the number of its slots
    compute  the numbers, for values of parameters, dims and tensor facts
    """

    parts: tuple[Part, ...]
    stages: Mapping[str, int]
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    persistent: bool


def script(program: Program, heuristics: tuple[str | Heuristic, ...]) -> Script:
    """Writes the script of a traced program; what is not among `heuristics` costs nothing, as in the counts."""
    writer = _Writer(program, heuristics)
    parts = tuple(writer.parts())
    stages = {p.name: writer.number(p.stages) for p in program.pipelines}
    return Script(parts, stages, compile_scalars(*writer.numbers), program.grid.scheduler.persistent)


@dataclass(slots=True)
class _Writer:
    program: Program
    heuristics: tuple[str | Heuristic, ...]
    numbers: list[Expr] = field(default_factory=list)

    def number(self, value: Expr) -> int:
        self.numbers.append(value)
        return len(self.numbers) - 1

    def parts(self) -> Iterable[Part]:
        roles = self.program.roles
        for role in roles:
            threads = self.program.threads if len(roles) == 1 else role.threads
            writer = _RoleWriter(self, role.name, Operations(self.program, self.heuristics, threads))
            if role is roles[0]:
                writer.tally.add("warp_instructions", ceil_div(self.program.threads, 32) * PROLOGUE_INSTRUCTIONS)
            if any(isinstance(s, n.Repeated) and not s.written_out for s in walk(self.program.body)):
                writer.phase = "prologue"
                writer.tally.wait("fmas", 30)
            writer.label = "setup"
            writer.write(self.program.body, expr(1))
            writer.close()
            yield Part(role.name, self.number(ceil_div(threads, 32)), role.share, tuple(writer.actions))


@dataclass(slots=True)
class _RoleWriter:
    """Writes the actions of one role.

    tally  work since the last wait
    loads  loads from global memory since then; the assembler moves them ahead of what else is in the stretch
    """

    whole: _Writer
    role: str
    operations: Operations
    phase: Literal["prologue", "iteration", "epilogue"] = "iteration"
    actions: list[Action] = field(default_factory=list)
    loads: Tally = field(default_factory=Tally)
    tally: Tally = field(default_factory=Tally)
    label: str = ""

    def write(self, body: tuple[n.Statement, ...], times: Expr) -> None:
        for s in body:
            self._statement(s, times)

    def _statement(self, s: n.Statement, times: Expr) -> None:
        match s:
            case n.InRole() if s.role != self.role:
                return
            case n.Pipelined() if times.same(1):
                self._ring(s)
            case n.Loop() if times.same(1) and (not s.unrolled or _hands_over(s)):
                self._loop(s)
            case n.Pipelined():
                self.write(s.produce + s.consume, times * s.trips)
            case n.Loop():
                self.write(s.body, times * s.trips)
            case n.Produce() if times.same(1):
                self._hand("acquire", s.pipeline)
                self.write(s.body, times)
                self._hand("publish", s.pipeline)
            case n.Consume() if times.same(1):
                buffers = bool(self.whole.program.pipeline(s.pipeline).buffers)
                self._hand("wait" if buffers else "take", s.pipeline)
                self.tally.wait("barriers")
                self.write(s.body, times)
                self._hand("release" if buffers else "give", s.pipeline)
            case n.Constant():
                return
            case n.Copy() if s.source.memory is GMEM and s.target.memory is SMEM and s.token is not None:
                self._fetch(s, times)
            case _:
                if s.instructions or not s.children:
                    self._operation(s, times)
                for inner in s.children:
                    self.write(inner.statements, times)

    def _operation(self, s: n.Statement, times: Expr) -> None:
        reads = isinstance(s, (n.Load, n.Copy)) and s.source.memory is GMEM
        name = str(getattr(s, "instruction", type(s).__name__.lower()))
        if not self.label or self.label == "setup":
            self.label = name
        elif name not in self.label:
            self.label += f", {name}"
        self.operations.add(s, self.loads if reads else self.tally, times, self.phase == "iteration")

    def _fetch(self, s: n.Copy, times: Expr) -> None:
        self.close()
        pipeline = s.target.name.split(".")[0]
        own = Tally()
        self.operations.add(s, own, times, self.phase == "iteration")
        self.actions.append(Fetch(f"{s.source.name} by {s.instruction}", self._amounts(own), pipeline))

    def _ring(self, s: n.Pipelined) -> None:
        self.close()
        stages = self.whole.program.pipeline(s.pipeline).stages
        outer, self.phase = self.phase, "iteration"
        fill = self._within(s.produce, None, fetches=s.pipeline)
        first = Tally()
        first.wait("barriers", where(stages == 1, 2, 1))
        if outer == "prologue":
            first.add("warp_instructions", ceil_div(self.operations.threads, 32) * ROUND_INSTRUCTIONS)
        drain = self._within(s.consume, first)
        self.phase = "epilogue" if outer == "prologue" else outer
        self.actions.append(Ring(s.pipeline, self.whole.number(s.trips), fill, drain))

    def _loop(self, s: n.Loop) -> None:
        self.close()
        first = Tally()
        outer = self.phase
        if not s.unrolled and outer == "prologue":
            self.phase = "iteration"
            first.add("warp_instructions", ceil_div(self.operations.threads, 32) * ROUND_INSTRUCTIONS)
        body = self._within(s.body, first)
        self.phase = "epilogue" if self.phase != outer else outer
        self.actions.append(Repeat(self.whole.number(s.trips), body))

    def _within(self, body: tuple[n.Statement, ...], first: Tally | None, fetches: str = "") -> tuple[Action, ...]:
        """The actions of a body of its own, whose work begins with that of `first`."""
        outer, self.actions = self.actions, []
        if first is not None:
            self.tally = first
            self.label = "round"
        if fetches:
            for s in body:
                own = Tally()
                self.operations.add(s, own, expr(1), True)
                name = f"{s.source.name} by {s.instruction}" if isinstance(s, (n.Copy, n.Load)) else type(s).__name__
                self.actions.append(Fetch(name, self._amounts(own), fetches))
        else:
            self.write(body, expr(1))
        self.close()
        inner, self.actions = self.actions, outer
        return tuple(inner)

    def _hand(self, verb: Verb, pipeline: str) -> None:
        self.close()
        self.actions.append(Hand(verb, pipeline))

    def close(self) -> None:
        """Ends the stretch of work that is open."""
        for tally, label in ((self.loads, "loads"), (self.tally, self.label or "work")):
            if not all(v.same(0) for v in (*tally.work.values(), *tally.chain.values())):
                self.actions.append(Do(label, self._amounts(tally), self.phase == "iteration", tally is self.loads))
        self.loads, self.tally, self.label = Tally(), Tally(), ""

    def _amounts(self, tally: Tally) -> int:
        start = len(self.whole.numbers)
        self.whole.numbers += [tally.work[name] for name in WORK] + [tally.chain[name] for name in CHAIN]
        return start


def _hands_over(s: n.Loop) -> bool:
    return any(body.produces or body.consumes for inner in walk(s.body) for body in inner.children)


__all__ = ["Action", "Do", "Fetch", "Hand", "Part", "Repeat", "Ring", "Script", "script"]
