"""What a program is made of: its statements and its grid, as immutable values.

Each class of statements says what it contains, reads and writes (`tinygpu.program.statement`).

Every extent and offset below is an expression over parameters, dims and tensor facts, until a candidate's numbers are
filled in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, ceil_div, expr, maximum
from tinygpu.language.instruction import (
    Elementwise,
    Instruction,
    LaneRead,
    MatrixMultiply,
    MatrixStore,
    Shuffle,
    Transfer,
)
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Token
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.program.statement import ZERO, Block, Body, InSlot, Repeated, Statement
from tinygpu.schedulers.scheduler import TileScheduler
from tinygpu.schedulers.sliced import ONE_TILE

ONE = expr(1)
# The part of a tile that a CTA works on, where several share each tile.
PART = "part0"
# The first of its rounds, where they share rounds in a row.
FIRST_ROUND = "round0"
# Vectors that a thread has under way while it takes what the CTAs that share a tile left of it.
FIX_UP_VECTORS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class ScalarArgument:
    """A number given at launch."""

    name: str
    dtype: DType


def _token(token: Token | None) -> str:
    return f"{token}: " if token else ""


def _operand(o: Tile | ScalarArgument | Expr | float) -> str:
    if isinstance(o, ScalarArgument):
        return o.name
    return f"{o:g}" if isinstance(o, (int, float)) else str(o)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Statement):
    """A tile that starts as one number everywhere: registers, or an accumulator in TMEM."""

    result: Tile
    value: float

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.value:g}"


@dataclass(frozen=True, slots=True, eq=False)
class Load(Statement):
    """Memory to registers. Elements outside the tensor become `fill`."""

    name: str
    instruction: Instruction
    source: Tile
    result: Tile
    fill: float = 0.0

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.instruction,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.name} {self.source}"


@dataclass(frozen=True, slots=True, eq=False)
class Store(Statement):
    """Registers to memory. Elements outside the tensor are left out."""

    name: str
    instruction: Transfer | MatrixStore
    value: Tile
    target: Tile

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.value,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.target,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.instruction,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.target} = {self.name} {self.value}"


@dataclass(frozen=True, slots=True, eq=False)
class Copy(Statement):
    """Memory to memory: one instruction, or a load and a store through registers. Outside the tensor: zero.

    multicast  axis of the grid along which the CTAs of a cluster all get the tile, each bringing a part (None: no such)
    """

    name: str
    instruction: Instruction | Route
    source: Tile
    target: Tile
    partition: Partition | None
    token: Token | None
    multicast: int | None = None

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.target,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.instruction.hops if isinstance(self.instruction, Route) else (self.instruction,)

    @property
    def tokens(self) -> tuple[Token, ...]:
        return () if self.token is None else (self.token,)

    @property
    def moves_under(self) -> Partition | None:
        return self.partition

    @property
    def own_registers(self) -> Expr:
        """A route goes through registers."""
        if not isinstance(self.instruction, Route) or self.partition is None:
            return ZERO
        return ceil_div(self.partition.value_count * self.source.dtype.bits, 32)

    def headline(self, turns: frozenset[str]) -> str:
        everywhere = f" to the cluster along {self.multicast}" if self.multicast is not None else ""
        return f"{_token(self.token)}{self.target} = {self.name} {self.source}{everywhere}"


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Statement):
    """One element-wise instruction over tiles; an operand of extent 1 along an axis is the same all along it."""

    name: str
    instruction: Elementwise
    operands: tuple[Tile | ScalarArgument | Expr | float, ...]
    result: Tile

    @property
    def reads(self) -> tuple[Tile, ...]:
        return tuple(o for o in self.operands if isinstance(o, Tile))

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.instruction,)

    @property
    def in_place(self) -> bool:
        return True

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.name} {', '.join(map(_operand, self.operands))}"


@dataclass(frozen=True, slots=True, eq=False)
class Multiply(Statement):
    """accumulator += a @ b by a matrix instruction; asynchronous ones yield a token."""

    name: str
    instruction: MatrixMultiply
    a: Tile
    b: Tile
    accumulator: Tile
    token: Token | None = None

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.a, self.b, self.accumulator)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.accumulator,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.instruction,)

    @property
    def tokens(self) -> tuple[Token, ...]:
        return () if self.token is None else (self.token,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{_token(self.token)}{self.accumulator} += {self.name} {self.a}, {self.b}"


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Statement):
    """Combines the values of a tile along one axis: in each thread, then between lanes."""

    name: str
    combine: Elementwise
    shuffle: Shuffle
    source: Tile
    result: Tile
    axis: int

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return (self.combine, self.shuffle)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.name} {self.source} along {self.axis}"


@dataclass(frozen=True, slots=True, eq=False)
class Relayout(Statement):
    """A tile goes to other holders: from register to register, and between the lanes of each warp.

    shuffle  what lanes read each other with; None: every thread keeps its values
    """

    name: str
    shuffle: LaneRead | None
    source: Tile
    result: Tile

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return () if self.shuffle is None else (self.shuffle,)

    def headline(self, turns: frozenset[str]) -> str:
        by = "" if self.shuffle is None else f" by {self.name}"
        return f"{self.result} = relayout {self.source}{by}"


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

    def headline(self, turns: frozenset[str]) -> str:
        return f"{'unrolled' if self.unrolled else 'for'} {self.rounds}:"


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
    """

    pipeline: str
    body: tuple[Statement, ...]

    @property
    def children(self) -> tuple[Body, ...]:
        return (Body("body", self.body, consumes=self.pipeline),)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{'turn' if self.pipeline in turns else 'consume'} {self.pipeline}:"


@dataclass(frozen=True, slots=True, eq=False)
class Pipelined(Repeated):
    """A loop in which the same warps produce and consume a pipeline: producing runs `stages - 1` rounds ahead.

    Made by scheduling from a produce loop and a consume loop of one role.
    """

    pipeline: str
    index: str
    trips: Expr
    produce: tuple[Statement, ...]
    consume: tuple[Statement, ...]
    first: Expr = ZERO
    divided: bool = False

    @property
    def children(self) -> tuple[Body, ...]:
        name = self.pipeline
        return (
            Body("produce", self.produce, produces=name, ahead=True, headline=f"produce {name}:"),
            Body("consume", self.consume, consumes=name, headline=f"consume {name}:"),
        )

    def headline(self, turns: frozenset[str]) -> str:
        return f"for {self.rounds}, {self.pipeline} produced ahead:"


@dataclass(frozen=True, slots=True, eq=False)
class FixUp(Block):
    """The CTAs that share a tile combine their values of it; the one that comes last has the result, and goes on.

    Each leaves its values in a workspace in GMEM by `store`; the last one takes those of all, in the order of the
    parts, by `load`, combines them, and alone carries out the body.
    """

    name: str
    combine: Elementwise
    store: Transfer
    load: Transfer
    value: Tile
    result: Tile
    body: tuple[Statement, ...]

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
        return f"fix up {self.result} = {self.name} {self.value}; in the last CTA of the tile:"

    @property
    def vectors(self) -> Expr:
        """Vectors that a thread leaves, and takes of each part."""
        values = self.value.partition.value_count if self.value.partition is not None else ONE
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



@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of the grid: tiles of `extent` elements over `size`; `index` is the tile's number in expressions.

    cluster  neighbouring tiles along the axis whose CTAs form a cluster
    """

    index: str
    size: Expr
    extent: Expr
    cluster: Expr = ONE


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The tiles of a program, and how they are dealt to CTAs.

    group      tile rows that are visited together (L2 locality); 1 = row by row
    cluster    CTAs per cluster: the product over the axes
    scheduler  which CTA (or cluster) works on what
    """

    axes: tuple[Axis, ...]
    group: Expr
    cluster: Expr
    scheduler: TileScheduler = ONE_TILE

    @property
    def tiles(self) -> Expr:
        """Tiles, or clusters of them."""
        out = expr(1)
        for axis in self.axes:
            out = out * ceil_div(axis.size, axis.extent * axis.cluster)
        return out


__all__ = [
    "FIRST_ROUND",
    "FIX_UP_VECTORS_AT_ONCE",
    "ONE",
    "PART",
    "ZERO",
    "Apply",
    "Axis",
    "Block",
    "Body",
    "Constant",
    "Consume",
    "Copy",
    "FixUp",
    "Grid",
    "InRole",
    "InSlot",
    "Load",
    "Loop",
    "Multiply",
    "Pipelined",
    "Produce",
    "Reduce",
    "Repeated",
    "ScalarArgument",
    "Scope",
    "Statement",
    "Store",
]
