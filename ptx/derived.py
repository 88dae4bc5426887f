"""The derived problem: small, with every fact and remainder of the real one."""

from __future__ import annotations

import math
from dataclasses import replace

from tinygpu.language.problem import Problem
from tinygpu.ptx.kernel import Kernel


def derive(kernel: Kernel, problem: Problem, rounds: int | None = None) -> Problem:
    """The small problem on which a kernel is verified: same facts, same remainders, fewer tiles.

    Along each grid axis: two full tiles, or one full and one partial tile where the real problem has a remainder; one
    more where CTAs form clusters or take tile after tile, so that clusters do not divide them. Along each loop:
    2 x stages + 1 rounds and the remainder, or exactly `rounds`; but no more than the problem has.
    """
    extents = {d: math.lcm(*[e for name, e in kernel.tiles if name == d]) for d, _ in kernel.tiles}
    dims = problem.dim
    out = {}
    for name, size in dims.items():
        if name in extents:
            extent = extents[name]
            full = 2 if kernel.persistent or kernel.clusters else 1
            small = full * extent + size % extent if size % extent else (full + 1) * extent
        else:
            small = size
        for dim, step, stages in kernel.steps:
            if dim == name:
                wanted = (2 * stages + 1) * step + size % step
                if rounds is not None:
                    wanted = (rounds - 1) * step + (size % step or step)
                small = max(small, wanted) if name in extents else wanted
        unit = math.lcm(*[fact.divisor for fact in kernel.facts if fact.name == name])
        out[name] = min(size, -(-small // unit) * unit)
    return resized(kernel, problem, out)


def resized(kernel: Kernel, problem: Problem, dims: dict[str, int]) -> Problem:
    """The problem with other dims; leading dimensions keep their gap and the facts about them."""
    operands = []
    for o in problem.operands:
        names = dict(kernel.shapes)[o.name]
        shape = tuple(dims[d] for d in names)
        gap = o.ld - o.shape[o.contiguous_axis]
        ld = shape[o.contiguous_axis] + gap
        for fact in kernel.facts:
            if fact.name == f"{o.name}.ld" and ld % fact.divisor:
                ld += fact.divisor - ld % fact.divisor
        operands.append(replace(o, shape=shape, ld=ld))
    made = Problem(tuple((d, dims[d]) for d, _ in problem.dims), tuple(operands), problem.options)
    kernel.check(made)
    return made
