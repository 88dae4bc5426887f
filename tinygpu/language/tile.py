"""Tiles: the traced values of a program. A window of a tensor, a buffer in SMEM or TMEM, or registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr, joined
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.merging import merged, split
from tinygpu.language.operators import Link, Operators
from tinygpu.language.partition import Partition
from tinygpu.language.register_windows import windowed
from tinygpu.language.tensors import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Pick:
    """Values in registers that say where a window of a tensor lies along one of the tensor's axes.

    home   the axis of the tensor
    by     s32 or u32 values in registers: coordinates along it. What lies outside the tensor is not there
    along  for each axis of `by` the axis of the window that it is
    """

    home: int
    by: Tile
    along: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tile(Operators):
    """A window of something.

    name       of the tensor, buffer or register value
    memory     where it lies
    shape      extents, in elements
    offset     where the window begins in the tensor or buffer, per axis; of axes of the tile that run along the same
               axis of a tensor, the sum
    axes       for tensors: which axis of theirs each axis of the tile runs along (None: the same element all along);
               for registers whose axes were renamed: which axis of the value as it was made (None: one that was added)
    partition  for registers: who holds what
    fixed      for tensors: (axis of the tensor, coordinate) along which the tile has no axis, or begins further on
    steps      for tensors: elements of the tensor from one coordinate to the next, per axis; (): 1 along all
    apart      for windows whose axes were merged: the window with its axes apart
    groups     of these: of every axis of the tile the axes of `apart` that it stands for, the slowest first
    viewed     for registers whose axes were merged or split: the tile as it was before
    window_of  for windows of registers: who holds what of the whole value
    pick       for tensors: what says, element by element, where the window lies along an axis; None: its offset does
    ends       for tensors: (axis of the tensor, coordinate) from which on elements are not there, as if it ended there
    link       for registers: the trace that carries out operators, while it goes on
    """

    name: str
    memory: Memory
    dtype: DType
    shape: tuple[Expr, ...]
    offset: tuple[Expr, ...]
    axes: tuple[int | None, ...] = ()
    tensor: Tensor | None = None
    buffer: Buffer | None = None
    partition: Partition | None = None
    fixed: tuple[tuple[int, Expr], ...] = ()
    window_of: Partition | None = None
    link: Link | None = field(default=None, repr=False, metadata={"saved": False})
    pick: Pick | None = None
    ends: tuple[tuple[int, Expr], ...] = ()
    steps: tuple[Expr, ...] = ()
    apart: Tile | None = None
    groups: tuple[tuple[int, ...], ...] = ()
    viewed: Tile | None = None

    def __str__(self) -> str:
        if self.apart is not None:
            return f"{self.apart} as {joined(self.shape, ' x ')}"
        window = [str(coordinate) for _, coordinate in self.fixed]
        ends, picked = dict(self.ends), self.pick.along if self.pick is not None else ()
        if self.pick is not None:
            window.append(f"%{self.pick.by.name}")
        for axis, (o, s, step) in enumerate(zip(self.offset, self.shape, self.every, strict=True)):
            home = self.axes[axis] if self.tensor is not None else None
            until = f" below {ends[home]}" if home is not None and home in ends else ""
            by = "" if step.same(1) else f":{step}"
            window += [] if axis in picked else [f"{o}:+{s}{by}{until}"]
        if self.memory is RMEM:
            if self.part is not None and self.part is not self:
                return str(self.part)
            return f"%{self.name}" if self.window_of is None else f"%{self.name}[{', '.join(window)}]"
        return f"{self.name}[{', '.join(window)}]"

    @property
    def part(self) -> Tile | None:
        """The window of registers whose elements the tile names, whatever its axes are; None of a whole value."""
        if self.window_of is not None:
            return self
        return None if self.viewed is None else self.viewed.part

    @property
    def picked_by(self) -> tuple[Tile, ...]:
        """The values in registers that say where the window lies; none where its offsets do."""
        return () if self.pick is None else (self.pick.by,)

    @property
    def finest(self) -> Tile:
        """The window with its axes apart."""
        return self if self.apart is None else self.apart

    def finest_under(self, partition: Partition) -> tuple[Tile, Partition]:
        """The window with its axes apart, and the partition of it."""
        if self.apart is None:
            return self, partition
        return self.apart, split(partition, self.groups, self.apart.shape, self.name)

    @property
    def every(self) -> tuple[Expr, ...]:
        """Elements of the tensor from one coordinate to the next, per axis."""
        return self.steps or tuple(expr(1) for _ in self.shape)

    @property
    def begins(self) -> tuple[Expr, ...]:
        """Where a window of a tensor begins, per axis of the tensor."""
        if self.tensor is None:
            raise ValueError(f"{self.name} is no window of a tensor")
        out = [expr(0)] * self.tensor.rank
        for home, offset in (*zip(self.axes, self.offset, strict=True), *self.fixed):
            if home is not None:
                out[home] = out[home] + offset
        return tuple(out)

    def along(self, home: int) -> tuple[tuple[int, Expr], ...]:
        """(axis of the tile, elements from one coordinate to the next) of all that run along an axis of the tensor."""
        runs = enumerate(zip(self.axes, self.every, strict=True))
        return tuple((k, step) for k, (axis, step) in runs if axis == home)

    @property
    def contiguous(self) -> int | None:
        """The axis of the tile along which neighbours are neighbours in memory."""
        if self.apart is not None:
            inner = self.apart.contiguous
            return next((k for k, group in enumerate(self.groups) if group and group[-1] == inner), None)
        if self.tensor is not None:
            return next((k for k, step in self.along(self.tensor.contiguous_axis) if step.same(1)), None)
        if self.buffer is None or (self.pick is not None and self.pick.home == self.buffer.contiguous):
            return None
        return self.buffer.contiguous

    def rows(self, by: Tile) -> RowsOf:
        """The rows of a buffer that s32 or u32 values in registers name, in their order."""
        if self.buffer is None or self.buffer.memory is not SMEM:
            raise ValueError(f"{self.name}.rows(...) is of buffers in SMEM, and of tensors: self.{self.name}.rows(...)")
        if by.partition is None or by.dtype.name not in ("s32", "u32"):
            raise ValueError(f"{self.name}.rows takes s32 or u32 values in registers, and {by} is {by.dtype}")
        if self.buffer.layout or self.buffer.swizzle_bytes is not None:
            raise ValueError(f"{self.name} has a layout of its own, and rows that values name lie in plain ones")
        while len(by.shape) > 1 and by.shape[-1].same(1):
            by = by.squeeze(-1)
        if len(by.shape) > 1:
            raise ValueError(f"{self.name}.rows takes values along one axis, and {by} has {len(by.shape)}")
        return RowsOf(self, by)

    @property
    def box_order(self) -> tuple[int, ...]:
        """The axes of the tensor as a box of the window has them, the fastest first: its own, and then all others."""
        if self.tensor is None or self.finest.contiguous is None:
            raise ValueError(f"{self.name} is no window along the axis on which its elements follow one another")
        window, first = self.finest, self.tensor.contiguous_axis
        rows = [home for home in reversed(window.axes) if home is not None and home != first]
        return (first, *rows, *(axis for axis, _ in self.tensor.pitches if axis not in rows))

    @property
    def box_rows(self) -> tuple[Expr, ...]:
        """The extents of a box of the window along the axes of `box_order` behind the first; 1 where it has no axis."""
        window = self.finest
        extents = {home: extent for home, extent in zip(window.axes, window.shape, strict=True) if home is not None}
        return tuple(extents.get(home, expr(1)) for home in self.box_order[1:])

    @property
    def plain(self) -> bool:
        """Whether the window is a box: one axis for each of some axes of the tensor, element by element."""
        homes = [axis for axis in self.axes if axis is not None]
        fixed = {axis for axis, _ in self.fixed}
        alone = len(set(homes)) == len(homes) and not fixed & set(homes)
        return self.apart is None and alone and all(step.same(1) for step in self.every)

    @property
    def T(self) -> Tile:
        """The transposed tile, of a window of a tensor or of registers: nothing moves, the two axes change names."""
        if len(self.shape) != 2 or self.buffer is not None:
            raise ValueError(
                f"{self.name} has no transpose: a tile with two axes has one, in GMEM or in registers; "
                "a buffer is read under a partition of its own shape, as t.b.T, and what is loaded has a .T; or it is "
                "filled with the .T of a tile of a tensor, its other axis contiguous"
            )
        return self.permute(1, 0)

    def permute(self, *order: int) -> Tile:
        """The same with its axes in another order: axis k of the result is axis order[k]; nothing moves."""
        if self.buffer is not None or sorted(order) != list(range(len(self.shape))):
            raise ValueError(
                f"{self.name}.permute{order}: a window of a tensor, or registers, with {len(self.shape)} axes, takes "
                "each of them once"
            )
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in order),
            offset=tuple(self.offset[axis] for axis in order),
            axes=tuple(self._runs[axis] for axis in order),
            steps=tuple(self.steps[axis] for axis in order) if self.steps else (),
            groups=tuple(self.groups[axis] for axis in order) if self.groups else (),
            partition=self.partition.permute(*order) if self.partition is not None else None,
            window_of=self.window_of.permute(*order) if self.window_of is not None else None,
            pick=self._repicked({axis: place for place, axis in enumerate(order)}),
        )

    def unsqueeze(self, axis: int) -> Tile:
        """The same with one more axis, of extent 1, before `axis`; a negative one counts from behind the last."""
        place = self._axis(axis, len(self.shape) + 1, "unsqueeze")
        return replace(
            self,
            shape=(*self.shape[:place], expr(1), *self.shape[place:]),
            offset=(*self.offset[:place], expr(0), *self.offset[place:]),
            axes=(*self._runs[:place], None, *self._runs[place:]),
            steps=(*self.steps[:place], expr(1), *self.steps[place:]) if self.steps else (),
            groups=(*self.groups[:place], (), *self.groups[place:]) if self.apart is not None else (),
            partition=self.partition.unsqueeze(place) if self.partition is not None else None,
            window_of=self.window_of.unsqueeze(place) if self.window_of is not None else None,
            pick=self._repicked({a: a + (a >= place) for a in range(len(self.shape))}),
        )

    def squeeze(self, axis: int) -> Tile:
        """The same without an axis of extent 1; a negative one counts from behind the last."""
        place = self._axis(axis, len(self.shape), "squeeze")
        if not self.shape[place].same(1):
            extent = self.shape[place]
            raise ValueError(f"{self.name} has {extent} elements along axis {place}; squeeze drops an axis of 1")
        if self.pick is not None and place in self.pick.along:
            raise ValueError(f"{self.name} has rows that values give along axis {place}; squeeze these values instead")
        if self.groups and self.groups[place]:
            raise ValueError(f"{self.name}.squeeze({axis}): axis {place} stands for several; squeeze, then merge")
        if self.window_of is not None and self.partition is not None and not self.window_of.shape[place].same(1):
            return self._viewed(self.partition.squeeze(place))  # where it begins along this axis stays known
        home = self.axes[place] if self.tensor is not None else None
        fixed = dict(self.fixed)
        if home is not None:
            fixed[home] = fixed.get(home, expr(0)) + self.offset[place]
        return replace(
            self,
            shape=self.shape[:place] + self.shape[place + 1 :],
            offset=self.offset[:place] + self.offset[place + 1 :],
            axes=self._runs[:place] + self._runs[place + 1 :],
            steps=self.steps[:place] + self.steps[place + 1 :],
            groups=self.groups[:place] + self.groups[place + 1 :],
            partition=self.partition.squeeze(place) if self.partition is not None else None,
            window_of=self.window_of.squeeze(place) if self.window_of is not None else None,
            fixed=tuple(sorted(fixed.items())),
            pick=self._repicked({a: a - (a > place) for a in range(len(self.shape))}),
        )

    def _repicked(self, renamed: Mapping[int, int]) -> Pick | None:
        """What says where the window lies, under other names of its axes."""
        return None if self.pick is None else replace(self.pick, along=tuple(renamed[a] for a in self.pick.along))

    def merge(self, *axes: int) -> Tile:
        """The same with axes that stand side by side as one, the last of them the fastest; nothing moves.

        A window, or registers, of (bh, bw, bk) elements is of (bh * bw, bk) after merge(0, 1).
        """
        self._whole_axes(f"merge{axes}")
        if self.pick is not None:
            raise ValueError(f"{self.name} has rows that %{self.pick.by.name} gives, and its axes stay apart")
        first, rank = axes[0] if axes else 0, len(self.shape)
        if len(axes) < 2 or first < 0 or axes[-1] >= rank or axes != tuple(range(first, first + len(axes))):
            raise ValueError(
                f"{self.name}.merge{axes}: axes that stand side by side, in their order, become one; it has the axes 0 "
                f"to {rank - 1}"
            )
        after = first + len(axes)
        single = tuple((axis,) for axis in range(rank))
        if (whole := self.partition and self.partition.whole) and whole[1] == (*single[:first], axes, *single[after:]):
            return self._viewed(whole[0])
        if (one := next((axis for axis in axes[:-1] if self._alone(axis)), None)) is not None:  # it leaves no trace
            fewer = self.squeeze(one)
            return fewer if len(axes) == 2 else fewer.merge(*axes[:-1])
        groups = self.groups or single
        together = expr(1)
        for axis in axes:
            together = together * self.shape[axis]
        if self.partition is not None:
            return self._viewed(merged(self.partition, (*groups[:first], tuple(axes), *groups[after:])))
        parts = tuple(part for axis in axes for part in groups[axis])
        shape = (*self.shape[:first], together, *self.shape[after:])
        return replace(
            self,
            shape=shape,
            offset=tuple(expr(0) for _ in shape),
            axes=tuple(None for _ in shape),
            fixed=(),
            steps=(),
            apart=self.finest,
            groups=(*groups[:first], parts, *groups[after:]),
        )

    def split(self, axis: int, shape: tuple[Operand, ...]) -> Tile:
        """The same with an axis as several, the last of them the fastest: rows as heads by rows; nothing moves."""
        self._whole_axes(f"split({axis}, ...)")
        place = self._axis(axis, len(self.shape), "split")
        if self.apart is not None:
            raise ValueError(f"{self.name} is a window whose axes are merged; split axes first, then merge")
        extents, step = tuple(map(expr, shape)), self.every[place]
        whole, steps = expr(1), list[Expr]()
        for extent in reversed(extents):
            steps.append(step * whole)
            whole = whole * extent
        if not whole.same(self.shape[place]):
            want = joined(extents, " x ")
            raise ValueError(f"{self.name} has {self.shape[place]} elements along axis {place}, and {want} are {whole}")
        if self.partition is not None:
            finer = (*self.shape[:place], *extents, *self.shape[place + 1 :])
            more = len(extents) - 1
            behind = [(a + more,) for a in range(place + 1, len(self.shape))]
            groups = [*((a,) for a in range(place)), tuple(range(place, place + len(extents))), *behind]
            return self._viewed(split(self.partition, groups, finer, f"%{self.name}"))
        zeros = tuple(expr(0) for _ in extents[1:])
        return replace(
            self,
            shape=(*self.shape[:place], *extents, *self.shape[place + 1 :]),
            offset=(*self.offset[:place], self.offset[place], *zeros, *self.offset[place + 1 :]),
            axes=(*self.axes[:place], *(self.axes[place] for _ in extents), *self.axes[place + 1 :]),
            steps=(*self.every[:place], *reversed(steps), *self.every[place + 1 :]),
        )

    def _whole_axes(self, what: str) -> None:
        if self.buffer is not None:
            raise ValueError(f"{self.name} is a buffer, and its axes are its own: there is no .{what}")

    def _viewed(self, partition: Partition) -> Tile:
        """The same registers, as a tile of other axes under a partition of it."""
        zeros = tuple(expr(0) for _ in partition.shape)
        return replace(
            self, shape=partition.shape, offset=zeros, axes=(), partition=partition, window_of=None, viewed=self
        )

    def _alone(self, axis: int) -> bool:
        """Whether an axis has one element, and stands for no others."""
        return self.shape[axis].same(1) and not (self.groups and self.groups[axis])

    def as_matrix(self) -> Tile:
        """The window as a matrix: all axes but the last are its rows."""
        return self if len(self.shape) == 2 else self.merge(*range(len(self.shape) - 1))

    @property
    def _runs(self) -> tuple[int | None, ...]:
        return self.axes if self.tensor is not None or self.axes else tuple(range(len(self.shape)))

    def _axis(self, axis: int, count: int, what: str) -> int:
        if self.buffer is not None:
            raise ValueError(f"{self.name} is a buffer, and its axes are its own; {what} windows of tensors, registers")
        if not -count <= axis < count:
            raise ValueError(f"{self.name}.{what}({axis}): the axis is one from {-count} to {count - 1}")
        return axis % count

    def window(self, offset: tuple[Operand, ...], shape: tuple[Operand, ...]) -> Tile:
        """A smaller window of the same thing, `offset` elements into this one."""
        if len(offset) != len(self.shape) or len(shape) != len(self.shape):
            raise ValueError(f"{self.name} has {len(self.shape)} axes; the window gives {len(offset)} and {len(shape)}")
        extents = tuple(expr(s) for s in shape)
        if self.apart is not None:
            raise ValueError(f"{self.name} is a window whose axes are merged; take the smaller window, then merge")
        begins = tuple(a + expr(b) * s for a, b, s in zip(self.offset, offset, self.every, strict=True))
        alike = [expr(o).same(0) and a.same(b) for o, a, b in zip(offset, self.shape, extents, strict=True)]
        if self.pick is not None and not all(alike[axis] for axis in self.pick.along):
            by = self.pick.by.name
            raise ValueError(f"{self.name} has rows that %{by} gives, and a window of it has all of these")
        if self.partition is None:
            return replace(self, offset=begins, shape=extents)
        if all(alike):
            return self
        if self.viewed is not None:
            raise ValueError(f"%{self.name} has axes that were merged or split, and no windows; take them before")
        part = windowed(self.partition, extents, self.name, self.dtype.bits)
        return replace(self, offset=begins, shape=extents, partition=part, window_of=self.window_of or self.partition)


@dataclass(frozen=True, slots=True, eq=False)
class RowsOf:
    """The rows of a buffer that values in registers name; windows have all of them."""

    buffer: Tile
    by: Tile

    def tile(self, *offset: Operand, shape: tuple[Operand, ...]) -> Tile:
        """The window of `shape` that begins at `offset`: at 0 of the rows, of which it has all."""
        name, count = self.buffer.name, self.by.shape[0]
        if len(offset) != len(self.buffer.shape) or len(shape) != len(self.buffer.shape):
            axes = f"{name} has {len(self.buffer.shape)} axes"
            raise ValueError(f"{axes}; the window gives {len(offset)} offsets and {len(shape)} extents")
        if not (expr(offset[0]).same(0) and expr(shape[0]).same(count)):
            rows = f"{name}.rows(...) has as many rows as {self.by} names, {count}"
            given = f"{shape[0]} from {offset[0]} on"
            raise ValueError(f"{rows}; a window of them begins at 0 and has all of them, not {given}")
        moved = tuple(a + expr(b) for a, b in zip(self.buffer.offset, offset, strict=True))
        return replace(
            self.buffer, offset=moved, shape=tuple(map(expr, shape)), pick=Pick(0, self.by, (0,))
        )


def gmem_tile(
    tensor: Tensor,
    offset: tuple[Operand, ...],
    shape: tuple[Operand, ...],
    axes: tuple[int | None, ...] | None = None,
    leading: tuple[Expr, ...] = (),
    steps: tuple[Operand, ...] = (),
) -> Tile:
    """A window of a tensor.

    axes     which tensor axis each tile axis runs along (default: one to one, after the leading ones)
    leading  coordinates along the first axes of the tensor, along which the tile has no axis
    steps    elements of the tensor from one coordinate of the tile to the next (default: 1)
    """
    running = tuple(range(len(leading), tensor.rank)) if axes is None else axes
    return Tile(
        name=tensor.name,
        memory=tensor.memory,
        dtype=tensor.dtype,
        shape=tuple(expr(s) for s in shape),
        offset=tuple(expr(o) for o in offset),
        axes=running,
        tensor=tensor,
        fixed=tuple(enumerate(leading)),
        steps=tuple(expr(s) for s in steps) if not all(expr(s).same(1) for s in steps) else (),
    )


def buffer_tile(buffer: Buffer) -> Tile:
    """The whole of a buffer: one stage of it."""
    zeros = tuple(expr(0) for _ in buffer.shape)
    return Tile(buffer.name, buffer.memory, buffer.dtype, buffer.shape, zeros, (), None, buffer, None)
