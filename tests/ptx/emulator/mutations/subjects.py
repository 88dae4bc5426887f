"""Kernels that are right, each with a problem of enough rounds: what is mutated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mutations.statements import isolate

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
class Source:
    """A kernel that is right.

    text  module with this kernel alone
    make  a new launch, the same each time
    """

    text: str
    entry: str
    make: Callable[[], Launch]


@dataclass(frozen=True, eq=False)
class Subject:
    """A name and its kernel, which is built when something of it is first asked for: listing subjects is cheap."""

    name: str
    build: Callable[[], Source]

    @cached_property
    def source(self) -> Source:
        return self.build()

    @property
    def text(self) -> str:
        return self.source.text

    @property
    def entry(self) -> str:
        return self.source.entry

    @property
    def make(self) -> Callable[[], Launch]:
        return self.source.make

    def __str__(self) -> str:
        return self.name


def compiled(path: Path, make: Callable[[], Launch]) -> Source:
    """The kernel of a file of PTX that is called as the function that launches it."""
    return Source(isolate(path.read_text(), make.__name__), make.__name__, make)


def rng(seed: int = 9) -> np.random.Generator:
    return np.random.default_rng(seed)


def same(got: Values, want: Values) -> Callable[[], bool]:
    return lambda: bool(np.array_equal(got, want))


def close(got: Values, want: Values, rtol: float = 1e-5, atol: float = 1e-6) -> Callable[[], bool]:
    return lambda: bool(np.allclose(got, want, rtol=rtol, atol=atol))


def launch(right: Callable[[], bool], grid: Any, block: Any, *args: Any, **more: Any) -> Launch:
    return Launch({"grid": grid, "block": block, "args": list(args), **more}, right)
