"""One role of one CTA while a program runs: its numbers, registers and slots; and what all CTAs have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tinygpu.interpreter.dealing import Work
from tinygpu.interpreter.elements import Array
from tinygpu.interpreter.ring import Ring, Turns
from tinygpu.interpreter.store import Stored
from tinygpu.language.roles import Role
from tinygpu.program import nodes as n

# Told of every tile that a statement leaves in registers, with the numbers of the loops around it; what it returns
# stands in the registers from there on.
Watch: TypeAlias = Callable[[n.Statement, Mapping[str, int], Array], Array]


@dataclass(slots=True, eq=False)
class Launch:
    """What the CTAs of a run share.

    tensors   by name
    scalars   by name, as elements
    partials  what CTAs left of a tile: (area, tile) -> [(place among the owners, values)]
    """

    tensors: dict[str, Stored]
    scalars: dict[str, Array]
    watch: Watch | None = None
    partials: dict[tuple[int, tuple[int, ...]], list[tuple[int, Array]]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Worker:
    """A role of a CTA.

    known      dims, indices of loops, numbers of the tile
    registers  name of a value -> the whole tile, as all threads hold it together
    slots      name of a pipeline -> its slot that is open
    tile       number of the tile among those of the CTA
    work       what the CTA does of it
    """

    launch: Launch
    role: Role
    rings: dict[str, Ring]
    turns: dict[str, Turns]
    known: dict[str, int]
    work: Work
    tile: int = 0
    registers: dict[str, Array] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)

    def buffer(self, name: str) -> Stored:
        """The stage of a buffer that is open."""
        pipeline = name.split(".")[0]
        return self.rings[pipeline].buffers[name][self.slots[pipeline]]
