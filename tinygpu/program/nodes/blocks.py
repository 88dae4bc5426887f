"""Statements that contain others: loops, the ends of a pipeline, roles, scopes, the fix-up of a shared tile."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, expr, maximum
from tinygpu.language.instruction import Elementwise, Instruction, Transfer
from tinygpu.language.tile import Tile
from tinygpu.program.statement import ZERO, Block, Body, InSlot, Repeated, Statement

ONE = expr(1)
# Vectors that a thread has under way while it takes what the CTAs that share a tile left of it.
FIX_UP_VECTORS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Block, Repeated):
    """A loop: rounds of one body. Unrolled, lowering writes them out."""

    index: str
    trips: Expr
    unrolled: bool
    body: tuple[Statement, ...]
    first: Expr = ZERO
    divided: bool = False

    @property
    def written_out(self) -> bool:
        return self.unrolled

    @property
    def fix_up(self) -> FixUp | None:
        """The last statement of each round, where it fixes up a piece of the tile."""
        last = self.body[-1] if self.body else None
        return last if isinstance(last, FixUp) and last.piece == self.index else None

    def headline(self, turns: frozenset[str]) -> str:
        return f"{'unrolled' if self.unrolled else 'for'} {self.rounds}:"


@dataclass(frozen=True, slots=True, eq=False)
class When(Block):
    """A branch that all threads of the role take together, or none: its condition is over dims, indices and numbers
    that data say.
    """

    given: Expr
    body: tuple[Statement, ...]

    @property
    def taken_where(self) -> Expr | None:
        return self.given

    @property
    def decides_by(self) -> tuple[Expr, ...]:
        return (self.given,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"when {self.given}:"


@dataclass(frozen=True, slots=True, eq=False)
class Produce(InSlot):
    """The role acquires the next empty slot of a pipeline, fills it, and commits it where the block ends."""

    pipeline: str
    body: tuple[Statement, ...]

    @property
    def children(self) -> tuple[Body, ...]:
        return (Body("body", self.body, produces=self.pipeline),)

    def headline(self, turns: frozenset[str]) -> str:
        return f"produce {self.pipeline}:"


@dataclass(frozen=True, slots=True, eq=False)
class Consume(InSlot):
    """The role waits for the next full slot of a pipeline, uses it, and releases it where the block ends.

    Of a pipeline without buffers the slot is the turn: released, it goes to the next role.

    prefetch  1: what the first step of the unrolled loop in it loads is loaded in the round before, ahead of the last
              step's products
    """

    pipeline: str
    body: tuple[Statement, ...]
    prefetch: Expr = ZERO

    @property
    def children(self) -> tuple[Body, ...]:
        return (Body("body", self.body, consumes=self.pipeline, prefetch=self.prefetch),)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{'turn' if self.pipeline in turns else 'consume'} {self.pipeline}:"


@dataclass(frozen=True, slots=True, eq=False)
class Pipelined(Repeated):
    """A loop in which the same warps produce and consume a pipeline: producing runs `stages - 1` rounds ahead.

    Made by scheduling from the loops of one role that produce and consume it.

    along     other pipelines that the loop produces and consumes, with as many slots: these go with those of the first
    prefetch  1: the loads of the first step of the unrolled loop that consumes are carried out a round ahead, behind
              the barrier of that round and before the last step's products (`tinygpu.program.prefetched`)
    """

    pipeline: str
    index: str
    trips: Expr
    produce: tuple[Statement, ...]
    consume: tuple[Statement, ...]
    first: Expr = ZERO
    divided: bool = False
    along: tuple[str, ...] = ()
    prefetch: Expr = ZERO

    @property
    def pipelines(self) -> tuple[str, ...]:
        return (self.pipeline, *self.along)

    @property
    def children(self) -> tuple[Body, ...]:
        name, said = self.pipeline, ", ".join(self.pipelines)
        return (
            Body("produce", self.produce, name, "", True, f"produce {said}:", self.along),
            Body("consume", self.consume, "", name, False, f"consume {said}:", self.along, self.prefetch),
        )

    def headline(self, turns: frozenset[str]) -> str:
        ahead = "" if self.prefetch.same(0) else f", {self.prefetch} steps loaded ahead"
        return f"for {self.rounds}, {', '.join(self.pipelines)} produced ahead{ahead}:"


@dataclass(frozen=True, slots=True, eq=False)
class FixUp(Block):
    """The CTAs that share a tile combine their values of it; the one that comes last has the result, and goes on.

    Each leaves its values in a workspace in GMEM by `store`; the last one takes those of all, in the order of the
    parts, by `load`, combines them, and alone carries out the body.

    piece   index of the unrolled loop whose rounds fix up a piece of the tile each, as their last statement; "" where
            the tile is fixed up at once
    pieces  how many there are; the CTA that comes last is the same for all of them
    """

    name: str
    combine: Elementwise
    store: Transfer
    load: Transfer
    value: Tile
    result: Tile
    body: tuple[Statement, ...]
    piece: str = ""
    pieces: Expr = ONE

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.value,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.combine, self.store, self.load)

    @property
    def own_registers(self) -> Expr:
        """The values of the others are loaded four at a time."""
        return expr(4)

    def headline(self, turns: frozenset[str]) -> str:
        what = f"piece {self.piece} of the tile, " if self.piece else ""
        return f"fix up {what}{self.result} = {self.name} {self.value}; in the last CTA of the tile:"

    @property
    def vectors(self) -> Expr:
        """Vectors that a thread leaves, and takes of each part."""
        values = self.value.partition.value_count if self.value.partition is not None else expr(1)
        return maximum(values // expr(self.store.vector), 1)

    @property
    def parts_at_once(self) -> Expr:
        """Parts whose values a thread takes together, where each is a few vectors."""
        return maximum(expr(FIX_UP_VECTORS_AT_ONCE) // self.vectors, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Scope(Block):
    """Buffers live in here; afterwards their memory is free for others."""

    pipelines: tuple[str, ...]
    body: tuple[Statement, ...]

    @property
    def scopes(self) -> tuple[str, ...]:
        return self.pipelines

    def headline(self, turns: frozenset[str]) -> str:
        return f"with {', '.join(self.pipelines)}:"


@dataclass(frozen=True, slots=True, eq=False)
class InRole(Block):
    """What the warps of one role do."""

    role: str
    body: tuple[Statement, ...]

    def headline(self, turns: frozenset[str]) -> str:
        return f"role {self.role}:"
