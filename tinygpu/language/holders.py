"""Who holds what under two partitions of one tile: when threads, or warps, hold the same parts of it.

A partition that covers its tile gives thread t the coordinates T(t) + V, where T and V are what the digits of the
thread and of the values decide. Given T, there is one V that covers the tile (the least coordinate that is left must be
the next of V), so that threads hold the same where both partitions have the same T. So it is with warps, where no digit
of the thread id is cut in the middle of a warp: what its lanes decide then belongs to V.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from tinygpu.expressions import Expr, all_of, evaluate, expr, symbol
from tinygpu.language.parameters import Param
from tinygpu.language.partition import Condition, Partition
from tinygpu.layouts.algebra import coalesce
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.relayout import relayout
from tinygpu.layouts.step import Step

LANES = 32
# Threads of a CTA at most, on every device (CUDA programming guide, compute capabilities).
MOST_THREADS = 1024
# Combinations of parameters that are tried for the number of threads.
TRIED = 4096


def same_warps(name: str, held: Partition, wanted: Partition, params: tuple[Param, ...]) -> tuple[Condition, ...]:
    """Every warp holds, before and behind, the same part of the tile."""
    known = _known(held, wanted)
    if known is not None:
        sentence = f"every warp has the values of {name} that it is given: warps exchange theirs through shared memory"
        return (Condition(f"warps of {name}", expr(known != "shared"), sentence),)
    return _same(name, held, wanted, [*range(LANES, _most_threads(held, wanted, params), LANES)], "warp")


def same_threads(name: str, held: Partition, wanted: Partition, params: tuple[Param, ...]) -> tuple[Condition, ...]:
    """Every thread holds, before and behind, the same part of the tile."""
    known = _known(held, wanted)
    if known is not None:
        sentence = f"every thread has the values of {name} that it is given; what exchanges them is said with by="
        return (Condition(f"threads of {name}", expr(known in ("nothing", "registers")), sentence),)
    most = _most_threads(held, wanted, params)
    return _same(name, held, wanted, [*range(1, LANES), *range(LANES, most, LANES)], "thread")


def holds_values(
    name: str, held: Partition, wanted: Partition, params: tuple[Param, ...], sentence: str
) -> tuple[Condition, ...]:
    """Every thread holds the values of `wanted`, whose thread digits are the same.

    Makers of partitions cover the tile, so that threads hold the same; of one that is written by hand it is found out
    for every combination of the parameters that it names. Raises LayoutError where there are too many of them.
    """
    mine, theirs = ([d for d in p.values.steps if isinstance(d[1], Step) and d[1].terms] for p in (held, wanted))
    if len(mine) == len(theirs) and all(
        expr(a).same(b) and step == other for (a, step), (b, other) in zip(mine, theirs, strict=True)
    ):
        return ()
    values = {p.name: p.values for p in params}
    if not {s for p in (held, wanted) for e in p.layout.expressions for s in e.symbols} <= values.keys():
        return ()  # whatever they are, they are no sizes (`tinygpu.language.known`)
    named = sorted({s for p in (held, wanted) for e in p.layout.expressions for s in e.symbols} & values.keys())
    tried = math.prod(len(values[each]) for each in named)
    if tried > TRIED:
        raise LayoutError(f"{held} with {wanted}: there are {tried:,} combinations of {', '.join(named)} to compare")
    missing = _apart(held.layout, wanted.layout, held.axes, tuple((each, tuple(values[each])) for each in named))
    if not missing:
        return ()
    return (Condition(f"values of {name}", all_of([~m for m in missing]), sentence),)


@lru_cache(maxsize=256)  # structures, and the types of a problem, ask the same of the same partitions
def _apart(
    held: Layout, wanted: Layout, axes: tuple[int, ...], named: tuple[tuple[str, tuple[int, ...]], ...]
) -> tuple[Expr, ...]:
    """Where threads do not hold the values that are wanted, though their digits are the same: values of parameters."""
    names, missing = [name for name, _ in named], []
    for chosen in product(*[offered for _, offered in named]):
        table = dict(zip(names, chosen, strict=True))
        try:
            has, wants = held.fill(table), wanted.fill(table)
        except (ZeroDivisionError, LayoutError):  # a size is no number, or 0: no candidate has these values
            continue
        if coalesce(has[1]) == coalesce(wants[1]) or coalesce(has[0]) != coalesce(wants[0]):
            continue
        if not _listed(wants[1], axes) <= _listed(has[1], axes):
            missing.append(all_of([symbol(each) == value for each, value in table.items()]))
    return tuple(missing)


def _listed(values: Layout, axes: tuple[int, ...]) -> set[tuple[int, ...]]:
    """The coordinates that the values of a thread add."""
    return {tuple(c) for c in values.coordinates(axes).tolist()}


def _known(held: Partition, wanted: Partition) -> str | None:
    """The kind of the plan where both partitions are numbers, whatever their digits."""
    leaves = [leaf for p in (held, wanted) for size, step in p.layout.steps for leaf in (size, *_counts(step))]
    extents = (*held.shape, *wanted.shape)
    if not all(isinstance(leaf, int) for leaf in leaves) or not all(e.is_number for e in extents):
        return None
    return relayout(held.layout, wanted.layout, tuple(map(int, held.shape)), 32).kind


def _counts(step: object) -> tuple[int | Expr, ...]:
    return tuple(count for _, count in step.terms) if isinstance(step, Step) else ()


def _same(name: str, held: Partition, wanted: Partition, threads: list[int], who: str) -> tuple[Condition, ...]:
    count = wanted.thread_count
    agree = _agreeing(held.threads, wanted.threads, held.axes, tuple(threads))
    by = "" if who == "warp" else "; what exchanges them is said with by="
    through = ": warps exchange theirs through shared memory" if who == "warp" else ""
    by_hand = [_elements(p) == _extent(p) for p in (held, wanted) if not p.conditions]
    return (
        Condition(
            f"whole {name}", all_of(by_hand), f"the partitions of {name} before and behind have all of its elements"
        ),
        Condition(
            f"threads for {name} before and behind",
            (held.thread_count == count) & ((count % LANES == 0) | (count < LANES)),
            f"{name} is divided among as many threads before and behind, in whole warps",
        ),
        Condition(
            f"{who}s of {name}",
            all_of([*_whole(held), *_whole(wanted), *agree]),
            f"every {who} has the values of {name} that it is given{through}{by}",
        ),
    )


def _elements(partition: Partition) -> Expr:
    """Elements that a partition has, where no two of its digits meet."""
    out = expr(1)
    for size, step in partition.layout.steps:
        out = out * (size if isinstance(step, Step) and step.terms else 1)
    return out


def _extent(partition: Partition) -> Expr:
    out = expr(1)
    for extent in partition.shape:
        out = out * extent
    return out


@lru_cache(maxsize=256)  # structures ask the same of the same partitions
def _agreeing(
    held: Layout, wanted: Layout, axes: tuple[int, ...], threads: tuple[int, ...]
) -> tuple[Expr, ...]:
    """For each of these threads, if there are so many, that both layouts of threads give it the same coordinates."""
    count = expr(1)
    for size, _ in wanted.steps:
        count = count * size
    return tuple(
        (count <= thread) | (_coordinate(held, thread, axis) == _coordinate(wanted, thread, axis))
        for thread in threads
        for axis in axes
    )


def _coordinate(of: Layout, thread: int, axis: int) -> Expr:
    """The part of the coordinate along an axis that a thread decides."""
    below, total = expr(1), expr(0)
    for size, step in of.steps:
        if isinstance(step, Step):
            total = total + expr(thread) // below % size * step.along(axis)
        below = below * size
    return total


def _whole(partition: Partition) -> list[Expr]:
    """No digit of the thread id is cut in the middle of a warp."""
    below, out = expr(1), []
    for size, _ in partition.threads.steps:
        until = below * size
        within = expr(LANES) % until == 0
        across = (expr(LANES) % below == 0) & (until % LANES == 0)
        out.append(within | across | (below % LANES == 0) | (expr(size) == 1))
        below = until
    return out


def _most_threads(held: Partition, wanted: Partition, params: tuple[Param, ...]) -> int:
    """Threads at most, over the values of the parameters that decide their number."""
    named = {p.name: p.values for p in params}
    least = MOST_THREADS
    for partition in (held, wanted):
        count = partition.thread_count
        axes = [named.get(name, ()) for name in sorted(count.symbols)]
        tried = 1
        for values in axes:
            tried *= len(values)
        if 0 < tried <= TRIED:
            counts = (_counted(count, dict(zip(sorted(count.symbols), v, strict=True))) for v in product(*axes))
            least = min(least, max(counts))
    return least


def _counted(count: Expr, values: Mapping[str, int]) -> int:
    """Threads for these values; none where they divide by zero, which no candidate does."""
    try:
        return int(evaluate(count, values))
    except ZeroDivisionError:
        return 0


