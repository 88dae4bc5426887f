"""What a program is made of: its statements and its grid, as immutable values.

Every extent and offset below is an expression over parameters, dims and tensor facts, until a candidate's numbers are
filled in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, expr, maximum
from tinygpu.language.instruction import Elementwise, Instruction, MatrixMultiply, MatrixStore, Shuffle, Transfer
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Token
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile

ZERO, ONE = expr(0), expr(1)
# The part of a tile that a CTA works on, where several share each tile.
PART = "part0"
# Rounds of one tile and clusters of CTAs, at most, where rounds are shared: those of two tiles for each cluster are
# counted in 32 bits.
MOST_ROUNDS, MOST_CLUSTERS = 2**17, 2**14
# Vectors that a thread has under way while it takes what the CTAs that share a tile left of it.
FIX_UP_VECTORS_AT_ONCE = 8


@dataclass(frozen=True, slots=True, eq=False)
class ScalarArgument:
    """A number given at launch."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A tile that starts as one number everywhere: registers, or an accumulator in TMEM."""

    result: Tile
    value: float


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Memory to registers. Elements outside the tensor become `fill`."""

    name: str
    instruction: Instruction
    source: Tile
    result: Tile
    fill: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """Registers to memory. Elements outside the tensor are left out."""

    name: str
    instruction: Transfer | MatrixStore
    value: Tile
    target: Tile


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
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


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """One element-wise instruction over tiles; an operand of extent 1 along an axis is the same all along it."""

    name: str
    instruction: Elementwise
    operands: tuple[Tile | ScalarArgument | Expr | float, ...]
    result: Tile


@dataclass(frozen=True, slots=True, eq=False)
class Multiply:
    """accumulator += a @ b by a matrix instruction; asynchronous ones yield a token."""

    name: str
    instruction: MatrixMultiply
    a: Tile
    b: Tile
    accumulator: Tile
    token: Token | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """Combines the values of a tile along one axis: in each thread, then between lanes."""

    name: str
    combine: Elementwise
    shuffle: Shuffle
    source: Tile
    result: Tile
    axis: int


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`trips` rounds; in the body, `index` counts them from `first` on.

    unrolled  lowering writes the rounds out
    divided   CTAs that share a tile divide the rounds; where the grid is stream-K, `trips` counts those of a whole tile
    """

    index: str
    trips: Expr
    unrolled: bool
    body: tuple[Statement, ...]
    first: Expr = ZERO
    divided: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Produce:
    """The role acquires the next empty slot of a pipeline, fills it, and commits it where the block ends."""

    pipeline: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Consume:
    """The role waits for the next full slot of a pipeline, uses it, and releases it where the block ends.

    Of a pipeline without buffers the slot is the turn: released, it goes to the next role.
    """

    pipeline: str
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pipelined:
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


@dataclass(frozen=True, slots=True, eq=False)
class FixUp:
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
    def vectors(self) -> Expr:
        """Vectors that a thread leaves, and takes of each part."""
        values = self.value.partition.value_count if self.value.partition is not None else ONE
        return maximum(values // expr(self.store.vector), 1)

    @property
    def parts_at_once(self) -> Expr:
        """Parts whose values a thread takes together, where each is a few vectors."""
        return maximum(expr(FIX_UP_VECTORS_AT_ONCE) // self.vectors, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Buffers live in here; afterwards their memory is free for others."""

    pipelines: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False)
class InRole:
    """What the warps of one role do."""

    role: str
    body: tuple[Statement, ...]


Statement: TypeAlias = (
    "Constant | Load | Store | Copy | Apply | Multiply | Reduce | Loop | Produce | Consume | Pipelined | FixUp | Scope "
    "| InRole"
)


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
    """How tiles are dealt to CTAs.

    group       tile rows that are visited together (L2 locality); 1 = row by row
    cluster     CTAs per cluster: the product over the axes
    persistent  each CTA takes tile after tile (grid = what is resident) instead of one
    parts       CTAs (or clusters) that share each tile: each does a part of the rounds of divided loops
    stream_k    1: all CTAs (or clusters) do the same number of rounds of divided loops, over the tiles in a row, and
                share those in which the rounds of one end and those of the next begin
    """

    axes: tuple[Axis, ...]
    group: Expr
    cluster: Expr
    persistent: bool = False
    parts: Expr = ONE
    stream_k: Expr = ZERO

    @property
    def shares(self) -> bool:
        """Whether more CTAs than one may work on a tile."""
        return not (self.parts.same(1) and self.stream_k.same(0))
