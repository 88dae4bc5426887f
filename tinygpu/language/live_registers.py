"""Registers of a thread: those of the tiles that live at once, at the worst place of a program, and beside them.

Products that are under way read their left operand out of registers until they are waited for
(`tinygpu.program.groups`). Where it is a tile of threads that nobody writes meanwhile, given on by a relayout that
moves nothing, these are that tile's own; else they are copies.

Fragments that a product of a warp takes from shared memory are loaded as it goes (`tinygpu.program.fragments`): of the
two operands the smaller one is held, and of the other one what is multiplied and what the next instruction loads.

Positions, and what is computed of positions and numbers alone, are no tiles in registers: each value is the thread's
own part and a constant, and is computed where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from tinygpu.expressions import Expr, ceil_div, expr, maximum, minimum
from tinygpu.language.memories import GMEM, RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.fragments import fed
from tinygpu.program.groups import Groups, groups
from tinygpu.program.prefetched import steps
from tinygpu.program.products import products
from tinygpu.program.program import Program
from tinygpu.program.together import asks_ahead
from tinygpu.program.tree import places, walk

# Registers beside the tiles that a program names, for addresses, counters and predicates: at least 24 in a kernel with
# a loop. The predictor expects 14, and 20 more per buffer of a ring: medians of the assembler's reports on random
# candidates of the shipped machines (`tests/benchmarks/register_estimate.py` prints the error).
LEAST_OVERHEAD = 24
EXPECTED_OVERHEAD, EXPECTED_PER_BUFFER = 14, 20
TWO_LOADS = 8  # registers that two loads of matrices fill, at most


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
    found = _Peaks(body)
    found.walk(body, {}, frozenset())
    peaks = found.peaks
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


class _Peaks:
    """What lives at each statement of a body: sets of tiles, with their registers."""

    def __init__(self, body: tuple[n.Statement, ...]) -> None:
        self.peaks: dict[frozenset[str], Expr] = {}
        self.groups: Groups = groups(body)
        self.held = _left_operands(body, self.groups)
        self.computed_where_used = _of_positions(body)
        self.fragments = fragments_as_products_go(body)

    def walk(
        self, body: tuple[n.Statement, ...], outer: dict[str, Expr], needed_after: frozenset[str]
    ) -> dict[str, Expr]:
        """Walks a body with the tiles that live before it; returns what lives after it."""
        live = dict(outer)
        for s, later in zip(body, _needed(body, needed_after), strict=True):
            own = {} if s.own_registers.same(0) else {f"own {len(self.peaks)}": s.own_registers}
            if s.children:
                # what a block takes is kept elsewhere before what it makes takes its place
                made = self.made(s)
                taken = {t.name for t in s.reads} - later
                live = {k: v for k, v in live.items() if k not in taken} | made
                if made or own:
                    self.note(s, live | own)
                # what lives before a loop and is used in it is needed in its next round; what the loop makes is made
                # again
                needed = later | (_used(s) & live.keys() if isinstance(s, n.Repeated) else frozenset())
                held = self.fragments_of_a_round(s) if isinstance(s, n.Repeated) and s.written_out else {}
                held = held | _loaded_ahead(s) | self.prefetched(s)
                for i, inner in enumerate(s.children):
                    behind = needed.union(*[_used(o) for other in s.children[i + 1 :] for o in other.statements])
                    if inner.ahead:  # copies end behind the other bodies, and hold their registers until then
                        self.walk(tuple(o for o in inner.statements if o.own_registers.same(0)), live, behind)
                        held = held | _own_registers(inner)
                    else:
                        after_it = self.walk(inner.statements, live | held, behind)
                        live = {k: v for k, v in after_it.items() if k in live or k not in held}
            else:
                operands, made = _used(s), self.made(s)
                if not _takes_place(s, later):
                    live |= made
                self.note(s, live | own)
                live = {k: v for k, v in (made | live).items() if k in later or k not in operands}
        return {k: v for k, v in live.items() if k in needed_after or k in outer}

    def note(self, s: n.Statement, live: dict[str, Expr]) -> None:
        """Notes what lives at a statement, beside what products that are under way read."""
        for block in self.groups.flying.get(s, ()):
            live = live | self.held[block].while_under_way
        total = expr(0)
        for amount in live.values():
            total = total + amount
        self.peaks[frozenset(live)] = total

    def made(self, s: n.Statement) -> dict[str, Expr]:
        """The registers of what a statement makes; none of what stays in those of another tile."""
        if isinstance(s, n.Relayout) and any(s.result.name in of.in_place for of in self.held.values()):
            return {}
        made = {name: self.fragments.get(name, size) for name, size in _register_tiles(s.writes).items()}
        return {name: expr(1) if name in self.computed_where_used else size for name, size in made.items()}

    def prefetched(self, s: n.Statement) -> dict[str, Expr]:
        """Registers of what the next round begins with, and of all that the last step of this one takes: it is loaded
        before the threads meet, and not as products go.
        """
        if not isinstance(s, n.Pipelined) or s.prefetch.same(0):
            return {}
        sizes = {t.name: tile_registers(t) for t in steps(s).tiles}
        return {
            f"{name} of the next round": s.prefetch * (2 * size - self.fragments.get(name, size))
            for name, size in sizes.items()
        }

    def fragments_of_a_round(self, s: n.Repeated) -> dict[str, Expr]:
        """Operands of asynchronous products in registers: those of all steps of an unrolled loop are held until it
        ends.
        """
        in_place = frozenset().union(*(of.in_place for of in self.held.values()))
        return {
            f"fragments {i} of {s.index}": tile_registers(m.a) * (s.trips - 1)
            for inner in s.children
            for i, m in enumerate(inner.statements)
            if isinstance(m, n.Multiply) and m.token is not None and m.a.memory is RMEM and m.a.name not in in_place
        }


@dataclass(frozen=True)
class _Left:
    """The left operands of a block's products that lie in registers.

    while_under_way  registers that the products read until they are complete, by the name of their tile
    in_place         operands that are read in the registers of the tile that they were taken from
    """

    while_under_way: dict[str, Expr]
    in_place: frozenset[str]


def _left_operands(body: tuple[n.Statement, ...], found: Groups) -> dict[n.Statement, _Left]:
    """Of every block of asynchronous products."""
    blocks = [s for s in walk(body) if isinstance(s, n.Consume) and any(products(s.body))]
    given = {s.result.name: s for s in walk(body) if isinstance(s, n.Relayout) and s.shuffle is None}
    written: dict[n.Statement, set[str]] = {}  # tiles that are written while a block's products are under way
    for s, under_way in found.flying.items():
        for block in under_way:
            written.setdefault(block, set()).update(t.name for t in s.writes)
    out: dict[n.Statement, _Left] = {}
    for block in blocks:
        inside = {t.name for s in walk(block.body) for t in s.writes}
        while_under_way: dict[str, Expr] = {}
        in_place: set[str] = set()
        for m, times in _with_rounds(block.body, expr(1)):
            if m.a.memory is not RMEM:
                continue
            origin = given[m.a.name].source if m.a.name in given else None
            if origin is not None and origin.name not in inside | written.get(block, set()):
                in_place.add(m.a.name)
                while_under_way[origin.name] = _whole_registers(origin)
            else:
                while_under_way[f"fragments of {m.a.name}"] = tile_registers(m.a) * times
        out[block] = _Left(while_under_way, frozenset(in_place))
    return out


def fragments_as_products_go(body: tuple[n.Statement, ...]) -> dict[str, Expr]:
    """Registers of fragments that are loaded as a product goes; of two operands, both are named with the first."""
    found: dict[str, Expr] = {}
    for first, *second in fed(body):
        one = tile_registers(first)
        if not second:
            found[first.name] = minimum(one, TWO_LOADS)
            continue
        other = tile_registers(second[0])
        found |= {first.name: minimum(one + other, minimum(one, other) + TWO_LOADS), second[0].name: expr(0)}
    return found


def _of_positions(body: tuple[n.Statement, ...]) -> frozenset[str]:
    """Tiles that are made once, of nothing but positions, numbers and other such tiles."""
    writers: dict[str, list[n.Statement]] = {}
    for s in walk(body):
        for t in s.writes:
            writers.setdefault(t.name, []).append(s)
    found: set[str] = set()
    for s in walk(body):
        if all(writers[t.name] == [s] for t in s.writes):
            of_others = isinstance(s, n.Apply) and s.reads and all(t.name in found for t in s.reads)
            if isinstance(s, n.Index) or of_others:
                found.update(t.name for t in s.writes)
    return frozenset(found)


def _with_rounds(body: tuple[n.Statement, ...], times: Expr) -> Iterator[tuple[n.Multiply, Expr]]:
    """The asynchronous products of a block, each with how often it is written out."""
    for s in body:
        if isinstance(s, n.Multiply) and s.token is not None:
            yield s, times
        if not isinstance(s, n.Consume):
            for inner in s.children:
                rounds = s.trips if isinstance(s, n.Repeated) and s.written_out else expr(1)
                yield from _with_rounds(inner.statements, times * rounds)


def _needed(body: tuple[n.Statement, ...], needed_after: frozenset[str]) -> list[frozenset[str]]:
    """Behind each statement, the tiles that are needed: not those that are written anew before they are read."""
    out = []
    for s in reversed(body):
        out.append(needed_after)
        read = _used(s) if s.children else frozenset(t.name for t in s.reads if t.memory is RMEM)
        anew = frozenset(t.name for t in s.writes if not s.children and t.memory is RMEM and t.window_of is None)
        needed_after = needed_after - anew | read
    return out[::-1]


def _own_registers(ahead: n.Body) -> dict[str, Expr]:
    """Registers that the statements of a body take by themselves, each beside the others."""
    taken = enumerate(s.own_registers for s in ahead.statements)
    return {f"copy {i} into {ahead.produces}": size for i, size in taken if not size.same(0)}


def _loaded_ahead(s: n.Statement) -> dict[str, Expr]:
    """Registers of what other rounds of a loop load, where the loads of all come before what uses them."""
    if not isinstance(s, n.Repeated) or not asks_ahead(s):
        return {}
    out: dict[str, Expr] = {}
    for place in places((s,)):
        if isinstance(place.statement, n.Load) and place.statement.source.memory is GMEM:
            inner = expr(1)
            for loop in place.loops[1:]:
                inner = inner * loop.trips
            out[f"load {len(out)} of {s.index}"] = tile_registers(place.statement.result) * inner * (s.trips - 1)
    return out


def _register_tiles(tiles: tuple[Tile, ...]) -> dict[str, Expr]:
    return {t.name: _whole_registers(t) for t in tiles if t.memory is RMEM}


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


def _used(s: n.Statement) -> frozenset[str]:
    """Names of the register tiles that a statement reads."""
    own = (t.name for t in (*s.reads, *(s.writes if s.in_place else ())) if t.memory is RMEM)
    return frozenset(own).union(*[_used(i) for inner in s.children for i in inner.statements])


def _whole_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of the value that a tile is, or is a window of."""
    part = tile.part
    return tile_registers(tile if part is None else replace(part, partition=part.window_of))


def tile_registers(tile: Tile) -> Expr:
    """32-bit registers per thread of a register tile."""
    if tile.memory is not RMEM or tile.partition is None:
        return expr(0)
    return ceil_div(tile.partition.value_count * tile.dtype.bits, 32)
