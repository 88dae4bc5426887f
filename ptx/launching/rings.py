"""What a kernel says about its rings: how many slots each pipeline has, and how many of them a tile uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tinygpu.expressions import compile_arrays
from tinygpu.expressions.formula import read


@dataclass(frozen=True, slots=True)
class Ring:
    """A pipeline of a kernel, whichever way its program produces and consumes it.

    stages  slots, used one after the other
    slots   how many a CTA uses of one tile, at most: a formula over dims, "(k + 63) // 64"
    phases  whether mbarriers hand it over, whose phases alternate each time that the slots begin again
    """

    name: str
    stages: int
    slots: str
    phases: bool

    @property
    def dims(self) -> frozenset[str]:
        """The dims that decide how many slots a tile uses."""
        return _compiled(self.slots)[0]

    def slots_of(self, dims: Mapping[str, Any]) -> Any:
        """Slots that a tile uses, for dims that are integers or arrays of them."""
        return _compiled(self.slots)[1](dims)[0]


@lru_cache(maxsize=1024)
def _compiled(formula: str) -> tuple[frozenset[str], Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    expression = read(formula)
    return expression.symbols, compile_arrays(expression)
