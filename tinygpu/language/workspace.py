"""Workspaces of a plan: tensors in device memory that one step leaves for another."""

from __future__ import annotations

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.parameters import Named
from tinygpu.language.strides import order_of
from tinygpu.language.tensors import Major


class Workspace(Named):
    """A tensor between the steps of a plan; a launch supplies it, and nobody else sees it.

    Its dims are dims and parameters of the plan, and expressions of them: how large it is may be searched.

    >>> partial = Workspace("f32", 128, 4)
    """

    def __init__(self, dtype_name: str, *dims: Operand, major: Major = "row") -> None:
        """
        dims   the slowest axis first
        major  "row", or with two dims "col": which of them is contiguous
        """
        self.major: Major = major
        self.dims: tuple[Expr, ...] = ()
        try:
            self.dtype: DType = dtype(dtype_name)
        except ValueError as error:
            self.mistake = str(error)
            return
        others = [d for d in dims if not _is_size(d)]
        if not dims:
            self.mistake = "a workspace needs at least one dim"
        elif others:
            self.mistake = f"a workspace's dims are dims, parameters and expressions of them, not {others[0]!r}"
        elif major not in ("row", "col"):
            self.mistake = f"a workspace is 'row'- or 'col'-major, not {major!r}"
        elif major == "col" and len(dims) != 2:
            self.mistake = f"only a workspace with two dims can be column-major, not one with {len(dims)}"
        else:
            self.dims = tuple(expr(d) for d in dims)

    @property
    def rank(self) -> int:
        return len(self.dims)

    def pitches(self) -> dict[str, Expr]:
        """Elements between neighbours along each axis, as tensors call it (`ld`, `stride0`, ...); no gaps."""
        contiguous, *further = order_of(self.rank, self.major)
        out, step = {"ld": self.dims[contiguous]}, self.dims[contiguous]
        for number, axis in enumerate(further):
            out["ld" if number == 0 else f"stride{axis}"] = step
            step = step * self.dims[axis]
        return out

    @property
    def bytes(self) -> Expr:
        """What a launch supplies for it."""
        total = expr(self.dtype.bits)
        for size in self.dims:
            total = total * size
        return (total + 7) // 8


def _is_size(size: object) -> bool:
    return isinstance(size, Expr) or (isinstance(size, int) and not isinstance(size, bool) and size >= 1)
