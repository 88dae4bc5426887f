"""Lines beyond the finite numbers with which a program starts, fills or masks.

A least distance that starts at 1000, or logits that are masked by -10000, are right on numbers near zero. So lines lie
far beyond the least of such numbers, and beyond the greatest, whatever the reference has in their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.language.inputs import input_distributions
from tinygpu.language.machine import Machine
from tinygpu.language.problem import Operand, Problem
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.traced import traced
from tinygpu.ptx.verification.undeclared import is_free
from tinygpu.ptx.verification.values import EXTREMES

# Sums of larger ones say nothing in single precision; and what masks is no small number.
_MOST, _LEAST_MASK = 2.0**20, 8.0
# So far beyond a number, an exponential has nothing left of it.
_BEYOND = 240.0


def starts_of(kernel: Kernel, machine: type[Machine], problem: Problem) -> tuple[float, ...]:
    """Of the numbers with which the program starts, fills or masks floats, the least below zero and the greatest above.

    Empty where it does that with zeros, infinities and numbers that stand for these alone, or no input may lie beyond.
    """
    declared = input_distributions(machine, problem)
    found = [c for c in _numbers(kernel, machine, problem) if 0 < abs(c) <= _MOST]
    ends = (min((c for c in found if c < 0), default=0.0), max((c for c in found if c > 0), default=0.0))
    return tuple(c for c in ends if c and any(_far(o, c, declared) is not None for o in problem.operands))


def has_lines_and_vectors(machine: type[Machine], problem: Problem) -> bool:
    """Whether some of what may lie beyond a number is one line, and some is more."""
    declared = input_distributions(machine, problem)
    return len({_is_vector(o) for o in problem.operands if o.access != "out" and is_free(o, declared)}) == 2


def with_lines_beyond(
    problem: Problem,
    arrays: Mapping[str, NDArray[Any]],
    declared: Mapping[str, Distribution],
    number: float,
    vectors: bool,
) -> dict[str, NDArray[Any]]:
    """The arrays, of which every other line of floats, along the last axis, lies far beyond a number.

    vectors  what is one line lies there, and all else is as it was drawn; or the other way round, unless all are such
    """
    out = dict(arrays)
    read = [o for o in problem.operands if o.name in arrays]
    apart = len({_is_vector(o) for o in read if is_free(o, declared)}) == 2
    for o in read:
        far = _far(o, number, declared)
        if far is not None and not (apart and _is_vector(o) != vectors):
            rows = arrays[o.name].astype(np.float64).reshape(-1, arrays[o.name].shape[-1])
            rows[::2] = far + (rows[::2] if abs(far) < EXTREMES[o.dtype.name][0] / 2 else 0.0)
            out[o.name] = rows.reshape(arrays[o.name].shape).astype(o.dtype.numpy)
    return out


def _far(o: Operand, number: float, declared: Mapping[str, Distribution]) -> float | None:
    """Where lines of an operand lie beyond a number; None where they may not, or its type has no such numbers."""
    if o.access == "out" or not is_free(o, declared):
        return None
    most = EXTREMES[o.dtype.name][0]
    far = max(-most, min(2 * number + math.copysign(_BEYOND, number), most))
    return far if abs(far) >= abs(number) + _BEYOND else None


def _is_vector(o: Operand) -> bool:
    return math.prod(o.shape[:-1]) == 1


def _numbers(kernel: Kernel, machine: type[Machine], problem: Problem) -> Iterator[float]:
    for s in walk(traced(kernel, machine, problem).program.body):
        if isinstance(s, n.Constant) and s.result.dtype.is_float and isinstance(s.value, (int, float)):
            yield float(s.value)
        elif isinstance(s, n.Load) and s.result.dtype.is_float:
            yield float(s.fill)
        elif isinstance(s, n.Apply) and s.instruction.sign == "where" and s.result.dtype.is_float:
            masks = (float(o) for o in s.operands if isinstance(o, (int, float)))
            yield from (c for c in masks if abs(c) >= _LEAST_MASK)
