"""Inputs that show wrong fills of products: whole numbers of which lines are above zero, or below, throughout.

Of many random products one is always above zero, and one below, so that a largest or a least result never meets a zero
that stands for what is not there. So one tensor has lines, along its last axis, that are below and above zero in turn,
and all others are above: rows of products are below zero, or above, altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Operand, Problem

# Laws of which any number between the ends may be drawn, whatever the others are.
SPREAD = ("uniform", "normal", "integers")


def with_signs(
    problem: Problem, arrays: Mapping[str, NDArray[Any]], declared: Mapping[str, Distribution], other: bool
) -> dict[str, NDArray[Any]]:
    """Arrays of whole numbers with the signs of lines as they shall be, and no zeros among them.

    What has numbers of one sign only, is listed, sorted or definite, or of a type narrower than a byte stays as it is.

    other  the second tensor has lines of both signs; where there is one tensor, its first line is above zero
    """
    out = dict(arrays)
    signed = [o for o in signed_operands(problem, declared) if o.name in arrays]
    for number, o in enumerate(signed):
        array = arrays[o.name]
        size = np.maximum(np.abs(array.astype(np.float64)), 1)
        lines = np.arange(size.size // size.shape[-1]) if size.ndim else np.zeros(1, dtype=np.int64)
        below = (lines + (other and len(signed) == 1)) % 2 == 0 if number == min(other, len(signed) - 1) else lines < 0
        turned = np.where(below[:, None], -1, 1) * size.reshape(len(lines), -1)
        if law := declared.get(o.name):
            turned = np.clip(turned, *law.ends_drawn)
        out[o.name] = turned.reshape(array.shape).astype(o.dtype.numpy)
    return out


def has_other_signs(machine: type[Declared], problem: Problem) -> bool:
    """Whether another tensor than the first may have lines of either sign, or scalars have two ends."""
    declared = input_distributions(machine, problem)
    ends = any(s.name in declared for s in machine.scalars(dict(problem.options)))
    return ends or len(signed_operands(problem, declared)) > 1


def signed_operands(problem: Problem, declared: Mapping[str, Distribution]) -> list[Operand]:
    """What is read of numbers on both sides of zero."""
    return [o for o in problem.operands if o.access != "out" and _is_signed(o, declared)]


def _is_signed(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    """Whether any whole number near zero, below it or above, may be an element."""
    if o.dtype.bits < 8 or o.dtype.kind not in ("float", "signed"):
        return False
    law = declared.get(o.name)
    return law is None or (law.law in SPREAD and not law.distinct and law.low <= -1 and law.high >= 1)
