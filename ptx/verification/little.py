"""The real problem with as little in the last round of every loop as there may be.

A kernel is launched on sizes with other remainders than those of the problem that it was made for. A loop that ends one
element too early loses nothing there, unless that element is a round of its own.
"""

from __future__ import annotations

import math

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Problem, ProblemError
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.verification.derived import legality, resized

# Remainders of one dim that are looked at, from the least on.
MOST_LEFT = 64


def little_left(kernel: Kernel, machine: type[Machine], problem: Problem) -> Problem | None:
    """The problem whose loops end with a round of as little as is legal; None where its own do, or all are whole.

    Sizes keep what the launch checks. Dims that others follow from, of which the machine lists the sizes, or that the
    kernel has as numbers stay.
    """
    together = {name for d in machine.following_dims() for name in (d.name, *d.reads)}
    listed = {name for name, sizes in machine.dim_values().items() if sizes}
    kept = {*together, *listed, *dict(kernel.known)}
    legal = legality(kernel, machine, problem)
    dims = problem.dim
    for name in dict.fromkeys(d for d, _ in kernel.steps if d in dims and d not in kept):
        unit = math.lcm(*(f.divisor for f in kernel.facts if f.name == name))
        round_ = math.lcm(unit, max(step for d, step in kernel.steps if d == name))
        whole = max(dims[name] // round_, 1) * round_
        sizes = (whole + left for left in range(unit, min(round_, MOST_LEFT * unit + 1), unit))
        dims |= {name: next((size for size in sizes if legal(dims | {name: size})), dims[name])}
    if dims == problem.dim:
        return None
    try:
        return resized(kernel, problem, dims)
    except (LaunchError, ProblemError):
        return None
