"""Statements that move tiles: between memories, and from thread to thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygpu.expressions import Expr, ceil_div, expr
from tinygpu.language.instruction import CellStore, Instruction, LaneRead, MatrixStore, Transfer
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Token
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.program.nodes.carried_out import Asynchronous, ByInstruction
from tinygpu.program.nodes.grid import Axis
from tinygpu.program.statement import ZERO, Statement


@dataclass(frozen=True, slots=True, eq=False)
class Load(ByInstruction):
    """Memory to registers. Elements outside the tensor become `fill`."""

    name: str
    instruction: Instruction
    source: Tile
    result: Tile
    fill: float = 0.0

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source, *self.source.picked_by)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.name} {self.source}"


@dataclass(frozen=True, slots=True, eq=False)
class Store(ByInstruction):
    """Registers to memory. Elements outside the tensor are left out."""

    name: str
    instruction: Transfer | MatrixStore | CellStore
    value: Tile
    target: Tile

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.value, *self.target.picked_by)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.target,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.target} = {self.name} {self.value}"


@dataclass(frozen=True, slots=True, eq=False)
class Copy(Asynchronous):
    """Memory to memory: one instruction, or a load and a store through registers. Outside the tensor: zero.

    multicast  axis of the grid along which CTAs of a cluster all get the tile, each bringing a part (None: no such)
    every      places from one of them to the next: 1 all of the cluster, 2 those of one place in their pairs
    """

    name: str
    instruction: Instruction | Route
    source: Tile
    target: Tile
    partition: Partition | None
    token: Token | None
    multicast: int | None = None
    every: int = 1

    def shared_by(self, axes: Sequence[Axis]) -> Expr:
        """CTAs of a cluster that get the tile, each bringing a part; `axes` are the grid's."""
        return expr(1) if self.multicast is None else ceil_div(axes[self.multicast].cluster, self.every)

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.source, *self.source.picked_by, *self.target.picked_by)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.target,)

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        return self.instruction.hops if isinstance(self.instruction, Route) else (self.instruction,)

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
        to = "the cluster" if self.every == 1 else "every second CTA of the cluster"
        everywhere = f" to {to} along {self.multicast}" if self.multicast is not None else ""
        return f"{self.leaves}{self.target} = {self.name} {self.source}{everywhere}"


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
