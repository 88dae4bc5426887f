"""One role of one CTA while a program runs: its numbers, registers and slots; and what all CTAs have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.interpreter.dealing import Work
from tinygpu.interpreter.elements import Array
from tinygpu.interpreter.exchange import Exchange
from tinygpu.interpreter.ring import Ring, Turns
from tinygpu.interpreter.store import Stored
from tinygpu.language.roles import Role
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A tile as it stands while a program runs: what a statement left in registers, or a slot that is full.

    statement  that made it; where a slot is consumed, the block that does
    tile       what it is called
    known      dims, numbers of the tile of the grid, and indices of the loops around
    values     its elements
    written    per element whether it has a value; None: all have
    operands   what it was made of
    """

    statement: n.Statement
    tile: Tile
    known: Mapping[str, int]
    values: Array
    written: NDArray[np.bool_] | None = None
    operands: tuple[Array, ...] = ()


# Told of every moment; what it returns stands in place of the values from there on.
Watch: TypeAlias = Callable[[Moment], Array]


@dataclass(slots=True, eq=False)
class Launch:
    """What the CTAs of a run share.

    tensors    by name
    scalars    by name, as elements
    partials   what CTAs left of a tile: (area, piece, tile) -> [(place among the owners, values)]
    preceding  what tiles along an axis of the grid have together so far: (statement, the others' numbers) -> a tuple
    """

    tensors: dict[str, Stored]
    scalars: dict[str, Array]
    watch: Watch | None = None
    partials: dict[tuple[int, int, tuple[int, ...]], list[tuple[int, Array]]] = field(default_factory=dict)
    preceding: dict[tuple[int, tuple[int, ...]], Any] = field(default_factory=dict)


@dataclass(slots=True)
class Line:
    """Where the user wrote what a role carries out: `place` is "file.py:12", or "" before it begins."""

    place: str = ""


@dataclass(slots=True, eq=False)
class Worker:
    """A role of a CTA.

    known      dims, indices of loops, numbers of the tile
    registers  name of a value -> the whole tile, as all threads hold it together
    slots      name of a pipeline -> its slot that is open
    exchange   what it brings to the other CTAs of its cluster
    rank       of the CTA among them
    tile       number of the tile among those of the CTA
    work       what the CTA does of it
    at         the statement that is carried out, of whichever tile
    """

    launch: Launch
    role: Role
    rings: dict[str, Ring]
    turns: dict[str, Turns]
    known: dict[str, int]
    work: Work
    exchange: Exchange
    rank: int = 0
    tile: int = 0
    registers: dict[str, Array] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    at: Line = field(default_factory=Line)

    def buffer(self, name: str) -> Stored:
        """The stage of a buffer that is open."""
        pipeline = name.split(".")[0]
        return self.rings[pipeline].buffers[name][self.slots[pipeline]]
