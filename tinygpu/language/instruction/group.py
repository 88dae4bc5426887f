"""A group: usual instructions under one name, of which a machine has those that its program uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinygpu.language.instruction.elementwise import Elementwise


@dataclass(frozen=True, eq=False)
class Group:
    """Element-wise instructions that operators and functions of tiles may stand for.

    An instruction that the machine declares by itself comes before one of a group with the same sign and types. Among
    the twelve kinds of instructions that a machine has, a group counts for each unit that the program uses of it: the
    lanes for fma, those for integers, the special functions.

    title    how listings call it: arithmetic("f32")
    members  the instructions
    """

    title: str
    members: tuple[Elementwise, ...]

    def __str__(self) -> str:
        return self.title

    def __iter__(self) -> Iterator[Elementwise]:
        return iter(self.members)
