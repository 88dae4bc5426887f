"""Reading and writing a tile, wherever it lies: prepared once for a statement, done many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tinygpu.expressions import compile_scalars
from tinygpu.interpreter.elements import Array, as_elements, number
from tinygpu.interpreter.store import BufferWindow, TensorWindow
from tinygpu.interpreter.worker import Worker
from tinygpu.language.memories import GMEM, RMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile

Reader: TypeAlias = Callable[[Worker], Array]
Writer: TypeAlias = Callable[[Worker, Array], None]
# Partitions of the register values as they were made: a tile may stand for the transposed one.
Made: TypeAlias = Mapping[str, Partition | None]


def extents(tile: Tile) -> tuple[int, ...]:
    return tuple(int(s) for s in tile.shape)


def reader(tile: Tile, made: Made, fill: float = 0.0) -> Reader:
    """Gives the tile; elements outside of a tensor are `fill`."""
    name = tile.name
    if tile.memory is RMEM:
        turned = _is_transposed(tile, made)
        return lambda w: w.registers[name].T if turned else w.registers[name]
    if tile.memory is GMEM:
        window = _tensor_window(tile)
        begins = compile_scalars(*tile.offset, *(at for _, at in tile.fixed))
        outside = number(fill, tile.dtype)
        return lambda w: window.read(w.launch.tensors[name], begins(w.known), outside)
    lies, starts = BufferWindow(extents(tile)), compile_scalars(*tile.offset)

    def of_slot(w: Worker) -> Array:
        stored = w.buffer(name)
        return stored.read(lies.place(stored, starts(w.known))).copy()

    return of_slot


def writer(tile: Tile, made: Made) -> Writer:
    """Stores the tile, in the type of its elements; what lies outside of a tensor is left out."""
    name, kind, shape = tile.name, tile.dtype, extents(tile)
    if tile.memory is RMEM:
        turned = _is_transposed(tile, made)

        def to_registers(w: Worker, values: Array) -> None:
            elements = as_elements(values, kind)
            w.registers[name] = elements.T if turned else elements

        return to_registers
    if tile.memory is GMEM:
        window = _tensor_window(tile)
        begins = compile_scalars(*tile.offset, *(at for _, at in tile.fixed))
        return lambda w, values: window.write(w.launch.tensors[name], begins(w.known), as_elements(values, kind))
    lies, starts = BufferWindow(shape), compile_scalars(*tile.offset)

    def to_slot(w: Worker, values: Array) -> None:
        stored = w.buffer(name)
        stored.write(lies.place(stored, starts(w.known)), as_elements(values, kind))

    return to_slot


def _tensor_window(tile: Tile) -> TensorWindow:
    return TensorWindow(tile.axes, extents(tile), tuple(axis for axis, _ in tile.fixed))


def _is_transposed(tile: Tile, made: Made) -> bool:
    """Whether a tile names a value in registers by its transpose: who holds what is then written the other way round.

    A partition that is its own transpose is that of a single element.
    """
    partition, first = tile.partition, made.get(tile.name)
    if partition is None or first is None or len(tile.shape) != 2 or str(partition) == str(first):
        return False
    return str(partition.T) == str(first)
