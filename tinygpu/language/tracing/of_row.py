"""Values of a row that a pass makes where it needs them: what they are made of, and where a pass is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tinygpu.expressions import Expr, Operand
from tinygpu.language.bound_tensor import BoundTensor
from tinygpu.language.instruction import Transfer
from tinygpu.language.operators import Waiting, as_written
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.partition import Partition
from tinygpu.language.route import Route
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.ring import Slot

T = TypeVar("T")


class Row(Protocol):
    """The row that a value belongs to."""

    def fail(self, sentence: str) -> DeclarationError: ...


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """A way into registers: by `copy` into a slot of a ring, `stages - 1` rounds ahead, and from there by `load`."""

    stages: Operand
    copy: Transfer | Route
    load: Transfer


@dataclass(frozen=True, slots=True, eq=False)
class Here:
    """Where a pass is.

    at      the first element of the tile, per axis of the tensor
    who     who holds the tile
    within  how far into what is held the tile begins, per axis; (): it is all of that
    slot    what has come to shared memory for this round
    made    values that this round has made already
    """

    at: tuple[Expr, ...]
    who: Partition
    within: tuple[Expr, ...] = ()
    slot: Slot | None = None
    made: dict[OfRow, Tile] = field(default_factory=dict)

    def __call__(self, value: T | OfRow) -> T | Tile:
        """A value as it is here: made once a round, or what needs no making."""
        if not isinstance(value, OfRow):
            return value
        if value not in self.made:
            self.made[value] = value.make(self)
        return self.made[value]

    def window(self, tensor: BoundTensor, axis: int) -> tuple[Tile, Partition]:
        """The window of a tensor here, and who loads what of it; one of a single dim stands for all other lines."""
        shape = self.who.shape
        if tensor.rank == 1 and len(shape) == 2:
            line = tensor.row if axis == 1 else tensor.column
            return line(self.at[axis], shape[axis]), self.who.along(axis)
        return tensor.tile(*self.at, shape=shape), self.who


@dataclass(frozen=True, slots=True, eq=False)
class OfRow(Waiting):
    """What every element of a row has: each pass that uses it makes it, tile by tile.

    said   as its author wrote it
    make   its tile where a pass is
    ahead  tensors of which it is made that come to shared memory, and how
    held   the registers in which all of it is; None: it is made anew
    row    that it belongs to
    """

    said: str
    make: Callable[[Here], Tile]
    row: Row
    ahead: tuple[tuple[BoundTensor, Ahead], ...] = ()
    held: Tile | None = None

    def __str__(self) -> str:
        return self.said

    def later(self, sign: str, make: Callable[..., Any], operands: tuple[Any, ...], into: Any = None) -> OfRow:
        """What is made of it and others in the pass that needs it."""
        said = as_written(sign, operands)
        if into is not None:
            raise self.row.fail(f"{said}: a row has no registers to write into; give the result a name, x = ...")
        others = [o for o in operands if isinstance(o, OfRow)]
        if any(o.row is not self.row for o in others):
            raise self.row.fail(f"{said} is of two p.passes(...); passes go over one row")
        ahead = tuple(dict.fromkeys(one for o in others for one in o.ahead))
        said = said if sign[0].isalpha() else f"({said})"
        return OfRow(said, lambda here: make(*map(here, operands)), self.row, ahead)
