"""The verbs that compute on tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.instruction import (
    Elementwise,
    MatrixMultiply,
    Tiled,
    tiled,
)
from tinygpu.language.memories import RMEM
from tinygpu.language.operators import OfNumbers
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.roles import Token
from tinygpu.language.tile import Tile
from tinygpu.language.tracing.matrix_checks import MatrixChecks
from tinygpu.language.tracing.operand_checks import extents_of
from tinygpu.language.verb import verb
from tinygpu.program import nodes as n


@dataclass(slots=True, eq=False)
class Computing(MatrixChecks):
    """What is made of tiles in registers, or in memories that a matrix instruction reads."""

    @verb("p.full")
    def full(
        self, partition: Partition, dtype_of: str | DType, value: n.ScalarArgument | Expr | float = 0.0
    ) -> Tile:
        """A register tile that holds one number everywhere; it can be accumulated into.

        value  a number; a scalar of the machine, a dim or an expression over dims, of the type f32, s32 or u32
        """
        kind = dtype(dtype_of)
        self._fits_role("the constant", partition)
        if isinstance(value, n.ScalarArgument) and value.dtype != kind:
            raise self.fail(f"the constant is {kind}, and the scalar {value} is {value.dtype}")
        if isinstance(value, Expr) and kind.name not in ("f32", "s32", "u32"):
            raise self.fail(f"the constant is {kind}; the number {value} can be f32, s32 or u32")
        if isinstance(value, OfNumbers):
            made = self._worked_out(value, partition)
            if made.dtype != kind:
                raise self.fail(f"the constant is {kind}, and {value} is {made.dtype}")
            return made
        if not isinstance(value, (n.ScalarArgument, Expr)):
            self._number_in("the constant", value, kind)
        result = self._value(kind, partition, "a constant")
        self.emit(n.Constant(result, value))
        return result

    @verb("p.apply")
    def apply(
        self, instruction: Elementwise, *operands: Tile | n.ScalarArgument | Expr | float, into: Tile | None = None
    ) -> Tile:
        """One element-wise instruction, value by value; `into` an existing tile (an accumulator) or a new one.

        operands  tiles; scalars of the machine; numbers; dims, or expressions over dims, in the operand's type
        """
        name = self._instruction(instruction, (Elementwise,), "apply")
        operands = self._beside_a_tile(operands, into)
        takes, gives = instruction.elements()
        if len(operands) != len(takes):
            raise self.fail(f"{name} takes {len(takes)} operand{'s' * (len(takes) > 1)}, not {len(operands)}")
        if into is not None:
            self._written(into)
        widest: Tile | None = None
        for operand, want in zip(operands, takes, strict=True):
            if isinstance(operand, Tile):
                if into is None or operand.name != into.name:
                    self._use(operand)
                if operand.partition is None:
                    raise self.fail(f"{name} computes on registers, and {operand.name} lies in {operand.memory}")
                if operand.dtype.name != want:
                    raise self.fail(
                        f"{name} takes {want} here, and {operand.name} is {operand.dtype}; convert it first"
                    )
                widest = operand if widest is None else _wider(widest, operand)
            elif isinstance(operand, n.ScalarArgument) and operand.dtype.name != want:
                raise self.fail(f"{name} takes {want} here, and the scalar {operand.name} is {operand.dtype}")
            elif isinstance(operand, bool) or not isinstance(operand, (n.ScalarArgument, Expr, int, float)):
                raise self.fail(f"{name} takes tiles, scalars, dims and numbers, not {operand!r}")
            elif isinstance(operand, Expr) and want not in ("f32", "s32", "u32"):
                raise self.fail(f"{name} takes {want} here; the number {operand} can be f32, s32 or u32")
            elif isinstance(operand, (int, float)):
                self._number_in(f"an operand of {name}", operand, dtype(want))
        if widest is None or widest.partition is None:
            raise self.fail(f"{name} has no tile among its operands")
        partition = _whole(widest.partition, [o.partition for o in operands if isinstance(o, Tile)])
        widest = replace(widest, shape=partition.shape, partition=partition)
        if into is not None and into.partition is not None:
            widest = into
        self._broadcasts(name, operands, widest)
        if into is None:
            result = self._value(dtype(gives), partition, f"the result of {name}")
        else:
            if into.partition is None or into.dtype.name != gives:
                raise self.fail(f"{name} gives {gives}, and {into.name} is {into.dtype} in {into.memory}")
            result = into
        if instruction.at_once > 1 and result.partition is not None:
            whole = result.partition.value_count % instruction.at_once == 0
            sentence = f"a thread holds whole registers of the {instruction.at_once} values that {name} makes at once"
            self.require((Condition(f"registers of {instruction.label}", whole, sentence),))
        self._acts(name, instruction)
        self.emit(n.Apply(name, instruction, operands, result))
        return result

    def _beside_a_tile(self, operands: tuple[Any, ...], into: Tile | None = None) -> tuple[Any, ...]:
        """The operands, of which those that are made of numbers given at launch are worked out once per thread."""
        met = next((o.partition for o in (*operands, into) if isinstance(o, Tile) and o.partition is not None), None)
        if met is None:
            return operands
        who = met.along()
        return tuple(self._worked_out(o, who) if isinstance(o, OfNumbers) else o for o in operands)

    def _worked_out(self, number: OfNumbers, who: Partition) -> Tile:
        """A number that is made of others, as a tile, by the instructions that operators stand for."""

        def made(operand: Any) -> Any:
            if isinstance(operand, OfNumbers):
                return self._worked_out(operand, who)
            if isinstance(operand, n.ScalarArgument):
                return self.full(who, operand.dtype, operand)
            return self.full(who, "f32", operand) if isinstance(operand, Expr) and not number.scalars else operand

        found: Tile = number.make(*map(made, number.operands))
        return found

    @verb("p.multiply")
    def multiply(
        self,
        instruction: MatrixMultiply,
        accumulator: Tile,
        a: Tile,
        b: Tile,
        scales: tuple[Tile, Tile] | None = None,
        at: Operand = 0,
        column: Operand = 0,
    ) -> Token | None:
        """accumulator += a @ b, on fragments in registers or on tiles where the instruction takes them.

        scales  of blocks of the rows of a and of the columns of b along k, held as p.tiled(..., depth=...) says
        at      how far along k of what the scales are of a and b begin, in elements
        column  how far along n of what they are of b begins, where they lie in TMEM: a multiple of 32
        """
        name = self._instruction(instruction, (MatrixMultiply,), "multiply")
        if not (scales is None or (isinstance(scales, tuple) and len(scales) == 2)):
            raise self.fail(f"{name} takes scales=(of a, of b), two tiles in registers, not {scales!r}")
        for operand in (a, b, *(scales or ())):
            self._use(operand)
        self._written(accumulator)
        try:
            want = instruction.accumulator(a.dtype, b.dtype)
        except TypeError as error:
            raise self.fail(f"{name}: {error}") from None
        if accumulator.dtype != want:
            raise self.fail(f"{name} on {a.dtype} x {b.dtype} accumulates in {want}, not in {accumulator.dtype}")
        parts = zip((a, b, accumulator), instruction.places, ("a", "b", "its accumulator"), strict=True)
        for tile, place, what in parts:
            if tile.memory is not place:
                raise self.fail(
                    f"{name} ({instruction}) has {what} in {place}, but {tile.name} lies in {tile.memory}: "
                    f"an instruction from {tile.memory} to {place} is missing"
                )
        columns = accumulator.shape[1] // instruction.ctas
        if not (a.shape[1].same(b.shape[0]) and a.shape[0].same(accumulator.shape[0]) and columns.same(b.shape[1])):
            shared = f" shared by {instruction.ctas} CTAs" if instruction.ctas > 1 else ""
            made = extents_of(accumulator)
            raise self.fail(f"{name} multiplies {extents_of(a)} by {extents_of(b)}{shared} into {made}")
        self._in_slot(name, a, writing=False)
        self._in_slot(name, b, writing=False)
        self._in_slot(name, accumulator, writing=True)
        self._acts(name, instruction)
        self.constraints.extend(instruction.type_rules(a.dtype, b.dtype))
        self.constraints.extend(instruction.operand_rules(a, b))
        self._fragments_fit(name, instruction, (a, b, accumulator))
        self._path_fits(name, instruction, accumulator)
        self._left_fits(name, instruction, a)
        self._scales_fit(name, instruction, (a, b), scales, expr(at))
        self._column_fits(name, instruction, expr(column), bool(scales))
        if instruction.places != (RMEM, RMEM, RMEM):
            self._whole_instructions(instruction, a, b, accumulator)
            self._begins_at_instructions(instruction, a, 1)
            self._begins_at_instructions(instruction, b, 0)
        if instruction.ctas > 1:
            self._by_neighbours(name, instruction, a, b, accumulator)
        if instruction.scope == "warpgroup":
            self._by_warpgroups(name, instruction, a, b, accumulator)
        token = self._token(accumulator, instruction.completion)
        self.emit(n.Multiply(name, instruction, a, b, accumulator, token, scales or (), expr(at), expr(column)))
        return token

    @verb("p.tiled")
    def tiled(
        self,
        instruction: MatrixMultiply,
        a: str | DType,
        b: str | DType,
        shape: tuple[Operand, Operand],
        warps: tuple[Operand, Operand],
        depth: Operand | None = None,
    ) -> Tiled:
        """Partitions of a, b and c when the warps repeat a matrix instruction over an m x n tile.

        depth  elements along k of which a thread holds scales, where the instruction takes such: `.scales` is then the
               partitions of those of a, (m, blocks), and of b, (blocks, n)
        """
        self._instruction(instruction, (MatrixMultiply,), "tiled")
        made = tiled(instruction, dtype(a), dtype(b), shape, warps, depth)
        self.require((*made.c.conditions, *(c for who in made.scales[:1] for c in who.conditions)))
        return made


def _whole(widest: Partition, parts: list[Partition | None]) -> Partition:
    """The partition of what is made of some tiles: the widest, or the one of which those that cross it are parts."""
    held = [part for part in parts if part is not None and len(part.shape) == len(widest.shape)]
    crossing = any(a.same(1) and not b.same(1) for part in held for a, b in zip(widest.shape, part.shape, strict=True))
    return (held[0].whole_of(held[1:]) if crossing else None) or widest


def _wider(a: Tile, b: Tile) -> Tile:
    ones_a = sum(s.same(1) for s in a.shape)
    ones_b = sum(s.same(1) for s in b.shape)
    return b if ones_b < ones_a else a
