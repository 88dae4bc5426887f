"""Who holds what under two partitions of one tile: when threads, or warps, hold the same parts of it.

A partition that covers its tile gives thread t the coordinates T(t) + V, where T and V are what the digits of the
thread and of the values decide. Given T, there is one V that covers the tile (the least coordinate that is left must be
the next of V), so that threads hold the same where both partitions have the same T. So it is with warps, where no digit
of the thread id is cut in the middle of a warp: what its lanes decide then belongs to V.
"""

from __future__ import annotations

from itertools import product

from tinygpu.expressions import Expr, all_of, evaluate, expr
from tinygpu.language.parameters import Param
from tinygpu.language.partition import Condition, Partition
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
    agree = []
    count = wanted.thread_count
    for thread in threads:
        for axis in held.axes:
            mine, theirs = (_coordinate(p, thread, axis) for p in (held, wanted))
            agree.append((count <= thread) | (mine == theirs))
    by = "" if who == "warp" else "; what exchanges them is said with by="
    through = ": warps exchange theirs through shared memory" if who == "warp" else ""
    return (
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


def _coordinate(partition: Partition, thread: int, axis: int) -> Expr:
    """The part of the coordinate along an axis that a thread decides."""
    below, total = expr(1), expr(0)
    for size, step in partition.threads.steps:
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
            counts = (evaluate(count, dict(zip(sorted(count.symbols), v, strict=True))) for v in product(*axes))
            least = min(least, max(counts))
    return least


