"""What every node of a program says of itself, so that walkers need not know its class.

A statement has `children` (the bodies that it contains, in the order of execution), `reads` and `writes` (the tiles
that it touches itself, not those of what it contains) and `instructions` (what the machine declared that it uses).
Whoever adds a class of statements says these in that class, and every walker of `tinygpu.program.tree` goes by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from tinygpu.expressions import Expr, expr
from tinygpu.language.instruction import Instruction
from tinygpu.language.partition import Partition
from tinygpu.language.roles import Token
from tinygpu.language.tile import Tile

ZERO, ONE = expr(0), expr(1)


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """What a statement contains, in one place of it.

    name        the field of the statement that holds it
    statements  in order
    produces       the pipeline whose next slot is being produced meanwhile; "": none
    consumes      the pipeline whose next slot is being consumed meanwhile; "": none
    ahead       it runs ahead of the bodies behind it: what its copies bring is under way while these work
    headline    what is printed above it, where the statement has several bodies
    along       other pipelines whose slots go with those of the one that is produced or consumed
    prefetch    steps of its unrolled loop that are loaded from the slot a round ahead
    """

    name: str
    statements: tuple[Statement, ...]
    produces: str = ""
    consumes: str = ""
    ahead: bool = False
    headline: str = ""
    along: tuple[str, ...] = ()
    prefetch: Expr = ZERO


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """A node of a program. A class of them is a frozen dataclass that derives from this one.

    place  the user's line that it was written in, "file.py:12"; "" where that is not known, as in saved programs
    """

    place: str = field(default="", kw_only=True, repr=False, metadata={"saved": False})

    @property
    def children(self) -> tuple[Body, ...]:
        """The bodies that it contains, in the order of execution; none for what is no block."""
        return ()

    def with_children(self, *bodies: tuple[Statement, ...]) -> Statement:
        """The same statement with other statements in its bodies, one tuple for each of `children`."""
        names = [body.name for body in self.children]
        if len(bodies) != len(names):
            raise ValueError(f"a {type(self).__name__} has {len(names)} bodies, and is given {len(bodies)}")
        kept: Any = self
        return cast(Statement, replace(kept, **dict(zip(names, bodies, strict=True)))) if bodies else self

    @property
    def reads(self) -> tuple[Tile, ...]:
        """Windows of tensors, buffers and register tiles that it reads itself; what it adds to is read and written."""
        return ()

    @property
    def writes(self) -> tuple[Tile, ...]:
        """Windows of tensors, buffers and register tiles that it writes itself."""
        return ()

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """What the machine declared that it uses: of a route the hops."""
        return ()

    @property
    def tokens(self) -> tuple[Token, ...]:
        """What it leaves under way."""
        return ()

    @property
    def scopes(self) -> tuple[str, ...]:
        """The pipelines whose buffers live for as long as it."""
        return ()

    @property
    def moves_under(self) -> Partition | None:
        """The partition under which a copy brings what it moves, though no register tile has a name."""
        return None

    @property
    def own_registers(self) -> Expr:
        """32-bit registers per thread that it takes while it is carried out, beside the tiles that it names."""
        return ZERO

    @property
    def defines(self) -> Mapping[str, Expr]:
        """The numbers that expressions behind it may name, up to the end of its body: name -> what each is taken for
        where nothing is known of the data, over dims and indices.
        """
        return {}

    @property
    def taken_where(self) -> Expr | None:
        """Where it is a branch, the condition under which all threads take it together."""
        return None

    @property
    def decides_by(self) -> tuple[Expr, ...]:
        """Expressions that are values themselves, or conditions: operands, where a branch is taken."""
        return ()

    @property
    def exchanged_bytes(self) -> Expr:
        """Shared memory in which the warps of its role leave what they exchange while it is carried out."""
        return ZERO

    @property
    def cluster_bytes(self) -> Expr:
        """Shared memory in which its CTA leaves what the CTAs of a cluster exchange while it is carried out."""
        return ZERO

    @property
    def meets_ctas(self) -> Expr:
        """CTAs of a cluster that wait for each other in it."""
        return ONE

    @property
    def in_place(self) -> bool:
        """Whether what it writes may be a tile that is there already, or take the registers of an operand."""
        return False

    def headline(self, turns: frozenset[str]) -> str:
        """One line; `turns` are the pipelines without buffers."""
        what = f"{type(self).__name__.lower()} {', '.join(map(str, self.reads))}".rstrip()
        made = f"{', '.join(map(str, self.writes))} = {what}" if self.writes else what
        return f"{made}:" if self.children else made


class Block(Statement):
    """A statement with one body."""

    __slots__ = ()
    body: tuple[Statement, ...]

    @property
    def children(self) -> tuple[Body, ...]:
        return (Body("body", self.body),)


class Repeated(Statement):
    """A block whose bodies are carried out `trips` times; `index` counts the rounds from `first` on.

    unrolled  lowering writes the rounds out
    divided   CTAs that share a tile divide the rounds; where rounds are dealt, `trips` counts those of a whole tile
    """

    __slots__ = ()
    index: str
    trips: Expr
    first: Expr
    divided: bool

    @property
    def written_out(self) -> bool:
        """Whether lowering writes the rounds out, instead of a loop at run time."""
        return False

    def with_trips(self, trips: Expr) -> Repeated:
        """The same block with another number of rounds."""
        kept: Any = self
        return cast(Repeated, replace(kept, trips=trips))

    @property
    def rounds(self) -> str:
        """The rounds in words."""
        below = f"{self.index} < {self.trips}"
        return below if self.first.same(0) else f"{self.trips} rounds {self.index} from {self.first}"


class InSlot(Block):
    """A block that works on the next slot of a pipeline."""

    __slots__ = ()
    pipeline: str
