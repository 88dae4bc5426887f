"""Whole numbers of which the last along each axis is the largest of its line, or the least, in turn.

A loop that ends an element too early loses the last one, and of a largest or a least result nothing else shows that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx.verification.signs import signed_operands

# Numbers of which the ends are left to last elements: both ends, and one between them.
_DIFFERENT = 3


def with_last_elements(
    problem: Problem, arrays: Mapping[str, NDArray[Any]], declared: Mapping[str, Distribution], other: bool
) -> dict[str, NDArray[Any]]:
    """The arrays, with last elements that are ends of what was drawn, and no others that are.

    Where numbers lie on both sides of zero, the ends are as far from it as any of them; where they do not, they are the
    least and the greatest. What is sorted, definite, all different or of a type narrower than a byte stays as it is,
    and so does what has fewer than three different numbers.

    other  the last of the first line is the least, and not the largest
    """
    out = dict(arrays)
    signed = {o.name for o in signed_operands(problem, declared)}
    for o in problem.operands:
        if o.name not in arrays or not arrays[o.name].size or not _may_change(o, declared):
            continue
        wide = arrays[o.name].astype(np.float64)
        law = declared.get(o.name)
        if o.name in signed:
            most = max(float(np.abs(wide).max()), 1.0)
            least, greatest = (-most, most) if law is None else law.ends_drawn
            ends = max(-most, least), min(most, greatest)
            wide = np.clip(wide, 1 - most, most - 1)
        else:
            different = np.unique(wide)
            if len(different) < _DIFFERENT:
                continue
            ends = float(different[0]), float(different[-1])
            wide = np.clip(wide, different[1], different[-2])
        for axis in range(wide.ndim):
            last = np.moveaxis(wide, axis, -1)[..., -1]
            turns = (np.arange(last.size).reshape(last.shape) + other) % 2
            np.moveaxis(wide, axis, -1)[..., -1] = np.where(turns, *ends)
        out[o.name] = wide.astype(o.dtype.numpy)
    return out


def has_single_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of numbers of either sign is one line along an axis: of it one end is the last, and no other."""
    shapes = [o.shape for o in signed_operands(problem, input_distributions(machine, problem))]
    return any(math.prod(shape) == size for shape in shapes for size in shape)


def _may_change(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    """Whether each number of an operand may be any of those that were drawn, whatever the others are."""
    law = declared.get(o.name)
    alone = law is None or not (law.distinct or law.law in ("ascending", "definite"))
    return alone and o.access != "out" and o.dtype.bits >= 8 and o.dtype.kind in ("float", "signed", "unsigned")
