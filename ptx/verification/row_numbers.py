"""What is made of the numbers that data name rows by: rows themselves, or rows in blocks that are named.

A value in registers, or where a window begins, is followed back to what was loaded. It is the number of a row where it
is that very element; and it is a row of a block where it is as many times the element as a block has rows, and a number
below that: `(page << 4) + (key & 15)`. All else has no such form, and is not judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import sympy

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.expressions import Expr, compile_with, expr
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.statement import Statement
from tinygpu.program.tree import walk

# Numbers that nothing is known of.
MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class RowNumber:
    """`unit` times an element of one of some tensors, and a number from `low` to `high`; without tensors that alone.

    hangs_on  tensors whose elements have a say in it otherwise
    """

    by: frozenset[str]
    unit: int
    low: int
    high: int
    hangs_on: frozenset[str] = frozenset()

    @property
    def nowhere(self) -> bool:
        """Whether it is the number of no row at all."""
        return not self.by and self.high < 0

    @property
    def exactly(self) -> int | None:
        """The number that it is, where it is one."""
        return self.low if not self.by and self.low == self.high else None

    def __add__(self, other: RowNumber) -> RowNumber:
        if self.by and other.by:
            return _anything(self, other)
        unit, hangs_on = self.unit + other.unit, self.hangs_on | other.hangs_on
        return RowNumber(self.by | other.by, unit, self.low + other.low, self.high + other.high, hangs_on)

    def __mul__(self, other: RowNumber) -> RowNumber:
        many, times = (self, other.exactly) if other.exactly is not None else (other, self.exactly)
        if times is None or times < 0:
            return _anything(self, other)
        return RowNumber(many.by, many.unit * times, many.low * times, many.high * times, many.hangs_on)


Numbers = tuple[RowNumber, ...]
"""What a value may be, one or another of them."""


def _number(low: int, high: int, hangs_on: frozenset[str] = frozenset()) -> RowNumber:
    return RowNumber(frozenset(), 0, low, high, hangs_on)


def _anything(*made_of: RowNumber) -> RowNumber:
    """A number of which nothing is known, but what went into it."""
    return _number(-MOST, MOST, frozenset[str]().union(*(x.by | x.hangs_on for x in made_of)))


def _shifted(a: RowNumber, b: RowNumber) -> RowNumber:
    places = b.exactly
    return a * _number(1 << places, 1 << places) if places is not None and 0 <= places < 31 else _anything(a, b)


def _both_bits(a: RowNumber, b: RowNumber) -> RowNumber:
    """Bits of both, one of which is known and not negative: at most that."""
    known = [x.exactly for x in (a, b) if x.exactly is not None and x.exactly >= 0]
    return _number(0, min(known), _anything(a, b).hangs_on) if known else _anything(a, b)


def _remainder(a: RowNumber, b: RowNumber) -> RowNumber:
    by = b.exactly
    return _number(0, by - 1, _anything(a).hangs_on) if by is not None and by > 0 and a.low >= 0 else _anything(a, b)


# What operators make of two numbers.
_OPERATORS: dict[str, Callable[[RowNumber, RowNumber], RowNumber]] = {
    "+": RowNumber.__add__,
    "*": RowNumber.__mul__,
    "<<": _shifted,
    "&": _both_bits,
    "%": _remainder,
}


class RowNumbers:
    """What stands in the registers of a program, as numbers of rows."""

    def __init__(self, program: Program) -> None:
        self.statements = tuple(walk(program.body))
        self.said = {s.symbol: s.value for s in self.statements if isinstance(s, n.Uniform)}
        self._tensors = {t.name: t for t in program.tensors}
        self._written: dict[str, list[Statement]] = {}
        for s in self.statements:
            for tile in s.writes:
                if tile.partition is not None and tile.tensor is None:
                    self._written.setdefault(tile.name, []).append(s)

    def naming(self, tile: Tile, axis: int) -> tuple[tuple[Tensor, ...], int] | None:
        """The tensors whose elements say where a window lies along an axis, and of how many rows each element names a
        block; None where something else has a say.
        """
        if tile.pick is not None and tile.pick.home == axis:
            found = self._of(tile.pick.by, frozenset())
        elif axis in dict(tile.ends):
            return None
        else:
            found = self._window(tile, axis)
        named = [number for number in found or () if not number.nowhere]
        by = {name for x in named for name in x.by}
        decided = {name for x in found or () for name in x.hangs_on}
        units = {number.unit for number in named}
        if len(units) != 1 or decided & by or not all(x.by and 0 <= x.low <= x.high < x.unit for x in named):
            return None
        return tuple(self._tensors[name] for name in sorted(by)), units.pop()

    def _window(self, tile: Tile, axis: int) -> Numbers | None:
        """Rows that a window has along an axis, where a number that data say is a term of what it begins with."""
        begins = sympy.expand(tile.begins[axis].sympy)
        terms = [s for s in begins.free_symbols if s.name in self.said]
        if len(terms) != 1:
            return None
        times = begins.coeff(terms[0])
        rest = begins - times * terms[0]
        if not times.is_Integer or times < 1 or terms[0] in rest.free_symbols:
            return None
        reach = expr(0)
        for along, step in tile.along(axis):
            reach = reach + (tile.shape[along] - 1) * step
        first, more = (Interval(0, 0) + bound for bound in compile_with(INTERVAL_NAMES, Expr(rest), reach)(_Unknown()))
        values = self._of(self.said[terms[0].name], frozenset())
        if values is None:
            return None
        inside, scale = _number(first.lo, first.hi + more.hi), _number(int(times), int(times))
        return tuple(value * scale + inside for value in values)

    def _of(self, tile: Tile, following: frozenset[str]) -> Numbers | None:
        """What values in registers are; None where that is not followed."""
        if tile.name in following:
            return None
        out: list[RowNumber] = []
        for s in self._written.get(tile.name, []):
            found = self._made(s, following | {tile.name})
            if found is None:
                return None
            out += found
        return tuple(out) or None

    def _made(self, s: Statement, following: frozenset[str]) -> Numbers | None:
        """What a statement leaves in registers."""
        if isinstance(s, n.Relayout):
            return self._of(s.source, following)
        if isinstance(s, n.Load):
            tensor = s.source.finest.tensor
            named = tensor is not None and tensor.access == "in"
            return (RowNumber(frozenset({tensor.name}), 1, 0, 0),) if tensor is not None and named else None
        if isinstance(s, n.Constant):
            return self._operand(s.value, following)
        if isinstance(s, n.Index):
            return (_number(0, MOST),)
        return self._computed(s, following) if isinstance(s, n.Apply) else None

    def _operand(self, o: object, following: frozenset[str]) -> Numbers | None:
        if isinstance(o, Tile):
            return self._of(o, following)
        if isinstance(o, Expr):
            said = [self._of(self.said[name], following) for name in sorted(o.symbols & self.said.keys())]
            if any(values is None for values in said):
                return None
            hangs_on = _anything(*(x for values in said for x in values or ())).hangs_on
            bounds = Interval(0, 0) + compile_with(INTERVAL_NAMES, o)(_Unknown())[0]
            return (_number(bounds.lo, bounds.hi, hangs_on),)
        return (_number(int(o), int(o)),) if isinstance(o, int | float) and o == o // 1 else (_number(-MOST, MOST),)

    def _computed(self, s: n.Apply, following: frozenset[str]) -> Numbers | None:
        operands = [self._operand(o, following) for o in s.operands]
        if any(o is None for o in operands):
            return None
        values, sign = [o or () for o in operands], getattr(s.instruction, "sign", "")
        if sign == "where" and len(values) == 3:
            decided = _anything(*values[0]).hangs_on
            return tuple(replace(x, hangs_on=x.hangs_on | decided) for x in (*values[1], *values[2]))
        if sign in _OPERATORS and len(values) == 2:
            return tuple(_OPERATORS[sign](a, b) for a in values[0] for b in values[1])
        return (_anything(*(x for value in values for x in value)),)


class _Unknown(dict[str, Interval]):
    """Symbols that nothing is known of; they are not negative."""

    def __missing__(self, name: str) -> Interval:
        return Interval(0, MOST)
