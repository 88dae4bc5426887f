"""Tensor operations that a problem asks for: those of its elements, not of what tiles and rounds have beyond them.

Every product counts what its instruction multiplies, so often as its loops go round and for all tiles; where these are
rounded up, the elements stand for them that were. Rounds that data or the place of a tile decide are those that
predictions take (`Program.rounds_of`).
"""

from __future__ import annotations

from typing import Any

import sympy

from tinygpu.cost.operations import sum_of
from tinygpu.expressions import Expr, FloorDiv, expr, rounded_up
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.statement import Repeated
from tinygpu.program.tree import Place, places


def useful_flops(program: Program) -> Expr:
    """Of one launch; of roles that take turns at tiles, one does each."""
    shares = {role.name: role.share[0] for role in program.roles}
    found = [p for p in places(program.body) if isinstance(p.statement, n.Multiply) and not shares.get(p.role, 0)]
    return sum_of(_of_product(program, place, place.statement) for place in found)


def _of_product(program: Program, place: Place, s: Any) -> Expr:
    flops: Expr = 2 * s.accumulator.shape[0] * s.accumulator.shape[1] * s.a.shape[1]
    for axis in program.grid.axes:
        flops = flops * axis.size // axis.extent
    for loop in place.loops:
        elements, step = _elements(program, loop)
        flops = flops * elements // step
    return flops


def _elements(program: Program, loop: Repeated) -> tuple[Expr, Expr]:
    """Of all rounds, and of one."""
    if loop.trips.symbols & program.indices:
        return program.rounds_of(loop), expr(1)
    elements, step = _fraction(loop.trips.sympy)
    shared = program.grid.scheduler
    slices = shared.slices if loop.divided and not shared.deals_rounds else expr(1)
    return Expr(elements) * slices, Expr(step)


def _fraction(rounds: Any) -> tuple[Any, Any]:
    """A number of rounds as a fraction of what it is rounded up from."""
    if isinstance(rounds, FloorDiv) and (up := rounded_up(rounds)) is not None:
        above, below = _fraction(up)
        return above, below * rounds.args[1]
    if isinstance(rounds, sympy.Add) and len(rounds.args) == 2 and rounds.args[0].is_Integer:
        above, below = _fraction(rounds.args[1])
        return above + rounds.args[0] * below, below
    if isinstance(rounds, sympy.Mul):
        parts = [_fraction(part) for part in rounds.args]
        return sympy.Mul(*(above for above, _ in parts)), sympy.Mul(*(below for _, below in parts))
    return rounds, sympy.Integer(1)


__all__ = ["useful_flops"]
