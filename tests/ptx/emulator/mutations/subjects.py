"""Kernels that are right, each with a problem of enough rounds: what is mutated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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

    text         module with this kernel alone
    make         a new launch, the same each time
    advisories   rules that the kernel itself is told
    """

    name: str
    text: str
    entry: str
    make: Callable[[], Launch]

    def __str__(self) -> str:
        return self.name
