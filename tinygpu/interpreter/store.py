"""Memory of a run: tensors and slots of buffers as arrays, and which of their elements were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinygpu.interpreter.elements import Array
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.language.buffer import Buffer
from tinygpu.language.memories import TMEM
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, buffer_tile, gmem_tile


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor, or one slot of a buffer.

    tile     the whole of it
    written  per element whether it has a value; None: all have
    begun    per element whether it begins as 0, and nothing was added to it yet; None: none does
    beside   others in the same columns: what is written here is lost there
    """

    tile: Tile
    array: Array
    written: NDArray[np.bool_] | None = None
    begun: NDArray[np.bool_] | None = None
    beside: list[Stored] = field(default_factory=list)

    def read(self, place: tuple[slice | int, ...]) -> Array:
        """The elements of a window that lies inside; each must have a value."""
        if self.written is not None:
            there = self.written[place]
            if not there.all():
                raise ProgramFault(f"{self._first(place, there)} is read, and nobody has written it")
        return self.array[place]

    def nothing_added(self, place: tuple[slice | int, ...]) -> NDArray[np.bool_] | None:
        """Per element of a window whether it begins as 0 and nothing was added to it; None: all have sums."""
        return self.begun[place] if self.begun is not None and self.begun[place].any() else None

    def begin(self, place: tuple[slice | int, ...], values: Array) -> None:
        """Elements that products go on from; until one has, they have no value for anybody else."""
        self.write(place, values)
        if self.begun is not None:
            self.begun[place] = True

    def write(self, place: tuple[slice | int, ...], values: Array) -> None:
        self.array[place] = values
        if self.written is not None:
            self.written[place] = True
        if self.begun is not None:
            self.begun[place] = False
        for other in self.beside:
            other.lose(place[-1], self.tile.dtype.bits)

    def lose(self, columns: slice | int, bits: int) -> None:
        """Elements where others of so many bits are written have no value any more."""
        first, behind = (columns, columns + 1) if isinstance(columns, int) else (columns.start, columns.stop)
        own = self.tile.dtype.bits
        if self.written is not None:
            self.written[..., first * bits // own : -(-behind * bits // own)] = False

    def missing(self) -> str:
        """The first element that nobody wrote; "" where there is none."""
        if self.written is None or self.written.all():
            return ""
        return self._first(tuple(slice(0, extent) for extent in self.array.shape), self.written)

    def _first(self, place: Sequence[slice | int], there: NDArray[np.bool_]) -> str:
        inside = iter(np.argwhere(~np.atleast_1d(there))[0].tolist())
        index = [p if isinstance(p, int) else p.start + next(inside) for p in place]
        return f"{self.name}[{', '.join(map(str, index))}]"

    @property
    def name(self) -> str:
        return self.tile.name


def stored_tensor(tensor: Tensor, array: Array, given: bool) -> Stored:
    """A tensor of a run; where it was not given, none of its elements has a value."""
    whole = gmem_tile(tensor, (0,) * tensor.rank, array.shape)
    return Stored(whole, array, None if given else np.zeros(array.shape, dtype=np.bool_))


def slots(buffer: Buffer) -> list[Stored]:
    """The stages of a buffer, of which nothing was written."""
    shape = tuple(int(s) for s in buffer.shape)
    return [
        Stored(
            buffer_tile(buffer),
            np.zeros(shape, buffer.dtype.numpy),
            np.zeros(shape, dtype=np.bool_),
            np.zeros(shape, dtype=np.bool_) if buffer.memory is TMEM else None,
        )
        for _ in range(int(buffer.stages))
    ]


@dataclass(frozen=True, slots=True, eq=False)
class TensorWindow:
    """How a tile lies over a tensor; everything but where it begins.

    axes     per axis of the tile that of the tensor along which it runs; None: the same element all along
    extents  of the tile
    fixed    axes of the tensor along which the tile is one element deep
    """

    axes: tuple[int | None, ...]
    extents: tuple[int, ...]
    fixed: tuple[int, ...]

    def _place(
        self, shape: tuple[int, ...], begins: Sequence[int]
    ) -> tuple[tuple[slice | int, ...], tuple[slice, ...]] | None:
        """(the part of the tensor, the part of the tile that lies in it); None where no part does.

        begins  first coordinate per axis of the tile, then the coordinates along `fixed`
        """
        part: list[slice | int] = [0] * len(shape)
        inside = [slice(0, extent) for extent in self.extents]
        for across, at in zip(self.fixed, begins[len(self.axes) :], strict=True):
            if not 0 <= at < shape[across]:
                return None
            part[across] = at
        for place, axis in enumerate(self.axes):
            if axis is None:
                inside[place] = slice(0, 1)
                continue
            begin, extent = begins[place], self.extents[place]
            low, high = max(begin, 0), min(begin + extent, shape[axis])
            if low >= high:
                return None
            part[axis] = slice(low, high)
            inside[place] = slice(low - begin, high - begin)
        return tuple(part), tuple(inside)

    def _turned(self, values: Array) -> Array:
        """A part of the tensor, its axes in the order of the tile's, with extent 1 where the tile runs along none."""
        running = [a for a in self.axes if a is not None]
        order = sorted(running)
        turned = values.transpose([order.index(a) for a in running])
        return turned.reshape([1 if a is None else turned.shape[running.index(a)] for a in self.axes])

    def read(self, stored: Stored, begins: Sequence[int], fill: Array) -> Array:
        """The tile; elements outside of the tensor are `fill`."""
        found = self._place(stored.array.shape, begins)
        if found is None:
            return np.full(self.extents, fill, dtype=stored.array.dtype)
        part, inside = found
        values = self._turned(stored.read(part))
        whole = tuple(1 if a is None else e for a, e in zip(self.axes, self.extents, strict=True))
        if values.shape != whole:
            padded = np.full(whole, fill, dtype=values.dtype)
            padded[inside] = values
            values = padded
        return np.array(np.broadcast_to(values, self.extents))

    def write(self, stored: Stored, begins: Sequence[int], values: Array) -> None:
        """Stores a tile; elements outside of the tensor are left out."""
        found = self._place(stored.array.shape, begins)
        if found is None:
            return
        part, inside = found
        running = [a for a in self.axes if a is not None]
        kept = values[tuple(0 if a is None else s for s, a in zip(inside, self.axes, strict=True))]
        order = sorted(range(len(running)), key=lambda i: running[i])
        stored.write(part, kept.transpose(order))


@dataclass(frozen=True, slots=True, eq=False)
class BufferWindow:
    """How a tile lies over a slot of a buffer."""

    extents: tuple[int, ...]

    def place(self, stored: Stored, begins: Sequence[int]) -> tuple[slice, ...]:
        for axis, (begin, extent, size) in enumerate(zip(begins, self.extents, stored.array.shape, strict=True)):
            if begin < 0 or begin + extent > size:
                raise ProgramFault(
                    f"a window of {stored.name} reaches from {begin} to {begin + extent} along axis {axis}, and the "
                    f"buffer has {size} elements there"
                )
        return tuple(slice(begin, begin + extent) for begin, extent in zip(begins, self.extents, strict=True))


