"""Reading and writing a tile, wherever it lies: prepared once for a statement, done many times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.expressions import compile_scalars
from tinygpu.interpreter.elements import Array, as_elements, number
from tinygpu.interpreter.scattered import ScatteredWindow
from tinygpu.interpreter.store import BufferWindow, TensorWindow
from tinygpu.interpreter.worker import Worker
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.tile import Tile

Reader: TypeAlias = Callable[[Worker], Array]
Writer: TypeAlias = Callable[[Worker, Array], None]
Valued: TypeAlias = Callable[[Worker], NDArray[np.bool_] | None]


def extents(tile: Tile) -> tuple[int, ...]:
    return tuple(int(s) for s in tile.shape)


def reader(tile: Tile, fill: float = 0.0) -> Reader:
    """Gives the tile; elements outside of a tensor are `fill`."""
    name = tile.name
    if tile.memory is RMEM:
        taken = tile.part
        if taken is None or taken.window_of is None:
            return lambda w: _as_named(w.registers[name], tile)
        begins_at, sizes = compile_scalars(*taken.offset), extents(taken)
        whole = replace(taken, shape=taken.window_of.shape)

        def part(w: Worker) -> Array:
            ends = zip(begins_at(w.known), sizes, strict=True)
            values = _as_named(w.registers[name], whole)[tuple(slice(b, b + e) for b, e in ends)]
            return _as_named(values, tile, taken)

        return part
    if _is_scattered(tile):
        return _scattered(tile).reader(number(fill, tile.dtype))
    if tile.tensor is not None:
        window = _tensor_window(tile)
        begins = compile_scalars(*tile.offset, *(at for _, at in tile.fixed))
        outside = number(fill, tile.dtype)
        return lambda w: window.read(w.launch.tensors[name], begins(w.known), outside)
    lies, starts, nothing = BufferWindow(extents(tile)), compile_scalars(*tile.offset), no_value(tile.dtype)

    def of_slot(w: Worker) -> Array:
        stored = w.buffer(name)
        place = lies.place(stored, starts(w.known))
        values, bare = stored.read(place).copy(), stored.nothing_added(place)
        if bare is not None:
            values[bare] = nothing
        return values

    return of_slot


def sums_reader(tile: Tile) -> Reader:
    """Gives a tile to which products add: where nothing was added yet, what it begins as."""
    if tile.memory is not TMEM:
        return reader(tile)
    name, lies, starts = tile.name, BufferWindow(extents(tile)), compile_scalars(*tile.offset)

    def of_slot(w: Worker) -> Array:
        stored = w.buffer(name)
        return stored.read(lies.place(stored, starts(w.known))).copy()

    return of_slot


def has_value(tile: Tile) -> Valued:
    """Per element of a tile whether it has a value; None where all have.

    Sums in tensor memory have none where they begin as 0 and no product was added: the first overwrites what is there,
    and without one it stays.
    """
    if tile.memory is not TMEM:
        return lambda w: None
    name, lies, starts = tile.name, BufferWindow(extents(tile)), compile_scalars(*tile.offset)

    def of_slot(w: Worker) -> NDArray[np.bool_] | None:
        stored = w.buffer(name)
        bare = stored.nothing_added(lies.place(stored, starts(w.known)))
        return None if bare is None else ~bare

    return of_slot


def begins(tile: Tile) -> Writer:
    """Lets sums begin, which have no value before something is added to them."""
    name, kind, lies, starts = tile.name, tile.dtype, BufferWindow(extents(tile)), compile_scalars(*tile.offset)

    def to_slot(w: Worker, values: Array) -> None:
        stored = w.buffer(name)
        stored.begin(lies.place(stored, starts(w.known)), as_elements(values, kind))

    return to_slot


def no_value(kind: DType) -> Any:
    """What stands for an element without a value, so that a result that depends on it shows."""
    return number(math.nan, kind) if kind.is_float else np.frombuffer(b"\x55" * kind.numpy.itemsize, kind.numpy)[0]


def writer(tile: Tile) -> Writer:
    """Stores the tile, in the type of its elements; what lies outside of a tensor is left out."""
    name, kind, shape = tile.name, tile.dtype, extents(tile)
    if tile.memory is RMEM:

        def to_registers(w: Worker, values: Array) -> None:
            w.registers[name] = _as_made(as_elements(values, kind), tile, w.registers.get(name))

        return to_registers
    if _is_scattered(tile):
        return _scattered(tile).writer()
    if tile.tensor is not None:
        window = _tensor_window(tile)
        begins = compile_scalars(*tile.offset, *(at for _, at in tile.fixed))
        return lambda w, values: window.write(w.launch.tensors[name], begins(w.known), as_elements(values, kind))
    lies, starts = BufferWindow(shape), compile_scalars(*tile.offset)

    def to_slot(w: Worker, values: Array) -> None:
        stored = w.buffer(name)
        stored.write(lies.place(stored, starts(w.known)), as_elements(values, kind))

    return to_slot


def updater(tile: Tile, combine: Callable[[Array, Array], Array]) -> Writer | None:
    """Combines a tile with what is there, where several of its values may go to one element; None: where none do."""
    return _scattered(tile).updater(combine) if _is_scattered(tile) else None


def _is_scattered(tile: Tile) -> bool:
    """Whether the window is no box of its tensor, or where it lies is said element by element."""
    return tile.pick is not None or (tile.tensor is not None and (bool(tile.ends) or not tile.plain))


def _scattered(tile: Tile) -> ScatteredWindow:
    by = None if tile.pick is None else reader(tile.pick.by)
    return ScatteredWindow(tile.finest, extents(tile.finest), extents(tile), by)


def _tensor_window(tile: Tile) -> TensorWindow:
    return TensorWindow(tile.axes, extents(tile), tuple(axis for axis, _ in tile.fixed))


def _as_named(value: Array, tile: Tile, begun: Tile | None = None) -> Array:
    """A value in registers under the axes by which a tile names it.

    begun  the one whose axes it has already: a window of registers
    """
    if tile is begun:
        return value
    if tile.viewed is not None:
        value = _as_named(value, tile.viewed, begun).reshape(_before_naming(tile))
    if not tile.axes:
        return value
    running = [axis for axis in tile.axes if axis is not None]
    dropped = [axis for axis in range(value.ndim) if axis not in running]
    return value.transpose(*running, *dropped).reshape(extents(tile))


def _as_made(value: Array, tile: Tile, before: Array | None) -> Array:
    """What a tile names of a value in registers, under the axes with which the value was made."""
    if before is None:
        return value
    if tile.viewed is not None:
        shape = _before_naming(tile)
        mine = _renamed_back(value, tile, shape) if tile.axes else value
        return _as_made(mine.reshape(extents(tile.viewed)), tile.viewed, before)
    return _renamed_back(value, tile, before.shape) if tile.axes else value


def _before_naming(tile: Tile) -> tuple[int, ...]:
    """The extents of a tile whose axes were merged or split, before they were renamed; 1 where an axis was dropped."""
    if not tile.axes:
        return extents(tile)
    found = {axis: extent for axis, extent in zip(tile.axes, extents(tile), strict=True) if axis is not None}
    return tuple(found.get(axis, 1) for axis in range(max(found, default=-1) + 1))


def _renamed_back(value: Array, tile: Tile, shape: tuple[int, ...]) -> Array:
    """The values under the axes of `shape`, which a tile names."""
    running = [axis for axis in tile.axes if axis is not None]
    dropped = [axis for axis in range(len(shape)) if axis not in running]
    order = [*running, *dropped]
    return value.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))
