"""The real problem with shorter loops, whose tensors reach as far as its own.

What a CTA of the real problem shows beyond the derived ones are offsets as large as the real ones. Those along its
loops need no round after round: with fewer rounds and wider strides the last round is as far out. So a CTA whose loops
are long runs as many rounds as a derived problem has, in which every ring goes round.
"""

from __future__ import annotations

from dataclasses import replace

from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem, ProblemError
from tinygpu.language.tensors import extent_of
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.verification.derived import legality


def shortened(kernel: Kernel, machine: type[Machine], problem: Problem, small: Problem) -> Problem | None:
    """The problem with the loops of a derived one; None where none of them is shorter, or they cannot be.

    Tiles keep their places and rows their strides. Along a shortened dim strides grow by as much as it shrinks, but for
    the contiguous axis. Dims that others follow from, or that the kernel has as numbers, stay.
    """
    together = {name for d in machine.following_dims() for name in (d.name, *d.reads)}
    kept = {*together, *dict(kernel.known), *(d for d, _ in kernel.tiles)}
    dims = {
        d: small.dim[d] for d, _ in kernel.steps if d not in kept and d in small.dim and small.dim[d] < problem.dim[d]
    }
    if not dims or not legality(kernel, machine, problem)(dims):
        return None
    try:
        operands = tuple(_reaching(o, dict(kernel.shapes)[o.name], problem.dim | dims) for o in problem.operands)
        made = Problem(tuple((d, dims.get(d, size)) for d, size in problem.dims), operands, problem.options)
        kernel.check(made)
    except (LaunchError, ProblemError):
        return None
    return made


def _reaching(operand: Operand, names: tuple[str, ...], dims: dict[str, int]) -> Operand:
    """The operand with other dims, its last element as far from its first as before, or a little less."""
    shape = tuple(extent_of(name, dims) for name in names)
    order, strides = operand.memory_order, list(operand.strides())
    for axis in order[1:]:
        if 1 < shape[axis] < operand.shape[axis]:
            strides[axis] *= (operand.shape[axis] - 1) // (shape[axis] - 1)
    ld = strides[order[1]] if len(order) > 1 else shape[0]
    return replace(operand, shape=shape, ld=ld, outer=tuple(strides[axis] for axis in order[2:]))
