"""Combines of several tiles at once: a value and its place, a mean and its spread, a maximum and a sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Combine:
    """How two tuples of values become one, whichever stands first: what `p.reduce` and `p.scan` combine tiles with.

    merge     of (p, left, right): makes one tuple of two, with `p.apply` of element-wise instructions of the machine
    identity  the tuple with which nothing changes: what an exclusive scan begins with; () where there is none

    >>> def better(p, left, right): ...
    >>> Combine(better, identity=(float("-inf"), 0)).name
    'better'
    """

    merge: Callable[..., Any]
    identity: tuple[float, ...] = ()

    @property
    def name(self) -> str:
        return getattr(self.merge, "__name__", type(self.merge).__name__)
