"""A traced program carried out in NumPy, tile by tile: what it means, whoever holds which element of a tile.

For programs of one role; every CTA of the grid in turn, registers and buffers as arrays of their tiles' shapes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr
from tinygpu.language.memories import GMEM, RMEM
from tinygpu.language.problem import Problem
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program

Array = NDArray[Any]


class CarriedOut:
    """The tensors after a program has run; `arrays` are changed in place."""

    def __init__(
        self, program: Program, problem: Problem, arrays: dict[str, Array], scalars: Mapping[str, Any]
    ) -> None:
        self.arrays, self.scalars = arrays, scalars
        self.environment = {**problem.environment(), n.PART: 0}
        axes = program.grid.axes
        tiles = [range(-(-self.number(a.size, {}) // int(a.extent))) for a in axes]
        for tile in itertools.product(*tiles):
            self.registers: dict[str, Array] = {}
            self.buffers: dict[str, Array] = {
                b.name: np.zeros([int(s) for s in b.shape], b.dtype.numpy) for p in program.pipelines for b in p.buffers
            }
            self.body(program.body, dict(zip((a.index for a in axes), tile, strict=True)))

    def number(self, e: Expr, known: Mapping[str, int]) -> int:
        return int(e.substitute({**self.environment, **known}))

    def body(self, body: tuple[n.Statement, ...], known: dict[str, int]) -> None:
        for s in body:
            self.statement(s, known)

    def statement(self, s: n.Statement, known: dict[str, int]) -> None:
        match s:
            case n.Constant():
                self.write(s.result, np.full(shape(s.result), s.value), known)
            case n.Load():
                self.write(s.result, self.read(s.source, known, s.fill), known)
            case n.Store():
                self.write(s.target, self.read(s.value, known), known)
            case n.Copy():
                self.write(s.target, self.read(s.source, known), known)
            case n.Apply():
                operands = [
                    self.operand(o, d, known) for o, d in zip(s.operands, s.instruction.types()[0], strict=True)
                ]
                result = np.broadcast_to(s.instruction.semantics(*operands), shape(s.result))
                self.write(s.result, result, known)
            case n.Multiply():
                kind = s.accumulator.dtype.numpy
                a, b = (self.read(tile, known).astype(kind) for tile in (s.a, s.b))
                self.write(s.accumulator, self.read(s.accumulator, known) + a @ b, known)
            case n.Reduce():
                rows = np.split(self.read(s.source, known), int(s.source.shape[s.axis]), axis=s.axis)
                self.write(s.result, functools.reduce(s.combine.semantics, rows), known)
            case n.Loop() | n.Pipelined():
                first = self.number(s.first, known)
                for index in range(first, first + self.number(s.trips, known)):
                    bodies = (s.body,) if isinstance(s, n.Loop) else (s.produce, s.consume)
                    for inside in bodies:
                        self.body(inside, {**known, s.index: index})
            case n.FixUp():
                self.write(s.result, self.read(s.value, known), known)
                self.body(s.body, known)
            case n.Produce() | n.Consume() | n.Scope() | n.InRole():
                self.body(s.body, known)

    def operand(self, o: Any, kind: str, known: dict[str, int]) -> Any:
        from tinygpu.dtypes import dtype

        if isinstance(o, Tile):
            return self.read(o, known)
        given = self.scalars[o.name] if isinstance(o, n.ScalarArgument) else o
        return np.asarray(self.number(given, known) if isinstance(given, Expr) else given, dtype(kind).numpy)

    def read(self, tile: Tile, known: dict[str, int], fill: float = 0.0) -> Array:
        if tile.memory is RMEM:
            return self.registers[tile.name]
        if tile.memory is not GMEM:
            return self.buffers[tile.name][self.window(tile, known)]
        index, inside = self.coordinates(tile, known)
        found = self.arrays[tile.name][index]
        return np.where(inside, found, np.asarray(fill, found.dtype))

    def write(self, tile: Tile, values: Array, known: dict[str, int]) -> None:
        values = rounded(values, tile.dtype)
        if tile.memory is RMEM:
            self.registers[tile.name] = values
        elif tile.memory is not GMEM:
            self.buffers[tile.name][self.window(tile, known)] = values
        else:
            index, inside = self.coordinates(tile, known)
            kept = tuple(np.broadcast_to(i, inside.shape)[inside] for i in index)
            self.arrays[tile.name][kept] = np.broadcast_to(values, inside.shape)[inside]

    def window(self, tile: Tile, known: dict[str, int]) -> tuple[slice, ...]:
        begins = [self.number(o, known) for o in tile.offset]
        return tuple(slice(begin, begin + int(size)) for begin, size in zip(begins, tile.shape, strict=True))

    def coordinates(self, tile: Tile, known: dict[str, int]) -> tuple[tuple[Array, ...], NDArray[np.bool_]]:
        """Per axis of the tensor, which element each of the tile is; and which of them are there."""
        array = self.arrays[tile.name]
        index: list[Array] = [np.zeros(shape(tile), np.int64) for _ in array.shape]
        for axis, coordinate in tile.fixed:
            index[axis] += self.number(coordinate, known)
        for place, axis in enumerate(tile.axes):
            if axis is not None:
                along = self.number(tile.offset[place], known) + np.arange(int(tile.shape[place]))
                index[axis] += along.reshape([-1 if p == place else 1 for p in range(len(tile.shape))])
        inside = np.ones(shape(tile), np.bool_)
        for i, size in zip(index, array.shape, strict=True):
            inside &= (i >= 0) & (i < size)
        return tuple(np.clip(i, 0, size - 1) for i, size in zip(index, array.shape, strict=True)), inside


def shape(tile: Tile) -> tuple[int, ...]:
    return tuple(int(s) for s in tile.shape)


def rounded(values: Array, kind: DType) -> Array:
    return np.asarray(values).astype(kind.numpy)
