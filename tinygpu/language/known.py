"""Checks of what a program names: what a kernel is made for are numbers, and what it computes it has and can compute.

Dims, leading dimensions and indices are known at launch only. Parameters are numbers by then, so that the sizes of
tiles, roles and buffers may name parameters and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, FloorDiv, Remainder, evaluate, expr, symbol
from tinygpu.language.declared import Declared
from tinygpu.language.instruction import MatrixMove, Transfer
from tinygpu.language.memories import RMEM
from tinygpu.language.parameters import DeclarationError
from tinygpu.language.tile import Tile
from tinygpu.layouts.step import Step
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import Place, places

# What a kernel computes in 32 bits, beside sums and products.
COMPUTED = (FloorDiv, Remainder, sympy.Min, sympy.Max)
COMPARED = (sympy.Eq, sympy.Ne, sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
WHAT = "a kernel computes with + - * // %, minimum and maximum of dims, leading dimensions and indices"
# Combinations of parameters that are tried where it depends on them whether an offset is a sum of multiples.
TRIED = 4096


def check_known(machine: type[Declared], program: Program) -> tuple[Constraint, ...]:
    """What has to hold of sizes and windows, where parameters decide it.

    Raises DeclarationError for a size that is no number when a kernel is written, and for what no kernel computes.
    """
    known = _Known(machine, program)
    known.check()
    return tuple(known.conditions)


class _Known:
    def __init__(self, machine: type[Declared], program: Program) -> None:
        self.program = program
        self.params = {p.name: p.values for p in machine.params()}
        self.dims = set(machine.dim_names())
        self.facts = {f"{t.name}.ld" for t in program.tensors if t.rank == 2}
        self.conditions: list[Constraint] = []
        self.always = {*self.params, *self.dims, *self.facts, n.PART, *(a.index for a in program.grid.axes)}

    def check(self) -> None:
        for what, sizes in self._declared():
            self._numbers(what, sizes)
            if not what.startswith("the first warp"):
                self._positive(what, sizes)
        said = dict(_said(self.program.body, frozenset()))
        for place in places(self.program.body):
            s = place.statement
            known = self.always | {loop.index for loop in place.loops} | said[id(s)]
            if isinstance(s, n.Repeated):
                self._rounds(s, known)
            if s.taken_where is not None:
                self._decided("the condition of p.when", s.taken_where, known)
            if isinstance(s, n.Apply):
                for operand in s.operands:
                    if isinstance(operand, Expr):
                        self._computed(f"an operand of {s.name}", operand, known)
            for tile in dict.fromkeys((*s.reads, *s.writes)) if not s.children else ():
                self._tile(s, tile, known, place)

    def _declared(self) -> Iterator[tuple[str, Iterable[Any]]]:
        """(what, sizes) of everything that is declared once."""
        grid = self.program.grid
        for axis in grid.axes:
            of_params = axis.size.symbols <= set(self.params)
            if not (of_params or any(axis.size.same(symbol(dim)) for dim in self.dims)):
                raise self._error(
                    f"p.grid runs over {axis.size}; each of its axes runs over a Dim of the machine, or over what "
                    "numbers and parameters make"
                )
            if of_params:
                yield "an axis of the grid", (axis.size,)
            if not axis.groups.same(1):
                self._grouped(axis)
            yield f"a tile along {axis.size}", (axis.extent,)
            yield f"the cluster along {axis.size}", (axis.cluster,)
        yield "the rasterisation of the grid", (grid.raster,)
        yield "the slices of a tile", (grid.scheduler.slices,)
        for role in self.program.roles:
            yield f"role {role.name}", (role.warps,)
            yield f"the first warp of role {role.name}", (role.first,)
        for pipeline in self.program.pipelines:
            yield f"the stages of {pipeline.name!r}", (pipeline.stages,)
            for b in pipeline.buffers:
                swizzle = () if b.swizzle_bytes is None else (b.swizzle_bytes,)
                self._numbers(f"the buffer {b.name}", (b.pad,))
                yield f"the buffer {b.name}", (*b.shape, *swizzle)

    def _grouped(self, axis: n.Axis) -> None:
        """Groups along an axis of the grid are counted at launch, and their tiles are no clusters."""
        groups = axis.groups
        if not (groups.is_number or any(groups.same(symbol(dim)) for dim in self.dims)):
            number = "that is a Dim of the machine, or a number"
            raise self._error(f"p.grid has {groups} groups along {axis.size}; {number}")
        if not axis.cluster.same(1):
            raise self._error(
                f"p.grid has clusters of {axis.cluster} along {axis.size}, whose tiles belong to {groups} groups; form "
                "them along another axis"
            )

    def _numbers(self, what: str, sizes: Iterable[Any]) -> None:
        """Sizes name parameters alone."""
        for size in sizes:
            late = sorted(expr(size).symbols - self.params.keys())
            if late:
                raise self._error(
                    f"{size} is a size of {what}, and {late[0]} is known at launch only; give it in numbers and "
                    "parameters"
                )

    def _positive(self, what: str, sizes: Iterable[Any]) -> None:
        """Sizes are 1 or more, where a parameter may be 0. Quotients that vanish cover no tile, and are refused so."""
        for size in sizes:
            named = expr(size).symbols & self.params.keys()
            if named and all(0 not in self.params[name] for name in named):
                continue
            self._holds(f"size of {what}", expr(size) >= 1, f"{what} has sizes of 1 or more, and one is {size}")

    def _holds(self, name: str, condition: Expr, sentence: str) -> None:
        """A constraint, where values of the parameters can break it; an error, where nothing else is possible."""
        if condition.same(True):
            return
        if condition.same(False):
            raise self._error(sentence)
        named = sorted(condition.symbols)
        tried = math.prod(len(self.params.get(name, ())) for name in named)
        if 0 < tried <= TRIED:
            chosen = product(*[self.params[name] for name in named])
            if all(evaluate(condition, dict(zip(named, values, strict=True))) for values in chosen):
                return
        self.conditions.append(Constraint(name, condition, sentence, source="program", judge="emulator"))

    def _inside(self, tile: Tile, place: Place) -> None:
        """A window of a buffer lies within it, in every round of the loops around it."""
        buffer = tile.buffer
        if buffer is None or (all(o.same(0) for o in tile.offset) and all(map(Expr.same, tile.shape, buffer.shape))):
            return
        last = {loop.index: loop.trips - 1 for loop in place.loops}
        said = sorted({name for o in tile.offset for name in o.symbols} & self.program.said_by_data)
        if said:
            raise self._error(
                f"a window of {tile.name} begins where data say, {said[0]}; of a buffer, rows that values name are "
                "SLOT.NAME.rows(values), and windows begin at sums of multiples of indices"
            )
        for axis, (offset, extent, size) in enumerate(zip(tile.offset, tile.shape, buffer.shape, strict=True)):
            most, least = offset.sympy, offset.sympy
            for index, end in last.items():
                step = sympy.expand(offset.sympy).coeff(symbol(index).sympy)
                down = step.could_extract_minus_sign()
                most = most.subs(symbol(index).sympy, 0 if down else end.sympy)
                least = least.subs(symbol(index).sympy, end.sympy if down else 0)
            if tile.pick is not None and axis == tile.pick.home:
                continue  # what is not there is left out
            sentence = f"the windows of {tile.name} along axis {axis}, {extent} from {offset} on, lie within its {size}"
            name = f"windows of {tile.name} along axis {axis}"
            self._holds(name, (Expr(most) + extent <= size) & (Expr(least) >= 0), sentence)

    def _rounds(self, s: n.Repeated, known: set[str]) -> None:
        if s.written_out:
            self._numbers("a loop that is written out", (s.trips,))
        self._computed("the trip count of a loop", s.trips, known)
        self._computed("the first round of a loop", s.first, known)

    def _tile(self, s: n.Statement, tile: Tile, known: set[str], place: Place) -> None:
        self._numbers(f"the tile of {tile}", tile.shape)
        if tile.partition is not None:
            digits = [leaf for size, step in tile.partition.layout.steps for leaf in (size, *_counts(step))]
            self._numbers(f"who holds %{tile.name}", (*tile.partition.shape, *digits))
        if tile.memory is RMEM:
            return
        self._positive(f"a window of {tile.name}", tile.shape)
        by_threads = any(isinstance(i, Transfer | MatrixMove) for i in s.instructions)
        for i in s.instructions:
            if isinstance(i, Transfer):
                self._numbers(f"a vector of {i}", (i.vector,))
        for _, end in tile.ends:
            self._computed(f"the end of a segment of {tile.name}", end, known)
        tile = tile.finest
        self._numbers(f"the step of {tile}", tile.steps)
        self._positive(f"the step of a window of {tile.name}", tile.steps)
        for offset in (*tile.offset, *(at for _, at in tile.fixed)):
            self._computed(f"the offset of a window of {tile.name}", offset, known)
            if isinstance(s, n.Multiply):
                late = sorted(offset.symbols - self.params.keys() - self._written_out(place))
                if late:
                    raise self._error(
                        f"the window of {tile.name} moves with {late[0]} at run time, and {s.name} multiplies windows "
                        "that stand still or move in p.unroll"
                    )
            elif by_threads:
                self._sum(tile, offset)
        if by_threads or isinstance(s, n.Multiply):
            self._inside(tile, place)

    def _written_out(self, place: Place) -> set[str]:
        return {loop.index for loop in place.loops if loop.written_out}

    def _computed(self, what: str, e: Expr, known: set[str]) -> None:
        """A kernel has what an expression names, and computes what is done with it."""
        late = sorted(e.symbols - known)
        if late:
            raise self._error(f"{what} is {e}, and a kernel does not know {late[0]} there; {WHAT}")
        if not self._can(e.sympy):
            raise self._error(f"{what} is {e}; {WHAT}")

    def _decided(self, what: str, e: Expr, known: set[str]) -> None:
        """A kernel has what a condition compares, and computes it."""
        waiting, sides = [e.sympy], list[Any]()
        while waiting:
            node = waiting.pop()
            if isinstance(node, sympy.And | sympy.Or | sympy.Not):
                waiting += node.args
            elif isinstance(node, COMPARED):
                sides += node.args
            elif node not in (sympy.true, sympy.false):
                raise self._error(f"{what} is {e}; it compares numbers, and joins what it compares by & | ~")
        for side in sides:
            self._computed(what, Expr(side), known)

    def _can(self, node: Any) -> bool:
        if {s.name for s in node.free_symbols} <= self.params.keys() or node.is_Symbol:
            return True
        if isinstance(node, sympy.Piecewise):  # one of its branches, when parameters are numbers
            return all(
                {s.name for s in condition.free_symbols} <= self.params.keys() and self._can(value)
                for value, condition in node.args
            )
        if node.is_Pow:
            return bool(node.exp.is_Integer and node.exp > 0) and self._can(node.base)
        return (node.is_Add or node.is_Mul or isinstance(node, COMPUTED)) and all(map(self._can, node.args))

    def _sum(self, tile: Tile, offset: Expr) -> None:
        """Threads address sums of multiples of indices and dims, whatever the parameters are."""
        if self._is_sum(sympy.expand(offset.sympy)):
            return
        named = sorted(offset.symbols & self.params.keys())
        tried = math.prod(len(self.params[name]) for name in named)
        values = product(*[self.params[name] for name in named]) if tried <= TRIED else [()]
        for chosen in values:
            table = {symbol(name).sympy: sympy.Integer(v) for name, v in zip(named, chosen, strict=False)}
            try:
                known = offset.sympy.xreplace(table)
            except ZeroDivisionError:  # no candidate has these values
                continue
            if not self._is_sum(known):
                with_them = ", ".join(f"{name}={v}" for name, v in zip(named, chosen, strict=False))
                where = f", with {with_them}" if with_them else ""
                instead = "; instead of at maximum(x, 0) begin at x: what lies before a tensor is filled"
                raise self._error(
                    f"a window of {tile.name} begins at {offset}{where}; windows that threads move begin at sums of "
                    "multiples of indices, dims, and quotients and remainders of these"
                    + instead * offset.sympy.has(sympy.Max)
                )

    def _is_sum(self, node: Any) -> bool:
        for term in sympy.Add.make_args(node):
            late = [f for f in sympy.Mul.make_args(term) if not {s.name for s in f.free_symbols} <= self.params.keys()]
            if len(late) > 1 or (late and not (late[0].is_Symbol or isinstance(late[0], FloorDiv | Remainder))):
                return False
        return True

    def _error(self, sentence: str) -> DeclarationError:
        return DeclarationError(f"{self.program.machine}.program: {sentence}")


def _said(
    body: tuple[n.Statement, ...], known: frozenset[str]
) -> Iterator[tuple[int, frozenset[str]]]:
    """(identity of a statement, the numbers that data have said before it, in its body or around it)."""
    for s in body:
        yield id(s), known
        for inner in s.children:
            yield from _said(inner.statements, known)
        known |= s.defines.keys()


def _counts(step: object) -> tuple[Any, ...]:
    return tuple(count for _, count in step.terms) if isinstance(step, Step) else ()
