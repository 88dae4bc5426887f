"""A tensor inside a trace: what `program` finds under the name of a tensor that the class declares."""

from __future__ import annotations

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.language.verb import verb


class BoundTensor:
    """A tensor as `program` sees it: windows of it are the operands of loads, copies and stores.

    leading  coordinates along its first axes, where it stands for one part of a batch
    """

    def __init__(self, tensor: Tensor, leading: tuple[Expr, ...] = ()) -> None:
        self.tensor = tensor
        self.leading = leading
        self.name = tensor.name
        self.dtype: DType = tensor.dtype
        self.contiguous = tensor.contiguous_axis

    def __repr__(self) -> str:
        return f"the tensor {self.name}"

    @property
    def rank(self) -> int:
        """Dims along which its windows run."""
        return self.tensor.rank - len(self.leading)

    @verb(".at")
    def at(self, *leading: Operand) -> BoundTensor:
        """One part of a batch: the tensor of the remaining dims, at coordinates along the first ones."""
        if not 0 < len(leading) < self.rank:
            raise DeclarationError(
                f"{self.name} has {_dims(self.rank)}; "
                f"at() takes 1 coordinate or more and leaves a dim, not {len(leading)}"
            )
        return BoundTensor(self.tensor, (*self.leading, *map(expr, leading)))

    @verb(".tile")
    def tile(self, *offset: Operand, shape: tuple[Operand, ...]) -> Tile:
        """The window of `shape` that begins at `offset`."""
        if len(offset) != self.rank or len(shape) != self.rank:
            raise DeclarationError(
                f"{self.name} has {_dims(self.rank)}; the window gives {len(offset)} offsets and {len(shape)} extents"
            )
        return gmem_tile(self.tensor, offset, shape, None, self.leading)

    @verb(".row")
    def row(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as a 1 x extent tile that stands for every row."""
        return self._line(offset, extent, 1)

    @verb(".column")
    def column(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as an extent x 1 tile that stands for every column."""
        return self._line(offset, extent, 0)

    def _line(self, offset: Operand, extent: Operand, axis: int) -> Tile:
        if self.rank != 1:
            raise DeclarationError(f"{self.name} has {_dims(self.rank)}; row and column take a tensor with one")
        shape: list[Operand] = [1, 1]
        start: list[Operand] = [0, 0]
        axes: list[int | None] = [None, None]
        shape[axis], start[axis], axes[axis] = extent, offset, len(self.leading)
        return gmem_tile(self.tensor, tuple(start), tuple(shape), tuple(axes), self.leading)


def _dims(count: int) -> str:
    return "1 dim" if count == 1 else f"{count} dims"
