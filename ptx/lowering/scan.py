"""Scans: prefixes along an axis, written as the program's own merges, shuffles upwards, selects, and shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tinygpu.language.instruction import LaneShift
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.exchanged import exchanged_at
from tinygpu.program.scanning import CarriesOut, Level, levels, prefixes
from tinygpu.ptx.lowering import across_warps
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.compute import number_operand, partition_of
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.merging import Value, chosen, keep, merged, replaced, unworded, values_of, words
from tinygpu.ptx.lowering.texts import written

_Statement: TypeAlias = Callable[[str, str], str]


def write(context: Context, s: n.Scan) -> None:
    """Writes a scan; tiles that carry what stands before it keep their registers."""
    context.emit.comment(s.headline(frozenset()))
    held = partition_of(s.sources[0])
    first = [number_operand(context, number, tile.dtype.name) for number, tile in _identity(s)] if s.exclusive else None
    carry, order = _carried(context, s)
    by: CarriesOut[Value, Number] = _Writer(context, s)
    made, totals = prefixes(levels(held, s.axis), values_of(context, s.sources), by, first, carry)
    keep(context, s.results, made)
    if s.carries:
        replaced(context, s.carries, [totals[order.index(place)] for place in range(len(order))])


def _identity(s: n.Scan) -> list[tuple[float, Tile]]:
    if s.carries:
        return [(0.0, tile) for tile in s.sources]  # something stands before the first one
    return list(zip(s.merge.identity, s.sources, strict=True))


def _carried(context: Context, s: n.Scan) -> tuple[list[Value] | None, list[int]]:
    """(what stands before each total, which value of the carrying tiles it is)."""
    if not s.carries:
        return None, []
    of = broadcast(partition_of(s.carries[0]), partition_of(s.sources[0]), s.carries[0].name)
    _, begins = np.unique(of, return_index=True)
    order = [int(of[place]) for place in sorted(begins.tolist())]
    values = values_of(context, s.carries)
    return [values[place] for place in order], order


@dataclass(frozen=True, slots=True, eq=False)
class _Writer:
    """Writes each operation where it stands."""

    context: Context
    s: n.Scan

    @property
    def shuffle(self) -> LaneShift:
        by = self.s.by
        if by is None or not isinstance(by.shuffle, LaneShift):
            raise LoweringError(f"nothing is said that shifts %{self.s.sources[0].name} between lanes")
        return by.shuffle

    def merged(self, left: Value, right: Value) -> Value:
        return merged(self.context, self.s.merge, left, right)

    def chosen(self, where: Number, yes: Value, no: Value) -> Value:
        return chosen(self.context, self.s.merge, yes, no, where)

    def either(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) or isinstance(b, int):
            known, other = (a, b) if isinstance(a, int) else (b, a)
            return True if known else other
        return self.context.emit.computed("p", "or.pred {d}, {0}, {1};", a, b)

    def beyond(self, level: Level, least: int) -> Number:
        emit = self.context.emit
        digit = emit.rem(emit.div(self.context.role_thread(), level.below), level.size)
        return emit.computed("p", f"setp.ge.u32 {{d}}, {{0}}, {least};", digit)

    def below(self, level: Level, value: Value, distance: int) -> Value:
        return self._moved(value, lambda out, word: written(self.shuffle.up, out, word, distance * level.below))

    def last(self, level: Level, value: Value) -> Value:
        emit, bits = self.context.emit, (level.size - 1) * level.below
        lane = emit.computed("r", "or.b32 {d}, {0}, {1};", self.context.lane(), bits)
        return self._moved(value, lambda out, word: written(self.shuffle.read, out, word, str(lane)))

    def _moved(self, value: Value, statement: _Statement) -> Value:
        got: list[str] = []
        for word in words(self.context, self.s.merge, value):
            out: Reg = self.context.emit.new("r")
            self.context.emit.line(statement(str(out), word))
            got.append(str(out))
        return unworded(self.context, self.s.merge, got)

    def left(self, level: Level, totals: Sequence[Value]) -> list[list[Value]]:
        by = exchanged_at(self.s, level, len(totals))
        left = across_warps.leave(self.context, by, [words(self.context, self.s.merge, total) for total in totals])
        return [
            [unworded(self.context, self.s.merge, got) for got in across_warps.take(self.context, left, block)]
            for block in range(len(totals))
        ]
