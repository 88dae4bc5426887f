"""Inputs whose lines, along the last axis, are all of one kind: far below zero, next to it, as drawn, or zero."""

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
from tinygpu.ptx.verification.encoded import encoded
from tinygpu.ptx.verification.reference_numbers import reduces_over_axes
from tinygpu.ptx.verification.specials import LARGE
from tinygpu.ptx.verification.values import EXTREMES, spacing

# Kinds of lines.
KINDS = 4
# What lines of one sign lie around: the exponential of it is zero in single precision, and its square an f16.
_BELOW = -240.0
# How far they lie around it, where their type has numbers between: a variance that is the difference of two means of
# squares has nothing left of such lines.
_AROUND = 2.0**-5
# What next to zero is, beside 1: its square is less than usual epsilons.
_NEAR = 2.0**-10


def with_lines(
    problem: Problem,
    arrays: dict[str, NDArray[Any]],
    declared: Mapping[str, Distribution],
    first: int = 0,
    blocks: bool = False,
) -> dict[str, NDArray[Any]]:
    """The arrays with lines, along the last axis of every input, that differ from each other.

    In turn they are far below zero, next to zero, as they were drawn, and zero; of vectors each is one line. So a
    largest element is below what a wrong fill is, and epsilons and guards of divisions decide. Random numbers have
    neither: among many, some are always above zero, and their squares add up to more than any epsilon. Of integers,
    and where numbers are declared, all are the least, all the greatest, as they were drawn, and zero where that is one
    of them.
    The first lines of two tensors are of the same kinds, the next ones of neighbouring kinds, and so on: where there
    are enough lines, each kind meets each.

    first   the kind of the first line: 0 far below zero, 1 next to it, 2 as drawn, 3 zero
    blocks  all that has one place along the first axis of three or more is of one kind: what is reduced over several
            axes is constant there, or far from zero
    """
    out, vectors = dict(arrays), 0
    for number, o in enumerate(o for o in problem.operands if o.name in arrays and _lined(o, declared)):
        array = arrays[o.name]
        drawn = array.astype(np.float64)
        rows = drawn.reshape(-1, array.shape[-1])
        turn, line = np.divmod(np.arange(len(rows)), KINDS)
        kind = (line + number * turn + first + (vectors if len(rows) == 1 else 0)) % KINDS
        if blocks and array.ndim > 2:
            kind = np.repeat(np.arange(array.shape[0]) + first, len(rows) // array.shape[0]) % KINDS
        vectors += len(rows) == 1
        law = declared.get(o.name)
        if law is None and o.dtype.is_float:
            below = max(_BELOW, -EXTREMES[o.dtype.name][0] / 2)
            near = max(_NEAR, 64 * EXTREMES[o.dtype.name][1])
            around = min(max(_AROUND, 2.0 * spacing(o.dtype, below)), 1.0)
            ways = [rows * around + below, rows * near, rows, 0 * rows]
        else:
            # of undeclared integers differences shall have a place in their type, too
            ends = (max(drawn.min(), -LARGE), min(drawn.max(), LARGE)) if law is None else law.ends_drawn
            zero = law is None or (not law.listed and law.low <= 0 <= law.high)
            ways = [*(np.full_like(rows, end) for end in ends), rows, 0 * rows if zero else rows]
        changed = np.select([kind[:, None] == k for k in range(KINDS)], ways).reshape(array.shape)
        out[o.name] = encoded(changed, law, o.dtype)
    return out


def has_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether lines of a tensor that is read may be told from each other."""
    declared = input_distributions(machine, problem)
    return any(_lined(o, declared) for o in problem.operands if o.access != "out")


def has_few_lines(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor has fewer lines than there are kinds of them; vectors count where there is nothing else."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and _lined(o, declared)]
    counts = [math.prod(shape[:-1]) for shape in shapes if len(shape) > 1] or [len(shapes)]
    return 0 < min(counts) < KINDS


def has_blocks(machine: type[Declared], problem: Problem) -> bool:
    """Whether the reference reduces over several axes of a tensor of three or more."""
    declared = input_distributions(machine, problem)
    deep = any(_lined(o, declared) and len(o.shape) > 2 for o in problem.operands if o.access != "out")
    return deep and reduces_over_axes(machine)


def has_few_blocks(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of three or more axes has fewer places along the first than there are kinds of lines."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and _lined(o, declared)]
    return any(len(shape) > 2 and shape[0] < KINDS for shape in shapes)


def _lined(o: Operand, declared: Mapping[str, Distribution]) -> bool:
    """Whether an operand has numbers of a byte or more of which those of a line may all be the same."""
    law = declared.get(o.name)
    alike = law is None or not (law.distinct or law.law in ("ascending", "definite"))
    return o.dtype.kind in ("float", "signed", "unsigned") and o.dtype.bits >= 8 and alike
