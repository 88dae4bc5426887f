"""Tiles: the traced values of a program. A window of a tensor, a buffer in SMEM or TMEM, or registers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.memories import RMEM, Memory
from tinygpu.language.operators import Link, Operators
from tinygpu.language.partition import Partition
from tinygpu.language.register_windows import windowed
from tinygpu.language.tensors import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A piece of SMEM or TMEM, `stages` times.

    shape       extents in elements
    contiguous  the axis whose neighbours are neighbours in memory
    pad         elements added to every row (SMEM)
    layout      name of the machine's UnknownLayout, or "" for plain rows
    stages      how many of it there are (the depth of the pipeline that hands it over)
    swizzle_bytes
                width of the swizzle with which TMA writes and wgmma reads: first come that many bytes of every row,
                then the next of every row; within, 16-byte chunks are exchanged. None: whole rows
    """

    name: str
    memory: Memory
    dtype: DType
    shape: tuple[Expr, ...]
    contiguous: int
    pad: Expr
    layout: str
    stages: Expr
    swizzle_bytes: Expr | None = None

    @property
    def rows(self) -> Expr:
        """Rows of one stage: lines along the contiguous axis."""
        out = expr(1)
        for axis, extent in enumerate(self.shape):
            if axis != self.contiguous:
                out = out * extent
        return out

    @property
    def row_steps(self) -> tuple[Expr, ...]:
        """Rows from one coordinate to the next along each axis, the last axis fastest; 0 along the contiguous one."""
        out, below = [], expr(1)
        for axis in reversed(range(len(self.shape))):
            out.append(expr(0) if axis == self.contiguous else below)
            below = below if axis == self.contiguous else below * self.shape[axis]
        return tuple(reversed(out))

    @property
    def pitch_bytes(self) -> Expr:
        row = self.shape[self.contiguous] + self.pad
        return row * self.dtype.bytes if self.dtype.bits % 8 == 0 else row * self.dtype.bits // 8

    @property
    def stage_bytes(self) -> Expr:
        return self.rows * self.pitch_bytes

    @property
    def bytes(self) -> Expr:
        return self.stages * self.stage_bytes


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
    offset     where the window begins in the tensor or buffer, per axis
    axes       for tensors: which axis of theirs each axis of the tile runs along (None: the same element all along);
               for registers whose axes were renamed: which axis of the value as it was made (None: one that was added)
    partition  for registers: who holds what
    fixed      for tensors: (axis of the tensor, coordinate) along which the tile is one element deep and has no axis
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

    def __str__(self) -> str:
        window = [str(coordinate) for _, coordinate in self.fixed]
        ends, picked = dict(self.ends), self.pick.along if self.pick is not None else ()
        if self.pick is not None:
            window.append(f"%{self.pick.by.name}")
        for axis, (o, s) in enumerate(zip(self.offset, self.shape, strict=True)):
            home = self.axes[axis] if self.tensor is not None else None
            until = f" below {ends[home]}" if home is not None and home in ends else ""
            window += [] if axis in picked else [f"{o}:+{s}{until}"]
        if self.memory is RMEM:
            return f"%{self.name}" if self.window_of is None else f"%{self.name}[{', '.join(window)}]"
        return f"{self.name}[{', '.join(window)}]"

    @property
    def picked_by(self) -> tuple[Tile, ...]:
        """The values in registers that say where the window lies; none where its offsets do."""
        return () if self.pick is None else (self.pick.by,)

    @property
    def contiguous(self) -> int | None:
        """The axis of the tile along which neighbours are neighbours in memory."""
        if self.tensor is not None:
            home = self.tensor.contiguous_axis
            return self.axes.index(home) if home in self.axes else None
        return self.buffer.contiguous if self.buffer is not None else None

    @property
    def T(self) -> Tile:
        """The transposed tile, of a window of a tensor or of registers: nothing moves, the two axes change names."""
        if len(self.shape) != 2 or self.buffer is not None:
            raise ValueError(
                f"{self.name} has no transpose: a tile with two axes has one, in GMEM or in registers; "
                "a buffer is read under a partition of its own shape"
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
        home = self.axes[place] if self.tensor is not None else None
        one_deep = {} if home is None else {home: self.offset[place]}
        return replace(
            self,
            shape=self.shape[:place] + self.shape[place + 1 :],
            offset=self.offset[:place] + self.offset[place + 1 :],
            axes=self._runs[:place] + self._runs[place + 1 :],
            partition=self.partition.squeeze(place) if self.partition is not None else None,
            window_of=self.window_of.squeeze(place) if self.window_of is not None else None,
            fixed=tuple(sorted({**dict(self.fixed), **one_deep}.items())),
            pick=self._repicked({a: a - (a > place) for a in range(len(self.shape))}),
        )

    def _repicked(self, renamed: Mapping[int, int]) -> Pick | None:
        """What says where the window lies, under other names of its axes."""
        return None if self.pick is None else replace(self.pick, along=tuple(renamed[a] for a in self.pick.along))

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
        begins = tuple(a + expr(b) for a, b in zip(self.offset, offset, strict=True))
        alike = [expr(o).same(0) and a.same(b) for o, a, b in zip(offset, self.shape, extents, strict=True)]
        if self.pick is not None and not all(alike[axis] for axis in self.pick.along):
            by = self.pick.by.name
            raise ValueError(f"{self.name} has rows that %{by} gives, and a window of it has all of these")
        if self.partition is None:
            return replace(self, offset=begins, shape=extents)
        if all(alike):
            return self
        part = windowed(self.partition, extents, self.name, self.dtype.bits)
        return replace(self, offset=begins, shape=extents, partition=part, window_of=self.window_of or self.partition)


def gmem_tile(
    tensor: Tensor,
    offset: tuple[Operand, ...],
    shape: tuple[Operand, ...],
    axes: tuple[int | None, ...] | None = None,
    leading: tuple[Expr, ...] = (),
) -> Tile:
    """A window of a tensor.

    axes     which tensor axis each tile axis runs along (default: one to one, after the leading ones)
    leading  coordinates along the first axes of the tensor, along which the tile has no axis
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
    )


def buffer_tile(buffer: Buffer) -> Tile:
    """The whole of a buffer: one stage of it."""
    zeros = tuple(expr(0) for _ in buffer.shape)
    return Tile(buffer.name, buffer.memory, buffer.dtype, buffer.shape, zeros, (), None, buffer, None)
