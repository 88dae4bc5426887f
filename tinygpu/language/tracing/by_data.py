"""Numbers that data say: single elements as expressions, where loops over them end, and branches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sympy

from tinygpu.expressions import Expr, Operand, expr, maximum, symbol
from tinygpu.language.instruction import Instruction, Transfer
from tinygpu.language.memories import RMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile, gmem_tile
from tinygpu.language.tracing.extents import extent_of
from tinygpu.language.tracing.moves import Moves
from tinygpu.language.values import Bound, Values
from tinygpu.language.verb import verb
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk

# Types of numbers that decide where windows lie and loops end.
WHOLE = ("s32", "u32")


@dataclass(slots=True, eq=False)
class ByData(Moves):
    """What a program does as its data, or conditions, say."""

    def element(self, tensor: Tensor, index: tuple[Expr, ...]) -> Expr:
        """One element of a tensor, as a number that expressions name; loaded once where it is in reach already."""
        here = f"{tensor.name}[{', '.join(map(str, index))}]"
        values = self._said_of(tensor, here)
        key = (tensor.name, tuple(i.sympy for i in index))
        name = self.elements.setdefault(key, f"{tensor.name}.at{len(self.elements) + 1}")
        known = self.defined.get(name)
        if known is not None and any(body is known for body in self.bodies):
            return symbol(name)
        if self.current_role is None:
            raise self.fail(f"{here} is loaded outside a role; say which warps do it with `with p.role(...)`")
        threads = self.current_role.threads
        everywhere = Partition((expr(1),), Layout.of([(threads, 0)], [(1, E(0))]), (), threads)
        window = gmem_tile(tensor, (index[-1],), (1,), None, index[:-1])
        loaded = self.load(self._single_load(tensor, here), window, everywhere)
        self._use(loaded)
        typical, most = _typical(values, tensor, index), _whole(values.high)
        self.emit(n.Uniform(name, loaded, typical, most))
        self.defined[name] = self.bodies[-1]
        return symbol(name)

    @verb("p.number")
    def number(self, tile: Tile, values: Values, name: str = "") -> Expr:
        """The one element of a tile in registers, which all threads of the role hold, as a number that expressions
        name; where it is negative, 0.

        tile    of s32 or u32 and one element, as p.reduce leaves it of all of a tile
        values  what it may be where there is work, as integers(0, 9): predictions take the mean, and it is never more;
                or one_of(0, 1, weights=(7, 1)), where branches upon it are taken as often as that says
        name    what expressions call it: roles that each find the same number give it the same name
        """
        if not isinstance(tile, Tile) or tile.partition is None:
            raise self.fail(f"p.number takes a tile in registers, not {tile}; load it first")
        if tile.dtype.name not in WHOLE:
            raise self.fail(f"p.number makes a number of s32 or u32, and {tile.name} is {tile.dtype}; cast it first")
        if not all(extent.same(1) for extent in tile.shape):
            raise self.fail(f"p.number takes one element, and {tile} has more; reduce it along every axis first")
        listed = isinstance(values, Values) and values.law == "listed"
        if listed and not all(isinstance(each, int) and each >= 0 for each in values.listed):
            raise self.fail(f"p.number makes whole numbers from 0 on, and {tile.name} may be {values}")
        if not listed and (not isinstance(values, Values) or not values.whole or values.law == "ascending"):
            raise self.fail(f"p.number is told what {tile.name} may be, as integers(0, 9), not {values}")
        self._use(tile)
        name = f"{name or tile.name.lstrip('%')}.number"
        if any(body is self.defined.get(name) for body in self.bodies):
            raise self.fail(f"{name} is there already; call another number by another name")
        low, high = _whole(values.low), _whole(values.high)
        self.emit(n.Uniform(name, tile, (low + high) // 2, high, _likely(values) if listed else ()))
        self.defined[name] = self.bodies[-1]
        return symbol(name)

    def _said_of(self, tensor: Tensor, here: str) -> Values:
        """What the machine says of the values of a tensor, of which addresses and rounds are made."""
        if tensor.access != "in":
            raise self.fail(f"{here} is a number that decides what is done, and the program writes {tensor.name}")
        if tensor.dtype.name not in WHOLE:
            raise self.fail(
                f"{here} is {tensor.dtype}; what decides where windows lie and loops end is s32 or u32, and an element "
                f"that is computed with is loaded, as a tile of extent 1: {tensor.name}.tile(..., shape=(1, ...))"
            )
        declared = next(t for t in self.machine.tensor_declarations() if t.name == tensor.name)
        if declared.values is None or not declared.values.whole:
            raise self.fail(
                f"{here} decides what is done, and nothing says what it may be; declare it with its tensor, as "
                f'{tensor.name} = Input("{tensor.dtype}", ..., values=integers(0, DIM)), or values=ascending(0, DIM)'
            )
        return declared.values

    def _single_load(self, tensor: Tensor, here: str) -> Instruction:
        """The machine's declared load of single elements."""
        for i in self.machine.own_instructions():
            if isinstance(i, Transfer) and (i.reads, i.writes) == (tensor.memory, RMEM) and (
                expr(i.vector).same(1) and tensor.dtype.name in (i.kinds or WHOLE)
            ):
                return i
        raise self.fail(f"{here} needs a load of single elements; declare one, as isa.LdGlobal(1)")

    @verb("p.until")
    def until(self, value: Operand) -> Expr:
        """Where a loop ends whose rounds data decide: no rounds where the value is negative."""
        extent = extent_of(self, value)
        self.untils.add(extent.sympy)
        return extent

    @verb("p.when")
    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """A branch that all threads of the role take together, where a condition over dims, indices and numbers that
        data say holds.
        """
        if not isinstance(condition, Expr) or not isinstance(condition.sympy, sympy.logic.boolalg.Boolean):
            raise self.fail(
                f"p.when takes a condition over dims, indices and loaded numbers, as i < self.n, not {condition}; "
                "between values of tiles p.where chooses"
            )
        begin = "begin it with p.full before p.when, and write into it"
        with self._ending(f"where {condition}, and used where that may not hold; {begin}"), self.nested() as body:
            yield
        self._check_branch(tuple(body))
        self.emit(n.When(condition, tuple(body)))

    def _check_branch(self, body: tuple[n.Statement, ...]) -> None:
        for s in walk(body):
            if isinstance(s, n.FixUp) or (isinstance(s, n.Repeated) and s.divided):
                what = "p.fix_up" if isinstance(s, n.FixUp) else "a divided loop"
                raise self.fail(f"{what} stands inside p.when, and all CTAs that share a tile do it; write it outside")
            if isinstance(s, n.Preceding):
                raise self.fail(f"{s.name} scans over the grid inside p.when, and all CTAs take part; write it outside")
            if isinstance(s, n.Multiply) and s.token is not None:
                raise self.fail(f"{s.name} ({s.instruction}) is under way where p.when ends; multiply outside of it")


def _likely(values: Values) -> tuple[tuple[int, float], ...]:
    """(number, how often it is that one) of listed numbers."""
    numbers = [each for each in values.listed if isinstance(each, int)]
    weights = values.weights or (1.0,) * len(numbers)
    return tuple((number, weight / sum(weights)) for number, weight in zip(numbers, weights, strict=True))


def _whole(end: Bound) -> Expr:
    return end if isinstance(end, Expr) else expr(int(end))


def _typical(values: Values, tensor: Tensor, index: tuple[Expr, ...]) -> Expr:
    """What an element is taken for: the mean; of ascending values, what evenly spaced ones have at its place."""
    low, high = _whole(values.low), _whole(values.high)
    if values.law == "ascending":
        return low + (high - low) * index[-1] // maximum(tensor.size(tensor.rank - 1) - 1, 1)
    return (low + high) // 2
