"""What a kernel records about its loops: the dims that they run along, and how its rings go round in them.

It is read off the program's pipelines, whether the warps that fill a slot also drain it (one `Pipelined` loop) or other
warps do (loops of their own). Verification chooses sizes by it: see `tinygpu.ptx.verification.derived`.
"""

from __future__ import annotations

import itertools
import math

import sympy

from tinygpu.expressions import Expr, FloorDiv, expr, maximum
from tinygpu.expressions.formula import write
from tinygpu.language.roles import HANDED_OVER
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk
from tinygpu.ptx.launching.rings import Ring


def steps(program: Program) -> tuple[tuple[str, int], ...]:
    """(dim, elements of it per round) of loops along dims; 1 where an element is several rounds, as a page of keys."""
    dims, known = _dims(program), {name: value for t in program.tensors for name, value in t.known}
    found: dict[tuple[str, int], None] = {}
    for s in walk(program.body):
        if isinstance(s, n.Repeated) and not s.trips.is_number:
            for factor in sympy.Mul.make_args(s.trips.sympy):  # of one loop over several axes
                step, node = 1, factor
                while isinstance(node, FloorDiv) and node.args[1].is_Integer:  # rounds; of a divided loop, parts
                    step *= int(node.args[1])
                    node = next((a for a in node.args[0].args if isinstance(a, FloorDiv)), None)
                trips = _largest(program, Expr(factor))
                for name in sorted(trips.symbols & dims):
                    others = {other: value for other, value in known.items() if other != name}
                    found[name, math.gcd(step, _change(trips.substitute(others).sympy, name)[0])] = None
    return tuple(found)


def _change(node: sympy.Basic, name: str) -> tuple[int, int]:
    """(elements by which a dim is changed, a whole number of which a value then changes by a multiple), so that what
    was rounded off on the way to it is rounded off again; the second is 0 where the value does not hang on the dim.
    """
    if name not in {s.name for s in node.free_symbols}:
        return 1, 0
    if isinstance(node, FloorDiv) and node.args[1].is_Integer:
        shift, by = _change(node.args[0], name)
        divisor = int(node.args[1])
        return shift * (divisor // math.gcd(divisor, by)), by // math.gcd(divisor, by)
    if node.is_Mul:
        mine = [factor for factor in node.args if name in {s.name for s in factor.free_symbols}]
        if len(mine) == 1:
            shift, by = _change(mine[0], name)
            return shift, by * math.prod(abs(int(factor)) for factor in node.args if factor.is_Integer)
    if node.is_Add or isinstance(node, (sympy.Max, sympy.Min)):
        parts = [_change(part, name) for part in node.args]
        whole = math.lcm(*(shift for shift, _ in parts))
        return whole, math.gcd(*(whole // shift * by for shift, by in parts))
    return 1, 1


def rings(program: Program) -> tuple[Ring, ...]:
    """The pipelines of a filled-in program, and the answers by which clusters take each other over."""
    out = []
    for pipeline in program.pipelines:
        consumed: dict[str, Expr] = {}
        for use in (u for u in uses(program.body, pipeline.name) if u.does == "consume"):
            times = expr(1)
            for loop in use.loops:
                times = times * _largest(program, loop.trips)
            consumed[use.place.role] = consumed.get(use.place.role, expr(0)) + times
        # Every role that drains a tile drains all of its slots.
        slots = maximum(expr(0), *consumed.values())
        phases = pipeline.completion in (*HANDED_OVER, "turn")
        stages = int(pipeline.stages) if pipeline.buffers else 1
        out.append(Ring(pipeline.name, stages, write(slots), phases))
    if answers := int(program.grid.scheduler.answers):
        out.append(Ring("launch control", answers, write(expr(1)), True))
    return tuple(out)


def turns(program: Program) -> int:
    """Tiles after which every role has taken its share of them."""
    return math.lcm(*(r.share[1] for r in program.roles))


def at_least_once(program: Program, trips: Expr) -> bool:
    """Whether a loop has a round whatever the dims are, by the form of its trip count."""
    if trips.is_number:
        return int(trips) >= 1
    if not _grows(trips.sympy):
        return False
    dims = _dims(program)
    least = trips.substitute({name: 1 if name in dims else 0 for name in trips.symbols})
    return least.is_number and int(least) >= 1


def _grows(node: sympy.Basic) -> bool:
    """Whether a value never falls where a symbol in it rises."""
    if node.is_Symbol:
        return True
    if node.is_Integer:
        return bool(node.is_nonnegative)
    if isinstance(node, FloorDiv):
        return bool(node.args[1].is_Integer) and _grows(node.args[0])
    return (node.is_Add or node.is_Mul or isinstance(node, (sympy.Max, sympy.Min))) and all(map(_grows, node.args))


def _largest(program: Program, trips: Expr) -> Expr:
    """A trip count for the tile, and the rounds of the loops around it, for which it is largest."""
    lasts = _last_values(program)
    if not trips.symbols & lasts.keys():
        return trips
    while inner := sorted(trips.symbols & lasts.keys()):
        corners = itertools.product(*[(expr(0), lasts[name]) for name in inner])
        trips = maximum(*[trips.substitute(dict(zip(inner, corner, strict=True))) for corner in corners])
    return maximum(trips, 0)


def _last_values(program: Program) -> dict[str, Expr]:
    """The largest value of every index: of tiles along the grid's axes, of parts, and of loops."""
    lasts = {a.index: a.tiles - 1 for a in program.grid.axes}
    lasts[n.PART] = program.grid.scheduler.slices - 1
    for s in walk(program.body):
        if isinstance(s, n.Repeated):
            lasts[s.index] = s.first + s.trips - 1
        if isinstance(s, n.Uniform):
            lasts[s.symbol] = s.most
    return lasts


def _dims(program: Program) -> frozenset[str]:
    """The sizes that are known at launch."""
    of_tensors = {d for t in program.tensors for d in t.dims}
    return frozenset(of_tensors | {name for a in program.grid.axes for name in a.tiles.symbols})
