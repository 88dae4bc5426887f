"""Tile schedulers: how the tiles of a grid are dealt to CTAs, as values.

A scheduler says what it admits, what it costs, what a launch needs, and what each cluster of CTAs works on. A new kind
is a class that derives from `TileScheduler`, in a file of its own, given to `p.grid(scheduler=)`: the language, the
counts, lowering, launches, verification and the interpreter ask it, and know no kind by name. A kernel carries it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, expr
from tinygpu.schedulers.launch_rule import LaunchRule
from tinygpu.schedulers.run_time import RunTime, Value

ZERO, ONE = expr(0), expr(1)


@dataclass(frozen=True, slots=True)
class Work:
    """What a cluster of CTAs does of one tile, or of a cluster of tiles.

    tile    its number
    slice   which of the equal slices of the tile
    rounds  (the first, how many) of divided loops, where clusters share rounds in a row; None: those of the slice
    """

    tile: Value
    slice: Value
    rounds: tuple[Value, Value] | None = None


@dataclass(frozen=True, slots=True)
class Walk:
    """What one cluster takes: the items `begin`, `begin + step`, ... below `end`.

    end  None: it takes one item, and of clusters that take each other over, then those that are answered
    """

    begin: Value
    step: Value = 1
    end: Value | None = None

    def items(self) -> range:
        """Its items, where its numbers are Python's."""
        return range(self.begin, self.begin + 1 if self.end is None else self.end, self.step)

    def work(self, run: RunTime, item: Value) -> Work:
        """What it does of an item."""
        return Work(item, 0)

    # -- tiles that several clusters work on ------------------------------------------------------------------------
    def shared(self, run: RunTime, work: Work) -> Value:
        """Whether others work on the tile too: True and False where that is known before the launch."""
        return False

    def owners(self, run: RunTime, work: Work, tile: Value) -> tuple[Value, Value]:
        """(the first cluster that works on the tile, how many do); a number where it is known before the launch."""
        return 0, 1

    def own_place(self, run: RunTime, work: Work) -> Value:
        """Number of the place where the cluster leaves what it has of the tile."""
        return 0

    def place(self, run: RunTime, first: Value, owner: Value) -> Value:
        """Number of the place of another owner, of all that begin with `first`."""
        return owner


@dataclass(frozen=True, slots=True)
class Sharing:
    """What fixing up costs, in pieces of a tile: CTAs leave and take values of some places over so many tiles.

    when    1 where it applies, else 0
    tiles   over which the following amounts are spread
    left    pieces that are left, and
    taken   taken again
    added   combinations of a value with another
    waits   waits for all threads
    trips   trips to memory and back, for so many pieces at once: (some, pieces that are taken one after another)
    """

    when: Expr
    tiles: Expr
    left: Expr
    taken: Expr
    added: Expr
    waits: Expr
    trips: tuple[Expr, Expr]


@dataclass(frozen=True, slots=True, eq=False)
class TileScheduler:
    """A way to deal tiles: a frozen dataclass, whose fields are expressions until numbers are filled in."""

    # -- what it is -------------------------------------------------------------------------------------------------
    @property
    def title(self) -> str:
        """What the listing of a program says behind the grid."""
        return ""

    @property
    def persistent(self) -> bool:
        """Whether a CTA takes tile after tile: as many are launched as are resident, or one for each item, of which
        those that run take over others.
        """
        return False

    @property
    def takes_over(self) -> bool:
        """Whether clusters go on to the items of clusters that they take over before these begin (or may, while
        numbers are open): then `walk` gives the one item of each cluster that is launched.
        """
        return False

    @property
    def answers(self) -> Expr:
        """Answers to the question for another cluster that a CTA has room for; 0 where nobody asks."""
        return ZERO

    @property
    def slices(self) -> Expr:
        """CTAs (or clusters) that share each tile, and divide loops into as many equal slices."""
        return ONE

    @property
    def shares(self) -> bool:
        """Whether more CTAs (or clusters) than one may work on a tile."""
        return not self.slices.same(1)

    @property
    def sharers(self) -> str:
        """Those who share a tile, in words."""
        return f"{self.slices} CTAs share each tile"

    @property
    def writers(self) -> str:
        """Which of those who share a tile would write, in words."""
        return f"each of the {self.slices}"

    @property
    def in_order(self) -> bool:
        """Whether every CTA has one tile, and those that are launched first the first tiles: it may wait for these."""
        return False

    @property
    def deals_rounds(self) -> bool:
        """Whether it is known at launch only how many rounds of divided loops a cluster does of a tile."""
        return False

    def settled(self) -> TileScheduler:
        """The scheduler, once its numbers are filled in; raises ValueError where they do not go together."""
        return self

    # -- what it admits ---------------------------------------------------------------------------------------------
    def refusal(self) -> str:
        """Why a grid cannot have it, whatever the numbers; "" where it can."""
        return ""

    def conditions(self) -> tuple[Constraint, ...]:
        """What its own numbers must keep to."""
        return ()

    def constraints(self, rounds: Expr) -> tuple[Constraint, ...]:
        """What a problem must keep to; rounds: of divided loops, of a whole tile."""
        return ()

    # -- what it costs ----------------------------------------------------------------------------------------------
    @property
    def even(self) -> Expr:
        """1 where all CTAs do the same work, whatever the number of tiles; else 0."""
        return ZERO

    def sharing(self, tiles: Expr, cluster: Expr) -> tuple[Sharing, ...]:
        """What a fix-up costs: alternatives, of which one applies."""
        return ()

    # -- what a launch needs ----------------------------------------------------------------------------------------
    @property
    def places(self) -> tuple[int, int]:
        """Places where values of tiles are left: (for every tile, for every CTA that is launched)."""
        return 0, 0

    @property
    def launch_rule(self) -> LaunchRule:
        """How many clusters a launch has, once numbers are filled in."""
        return LaunchRule(self.persistent, int(self.slices))

    # -- what it computes -------------------------------------------------------------------------------------------
    def walk(self, run: RunTime, share: tuple[int, int]) -> Walk:
        """What a cluster takes; share: (r, n), of a role that takes those items whose number leaves r by n."""
        raise NotImplementedError(f"{type(self).__name__} does not say which tiles a cluster takes")

