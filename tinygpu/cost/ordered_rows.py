"""Rows that values name in order: neighbours name neighbouring rows, and a warp touches as many pieces as those have.

Numbers that an input lists sorted are in order, and so is what a scan adds up, as the places of what is kept: how many
rows lie between two neighbours is known on average, or at most. Of other values it is not (`drawn_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinygpu.expressions import Expr, expr, maximum
from tinygpu.language.tile import Tile
from tinygpu.language.values import Bound
from tinygpu.layouts.leaf import leaf
from tinygpu.program import nodes as n
from tinygpu.program.access import Access, tensor_pitches
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# (rows, elements): so many rows from one value to the one that stands so many elements behind it.
Rate = tuple[Expr, Expr]
_SIDE_BY_SIDE: Rate = (expr(1), expr(1))


def in_order(program: Program, access: Access) -> Access | None:
    """The access with its rows as near to each other, to the nearest bit, as the values that name them; None where
    nobody knows.
    """
    pick, rate = access.tile.pick, named_in_order(program, access.tile)
    if pick is None or rate is None:
        return None
    rows, elements = rate
    bits = (2 * expr(tensor_pitches(access.tile)[pick.home]) * rows + elements) // (2 * elements)
    return replace(access, rows_apart=leaf(bits, "rows in order"))


def named_in_order(program: Program, tile: Tile) -> Rate | None:
    """How far apart the rows of neighbouring elements lie; None where no values name rows, or in no known order."""
    return None if tile.pick is None or len(tile.pick.along) != 1 else _rate(program, tile.pick.by)


def _rate(program: Program, value: Tile) -> Rate | None:
    """How fast values rise along the one axis of a tile; None where it is not known."""
    match _made(program, value):
        case n.Index():
            return _SIDE_BY_SIDE
        case n.Load(source=source):
            return _listed(source)
        case n.Scan(sources=(source,), results=(result,), merge=merge) if result.name == value.name:
            adds = merge.plain is not None and merge.plain.sign == "+"
            return _SIDE_BY_SIDE if adds and _is_zero_or_one(program, source) else None
        case n.Apply(instruction=instruction, operands=(_, *chosen)) if instruction.sign == "where":
            return _of_one(program, chosen)  # who has the other's number, in place of a row, takes no part
        case n.Apply(instruction=instruction, operands=(first, *_) as operands) if instruction.sign in ("+", "-"):
            return _of_one(program, operands if instruction.sign == "+" else (first,))
        case _:
            return None


def _of_one(program: Program, operands: Sequence[object]) -> Rate | None:
    """The rate of the one operand that is no number."""
    varying = [o for o in operands if isinstance(o, Tile) and _number(program, o) is None]
    return _rate(program, varying[0]) if len(varying) == 1 else None


def _listed(source: Tile) -> Rate | None:
    """Of a window of a tensor whose numbers are sorted along its last axis."""
    tensor = source.tensor
    if tensor is None or tensor.values is None or tensor.values.law != "ascending" or source.pick is not None:
        return None
    last = tensor.rank - 1
    if source.axes != (last,) or not expr(source.every[0]).same(1):
        return None
    return _bound(tensor.values.high) - _bound(tensor.values.low), maximum(tensor.size(last) - 1, 1)


def _bound(end: Bound) -> Expr:
    return end if isinstance(end, Expr) else expr(int(end))


def _is_zero_or_one(program: Program, value: Tile) -> bool:
    """Whether one of the two is chosen for every element."""
    match _made(program, value):
        case n.Apply(instruction=instruction, operands=(_, *chosen)) if instruction.sign == "where":
            return {_number(program, o) for o in chosen} == {0.0, 1.0}
        case _:
            return False


def _number(program: Program, operand: object) -> float | None:
    """The number that an operand is throughout; None where it is none."""
    if isinstance(operand, Tile):
        made = _made(program, operand)
        return _number(program, made.value) if isinstance(made, n.Constant) else None
    return float(operand) if isinstance(operand, (int, float)) else None


def _made(program: Program, value: Tile) -> n.Statement | None:
    """The one statement that writes a value in registers; None where there are several."""
    made = [s for s in walk(program.body) if not s.children and value.name in {t.name for t in s.writes}]
    return made[0] if len(made) == 1 else None


__all__ = ["in_order", "named_in_order"]
