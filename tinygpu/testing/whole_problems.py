"""Problems that counts are compared on: whole tiles only, rows and pointers at sector boundaries or between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tinygpu.expressions import Expr, FloorDiv, evaluate
from tinygpu.language.problem import Problem
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import executions, fold, walk
from tinygpu.testing.case import Case, of_their_own, resize
from tinygpu.testing.coverage import value
from tinygpu.testing.workbench import Workbench

# Pointers at the start of a row of banks, and rows in whole sectors.
ROOMY_ALIGN_BYTES = 256
SECTOR_BITS = 256
# Elements, rounds and tiles of a problem together, at most.
MOST_ELEMS = 1 << 27
# Rounds at most of a loop along a dim from which others follow: taps of a filter, as many as the problem has or fewer.
# So many as well of loops in one another, whose rounds multiply.
MOST_TAPS = 5


def roomy_problem(problem: Problem) -> Problem:
    """The problem with pointers and rows at sector boundaries."""
    operands = []
    for o in problem.operands:
        per = SECTOR_BITS // math.gcd(SECTOR_BITS, o.dtype.bits)
        roomy = o.resized(o.shape, lambda axis, least, per=per: -(-least // per) * per)  # type: ignore[misc]
        operands.append(replace(roomy, align_bytes=max(o.align_bytes, ROOMY_ALIGN_BYTES)))
    return replace(problem, operands=tuple(operands))


def between_sectors(problem: Problem) -> Problem:
    """The problem with every other row in the middle of a sector."""
    operands = []
    for o in problem.operands:
        half, row = SECTOR_BITS // 2 // o.dtype.bits, o.memory_order[1:2]
        operands.append(o.resized(o.shape, lambda axis, least, half=half, row=row: least + half * (axis in row)))  # type: ignore[misc]
    return replace(problem, operands=tuple(operands))


@dataclass(frozen=True, slots=True)
class _Extent:
    """A dim goes in pieces of `extent`; `walked`: by loops or the grid's axes, one piece after the other."""

    dim: str
    extent: int
    walked: bool


def whole_problem(
    program: Program,
    case: Case,
    bench: Workbench,
    tiles: Mapping[str, int] | None = None,
    within: Sequence[Mapping[str, int]] | None = None,
    rounds: Mapping[str, int] | None = None,
) -> Problem | None:
    """The problem with whole tiles only, so many along each grid axis, rows and pointers at sector boundaries.

    tiles   index of an axis -> tiles along it; two where nothing is said
    within  tiles all of whose windows lie inside the tensors; by default the first and the last
    rounds  dim -> what divides the rounds of the loops along it

    Where the machine refuses as many along all axes, all of one axis are in one tile, or in one cluster. None where
    windows of these reach beyond the tensors all the same, or where the machine refuses these sizes, too.
    """
    alone: list[frozenset[str]] = [frozenset(), *(frozenset({a.index}) for a in program.grid.axes)]
    tried = (_whole_problem(program, case, bench, tiles or {}, within, rounds or {}, one) for one in alone)
    return next((found for found in tried if found is not None), None)


def _whole_problem(
    program: Program, case: Case, bench: Workbench, tiles: Mapping[str, int],
    within: Sequence[Mapping[str, int]] | None, rounds: Mapping[str, int], alone: frozenset[str],
) -> Problem | None:
    """The same with one tile, or one cluster of them, along the axes `alone`."""
    wanted: dict[str, int] = {}
    least = {str(a.size): int(a.cluster) if a.index in alone else tiles.get(a.index, 2) for a in program.grid.axes}
    walked = set(least)
    for piece in _extents(program):
        wanted[piece.dim] = math.lcm(wanted.get(piece.dim, 1), piece.extent)
        walked |= {piece.dim} if piece.walked else set()
    taps = walked & {name for d in case.machine.following_dims() for name in d.reads}
    own = of_their_own(case.machine, program, case.problem.dim)
    steps = {name: wanted.get(name, 1) * rounds.get(name, 1) for name in own}
    most = dict.fromkeys(own, MOST_ELEMS) | {name: MOST_TAPS * steps[name] for name in _nested(program) & set(own)}
    most |= dict.fromkeys(taps & set(own), MOST_TAPS)
    sizes = {name: min(case.problem.dim[name], most[name]) for name in own}
    for _ in range(2):
        dims = {name: least.get(name, -(-sizes[name] // step)) * step for name, step in steps.items()}
        roomy = roomy_problem(resize(case.machine, case.problem, dims))
        if math.prod(dims[name] for name in walked & dims.keys()) > MOST_ELEMS or illegal(case, roomy, bench):
            return None
        beyond = _beyond(program, roomy, within)
        if not beyond:
            return roomy
        if not beyond.keys() <= steps.keys() - least.keys():
            return None
        sizes |= beyond  # as a dim that windows reach along, tile after tile, though no axis of the grid is
    return None


def constant_beyond(program: Program, case: Case, tiles: int) -> str:
    """The constant size of a tensor's dim behind which windows of the last of so many tiles end; "" for none.

    No problem has these windows inside its tensors, however large it is.
    """
    sizes = {str(a.size): tiles * int(a.extent) for a in program.grid.axes}
    problem = resize(case.machine, case.problem, {d: sizes[d] for d in sizes.keys() & case.problem.dim.keys()})
    last = {a.index: int(evaluate(a.tiles, problem.dim)) - 1 for a in program.grid.axes}
    return next((dim for dim in _beyond(program, problem, (last,)) if dim.isdigit()), "")


def pieces(program: Program) -> list[tuple[str, int]]:
    """(dim, extent) of every axis of the grid, loop and window: in what pieces a program walks its dims."""
    return [(e.dim, e.extent) for e in _extents(program)]


def _extents(program: Program) -> list[_Extent]:
    out = [_Extent(str(a.size), int(a.extent), True) for a in program.grid.axes if not a.size.is_number]
    for s in walk(program.body):
        if isinstance(s, n.Repeated) and not s.trips.is_number:
            node = s.trips.sympy
            divided = isinstance(node, FloorDiv) and node.args[1].is_Integer
            out += [_Extent(d, int(node.args[1]) if divided else 1, True) for d in s.trips.symbols]
        for tile in _windows(s):
            if tile.tensor is not None:
                for axis, home in enumerate(tile.axes):
                    if home is not None and not tile.tensor.size(home).is_number:
                        out.append(_Extent(tile.tensor.dims[home], int(tile.shape[axis]), False))
    return out


def _nested(program: Program) -> frozenset[str]:
    """Dims of loops at run time that stand in one another, or go over several axes."""
    found: set[str] = set()

    def dims(s: n.Statement, inner: tuple[tuple[frozenset[str], ...], ...]) -> frozenset[str]:
        within = frozenset[str]().union(*(d for body in inner for d in body))
        if not isinstance(s, n.Repeated) or s.trips.is_number:
            return within
        mine = frozenset(s.trips.symbols)
        if within or len(mine) > 1:
            found.update(mine | within)
        return mine | within

    fold(program.body, dims)
    return frozenset(found)


def _windows(s: n.Statement) -> list[Tile]:
    return [t.finest for t in (*s.reads, *s.writes) if t.tensor is not None]


def illegal(case: Case, problem: Problem, bench: Workbench) -> bool:
    """Whether the candidate is illegal on another problem."""
    space = replace(case, problem=problem).space(bench).space
    return any(v.constraint is None or v.constraint.kind == "legality" for v in space.explain(case.point or {}))


def _beyond(program: Program, problem: Problem, within: Sequence[Mapping[str, int]] | None) -> dict[str, int]:
    """Dims behind which a window of some tiles (of the first and of the last one) ends, with the sizes that hold it;
    a dim without a name where one begins before the tensor.
    """
    out: dict[str, int] = {}
    spans: dict[int, list[tuple[Expr, int, int, str]]] = {}
    last = {a.index: int(evaluate(a.tiles, problem.dim)) - 1 for a in program.grid.axes}
    for rounds in ({a.index: 0 for a in program.grid.axes}, last) if within is None else within:
        known = {**problem.environment(), n.PART: 0, **rounds}
        for s, at in executions(program.body, known, value):
            if id(s) not in spans:
                spans[id(s)] = [span for tile in _windows(s) for span in _spans(tile, problem)]
            for begin, reach, size, dim in spans[id(s)]:
                start = value(begin, at)
                if start < 0:
                    return {"": 0}
                if start + reach >= size:
                    out[dim] = max(out.get(dim, 0), start + reach + 1)
    return out


def _spans(tile: Tile, problem: Problem) -> list[tuple[Expr, int, int, str]]:
    """(where a window begins, how far it reaches beyond that, the dim's size, the dim) per axis of its tensor."""
    assert tile.tensor is not None
    begins, sizes = tile.begins, problem.operand(tile.name).shape
    ways = (tile.along(home) for home in range(len(sizes)))
    reaches = [sum((int(tile.shape[axis]) - 1) * int(step) for axis, step in way) for way in ways]
    return list(zip(begins, reaches, sizes, tile.tensor.dims, strict=True))
