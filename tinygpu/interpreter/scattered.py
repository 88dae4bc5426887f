"""Windows that are no boxes: whose elements lie where values say, that end before their tensor does, that step over
elements, or whose axes run along one axis of the tensor. They go by the coordinates of each element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import compile_scalars
from tinygpu.interpreter.elements import Array, as_elements
from tinygpu.interpreter.fault import ProgramFault
from tinygpu.interpreter.store import Stored
from tinygpu.interpreter.worker import Worker
from tinygpu.language.tile import Tile

Coordinates: TypeAlias = tuple[NDArray[np.int64], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ScatteredWindow:
    """One window of a tensor, or of a buffer whose rows values name.

    extents  of the window
    shape    of the tile: these, or with axes that are merged
    by       gives the values that say where it lies; None: its offsets do
    """

    tile: Tile
    extents: tuple[int, ...]
    shape: tuple[int, ...]
    by: Callable[[Worker], Array] | None

    def reader(self, outside: Array) -> Callable[[Worker], Array]:
        """Gives the tile; elements that are not there are `outside`."""
        places = self._places()

        def read(w: Worker) -> Array:
            stored = self._stored(w)
            where, inside = places(w, stored)
            self._check(stored, where, inside)
            found = stored.array[tuple(np.where(inside, at, 0) for at in where)]
            return np.where(inside, found, outside).astype(stored.array.dtype).reshape(self.shape)

        return read

    def writer(self) -> Callable[[Worker, Array], None]:
        """Stores the tile; of values that go to one element the last one stays."""
        places = self._places()

        def write(w: Worker, values: Array) -> None:
            stored = self._stored(w)
            where, inside = places(w, stored)
            at = tuple(axis[inside] for axis in where)
            stored.array[at] = as_elements(values, self.tile.dtype).reshape(self.extents)[inside]
            if stored.written is not None:
                stored.written[at] = True

        return write

    def updater(self, combine: Callable[[Array, Array], Array]) -> Callable[[Worker, Array], None]:
        """Combines the tile with what is there, one after another those that go to one element."""
        places = self._places()

        def update(w: Worker, values: Array) -> None:
            stored = self._stored(w)
            where, inside = places(w, stored)
            self._check(stored, where, inside)
            flat = np.ravel_multi_index(tuple(axis[inside] for axis in where), stored.array.shape)
            given, left = as_elements(values, self.tile.dtype).reshape(self.extents)[inside], np.arange(flat.size)
            memory = stored.array.reshape(-1)
            while left.size:
                _, first = np.unique(flat[left], return_index=True)
                now = left[first]
                memory[flat[now]] = as_elements(combine(memory[flat[now]], given[now]), self.tile.dtype)
                left = np.delete(left, first)
            stored.array[...] = memory.reshape(stored.array.shape)

        return update

    def _places(self) -> Callable[[Worker, Stored], tuple[Coordinates, NDArray[np.bool_]]]:
        """(coordinates of the elements along each axis of the tensor, which of them are there)."""
        tile, along = self.tile, np.indices(self.extents, dtype=np.int64)
        begins, steps = compile_scalars(*tile.offset), [int(step) for step in tile.every]
        fixed = compile_scalars(*(at for _, at in tile.fixed), *(end for _, end in tile.ends))
        homes = tile.axes if tile.tensor is not None else tuple(range(len(self.extents)))

        def places(w: Worker, stored: Stored) -> tuple[Coordinates, NDArray[np.bool_]]:
            numbers = fixed(w.known)
            deep = dict(zip((axis for axis, _ in tile.fixed), numbers, strict=False))
            ends = dict(zip((axis for axis, _ in tile.ends), numbers[len(tile.fixed) :], strict=True))
            where = [np.zeros(self.extents, dtype=np.int64) for _ in stored.array.shape]
            for home, at in deep.items():
                where[home] += int(at)
            for axis, (runs, begin) in enumerate(zip(homes, begins(w.known), strict=True)):
                if runs is not None:
                    where[runs] = where[runs] + along[axis] * steps[axis] + int(begin)
            if tile.pick is not None and self.by is not None:
                where[tile.pick.home] = self._spread(self.by(w).astype(np.int64))
            return tuple(where), _inside(where, stored.array.shape, ends)

        return places

    def _stored(self, w: Worker) -> Stored:
        """The tensor, or the slot of the buffer that is open."""
        return w.launch.tensors[self.tile.name] if self.tile.tensor is not None else w.buffer(self.tile.name)

    def _spread(self, values: Array) -> NDArray[np.int64]:
        """The values that say where the window lies, for each of its elements."""
        along = () if self.tile.pick is None else self.tile.pick.along
        order = np.argsort(along)
        shape = [1] * len(self.extents)
        for axis, place in enumerate(along):
            shape[place] = values.shape[axis]
        return np.broadcast_to(values.transpose(order).reshape(shape), self.extents)

    def _check(self, stored: Stored, where: Coordinates, inside: NDArray[np.bool_]) -> None:
        if stored.written is None:
            return
        missing = inside & ~stored.written[tuple(np.where(inside, at, 0) for at in where)]
        if missing.any():
            first = ", ".join(str(int(at[missing][0])) for at in where)
            raise ProgramFault(f"{stored.name}[{first}] is read, and nobody has written it")


def _inside(where: list[NDArray[np.int64]], shape: tuple[int, ...], ends: Mapping[int, int]) -> NDArray[np.bool_]:
    out = np.ones(where[0].shape, dtype=np.bool_)
    for axis, (at, size) in enumerate(zip(where, shape, strict=True)):
        out &= (at >= 0) & (at < min(size, int(ends.get(axis, size))))
    return out
