"""Statements that compute on tiles in registers, or on tiles that a matrix instruction takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, expr
from tinygpu.language.instruction import Elementwise, MatrixMultiply
from tinygpu.language.operators import Alone
from tinygpu.language.roles import Token
from tinygpu.language.tile import Tile
from tinygpu.program.nodes.carried_out import Asynchronous, ByInstruction
from tinygpu.program.statement import Statement

NOWHERE = expr(0)  # along k of scales that there are none of


@dataclass(frozen=True, slots=True, eq=False)
class ScalarArgument(Alone):
    """A number given at launch."""

    name: str
    dtype: DType

    @property
    def scalars(self) -> tuple[ScalarArgument, ...]:
        return (self,)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"the scalar {self.name}"


def _operand(o: Tile | ScalarArgument | Expr | float) -> str:
    return f"{o:g}" if isinstance(o, (int, float)) else str(o)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Statement):
    """A tile that starts as one number everywhere: registers, or an accumulator in TMEM."""

    result: Tile
    value: ScalarArgument | Expr | float

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {_operand(self.value)}"

    @property
    def decides_by(self) -> tuple[Expr, ...]:
        return (self.value,) if isinstance(self.value, Expr) else ()


@dataclass(frozen=True, slots=True, eq=False)
class Index(Statement):
    """A tile of the coordinates of its own elements along one axis."""

    result: Tile
    axis: int

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.result,)

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = index along {self.axis}"


@dataclass(frozen=True, slots=True, eq=False)
class Uniform(Statement):
    """A number that data say: the one value of a tile, which all threads hold. Where it is negative, 0.

    symbol   what expressions behind it call it
    typical  what it is taken for where nothing is known of the data
    most     the largest that it can be
    likely   (a number, how often it is that one), where that is known
    """

    symbol: str
    value: Tile
    typical: Expr
    most: Expr
    likely: tuple[tuple[int, float], ...] = ()

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.value,)

    @property
    def defines(self) -> Mapping[str, Expr]:
        return {self.symbol: self.typical}

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.symbol} = {self.value}, the same for all"


@dataclass(frozen=True, slots=True, eq=False)
class Apply(ByInstruction):
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
    def decides_by(self) -> tuple[Expr, ...]:
        return tuple(o for o in self.operands if isinstance(o, Expr))

    @property
    def in_place(self) -> bool:
        return True

    def headline(self, turns: frozenset[str]) -> str:
        return f"{self.result} = {self.name} {', '.join(map(_operand, self.operands))}"


@dataclass(frozen=True, slots=True, eq=False)
class Multiply(ByInstruction, Asynchronous):
    """accumulator += a @ b by a matrix instruction; asynchronous ones yield a token.

    scales  of blocks along k of the rows of a and of the columns of b, where the instruction takes them
    at      how far along k a and b begin in what the scales are of, in elements
    column  how far along n b begins there
    """

    name: str
    instruction: MatrixMultiply
    a: Tile
    b: Tile
    accumulator: Tile
    token: Token | None = None
    scales: tuple[Tile, ...] = ()
    at: Expr = NOWHERE
    column: Expr = NOWHERE

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (self.a, self.b, *self.scales, self.accumulator)

    def blocks(self) -> tuple[Expr, Expr]:
        """The first block along k whose scales are taken, and how many blocks there are."""
        taken = self.instruction.scales(self.a.dtype, self.b.dtype)
        block = taken.block if taken is not None else 1
        return self.at // block, self.a.shape[1] // block

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (self.accumulator,)

    def headline(self, turns: frozenset[str]) -> str:
        scaled = f", scaled by {', '.join(map(str, self.scales))} from {self.at}" if self.scales else ""
        return f"{self.leaves}{self.accumulator} += {self.name} {self.a}, {self.b}{scaled}"
