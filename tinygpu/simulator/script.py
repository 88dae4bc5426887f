"""A script: what each role of a CTA does at the statements of its program. The arrow from Program to the simulator.

It stands beside the program's tree (`tinygpu.simulator.stop`): statements between two waits are one stretch, as the
assembler interleaves unrolled rounds; copies into a pipeline and asynchronous products are issued, and the role goes
on. What is made of a reduction has to wait for all that it combines, and is a stretch of its own behind it. Amounts are
those of the predictor's counts, statement by statement (`tinygpu.cost.operations`), so that a script and a Demand ask
for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tinygpu.cost.counting import PROLOGUE_INSTRUCTIONS, ROUND_INSTRUCTIONS
from tinygpu.cost.in_steps import Steps
from tinygpu.cost.operations import CHAIN, WORK, Operations, Tally
from tinygpu.expressions import Expr, ceil_div, compile_scalars, expr, where
from tinygpu.language.heuristic import Heuristic
from tinygpu.language.memories import GMEM, SMEM
from tinygpu.program import nodes as n
from tinygpu.program.groups import groups
from tinygpu.program.in_pieces import leaves_in_pieces
from tinygpu.program.products import into_tensor_memory
from tinygpu.program.program import BRANCH_PARTS, Program
from tinygpu.program.tree import walk
from tinygpu.simulator.stop import Stop, Stops


@dataclass(frozen=True, slots=True)
class Asked:
    """What one stretch asks for.

    amounts   index of its numbers: those of Work, then those of Chain
    main      it belongs to the main loop
    together  its loads from global memory are under way together; otherwise one waits for the other
    """

    label: str
    amounts: int
    main: bool = False
    together: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """What one role does for a tile.

    share  (r, n): it takes the tiles of its CTA whose number leaves r when divided by n
    warps  index of their number
    last   stretches behind the last stop
    """

    role: str
    warps: int
    share: tuple[int, int]
    stops: Stops[Asked]
    last: tuple[Asked, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """The scripts of all roles of one structure.

    trips      statements that go round -> index of the number of their rounds
    stages     pipeline -> index of the number of its slots
    conflicts  index of the amounts of the stretch that bank conflicts of the main loop delay (-1: there is none)
    compute    the numbers, for values of parameters, dims and tensor facts
    """

    program: Program
    parts: tuple[Part, ...]
    trips: Mapping[n.Statement, int]
    stages: Mapping[str, int]
    conflicts: int
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]]


def script(program: Program, heuristics: tuple[str | Heuristic, ...]) -> Script:
    """Writes the script of a traced program; what is not among `heuristics` costs nothing, as in the counts."""
    writer = _Writer(program, heuristics)
    parts = tuple(writer.parts())
    stages = {p.name: writer.number(p.stages) for p in program.pipelines}
    return Script(program, parts, writer.trips, stages, writer.conflicts, compile_scalars(*writer.numbers))


@dataclass(slots=True)
class _Writer:
    program: Program
    heuristics: tuple[str | Heuristic, ...]
    numbers: list[Expr] = field(default_factory=list)
    trips: dict[n.Statement, int] = field(default_factory=dict)
    conflicts: int = -1
    waits: frozenset[n.Statement] = frozenset()
    in_pieces: frozenset[n.Statement] = frozenset()

    def __post_init__(self) -> None:
        """Where products may be waited for, however many slots the rings have."""
        every = frozenset(p.name for p in self.program.pipelines)
        several, one = (groups(self.program.body, names).before for names in (frozenset[str](), every))
        self.waits = frozenset({**several, **one})
        self.in_pieces = leaves_in_pieces(self.program.body)

    def number(self, value: Expr) -> int:
        self.numbers.append(value)
        return len(self.numbers) - 1

    def parts(self) -> Iterator[Part]:
        roles = self.program.roles
        for role in roles:
            threads = self.program.threads if len(roles) == 1 else role.threads
            writer = _RoleWriter(self, role.name, Operations(self.program, self.heuristics, threads))
            if role is roles[0]:
                setup = ceil_div(self.program.threads, 32) * PROLOGUE_INSTRUCTIONS
                writer.open.first.add("warp_instructions", setup)
            if any(isinstance(s, n.Repeated) and not s.written_out for s in walk(self.program.body)):
                writer.phase = "prologue"
                writer.open.first.wait("fmas", 30)
            writer.open.label = "setup"
            writer.write(self.program.body, expr(1))
            last = writer.close()
            yield Part(role.name, self.number(ceil_div(threads, 32)), role.share, writer.stops, last)

    def asked(self, label: str, tally: Tally, main: bool, together: bool) -> Asked:
        start = len(self.numbers)
        self.numbers += [tally.work[name] for name in WORK] + [tally.chain[name] for name in CHAIN]
        if main and self.conflicts < 0:
            self.conflicts = start
        return Asked(label, start, main, together)


@dataclass(slots=True)
class _Open:
    """Work of one role since its last stop.

    steps  one after the other, each with what it is called
    order  which statement belongs to which of them
    loads  loads from global memory; the assembler moves them ahead of what else is there
    label  what the first step is called that has no instructions
    """

    steps: list[tuple[Tally, list[str]]] = field(default_factory=lambda: [(Tally(), [])])
    order: Steps = field(default_factory=Steps)
    loads: Tally = field(default_factory=Tally)
    label: str = ""

    @property
    def first(self) -> Tally:
        return self.steps[0][0]

    def step(self, s: n.Statement) -> tuple[Tally, list[str]]:
        """That of a statement."""
        number = self.order.step(s)
        self._grow(number + 1)
        return self.steps[number]

    def _grow(self, count: int) -> None:
        self.steps += [(Tally(), []) for _ in range(count - len(self.steps))]

    def take(self, branch: _Open, taken: Expr) -> None:
        """Adds what a branch asks for that is taken in so many of `BRANCH_PARTS` parts of the rounds."""
        self.loads.take(branch.loads, taken)
        self._grow(len(branch.steps))
        for (tally, named), (inside, names) in zip(self.steps, branch.steps, strict=False):
            tally.take(inside, taken)
            named += [name for name in names if name not in named]


@dataclass(slots=True)
class _RoleWriter:
    """Writes the script of one role.

    open      work since the last stop
    products  asynchronous products of the body that is open
    """

    whole: _Writer
    role: str
    operations: Operations
    phase: Literal["prologue", "iteration", "epilogue"] = "iteration"
    stops: dict[n.Statement, Stop[Asked]] = field(default_factory=dict)
    open: _Open = field(default_factory=_Open)
    products: Tally | None = None

    def write(self, body: tuple[n.Statement, ...], times: Expr) -> None:
        for s in body:
            self._statement(s, times)

    def _statement(self, s: n.Statement, times: Expr) -> None:
        if isinstance(s, n.Constant) or (isinstance(s, n.InRole) and s.role != self.role):
            return
        if into := self._filled(s):
            self._stop(s, Stop(self.close(), (self._copy(s, times),), into))
        elif times.same(1) and _is_gone_through(s):
            self._go_through(s)
        else:
            self._pass(s, times)

    def _pass(self, s: n.Statement, times: Expr) -> None:
        """A statement whose work is part of the stretch around it, save for stops inside of it."""
        stops_inside = any(self._stops_at(inner) for inner in walk((s,)) if inner is not s)
        if s in self.whole.waits and times.same(1) and not stops_inside:
            self._stop(s, Stop(self.close()))
        taken = self.whole.program.taken_of(s)
        if not taken.same(BRANCH_PARTS) and not stops_inside:
            outside, self.open = self.open, _Open(order=self.open.order)
            for inner in s.children:
                self.write(inner.statements, times)
            outside.take(self.open, taken)
            self.open = outside
            return
        if s.instructions or not s.children:
            self._operation(s, times)
        known, bodies = len(self.stops), s.children
        for inner in bodies:
            rounds = self.whole.program.rounds_of(s) if isinstance(s, n.Repeated) else expr(1)
            self.write(inner.statements, times * rounds)
        if len(self.stops) > known:
            self._stop(s, Stop(bodies=bodies, ends=((),) * len(bodies)))

    def _stops_at(self, s: n.Statement) -> bool:
        return s in self.whole.waits or _is_gone_through(s) or bool(self._filled(s))

    def _go_through(self, s: n.Statement) -> None:
        """A block that the role waits at, or goes round: a stretch of its own, or several, for each of its bodies."""
        before, outer = self.close(), self.phase
        ahead = [inner for inner in s.children if inner.ahead]
        bodies = tuple(inner for inner in s.children if not inner.ahead)
        if isinstance(s, n.Repeated):
            self.whole.trips[s] = self.whole.number(self.whole.program.rounds_of(s))
            if ahead or (not s.written_out and outer == "prologue"):
                self.phase = "iteration"
        filled = [self._copy(inner, times) for body in ahead for inner, times in self._once(body.statements, expr(1))]
        ends: list[tuple[Asked, ...]] = []
        begun: list[Asked] = []
        told = any(into_tensor_memory(inner) for body in bodies for inner, _ in self._once(body.statements, expr(1)))
        for body in bodies:
            if isinstance(s, n.Repeated):
                self.open.label = "round"
                if not s.written_out and outer == "prologue":
                    self.open.first.add("warp_instructions", self.operations.warps * ROUND_INSTRUCTIONS)
            if body.consumes:
                stages = self.whole.program.pipeline(body.consumes).stages
                prefetch = s.prefetch if isinstance(s, n.Pipelined) else expr(0)
                self.open.first.wait("barriers", where(stages == 1, 2, 1 - prefetch) if ahead else 1)
                if s in self.whole.in_pieces:
                    self.open.first.wait_for_slot(stages)
            around, self.products = self.products, Tally()
            self.write(body.statements, expr(1))
            asked = self._asked(self.products, "products", False)
            self.products = around
            if isinstance(s, n.Consume) or told:
                begun += asked
                asked = ()
            ends.append((*self.close(), *asked))
        if isinstance(s, n.Repeated) and self.phase != outer:
            self.phase = "epilogue" if outer == "prologue" else outer
        into = ahead[0].produces if ahead else ""
        self._stop(s, Stop(before, tuple(filled), into, bodies, tuple(ends), tuple(begun), told and bool(begun)))

    def _stop(self, s: n.Statement, stop: Stop[Asked]) -> None:
        if s in self.stops:
            raise ValueError(
                f"[simulator] one statement stands in several places of the program: {s.headline(frozenset())}"
            )
        self.stops[s] = stop

    def _filled(self, s: n.Statement) -> str:
        """The pipeline that a statement fills a slot of, while the role goes on; "": none."""
        if not s.tokens or not any(tile.memory is GMEM for tile in s.reads):
            return ""
        written = {tile.name for tile in s.writes if tile.memory is SMEM}
        return next((p.name for p in self.whole.program.pipelines for b in p.buffers if b.name in written), "")

    def _operation(self, s: n.Statement, times: Expr) -> None:
        reads = isinstance(s, (n.Load, n.Copy)) and s.source.memory is GMEM
        tally, named = self.open.step(s)
        if (name := str(getattr(s, "instruction", type(s).__name__.lower()))) not in named:
            named.append(name)
        tally = self.open.loads if reads else tally
        if isinstance(s, n.Multiply) and s.token is not None and self.products is not None:
            tally = self.products
        self.operations.add(s, tally, times, self.phase == "iteration")

    def _once(self, body: tuple[n.Statement, ...], times: Expr) -> Iterator[tuple[n.Statement, Expr]]:
        """The statements of a body that contain no others, each with how often it is carried out."""
        for s in body:
            if not s.children:
                yield s, times
            for inner in s.children:
                rounds = self.whole.program.rounds_of(s) if isinstance(s, n.Repeated) else expr(1)
                yield from self._once(inner.statements, times * rounds)

    def _copy(self, s: n.Statement, times: Expr) -> Asked:
        """What a statement asks for that is left under way."""
        own = Tally()
        self.operations.add(s, own, times, self.phase == "iteration")
        brought = ", ".join(tile.name for tile in s.reads)
        return self.whole.asked(f"{brought} by {getattr(s, 'instruction', type(s).__name__)}", own, False, True)

    def close(self) -> tuple[Asked, ...]:
        """Ends the stretch of work that is open."""
        done, self.open = self.open, _Open()
        made = [*self._asked(done.loads, "loads", True)]
        for number, (tally, named) in enumerate(done.steps):
            own = ", ".join(named) or ("work" if number else done.label or "work")
            made += self._asked(tally, own, False)
        return tuple(made)

    def _asked(self, tally: Tally, label: str, together: bool) -> tuple[Asked, ...]:
        """A stretch of what was counted; none where that is nothing."""
        if all(v.same(0) for v in (*tally.work.values(), *tally.chain.values())):
            return ()
        return (self.whole.asked(label, tally, self.phase == "iteration", together),)


def _is_gone_through(s: n.Statement) -> bool:
    """Whether the role stops at a block: it hands over, or its rounds are a loop, or hand over."""
    if any(body.produces or body.consumes for body in s.children):
        return True
    if not isinstance(s, n.Repeated):
        return False
    return not s.written_out or any(body.produces or body.consumes for inner in walk((s,)) for body in inner.children)


__all__ = ["Asked", "Part", "Script", "script"]
