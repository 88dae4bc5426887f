"""Inputs with special values among random ones: NaN, infinities, extremes, and what overflows an exponential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.dtypes import DType
from tinygpu.language.declared import Declared
from tinygpu.language.inputs import input_distributions
from tinygpu.language.problem import Problem
from tinygpu.ptx.verification.undeclared import is_free
from tinygpu.ptx.verification.values import EXTREMES

# Special values of a tensor at least, or it has others in another run.
FEW_SPECIALS = 4
# Large enough for exp to overflow in single precision.
LARGE = 1000.0


def with_specials(
    rng: np.random.Generator,
    problem: Problem,
    arrays: dict[str, NDArray[Any]],
    declared: Mapping[str, Distribution],
    others: bool = False,
) -> dict[str, NDArray[Any]]:
    """The arrays with special values among those of every float input, each in a row and a column of its own.

    So at most one of them is among the terms of a sum along one axis; the bounds know what becomes of more. Where there
    is room for one, it is the number whose exponential overflows, which leaves a result to judge. What a machine
    declares values of has none but those: both ends are among them. The first lies at the end of every axis: whoever
    forgets the last element of a line forgets most of what the line has together. Another one like it begins a line:
    whoever takes the largest of the last tile for that of the line overflows.

    others  of tensors with few rows: minus infinity, NaN and infinity come first, and every row may have one
    """
    out = dict(arrays)
    free = [o for o in problem.operands if o.name in arrays and is_free(o, declared)]
    for number, o in enumerate(free):
        array = arrays[o.name].copy()
        first, *behind = specials(o.dtype)
        wanted = [*sorted(behind, key=_importance), first] if others else [first, first, *rng.permutation(behind)]
        lines = min(sorted(array.shape)[-2:])
        values = np.array(wanted[: min(_room(array.shape, others) + (not others), lines)])
        # Two differ along the two longest axes, so that no line has both; along all others they lie at one end.
        longest = sorted(range(array.ndim), key=lambda axis: array.shape[axis])[-2:]
        places = [
            _places(rng, extent, axis == max(longest) and not others)[: len(values)]
            if axis in longest
            else np.append(extent - 1, np.full(len(values) - 1, (extent - 1) * (number % 2)))
            for axis, extent in enumerate(array.shape)
        ]
        array[tuple(places)] = values.astype(o.dtype.numpy)
        out[o.name] = array
    return out


def has_few_specials(machine: type[Declared], problem: Problem) -> bool:
    """Whether a tensor of more dims than one has room for the first of the special values alone."""
    declared = input_distributions(machine, problem)
    shapes = [o.shape for o in problem.operands if o.access != "out" and is_free(o, declared)]
    return any(len(shape) > 1 and _room(shape, few=False) < FEW_SPECIALS <= max(shape) for shape in shapes)


def specials(dtype: DType) -> NDArray[np.float64]:
    """A number whose exponential overflows; NaN, infinities, the largest and smallest elements, negative zero."""
    largest, smallest = EXTREMES[dtype.name]
    infinities = [] if dtype.name == "e4m3" else [np.inf, -np.inf]
    large = min(LARGE, largest)
    return np.array([large, np.nan, *infinities, largest, -largest, smallest, -smallest, -0.0, -large])


def _room(shape: tuple[int, ...], few: bool) -> int:
    """Special values of a tensor, each in a line of its own along its two longest axes: half as many as it has lines,
    so that there are others; as many where there are few.
    """
    lines = min(sorted(shape)[-2:])
    return max(lines if few else lines // 2, 1)


def _places(rng: np.random.Generator, extent: int, begins: bool) -> NDArray[np.int64]:
    """All places along an axis, the last one first; then the first one, where that is asked, and else in any order."""
    if extent < 2 or not begins:
        return np.append(extent - 1, rng.permutation(extent - 1))
    return np.append([extent - 1, 0], 1 + rng.permutation(extent - 2))


def _importance(value: float) -> int:
    """Minus infinity, NaN and infinity come first."""
    return 0 if value == -np.inf else 1 if np.isnan(value) else 2 if value == np.inf else 3
