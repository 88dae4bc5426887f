"""A group: usual instructions under one name, of which a machine has those that its program uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinygpu.language.instruction.elementwise import Elementwise


@dataclass(frozen=True, eq=False)
class Group:
    """Element-wise instructions that operators and functions of tiles may stand for.

    An instruction that the machine declares by itself comes before one of a group with the same sign and types. A group
    is one of the twelve kinds of instructions of a machine, with those of its members that are declared beside it.

    title    how listings call it: arithmetic("f32")
    members  the instructions
    """

    title: str
    members: tuple[Elementwise, ...]

    def __str__(self) -> str:
        return self.title

    def __iter__(self) -> Iterator[Elementwise]:
        return iter(self.members)
