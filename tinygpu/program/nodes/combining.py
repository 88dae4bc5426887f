"""Statements in which threads combine what they hold along an axis of a tile."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, all_of, any_of, where
from tinygpu.language.exchange import ExchangePlan
from tinygpu.language.instruction import Elementwise, Instruction
from tinygpu.language.meeting import LANES, Meeting, meeting, words_of
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.program.nodes.computing import Apply
from tinygpu.program.statement import ONE, ZERO, Statement


@dataclass(frozen=True, slots=True, eq=False)
class Merge:
    """How two tuples of values become one: element-wise instructions, value by value.

    left, right  stand for the values of the two
    made         for what both become: of the two, or of the steps
    steps        in order
    identity     the tuple with which nothing changes; () where none is known
    ordered      whether left and right may not be exchanged without changing bits of what they become
    """

    left: tuple[Tile, ...]
    right: tuple[Tile, ...]
    made: tuple[Tile, ...]
    steps: tuple[Apply, ...]
    identity: tuple[float, ...] = ()
    ordered: bool = False

    @property
    def plain(self) -> Elementwise | None:
        """The one instruction that it is; None where it is written out."""
        return self.steps[0].instruction if not self.ordered and len(self.steps) == len(self.made) == 1 else None

    @property
    def steps_in_a_row(self) -> int:
        """How many of the steps wait for one another: the longest of the ways from the two to what they become."""
        after = dict.fromkeys((tile.name for tile in (*self.left, *self.right)), 0)
        for step in self.steps:
            waits = [after[o.name] for o in step.operands if isinstance(o, Tile)]
            after[step.result.name] = 1 + max(waits, default=0)
        return max(after[tile.name] for tile in self.made)

    @property
    def words(self) -> int:
        """Words of 32 bits in which a tuple goes to other threads."""
        return sum(words_of(tile.dtype.bits) for tile in self.made)


@dataclass(frozen=True, slots=True, eq=False)
class Combining(Statement):
    """Tiles whose values along an axis are combined, a tuple of one value of each at a time."""

    name: str
    merge: Merge
    by: ExchangePlan | None
    sources: tuple[Tile, ...]
    results: tuple[Tile, ...]
    axis: int

    @property
    def reads(self) -> tuple[Tile, ...]:
        return self.sources

    @property
    def writes(self) -> tuple[Tile, ...]:
        return self.results

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        used = [step.instruction for step in self.merge.steps]
        return (*dict.fromkeys(used), *(self.by.instructions if self.by is not None else ()))

    @property
    def meeting(self) -> Meeting:
        """Who meets."""
        partition = self.sources[0].partition
        if partition is None:
            raise ValueError(f"{self.sources[0].name} does not lie in registers")
        return meeting(partition, self.axis)

    @property
    def exchanged_bytes(self) -> Expr:
        if self.by is None or not self.by.warps:
            return ZERO
        return self.meeting.left_bytes(self.merge.words)

    @property
    def differs_from_plain(self) -> Expr:
        """Whether its exchange does something that a plain one would not do."""
        return any_of([False])

    def headline(self, turns: frozenset[str]) -> str:
        made, taken = (", ".join(map(str, tiles)) for tiles in (self.results, self.sources))
        by = f" by {self.by}" if self.by is not None and self.by.warps else ""
        return f"{made} = {self.name} {taken} along {self.axis}{by}"


@dataclass(frozen=True, slots=True, eq=False)
class Scan(Combining):
    """Every value along the axis becomes what all before it, and it itself, have together.

    exclusive  the value itself is left out
    carries    tiles of extent 1 along the axis: what stands before all of them, and then what all have together
    """

    exclusive: bool = False
    carries: tuple[Tile, ...] = ()

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (*self.sources, *self.carries)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (*self.results, *self.carries)

    @property
    def holders(self) -> Partition:
        """Who holds what, in the fewest digits."""
        partition = self.sources[0].partition
        if partition is None:
            raise ValueError(f"{self.sources[0].name} does not lie in registers")
        return partition.coalesced

    @property
    def exchanged_bytes(self) -> Expr:
        if self.by is None or not self.by.warps:
            return ZERO
        return self.meeting.scanned_bytes(self.merge.words)

    def headline(self, turns: frozenset[str]) -> str:
        made, taken = (", ".join(map(str, tiles)) for tiles in (self.results, self.sources))
        by = f" by {self.by}" if self.by is not None and self.by.warps else ""
        before = f" after {', '.join(map(str, self.carries))}" if self.carries else ""
        kind = "exclusive scan" if self.exclusive else "scan"
        return f"{made} = {kind} {self.name} {taken} along {self.axis}{before}{by}"


@dataclass(frozen=True, slots=True, eq=False)
class Preceding(Combining):
    """What the tiles before this one along an axis of the grid have together; of the first one, what changes nothing.

    Every CTA publishes what it has, looks back at what those before it have published, and then publishes what all of
    them have together, so that those behind it need not look further (decoupled look-back).

    grid  the axis
    """

    grid: int = 0

    @property
    def exchanged_bytes(self) -> Expr:
        return self.meeting.of_ctas_bytes(self.merge.words)

    def headline(self, turns: frozenset[str]) -> str:
        made, taken = (", ".join(map(str, tiles)) for tiles in (self.results, self.sources))
        return f"{made} = {self.name} {taken} of the tiles before along {self.grid} of the grid"


@dataclass(frozen=True, slots=True, eq=False)
class PrecedingInCluster(Combining):
    """What the CTAs before this one in its cluster have together; of the first one, what changes nothing.

    cluster  axis of the grid along which they stand before each other
    ctas     how many they are
    carries  what stands before all of them, and then what all have together, too
    """

    cluster: int = 0
    ctas: Expr = ONE
    carries: tuple[Tile, ...] = ()

    @property
    def reads(self) -> tuple[Tile, ...]:
        return (*self.sources, *self.carries)

    @property
    def writes(self) -> tuple[Tile, ...]:
        return (*self.results, *self.carries)

    @property
    def taken(self) -> Expr:
        """CTAs of which each takes what they have: nobody asks for the last one's, but to carry it on."""
        return self.ctas if self.carries else self.ctas - 1

    @property
    def exchanged_bytes(self) -> Expr:
        return ZERO

    @property
    def cluster_bytes(self) -> Expr:
        return where(self.ctas > 1, self.meeting.of_ctas_bytes(self.merge.words), 0)

    @property
    def meets_ctas(self) -> Expr:
        return self.ctas

    def headline(self, turns: frozenset[str]) -> str:
        made, taken = (", ".join(map(str, tiles)) for tiles in (self.results, self.sources))
        before = f" after {', '.join(map(str, self.carries))}" if self.carries else ""
        return f"{made} = {self.name} {taken} of the CTAs before along {self.cluster} of the cluster{before}"


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Combining):
    """All values along the axis become one, which every thread that held one of them holds.

    cluster  axis of the grid along which the CTAs of a cluster combine what they have as well; None: each has its own
    ctas     how many they are
    """

    cluster: int | None = None
    ctas: Expr = ONE

    @property
    def cluster_bytes(self) -> Expr:
        return where(self.ctas > 1, self.meeting.of_ctas_bytes(self.merge.words), 0)

    @property
    def meets_ctas(self) -> Expr:
        return self.ctas

    def headline(self, turns: frozenset[str]) -> str:
        beside = "" if self.cluster is None else f", and of the cluster along {self.cluster}"
        return f"{Combining.headline(self, turns)}{beside}"

    @property
    def differs_from_plain(self) -> Expr:
        who, plain = self.meeting, self.merge.plain
        if self.by is None:
            return any_of([False])
        at_once = self.by.at_once is not None and plain is not None and bool(self.by.at_once.form(plain))
        pairs = (who.warps % 2 == 0) & (who.lanes % 2 == 0) & (who.together == 1)
        return any_of([all_of([who.lanes == LANES, at_once]), all_of([pairs, self.by.in_pairs])])
