"""Flat modes with vector strides: the arithmetic that the algebra of layouts and of coordinates share.

A mode is (size, (d1, ..., dn)). A list of them, fastest first, is the map from a linear index to n numbers; n is 1
for a layout into offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = tuple[int, ...]
Mode: TypeAlias = tuple[int, Vector]


def merged(modes: Iterable[Mode]) -> list[Mode]:
    """The shortest list with the same function: size 1 drops, and s0:d0, s1:(s0 d0) becomes (s0 s1):d0.

    It is unique: the first mode's size is where the function first leaves the straight line through 0 and 1, and so on.
    """
    out: list[Mode] = []
    for extent, step in modes:
        if extent == 1:
            continue
        if out and step == tuple(out[-1][0] * d for d in out[-1][1]):
            out[-1] = (out[-1][0] * extent, out[-1][1])
        else:
            out.append((extent, step))
    return out


def value_at(index: int, modes: Sequence[Mode], width: int) -> Vector:
    """The `width` numbers at a linear index."""
    total = [0] * width
    for extent, step in modes:
        digit = index % extent
        index //= extent
        total = [t + digit * d for t, d in zip(total, step, strict=True)]
    return tuple(total)


def values_at(indices: NDArray[np.int64], modes: Sequence[Mode], width: int) -> NDArray[np.int64]:
    """(len(indices), width) the numbers at each linear index."""
    rest = np.array(indices, dtype=np.int64)
    total = np.zeros((len(rest), width), dtype=np.int64)
    for extent, step in modes:
        total += (rest % extent)[:, None] * np.array(step, dtype=np.int64)
        rest //= extent
    return total


def read_modes(values: NDArray[np.int64]) -> list[Mode] | tuple[int, int]:
    """The modes of a function that is listed, (size, width); or (run, size) where a cut after `run` leaves a part.

    If any modes have this function, then these do; the caller compares, because the function may have none.
    """
    modes: list[Mode] = []
    while len(values) > 1:
        step = values[1]
        straight = (values == np.arange(len(values))[:, None] * step).all(axis=1)
        run = len(values) if straight.all() else int(np.argmin(straight))
        if len(values) % run:
            return run, len(values)
        modes.append((run, tuple(int(d) for d in step)))
        values = values[::run]
    return modes


def digits(value: int, radices: Sequence[int]) -> tuple[int, ...]:
    """The mixed-radix digits of `value`, lowest first; it must be below the product of the radices."""
    out = []
    for radix in radices:
        out.append(value % radix)
        value //= radix
    return tuple(out)
