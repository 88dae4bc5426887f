"""What a program decides by numbers: comparisons, remainders, quotients, the least and the greatest, ends of windows.

Of each, what is compared lies below what it is compared with, is the same, or lies above it: the sides to which a
problem comes. A small problem that does not come to a side of the real one knows nothing of what a program does there:
a loop over `minimum(n, 64)` is one over n, `j % 64` is j, and no key lies before a window of 128.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import sympy

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, compile_with, expr, maximum, minimum
from tinygpu.expressions.functions import FloorDiv, Remainder
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import Place, places, walk
from tinygpu.ptx.verification.lies import Known

# (below -1, the same 0, above 1; whether in the last rounds of a loop alone).
Side: TypeAlias = tuple[int, bool]
Sides: TypeAlias = frozenset[Side]
_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
# What is as it was, but for its type.
_CONVERSIONS = ("convert", "move")


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One thing that a program decides.

    apart  how far what is compared lies above what it is compared with
    said   in words
    dims   whose sizes say how far that may be
    """

    apart: Expr
    said: str
    dims: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """All that a program decides by numbers of which the ends are known.

    made    each once
    ranges  of what expressions name: (name, the least, the greatest), each said by those before it
    rounds  those of them that count rounds of a loop
    counts  whether something is counted from round to round, by which it decides
    """

    made: tuple[Decision, ...]
    ranges: tuple[tuple[str, Expr, Expr], ...]
    rounds: frozenset[str] = frozenset()
    counts: bool = False

    def sides(self, known: Mapping[str, Interval]) -> tuple[Sides, ...]:
        """The sides of each to which values come: in all rounds, and in the last of each loop that has several, which
        lies farthest from the first.

        known  what the problem, the candidate and the grid say; of what is not known, any number
        """
        found = self._of_rounds(known, "") or ()
        for name, _, _ in self.ranges:
            if name in self.rounds:
                last = self._of_rounds(known, name)
                if last is None:
                    continue
                found = tuple(a | b if name in d.dims else a for a, b, d in zip(found, last, self.made, strict=True))
        return found

    def _of_rounds(self, known: Mapping[str, Interval], last: str) -> tuple[Sides, ...] | None:
        """The sides of each; in the last round of one loop, where that is asked: None where it has one alone."""
        numbers = Known(known)
        ends, apart = _computed(self)
        for (name, _, _), function in zip(self.ranges, ends, strict=True):
            least, most = map(_interval, function(numbers))
            end = max(least.lo, most.hi)
            if name == last and end == least.lo:
                return None
            numbers[name] = Interval(end if name == last else least.lo, end)
        return tuple(_sides(_interval(value), bool(last)) for value in apart(numbers))


def _sides(apart: Interval, at_last: bool) -> Sides:
    there = ((-1, apart.lo < 0), (0, apart.lo <= 0 <= apart.hi), (1, apart.hi > 0))
    return frozenset((side, at_last) for side, is_there in there if is_there)


def _interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(int(value), int(value))


@lru_cache(maxsize=256)
def _computed(of: Decisions) -> tuple[tuple[Any, ...], Any]:
    ends = tuple(compile_with(INTERVAL_NAMES, low, high) for _, low, high in of.ranges)
    return ends, compile_with(INTERVAL_NAMES, *(d.apart for d in of.made))


@lru_cache(maxsize=256)
def decisions(program: Program) -> Decisions:
    """What a program decides by."""
    return _Finder(program).found()


class _Finder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.ranges: dict[str, tuple[Expr, Expr]] = {}
        # How often tiles are written: of what goes from round to round sums alone are followed.
        self.written = Counter(tile.name for s in walk(program.body) for tile in s.writes)
        self.values: dict[str, Expr | None] = {}  # of tiles in registers; None where nothing is known
        self.made: dict[Any, Decision] = {}
        self.rounds: set[str] = set()
        self.counters: set[str] = set()

    def found(self) -> Decisions:
        for place in places(self.program.body):
            for loop in place.loops:
                self.ranges.setdefault(loop.index, (loop.first, loop.first + maximum(loop.trips, 1) - 1))
                self.rounds.add(loop.index)
            self.statement(place)
        ranges = tuple((name, *ends) for name, ends in self.ranges.items())
        counts = any(d.apart.symbols & self.counters for d in self.made.values())
        return Decisions(tuple(self.made.values()), ranges, frozenset(self.rounds), counts)

    # -- statements ------------------------------------------------------------------------------------------------
    def statement(self, place: Place) -> None:
        s = place.statement
        for expression in _expressions(s):
            self.expression(expression)
        for tile in (*s.reads, *s.writes):
            self.window(tile)
        if isinstance(s, n.Uniform) and (value := self.values.get(s.value.name)) is not None:
            self.ranges[s.symbol] = maximum(value, 0), maximum(value, 0)
        for tile in s.writes:
            if tile.tensor is None and tile.partition is not None and self.written[tile.name] == 1:
                self.values[tile.name] = self.value(s, tile)
            elif isinstance(s, n.Apply) and _counts(s, tile):
                self.values[tile.name] = self.counted(place, s)

    def window(self, tile: Tile) -> None:
        if tile.tensor is None:
            return
        whole = tile.finest
        ends = dict(whole.ends)
        for home, begin in enumerate(whole.begins):
            reach = expr(0)
            for axis, step in whole.along(home):
                reach = reach + (whole.shape[axis] - 1) * step
            if home in ends:
                self.decide(begin + reach, ends[home], f"{begin} below {ends[home]}")
            if begin.symbols & self.rounds:  # whether it lies before the tensor, or behind it
                self.decide(begin + reach, expr(0), f"{whole.name} from {begin} on")
                self.decide(begin, tile.tensor.size(home), f"{whole.name} from {begin} on")

    def expression(self, expression: Expr) -> None:
        for node in sympy.preorder_traversal(expression.sympy):
            if node.func in (sympy.Min, sympy.Max):
                name = "minimum" if node.func is sympy.Min else "maximum"
                first, *others = map(Expr, node.args)
                for other in others:
                    self.decide(first, other, f"{name}({first}, {other})")
            elif node.func in (FloorDiv, Remainder):
                a, b = map(Expr, node.args)
                self.decide(a, b, f"{a} {'//' if node.func is FloorDiv else '%'} {b}")
            elif getattr(node, "is_Relational", False):
                self.decide(Expr(node.lhs), Expr(node.rhs), str(Expr(node)))

    def decide(self, a: Expr, b: Expr, said: str) -> None:
        apart = a - b
        if apart.symbols and apart.sympy not in self.made:
            self.made[apart.sympy] = Decision(apart, said, self.dims(apart.symbols))

    def dims(self, symbols: frozenset[str]) -> frozenset[str]:
        """The dims that say how large what expressions name may be."""
        axes = {axis.index: axis.size.symbols for axis in self.program.grid.axes}
        found, ahead = set[str](), list(symbols)
        while ahead:
            name = ahead.pop()
            if name in found:
                continue
            found.add(name)
            ahead += axes.get(name, ())
            ahead += frozenset[str]().union(*(end.symbols for end in self.ranges.get(name, ())))
        return frozenset(found)

    # -- values ----------------------------------------------------------------------------------------------------
    def counted(self, place: Place, s: n.Apply) -> Expr:
        """What is added to itself in the rounds of loops: as many as there are rounds, as of what counts."""
        rounds = expr(1)
        for loop in place.loops:
            rounds = rounds * maximum(loop.trips, 1)
        number, limit = self.named(expr(0), rounds), _whole_numbers(s.result.dtype)
        self.counters |= number.symbols
        if limit is not None:
            self.decide(number, expr(limit), s.headline(frozenset()))
        return number

    def value(self, s: n.Statement, result: Tile) -> Expr | None:
        match s:
            case n.Index(axis=axis):
                return self.named(expr(0), result.shape[axis] - 1)
            case n.Constant(value=value):
                return self.number(value)
            case n.Load(source=source) if source.tensor is not None and source.tensor.values is not None:
                values = source.tensor.values
                if not values.whole or values.listed:
                    return None
                low, high = (end if isinstance(end, Expr) else expr(int(end)) for end in (values.low, values.high))
                return self.named(low, high)
            case n.Reduce(sources=(source,), axis=axis, merge=merge) if merge.plain and merge.plain.sign == "+":
                one = self.values.get(source.name)  # of all alike, as of what every thread counts
                return None if one is None else one * source.shape[axis]
            case n.Apply(instruction=instruction, operands=operands):
                return self.applied(instruction.sign, [self.number(o) for o in operands], s)
            case _:
                return None

    def named(self, low: Expr, high: Expr) -> Expr:
        """Any number from one to another."""
        name = f"value{len(self.ranges)}"
        self.ranges[name] = low, high
        return Expr(sympy.Symbol(name, integer=True))

    def number(self, operand: object) -> Expr | None:
        if isinstance(operand, Expr):
            return operand
        if isinstance(operand, Tile):
            return self.values.get(operand.name)
        return expr(int(operand)) if isinstance(operand, (int, float)) and float(operand).is_integer() else None

    def applied(self, sign: str, operands: Sequence[Expr | None], s: n.Apply) -> Expr | None:
        for operand in s.operands:
            if isinstance(operand, Expr):  # a number of 32 bits, whatever is made of it
                self.decide(operand, expr((1 << 32) - 1), s.headline(frozenset()))
        if sign == "where":
            _, *chosen = operands
            known = [c for c in chosen if c is not None]
            return self.named(minimum(*known), maximum(*known)) if len(known) == 2 else None
        known = [o for o in operands if o is not None]
        if len(known) != len(operands):
            return None
        made = _computed_as(sign, known)
        if made is not None:
            limit = _whole_numbers(s.result.dtype)
            if limit is not None and not made.is_number:  # beyond it a number is cut off, or rounded
                self.decide(made, expr(limit), s.headline(frozenset()))
            return made
        return self.compared(sign, known[0], known[1], s) if len(known) == 2 else None

    def compared(self, sign: str, a: Expr, b: Expr, s: n.Apply) -> Expr | None:
        said = s.headline(frozenset())
        if sign in _COMPARISONS:
            self.decide(a, b, said)
            return self.named(expr(0), expr(1))
        if sign in ("maximum", "minimum"):
            self.decide(a, b, said)
            return maximum(a, b) if sign == "maximum" else minimum(a, b)
        if not b.is_number or int(b) <= 0:
            return None
        number = int(b)
        match sign:
            case "//" | "%":
                self.decide(a, b, said)
                return a // number if sign == "//" else a % number
            case ">>" if number < 31:
                self.decide(a, expr(1 << number), said)
                return a // (1 << number)
            case "&" if number & (number + 1) == 0:
                self.decide(a, expr(number + 1), said)
                return a % (number + 1)
            case _:
                return None


def _counts(s: n.Apply, result: Tile) -> bool:
    """Whether a sum goes on from round to round, of integers, or in a type for which they are soon too large."""
    again = any(isinstance(o, Tile) and o.name == result.name for o in s.operands)
    narrow = result.dtype.is_float and result.dtype.bits < 32
    return again and s.instruction.sign == "+" and (narrow or result.dtype.kind in ("signed", "unsigned"))


def _computed_as(sign: str, operands: Sequence[Expr]) -> Expr | None:
    """What an instruction makes of whole numbers, where that is a sum, a product or the same number."""
    match sign, operands:
        case ("+", (a, b)):
            return a + b
        case ("-", (a, b)):
            return a - b
        case ("-", (a,)):
            return 0 - a
        case ("*", (a, b)):
            return a * b
        case ("fma", (a, b, c)):
            return a * b + c
        case ("<<", (a, b)) if b.is_number:
            return a * (1 << int(b))
        case _ if sign in _CONVERSIONS and len(operands) == 1:
            return operands[0]
        case _:
            return None


def _whole_numbers(kind: DType) -> int | None:
    """The largest number up to which all whole ones are elements of a type; None of predicates and packed types."""
    if kind.kind in ("signed", "unsigned"):
        return (1 << (kind.bits - (kind.kind == "signed"))) - 1
    return 1 << (kind.mantissa + 1) if kind.is_float and kind.bits >= 8 else None


def _expressions(s: n.Statement) -> Iterator[Expr]:
    """By which a statement decides, where, and how often it is carried out."""
    yield from s.decides_by
    if s.taken_where is not None:
        yield s.taken_where
    if isinstance(s, n.Repeated):
        yield from (s.trips, s.first)
    for tile in (*s.reads, *s.writes):
        if tile.tensor is not None:
            yield from tile.finest.begins
            yield from (end for _, end in tile.finest.ends)


__all__ = ["Decision", "Decisions", "Side", "Sides", "decisions"]
