"""Combines of several tiles at once: a value and its place, a mean and its spread, a maximum and a sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygpu.dtypes import DType


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


def identity_of(sign: str, kind: DType) -> float | None:
    """With what the operation of a sign changes nothing, of a type; None where that is not known.

    >>> from tinygpu.dtypes import dtype
    >>> identity_of("*", dtype("f32")), identity_of("maximum", dtype("s32")), identity_of("-", dtype("f32"))
    (1, -2147483648, None)
    """
    if sign in ("+", "|", "^", "*"):
        return int(sign == "*")
    signed = kind.kind == "signed"
    if sign == "&" and not kind.is_float:
        return -1 if signed else (1 << kind.bits) - 1
    if sign not in ("maximum", "minimum"):
        return None
    largest = sign == "minimum"
    if kind.is_float:
        return math.inf if largest else -math.inf
    lowest = -(1 << kind.bits - 1) if signed else 0
    return lowest + (1 << kind.bits) - 1 if largest else lowest
