"""What the laws of the algebra demand of a result, by listing all coordinates: the judge between ours and pycute's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from layout_strategies import is_layout_function
from pycute_rules import Outcome

from tinygpu.layouts import Layout, coalesce, complement, concatenate


def tiles(offsets: list[int], codomain: int) -> list[int] | None:
    """The set C with offsets + C = [0, codomain) and nothing twice, or None; forced step by step, so exact."""
    free, starts = set(range(codomain)), []
    while free:
        start = min(free)  # 0 is an offset, so the least free place must be a start
        copy = {start + o for o in offsets}
        if len(copy) < len(offsets) or not copy <= free:
            return None
        free -= copy
        starts.append(start)
    return starts


def offsets(layout: Layout) -> list[int]:
    return [layout(i) for i in range(layout.size)]


def repeats(layout: Layout) -> bool:
    """Some mode has stride 0."""
    return any(d == 0 and s > 1 for s, d in layout.leaves)


def extent(layout: Layout) -> int:
    """The extent of the modes with their strides: what a codomain must be a multiple of."""
    return max([1, *(s * d for s, d in layout.leaves if s > 1)])


def composed(outcome: Outcome) -> tuple[int, ...] | None:
    """A(B(i)) for every index of B; None where B leaves the domain of A."""
    outer, inner = outcome.arguments
    where = offsets(inner)
    return None if max(where) >= outer.size else tuple(outer(i) for i in where)


def gone_on(outcome: Outcome) -> tuple[int, ...]:
    """The same with the last mode of A, once it is coalesced, going on for ever."""
    outer, inner = outcome.arguments
    *low, last = coalesce(outer).leaves
    out = []
    for offset in offsets(inner):
        value = 0
        for size, stride in low:
            value, offset = value + offset % size * stride, offset // size
        out.append(value + offset * last[1])
    return tuple(out)


def complemented(outcome: Outcome) -> tuple[int, ...] | None:
    layout, codomain = outcome.arguments
    found = tiles(offsets(layout), codomain)
    return None if found is None else tuple(found)


def divided(outcome: Outcome) -> tuple[int, ...] | None:
    """A(T(i) + T*(j)); None where T* does not exist."""
    layout, tile = outcome.arguments
    rest = tiles(offsets(tile), layout.size)
    return None if rest is None else tuple(layout(t + r) for r in rest for t in offsets(tile))


def multiplied(outcome: Outcome) -> tuple[int, ...] | None:
    """A(i) + A*(T(j)); None where A has no complement in any codomain."""
    layout, tiling = outcome.arguments
    rest = tiles(offsets(layout), math.ceil(layout.size * tiling.cosize / extent(layout)) * extent(layout))
    return None if rest is None else tuple(a + rest[t] for t in offsets(tiling) for a in offsets(layout))


def inverts_right(outcome: Outcome, found: tuple[int, ...] | None) -> bool:
    (layout,) = outcome.arguments
    return found is not None and all(layout(x) == i for i, x in enumerate(found))


def inverts_left(outcome: Outcome) -> bool:
    """Whether pycute's L gives L(A(x)) = x, its last mode going on for ever."""
    (layout,) = outcome.arguments
    return [outcome.theirs(o) for o in offsets(layout)] == list(range(layout.size))


def one_to_one(outcome: Outcome) -> bool:
    (layout,) = outcome.arguments
    return len(set(offsets(layout))) == layout.size


def whole(outcome: Outcome) -> tuple[int, ...]:
    """The values of all arguments side by side in one codomain."""
    parts = outcome.arguments[0] if isinstance(outcome.arguments[0], tuple) else (outcome.arguments[0],)
    out = [0]
    for part in parts:
        out = [low + high for high in offsets(part) for low in out]
    return tuple(out)


def composable(outcome: Outcome) -> bool:
    """Some layout with the modes of B is A o B."""
    wanted = composed(outcome)
    return wanted is not None and _is_layout(wanted, outcome.arguments[1])


def divisible(outcome: Outcome) -> bool:
    """T has a complement in A, and some layout in its modes is A o (T, T*)."""
    layout, tile = outcome.arguments
    wanted = divided(outcome)
    if wanted is None:
        return False
    return _is_layout(wanted, concatenate(tile, complement(tile, layout.size)))


def multipliable(outcome: Outcome) -> bool:
    """A has a complement, and some layout in the modes of T is A* o T."""
    layout, tiling = outcome.arguments
    wanted = multiplied(outcome)
    return wanted is not None and _is_layout(wanted[:: layout.size], tiling)


def _is_layout(wanted: Sequence[int], like: Layout) -> bool:
    """Whether some layout whose modes refine those of `like` has these values; every refinement is tried."""
    return is_layout_function(np.array(wanted, dtype=np.int64), like.extents)
