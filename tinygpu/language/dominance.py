"""Derived dominance: candidates that work, but beside which the space holds another one that is never slower.

Each rule names the other candidate by a substitution (twice the vector, twice the threads side by side, the earlier
option of an ordered choice) and removes a point where that one satisfies every legality constraint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of, any_of, expr, maximum, symbol
from tinygpu.language.exchange import ExchangePlan
from tinygpu.language.instruction import BulkTransfer, Transfer
from tinygpu.language.memories import GMEM
from tinygpu.language.parameters import AccessPattern, Choice, Param
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import expressions, walk

WIDER = (
    "a wider access moves the same bytes with fewer instructions and touches the same sectors "
    "(CUDA C++ Best Practices Guide, coalesced access)"
)
SIDE_BY_SIDE = (
    "threads side by side along the contiguous axis share sectors; fewer of them never touch fewer sectors "
    "(CUDA C++ Best Practices Guide, coalesced access)"
)
SWIZZLED = (
    "a tensor copy moves a box as wide as its swizzle: a wider one takes fewer boxes, which ask L2 for longer runs; "
    "products read matrices of 8 rows under each of them without bank conflicts (PTX ISA, swizzling modes)"
)

ALIKE = "where it does nothing else for any of them, it is the same kernel"


def dominance(
    program: Program, constraints: Iterable[Constraint], params: Iterable[Param], choices: Iterable[Choice] = ()
) -> list[Constraint]:
    """Dominance constraints for vector widths, access patterns and exchanges of one structure."""
    legality = [c for c in constraints if c.kind == "legality"]
    listed = tuple(params)
    patterns = [p for p in listed if isinstance(p, AccessPattern)]
    vectors = _vector_params(program, listed)
    shapes = _shapes(program) | _relaid(program)
    out = []
    for p in patterns:
        if p.name not in shapes:
            wider = _holds(legality, {p.name: p * 2}, p)
            out.append(
                Constraint(
                    f"{p.name} widest",
                    ~wider,
                    f"no wider pattern than {p.name} is legal",
                    "dominance",
                    "coalescing",
                    "model",
                    SIDE_BY_SIDE,
                    instead=frozenset({p.name}),
                )
            )
    for v in vectors:
        if v.name in shapes or v.name in _arranges(program, v):
            continue  # the tile grows with the vector, or others are moved in its arrangement: another trade
        around = [p for p in patterns if any({v.name, p.name} <= c.condition.symbols for c in legality)]
        ways: list[dict[str, Expr]] = [{v.name: v * 2}]
        ways += [{v.name: v * 2, p.name: maximum(p // 2, 1)} for p in around]
        wider = any_of([_holds(legality, w, v, [p >= 2 for p in around if p.name in w]) for w in ways])
        out.append(
            Constraint(
                f"{v.name} widest",
                ~wider,
                f"no wider vector than {v.name} is legal",
                "dominance",
                "coalescing",
                "model",
                WIDER,
                instead=frozenset(name for w in ways for name in w),
            )
        )
    for s in _operand_swizzles(program, listed):
        if s.name not in shapes:
            wider = _holds(legality, {s.name: s * 2}, s)
            out.append(
                Constraint(
                    f"{s.name} widest",
                    ~wider,
                    f"no wider swizzle than {s.name} is legal",
                    "dominance",
                    "swizzles",
                    "model",
                    SWIZZLED,
                    instead=frozenset({s.name}),
                )
            )
    return [*out, *_exchanges(program, choices)]


def _operand_swizzles(program: Program, params: tuple[Param, ...]) -> list[Param]:
    """Parameters that are the width of swizzles, and of nothing but buffers that tensor copies fill for products."""
    touched: dict[str, bool] = {}
    for s in walk(program.body):
        bulk = isinstance(s, n.Copy) and all(isinstance(hop, BulkTransfer) for hop in s.instructions)
        sides = ((s.writes, bulk), (s.reads, isinstance(s, n.Multiply)))
        for tile, fits in ((tile, fits) for tiles, fits in sides for tile in tiles):
            if tile.buffer is not None and tile.buffer.swizzle_bytes is not None:
                for name in tile.buffer.swizzle_bytes.symbols:
                    touched[name] = touched.get(name, True) and fits and tile.buffer.swizzle_bytes.sympy.is_Symbol
    return [p for p in params if touched.get(p.name, False)]


def _exchanges(program: Program, choices: Iterable[Choice]) -> Iterator[Constraint]:
    """Exchanges that are worth their name: they do something that a plainer one, which may be chosen, does not."""
    chosen = dict(program.structure)
    for choice in choices:
        plans = [o for o in choice.options if isinstance(o, ExchangePlan)]
        mine = next((o for o in plans if choice.label(o) == chosen[choice.name]), None)
        plainer = next((o for o in plans if o.plain and mine is not None and o.warps == mine.warps), None)
        if mine is None or mine.plain or plainer is None:
            continue
        by = [s for s in walk(program.body) if isinstance(s, n.Combining) and s.by is mine]
        yield Constraint(
            f"{choice.name} by {mine}",
            any_of([s.differs_from_plain for s in by]),
            f"{mine} does something else than {plainer} for what threads combine",
            "dominance",
            choice.name,
            "model",
            ALIKE,
        )


def preferred(choice: Choice, mine: Iterable[Constraint], earlier: Iterable[Constraint], label: str) -> Constraint:
    """Removes points of an option of an ordered choice where the option before it is legal."""
    known = {c.condition.sympy for c in mine if c.kind == "legality"}
    extra = [c.condition for c in earlier if c.kind == "legality" and c.condition.sympy not in known]
    condition = ~all_of(extra) if extra else expr(0) > 0
    return Constraint(
        f"{choice.name} prefers {label}",
        condition,
        f"{label} is not legal here",
        "dominance",
        choice.name,
        "model",
        choice.ordered,
        instead=frozenset({choice.name}),
    )


def _holds(legality: list[Constraint], change: dict[str, Expr], of: Param, besides: Iterable[Expr] = ()) -> Expr:
    """Whether every legality constraint that mentions the changed parameters holds after the change, and what is so
    besides."""
    names = set(change)
    conditions = [c.condition.substitute(dict(change)) for c in legality if c.condition.symbols & names]
    return all_of([any_of([change[of.name] == value for value in of.values]), *conditions, *besides])


def _vector_params(program: Program, params: tuple[Param, ...]) -> list[Param]:
    """Parameters that are exactly the vector width of some transfer to or from GMEM, and of nothing else's count."""
    names: set[str] = set()
    for s in walk(program.body):
        for hop in s.instructions:
            if isinstance(hop, Transfer) and not s.children and (width := expr(hop.vector)).sympy.is_Symbol:
                names |= width.symbols
    return [p for p in params if p.name in names]


def _shapes(program: Program) -> set[str]:
    """Names that decide extents of tiles, rounds of loops, the grid, or numbers of warps."""
    found: set[str] = set()
    for s in walk(program.body):
        for tile in (*s.reads, *s.writes):
            if tile.tensor is not None:
                found |= {name for extent in tile.shape for name in extent.symbols}
        if isinstance(s, n.Repeated):
            found |= s.trips.symbols
    for e in expressions(program.grid):
        found |= e.symbols
    for r in program.roles:
        found |= r.warps.symbols
    for p in program.pipelines:
        for b in p.buffers:
            for e in b.shape:
                found |= e.symbols
    return found


def _relaid(program: Program) -> set[str]:
    """Names that decide to whom values go: with other holders other rounds are needed, and other warps meet."""
    return {
        name
        for s in walk(program.body)
        if isinstance(s, n.Relayout) or not s.exchanged_bytes.same(0)
        for tile in (*s.reads, *s.writes)
        if tile.partition is not None
        for e in expressions(tile.partition.layout)
        for name in e.symbols
    }


def _arranges(program: Program, v: Param) -> set[str]:
    """The vector's name, where it also decides who holds what a transfer of another width moves."""
    for s in walk(program.body):
        held = [s.moves_under, *(t.partition for t in (*s.reads, *s.writes))]
        partition = next((p for p in held if p is not None), None)
        outer = [h for h in s.instructions if isinstance(h, Transfer) and GMEM in (h.reads, h.writes)]
        if partition is None or s.children or not outer or any(expr(h.vector).same(symbol(v.name)) for h in outer):
            continue
        if any(v.name in e.symbols for e in expressions(partition.layout)):
            return {v.name}
    return set()
