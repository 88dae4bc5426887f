"""How threads that hold parts of one result exchange them: between the lanes of a warp, and between warps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygpu.language.instruction import Instruction, LaneCombine, Shuffle


@dataclass(frozen=True, eq=False)
class ExchangePlan:
    """One way in which the threads that differ along an axis combine what they have.

    Lanes of a warp meet first. Then warps leave their results in shared memory, and meet at a barrier of their role.

    name     what a point of a space shows
    shuffle  between lanes
    at_once  combines what all lanes of a warp have, in one instruction; None: lanes meet in pairs, by the shuffle
    in_pairs between warps, each lane takes what some of them left, and lanes meet in pairs again; else each takes all
    warps    whether warps may exchange at all
    """

    name: str
    shuffle: Shuffle
    at_once: LaneCombine | None = None
    in_pairs: bool = False
    warps: bool = True

    def __str__(self) -> str:
        return self.name

    @property
    def plain(self) -> bool:
        """Whether lanes meet in pairs, and every thread takes what all warps left."""
        return self.at_once is None and not self.in_pairs

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """Those of the machine that it uses."""
        return (self.shuffle,) if self.at_once is None else (self.shuffle, self.at_once)

    def meaning(self, combine: Callable[[Any, Any], Any], values: Any, axis: int) -> Any:
        """The tile combined along an axis; it has extent 1 there."""
        return self.shuffle.meaning(combine, values, axis)


def lanes_only(shuffle: Shuffle) -> ExchangePlan:
    """The lanes of a warp exchange by an instruction, and warps do not."""
    return ExchangePlan(str(shuffle), shuffle, warps=False)
