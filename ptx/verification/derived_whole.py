"""The derived problem of several kernels: a small one with every fact and remainder of the real one, for all of them.

Sizes between the kernels follow from the whole's, so that all of them are chosen together: of each dim of the whole the
smallest size with the remainders of the real one for which every kernel has two tiles and two rounds along it, where
the real one has so many.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from tinygpu.expressions import Expr, compile_arrays
from tinygpu.language.plan import Plan
from tinygpu.language.posing import followed
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.language.tensors import extent_of
from tinygpu.ptx.launching.kernel import LaunchError
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.launching.legal import unlawful
from tinygpu.ptx.verification.derived import MOST_GAP_ELEMS

# Tiles along each axis of a grid, and rounds of each loop, that every kernel has at least.
LEAST = 2
# Of a dim that no kernel goes along, as the rows of a table, at least so many, where the real problem has them.
FEW = 8
# Sizes of one dim that are looked at, from the smallest on.
MOST_SIZES = 256


def derive_whole(kernels: Kernels) -> Kernels:
    """The kernels of a plan, posed to the derived problem."""
    found = kernels
    following = {d.name for d in kernels.machine.following_dims()}
    for name in (name for name, _ in kernels.problem.dims if name not in following):
        found = next(_smaller(kernels, found, name), found)
    return found


def _smaller(real: Kernels, now: Kernels, name: str) -> Iterator[Kernels]:
    """The kernels with smaller sizes of one dim, from the smallest on, that show as much as the real ones."""
    size, period = real.problem.dim[name], _period(real, name)
    first = size % period or period
    for number in range(MOST_SIZES):
        tried = first + number * period
        if tried >= size:
            return
        if tried < FEW and not _along(real, name):
            continue
        posed = _posed(now, {**now.problem.dim, name: tried})
        if posed is not None and _shows(real, posed):
            yield posed


def _along(kernels: Kernels, name: str) -> bool:
    """Whether a kernel has tiles or rounds along a dim, or along what is made of it."""
    steps = kernels.machine.bound_steps(dict(kernels.problem.options))  # type: ignore[attr-defined]  # of a plan
    return any(
        name in step.dims[dim].symbols
        for stage, step in zip(kernels.stages, steps, strict=True)
        for dim in {d for d, _ in (*stage.kernel.tiles, *stage.kernel.steps)} & step.dims.keys()
    )


def _posed(kernels: Kernels, dims: Mapping[str, int]) -> Kernels | None:
    """The kernels for other sizes; None where one of them does not take its part."""
    problem, machine = kernels.problem, kernels.machine
    dims = {**dims, **followed(machine.__name__, machine.following_dims(), dims, dict(problem.options))}
    if min(dims.values()) < 1:
        return None
    declared = {t.name: t for t in kernels.machine.tensor_declarations()}
    try:
        operands = tuple(
            o.resized(declared[o.name].shape(dims, dict(problem.options)), most_gap=MOST_GAP_ELEMS)
            for o in problem.operands
        )
        made = Problem(tuple((d, dims[d]) for d, _ in problem.dims), operands, problem.options)
        posed = kernels.posed(made)
        posed.check()
    except (ProblemError, LaunchError):
        return None
    return None if unlawful(posed) else posed


def _shows(real: Kernels, small: Kernels) -> bool:
    """Whether every kernel has as many tiles and rounds as show its edges."""
    for theirs, mine in zip(real.stages, small.stages, strict=True):
        for dim, extent in (*theirs.kernel.tiles, *theirs.kernel.steps):
            wanted = min(LEAST, -(-extent_of(dim, theirs.problem.dim) // extent))
            if -(-extent_of(dim, mine.problem.dim) // extent) < wanted:
                return False
    return True


def _period(kernels: Kernels, name: str) -> int:
    """What a size of the whole may be changed by so that remainders of every kernel stay."""
    if not issubclass(kernels.machine, Plan):
        raise TypeError("a machine has a derived problem of its own kernel")
    parts = [1]
    steps = kernels.machine.bound_steps(dict(kernels.problem.options))
    for stage, step in zip(kernels.stages, steps, strict=True):
        for dim, size in step.dims.items():
            if name not in size.symbols:
                continue
            if size.sympy.is_Symbol:
                parts += [extent for d, extent in (*stage.kernel.tiles, *stage.kernel.steps) if d == dim]
                parts += [fact.divisor for fact in stage.kernel.facts if fact.name == dim]  # others are checked
            else:
                parts.append(_shift(kernels, name, size))
    return math.lcm(*parts)


def _shift(kernels: Kernels, name: str, size: Expr) -> int:
    """By how much a dim is changed so that a size which is made of it changes by the same, wherever it stands."""
    point = {s: int(kernels.point[s]) for s in size.symbols if kernels.point.get(s)}
    whole = math.lcm(*point.values())
    (made,) = compile_arrays(size)({**kernels.problem.dim, **point, name: np.arange(1, 2 * whole + 1)})
    for shift in (n for n in range(1, whole) if whole % n == 0):
        if len(np.unique(made[shift : shift + whole] - made[:whole])) == 1:
            return shift
    return whole

