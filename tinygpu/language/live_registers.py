"""Registers of a thread: those of the tiles that live at once, at the worst place of a program, and beside them."""

from __future__ import annotations

from typing import Any

from tinygpu.expressions import Expr, ceil_div, expr, maximum
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import places

# Registers beside the tiles that a program names, for addresses, counters and predicates: at least 24 in a kernel with
# a loop. The predictor expects 14, and 20 more per buffer of a ring: medians of the assembler's reports on random
# candidates of the shipped machines (`tests/benchmarks/register_estimate.py` prints the error).
LEAST_OVERHEAD = 24
EXPECTED_OVERHEAD, EXPECTED_PER_BUFFER = 14, 20


def registers_estimate(program: Program) -> Expr:
    """Registers per thread that the assembler is expected to give; where roles have budgets, their mean."""
    if all(r.registers for r in program.roles):
        total = warps = expr(0)
        for r in program.roles:
            total, warps = total + r.warps * r.registers, warps + r.warps
        return ceil_div(total, warps)
    rings = _rings(program.body)
    buffers = sum(len(p.buffers) for p in program.pipelines if p.name in rings)
    return live_registers(program.body) + EXPECTED_OVERHEAD + EXPECTED_PER_BUFFER * buffers


def _rings(body: tuple[n.Statement, ...]) -> frozenset[str]:
    """Pipelines that are filled round after round, however many stages they have."""
    return frozenset(
        name
        for place in places(body)
        for inner in place.statement.children
        if inner.produces and (place.loops or isinstance(place.statement, n.Repeated))
        for name in (inner.produces, *inner.along)
    )


def live_registers(body: tuple[n.Statement, ...]) -> Expr:
    """Registers of the tiles that live at once, at the worst place of a body."""
    peaks: dict[frozenset[str], Expr] = {}
    _peaks(body, {}, frozenset(), peaks)
    largest = [sets for sets in peaks if not any(sets < other for other in peaks)]
    totals = [peaks[s] for s in largest if not peaks[s].same(0)]
    return maximum(*_not_below_others(totals)) if totals else expr(0)


def _not_below_others(totals: list[Expr]) -> list[Expr]:
    """Sums of registers without those that have no more of any term than another one."""
    kept: list[tuple[Expr, dict[Any, Any]]] = []
    for total in sorted(totals, key=str):
        terms = dict(total.sympy.as_coefficients_dict())
        if not any(_no_more(terms, other) for _, other in kept):
            kept = [(k, other) for k, other in kept if not _no_more(other, terms)]
            kept.append((total, terms))
    return [total for total, _ in kept]


def _no_more(some: dict[Any, Any], other: dict[Any, Any]) -> bool:
    """Whether a sum, by its terms, has no more of any of them than another, in which nothing is taken away."""
    return all(n >= 0 for n in other.values()) and all(n <= other.get(term, 0) for term, n in some.items())


def _peaks(
    body: tuple[n.Statement, ...],
    outer: dict[str, Expr],
    needed_after: frozenset[str],
    peaks: dict[frozenset[str], Expr],
) -> dict[str, Expr]:
    """Walks a body with the tiles that live before it; returns what lives after it.

    Notes in `peaks` what lives at each statement.
    """
    live = dict(outer)
    used = [_used(s) for s in body]
    after = [needed_after.union(*used[i + 1 :]) for i in range(len(body))]
    for s, later in zip(body, after, strict=True):
        own = {} if s.own_registers.same(0) else {f"own {len(peaks)}": s.own_registers}
        if s.children:
            # what a block takes is kept elsewhere before what it makes takes its place
            made = _register_tiles(s.writes)
            taken = {t.name for t in s.reads} - later
            live = {k: v for k, v in live.items() if k not in taken} | made
            if made or own:
                _note(live | own, peaks)
            # what lives before a loop and is used in it is needed in its next round; what the loop makes is made again
            needed = later | (_used(s) & live.keys() if isinstance(s, n.Repeated) else frozenset())
            held = _fragments_of_a_round(s) if isinstance(s, n.Repeated) and s.written_out else {}
            for i, inner in enumerate(s.children):
                behind = needed.union(*[_used(o) for other in s.children[i + 1 :] for o in other.statements])
                if inner.ahead:  # copies end behind the other bodies, and hold their registers until then
                    _peaks(tuple(o for o in inner.statements if o.own_registers.same(0)), live, behind, peaks)
                    held = held | _own_registers(inner)
                else:
                    after_it = _peaks(inner.statements, live | held, behind, peaks)
                    live = {k: v for k, v in after_it.items() if k in live or k not in held}
        else:
            operands, made = _used(s), _register_tiles(s.writes)
            if not _takes_place(s, later):
                live |= made
            _note(live | own, peaks)
            live = {k: v for k, v in (made | live).items() if k in later or k not in operands}
    return {k: v for k, v in live.items() if k in needed_after or k in outer}


def _fragments_of_a_round(s: n.Repeated) -> dict[str, Expr]:
    """Operands of asynchronous products in registers: those of all steps of an unrolled loop are held until it ends."""
    return {
        f"fragments {i} of {s.index}": tile_registers(m.a) * (s.trips - 1)
        for inner in s.children
        for i, m in enumerate(inner.statements)
        if isinstance(m, n.Multiply) and m.token is not None and m.a.memory is RMEM
    }


def _own_registers(ahead: n.Body) -> dict[str, Expr]:
    """Registers that the statements of a body take by themselves, each beside the others."""
    taken = enumerate(s.own_registers for s in ahead.statements)
    return {f"copy {i} into {ahead.produces}": size for i, size in taken if not size.same(0)}


def _register_tiles(tiles: tuple[Tile, ...]) -> dict[str, Expr]:
    return {t.name: tile_registers(t) for t in tiles if t.memory is RMEM}


def _takes_place(s: n.Statement, later: frozenset[str]) -> bool:
    """A result takes the registers of an operand that is not needed any more: all, or of a narrower type some."""
    return s.in_place and any(
        t.name not in later
        and t.partition is not None
        and made.partition is not None
        and t.dtype.bits >= made.dtype.bits
        and t.partition.value_count.same(made.partition.value_count)
        for t in s.reads
        for made in s.writes
    )


def _note(live: dict[str, Expr], peaks: dict[frozenset[str], Expr]) -> None:
    total = expr(0)
    for amount in live.values():
        total = total + amount
    peaks[frozenset(live)] = total


def _used(s: n.Statement) -> frozenset[str]:
    """Names of the register tiles that a statement reads."""
    own = (t.name for t in (*s.reads, *(s.writes if s.in_place else ())) if t.memory is RMEM)
    return frozenset(own).union(*[_used(i) for inner in s.children for i in inner.statements])


def tile_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of a register tile."""
    if tile.memory is not RMEM or tile.partition is None:
        return expr(0)
    return ceil_div(tile.partition.value_count * tile.dtype.bits, 32)
