"""The problem itself, whole, where it is small: what derived problems leave out of it cannot hide anything then.

Derived problems have few tiles and rounds. A bound, a remainder or a window that a program writes as a number, or that
another dim says, may lie beyond them; of a problem as large as one tries a kernel with, all of it is run instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.language.problem import Problem
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.inputs import Inputs
from tinygpu.ptx.verification.plan import Run, ctas_of

# Elements of all tensors together, at most: the reference is worked out for them with its bounds, in 64 bits.
MOST_ELEMENTS = 1 << 21
# CPU time of one of the runs, at most.
CPU_SECONDS = 2.0
WHERE = "the problem itself"
_INPUTS: tuple[Inputs, ...] = ("integers", "random", "last")


def runs_of(kernel: Kernel, problem: Problem, order: Order) -> Iterator[Run]:
    """The runs; none of a problem with too many elements."""
    if sum(o.extent_elems for o in problem.operands) <= MOST_ELEMENTS:
        for number, inputs in enumerate(_INPUTS):
            sizes = ",".join(f"{name}={size}" for name, size in problem.dims)
            yield Run(problem, inputs, order, ctas_of(kernel, problem, number), f"{WHERE} ({sizes})")
