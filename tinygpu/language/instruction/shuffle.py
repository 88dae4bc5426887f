"""Shuffle, LaneRead, LaneShift, LaneCombine: values between the lanes of a warp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.language.instruction.base import Instruction, Scope, Unit
from tinygpu.language.instruction.elementwise import Elementwise


def pairwise(combine: Callable[[Any, Any], Any], values: Any, axis: int) -> Any:
    """An array combined along an axis, pair by pair and then pairs of pairs; it has extent 1 there."""
    while (count := values.shape[axis]) > 1:
        low, high, rest = np.split(values, [count // 2, count // 2 * 2], axis=axis)
        values = np.concatenate([combine(low, high), rest], axis=axis)
    return values


@dataclass(frozen=True, eq=False)
class Shuffle(Instruction):
    """Exchanges 32-bit values between the lanes of a warp (butterfly)."""

    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"

    def meaning(self, combine: Callable[[Any, Any], Any], values: Any, axis: int) -> Any:
        """The tile combined along an axis, pair by pair and then pairs of pairs; it has extent 1 there."""
        return pairwise(combine, values, axis)

    def statement(self, result: str, value: str, mask: int) -> str:
        """PTX that gives each lane the value of the lane whose number differs in the bits of `mask`; in 32 bits."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return self._owes(Shuffle, "statement") or self._silent("statement", "%r0", "%r1", 1)


@dataclass(frozen=True, eq=False)
class LaneRead(Shuffle):
    """A shuffle in which each lane may read any lane of its warp, and one lane may be read by many."""

    def read(self, result: str, value: str, lane: str) -> str:
        """PTX that gives each lane the value of lane `lane`, a register or a number; in 32 bits."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return self._owes(LaneRead, "statement", "read")


@dataclass(frozen=True, eq=False)
class LaneShift(LaneRead):
    """A lane read that also gives each lane what the lane so many places below has: what prefixes are made with."""

    def up(self, result: str, value: str, distance: int) -> str:
        """PTX that gives each lane the value of the lane `distance` below it, or any if none is; in 32 bits."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return self._owes(LaneShift, "statement", "read", "up")


@dataclass(frozen=True, eq=False)
class LaneCombine(Instruction):
    """Combines what all 32 lanes of a warp have, for some element-wise instructions; every lane gets the result."""

    scope: ClassVar[Scope] = "warp"

    def form(self, combine: Elementwise) -> str:
        """PTX with {d} and {a} that combines as this instruction does; "" where it cannot."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return self._owes(LaneCombine, "form")
