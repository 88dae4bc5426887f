"""A tensor inside a trace: what `program` finds under the name of a tensor that the class declares."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr, joined
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Pick, Tile, gmem_tile
from tinygpu.language.verb import OPERAND, verb


class LoadsElements(Protocol):
    """The trace under way, as single elements need it."""

    def element(self, tensor: Tensor, index: tuple[Expr, ...]) -> Expr: ...


class BoundTensor:
    """A tensor as `program` sees it: windows of it are the operands of loads, copies and stores.

    leading  coordinates along its first axes, where it stands for one part of a batch
    rows_by  values in registers that say which of its rows follow each other, where it stands for these
    between  where it begins and ends along its first remaining axis, where it stands for a segment
    trace    the trace under way
    """

    # No loop of Python goes over what `[...]` gives.
    __iter__ = None

    def __init__(
        self,
        tensor: Tensor,
        leading: tuple[Expr, ...] = (),
        rows_by: Tile | None = None,
        between: tuple[Expr, Expr] | None = None,
        trace: LoadsElements | None = None,
    ) -> None:
        self.tensor = tensor
        self.leading = leading
        self._rows_by = rows_by
        self._between = between
        self._trace = trace
        self.name = tensor.name
        self.dtype: DType = tensor.dtype
        self.contiguous = tensor.contiguous_axis

    def __repr__(self) -> str:
        return f"the tensor {self.name}"

    @property
    def rank(self) -> int:
        """Axes of its windows."""
        picked = 0 if self._rows_by is None else len(self._rows_by.shape) - 1
        return self.tensor.rank - len(self.leading) + picked

    @verb(".at")
    def at(self, *leading: Operand) -> BoundTensor:
        """One part of a batch: the tensor of the remaining dims, at coordinates along the first ones."""
        if not 0 < len(leading) < self.rank:
            raise DeclarationError(
                f"{self._described()}; "
                f"at() takes 1 coordinate or more and leaves a dim, not {len(leading)}"
            )
        if self._rows_by is not None:
            raise DeclarationError(f"{self.name}.rows(...) has rows that values give; write at() before rows()")
        if self._between is not None:
            raise DeclarationError(f"{self.name}.segment(...) is a part of its rows; write at() before segment()")
        return BoundTensor(self.tensor, (*self.leading, *map(expr, leading)), trace=self._trace)

    def __getitem__(self, index: Operand | tuple[Operand, ...]) -> Expr:
        """One element of an Input of whole numbers, as a number that expressions may name: the same for all threads.

        It is loaded where it stands; where it is negative, it is 0.
        """
        listed = index if isinstance(index, tuple) else (index,)
        wrong = next((i for i in listed if not OPERAND.holds(i)), None)
        if wrong is not None:
            raise DeclarationError(f"{self.name}[...]: an index must be {OPERAND.said}, not {wrong!r}")
        if self._rows_by is not None or self._between is not None:
            part = "rows(...)" if self._between is None else "segment(...)"
            raise DeclarationError(f"{self.name}.{part} has no single elements; take them of {self.name} itself")
        if len(listed) != self.rank:
            given = f"one element has as many indices, not {len(listed)}"
            raise DeclarationError(f"{self._described()}; {given}")
        if self._trace is None:
            raise DeclarationError(f"{self.name}[...] is loaded inside `program`, where a role does it")
        return self._trace.element(self.tensor, (*self.leading, *map(expr, listed)))

    @verb(".segment")
    def segment(self, begin: Operand, end: Operand) -> BoundTensor:
        """The part of the tensor from one row up to, but without, another: rows of its windows count from `begin`, and
        those from `end` on are like what lies beyond a tensor.
        """
        if self._rows_by is not None or self._between is not None:
            raise DeclarationError(f"{self.name} is a part already; write segment() once, and of whole rows")
        return BoundTensor(self.tensor, self.leading, None, (expr(begin), expr(end)), self._trace)

    @verb(".rows")
    def rows(self, by: Tile) -> BoundTensor:
        """The tensor of the rows that s32 or u32 values in registers name, in their order; an axis for each of theirs.

        Axes of extent 1 behind the others are left out: what `column` loads names as many rows as it has. Rows that
        there are not are like what lies beyond a tensor: a load fills them, a store leaves them out.
        """
        if by.partition is None:
            raise DeclarationError(f"{self.name}.rows takes values in registers, and {by.name} lies in {by.memory}")
        if by.dtype.name not in ("s32", "u32"):
            have = f"{by} is {by.dtype}"
            raise DeclarationError(f"{self.name}.rows takes s32 or u32 values, and {have}; convert it first")
        if self._rows_by is not None:
            raise DeclarationError(f"{self.name}.rows(...) has rows that values give, and takes no further rows()")
        if self._between is not None:
            raise DeclarationError(f"{self.name}.segment(...) has no rows(); add where it begins to the values")
        while len(by.shape) > 1 and by.shape[-1].same(1):
            by = by.squeeze(-1)
        return BoundTensor(self.tensor, self.leading, by, trace=self._trace)

    @verb(".tile")
    def tile(self, *offset: Operand, shape: tuple[Operand, ...], step: tuple[Operand, ...] = ()) -> Tile:
        """The window of `shape` that begins at `offset`.

        step  elements of the tensor from one coordinate of the window to the next, per axis: 2 takes every other one
        """
        if step and len(step) != self.rank:
            raise DeclarationError(f"{self._described()}; the window gives {_some(len(step), 'step')}")
        if any(expr(s).is_number and int(expr(s)) < 1 for s in step):
            raise DeclarationError(f"a window of {self.name} steps by 1 element or more, not by {step}")
        if len(offset) != self.rank or len(shape) != self.rank:
            given = f"{_some(len(offset), 'offset')} and {_some(len(shape), 'extent')}"
            raise DeclarationError(f"{self._described()}; the window gives {given}")
        if self._rows_by is not None:
            return self._picked(self._rows_by, offset, shape, step)
        return self._within(gmem_tile(self.tensor, offset, shape, None, self.leading, step))

    def _within(self, window: Tile) -> Tile:
        """The window, from where the segment begins on."""
        if self._between is None:
            return window
        begin, end = self._between
        home = len(self.leading)
        moved = [o + begin if runs == home else o for o, runs in zip(window.offset, window.axes, strict=True)]
        return replace(window, offset=tuple(moved), ends=((home, end),))

    def _picked(
        self, by: Tile, offset: tuple[Operand, ...], shape: tuple[Operand, ...], step: tuple[Operand, ...]
    ) -> Tile:
        """A window of rows that values name: as many as these are, and a part of each."""
        count, home = len(by.shape), len(self.leading)
        named = [expr(o).same(0) and expr(s).same(e) for o, s, e in zip(offset, shape, by.shape, strict=False)]
        if not all(named):
            begins, extents = (", ".join(map(str, part[:count])) for part in (offset, shape))
            raise DeclarationError(
                f"{self.name}.rows(...) has as many rows as {by} names, {joined(by.shape, ' x ')}; a window of them "
                f"begins at 0 and has all of them, not {extents} from {begins} on"
            )
        axes = (*[None] * count, *range(home + 1, self.tensor.rank))
        made = gmem_tile(self.tensor, offset, shape, axes, self.leading, step)
        return replace(made, pick=Pick(home, by, tuple(range(count))))

    @verb(".row")
    def row(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as a 1 x extent tile that stands for every row."""
        return self._line(offset, extent, 1)

    @verb(".column")
    def column(self, offset: Operand, extent: Operand) -> Tile:
        """A window of a tensor with one dim, as an extent x 1 tile that stands for every column."""
        return self._line(offset, extent, 0)

    def _line(self, offset: Operand, extent: Operand, axis: int) -> Tile:
        if self._rows_by is not None:
            raise DeclarationError(f"{self.name}.rows(...) has rows that values give; take windows of it by tile()")
        if self.rank != 1:
            raise DeclarationError(f"{self._described()}; row and column take a tensor with one")
        shape: list[Operand] = [1, 1]
        start: list[Operand] = [0, 0]
        axes: list[int | None] = [None, None]
        shape[axis], start[axis], axes[axis] = extent, offset, len(self.leading)
        return self._within(gmem_tile(self.tensor, tuple(start), tuple(shape), tuple(axes), self.leading))

    def _described(self) -> str:
        """What the window is of, with how many dims it has, and why."""
        name = f"{self.name}.at(...)" if self.leading else self.name
        if self._rows_by is None:
            return f"{name} has {_some(self.rank, 'dim')}"
        ids, which = self._rows_by, "that" if len(self._rows_by.shape) == 1 else "those"
        named = f"beginning with {which} of {ids}, {joined(ids.shape, ' x ')}"
        return f"{name}.rows(...) has {_some(self.rank, 'dim')}, {named}"


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
