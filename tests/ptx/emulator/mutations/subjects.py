"""Kernels that are right, each with a problem of enough rounds: what is mutated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """One launch on fresh buffers.

    options  for emulate (without entry and order)
    right    whether the buffers hold the right result
    """

    options: dict[str, Any]
    right: Callable[[], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A kernel that is right.

    text  module with this kernel alone
    make  a new launch, the same each time
    """

    name: str
    text: str
    entry: str
    make: Callable[[], Launch]

    def __str__(self) -> str:
        return self.name


def rng(seed: int = 9) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(got: Values, want: Values) -> Callable[[], bool]:
    return lambda: bool(np.array_equal(got, want))


def close(got: Values, want: Values, rtol: float = 1e-5, atol: float = 1e-6) -> Callable[[], bool]:
    return lambda: bool(np.allclose(got, want, rtol=rtol, atol=atol))


def launch(right: Callable[[], bool], grid: Any, block: Any, *args: Any, **more: Any) -> Launch:
    return Launch({"grid": grid, "block": block, "args": list(args), **more}, right)
