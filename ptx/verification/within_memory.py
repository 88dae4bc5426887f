"""Dims along which nothing of a kernel goes, and whose real sizes no memory holds: keys of a search, a large image.

Derived problems have less of them; every size is as legal a launch as another. Where no CTA comes to the end of such a
dim, a kernel leaves something out, and the dim keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem
from tinygpu.language.tensors import extent_of
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.reached import reaches_end

# Elements of one tensor of a derived problem beyond which a dim of it is cut, and those that are left.
MOST_ELEMENTS, LEFT = 1 << 24, 1 << 20
# Sizes keep the remainder of the real one by this: lanes of a warp.
REMAINDER_OF = 32
# Sizes that are looked at: some may not be legal.
MOST_TRIED = 64


def within_memory(
    kernel: Kernel,
    machine: type[Machine],
    problem: Problem,
    dims: Mapping[str, int],
    legal: Callable[[Mapping[str, int]], bool],
) -> dict[str, int]:
    """The sizes of dims that are cut, the largest first, where that is legal among `dims`."""
    along = {d for d, _ in (*kernel.tiles, *kernel.steps)} | {d for r in kernel.rings for d in r.dims}
    listed = {name for name, values in machine.dim_values().items() if values}
    kept = {*along, *listed, *kernel.groups, *dict(kernel.known), *(d.name for d in machine.following_dims())}
    out: dict[str, int] = {}
    for _, names in kernel.shapes:
        free = sorted((d for d in names if d in dims and d not in kept), key=lambda d: -dims[d])
        for dim in free:
            elements = math.prod(extent_of(d, {**dims, **out}) for d in names)
            if elements > MOST_ELEMENTS and dim not in out and reaches_end(kernel, machine, problem, dim, dims):
                out |= _cut(kernel, problem, dim, {**dims, **out}, max(LEFT * dims[dim] // elements, 1), legal)
    return out


def told(kernel: Kernel, machine: type[Machine], problem: Problem, derived: Problem) -> Iterator[str]:
    """Sentences about dims that a derived problem has less of for that reason."""
    for name in within_memory(kernel, machine, problem, problem.dim, lambda dims: True):
        if derived.dim[name] < problem.dim[name]:
            yield f"{name}={problem.dim[name]:,}, more than is emulated: {derived.dim[name]:,} in its place"


def _cut(
    kernel: Kernel, problem: Problem, dim: str, dims: Mapping[str, int], least: int,
    legal: Callable[[Mapping[str, int]], bool],
) -> dict[str, int]:
    size = problem.dim[dim]
    apart = math.lcm(REMAINDER_OF, *(f.divisor for f in kernel.facts if f.name == dim))
    first = least + (size - least) % apart
    tried = range(first, min(size, first + MOST_TRIED * apart), apart)
    return next(({dim: cut} for cut in tried if legal({**dims, dim: cut})), {})
