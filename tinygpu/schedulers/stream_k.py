"""Stream-K: all clusters of CTAs do the same number of rounds, over the tiles in a row, wherever tiles begin and end.

Clusters share some of the tiles: all rounds of these in a row are cut into pieces that differ by one round at most, and
each cluster gets one piece. The other tiles are dealt whole, as many to each cluster: all full waves but one, so that
shared tiles are few, and have two owners at most. With fewer tiles than clusters, all are shared (Osama et al.,
"Stream-K", PPoPP 2023: two-tile stream-K with data-parallel tiles). Clusters begin with what they share; what some
leave of it is fixed up while others still multiply.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, any_of, maximum, minimum, symbol
from tinygpu.schedulers.launch_rule import MOST_ROUNDS, LaunchRule
from tinygpu.schedulers.run_time import RunTime, Value
from tinygpu.schedulers.scheduler import ONE, Sharing, TileScheduler, Walk, Work
from tinygpu.schedulers.sliced import StaticPersistent


@dataclass(frozen=True, slots=True)
class StreamKWalk(Walk):
    """What one cluster does. Its items are counted from 0 on: first what it shares, then whole tiles.

    clusters  that do anything: no more than there are rounds
    own       its number
    rounds    of a whole tile
    in_row    tiles that are shared; the others follow them
    each      rounds of these that every cluster does, and
    longer    how many clusters, the first ones, do one more
    start     (tile, round) of the shared tiles with which it begins
    stop      the same, where it stops
    pieces    shared tiles of which it does rounds
    """

    clusters: Value = 1
    own: Value = 0
    rounds: Value = 1
    in_row: Value = 0
    each: Value = 0
    longer: Value = 0
    start: tuple[Value, Value] = (0, 0)
    stop: tuple[Value, Value] = (0, 0)
    pieces: Value = 0

    def work(self, run: RunTime, item: Value) -> Work:
        (first_tile, first_round), (last_tile, last_round) = self.start, self.stop
        inside = run.less(item, self.pieces)
        running = run.add(first_tile, item)
        later = run.add(run.add(run.mul(run.sub(item, self.pieces), self.clusters), self.in_row), self.own)
        ends = run.both(inside, run.equal(running, last_tile))
        first = run.select(first_round, 0, run.equal(item, 0))
        trips = run.sub(run.select(last_round, self.rounds, ends), first)
        return Work(run.select(running, later, inside), 0, (first, trips))

    def shared(self, run: RunTime, work: Work) -> Value:
        return run.less(_rounds(work)[1], self.rounds)

    def owners(self, run: RunTime, work: Work, tile: Value) -> tuple[Value, Value]:
        long = run.add(self.each, 1)
        of_longer = run.mul(self.longer, long)

        def owner(number: Value) -> Value:
            """The cluster that does this round, of all in a row."""
            early, late = run.div(number, long), run.div(run.sub(number, of_longer), self.each)
            return run.select(early, run.add(late, self.longer), run.less(number, of_longer))

        start = run.mul(tile, self.rounds)
        first = owner(start)
        last = owner(run.sub(run.add(start, self.rounds), 1))
        return first, run.add(run.sub(last, first), 1)

    def own_place(self, run: RunTime, work: Work) -> Value:
        """A cluster has two places, the second for a tile that it begins."""
        begins = run.select(1, 0, run.equal(_rounds(work)[0], 0))
        return run.add(run.mul(self.own, 2), begins)

    def place(self, run: RunTime, first: Value, owner: Value) -> Value:
        """The first owner begins the tile."""
        begins = run.select(1, 0, run.equal(owner, 0))
        return run.add(run.mul(run.add(first, owner), 2), begins)


def _rounds(work: Work) -> tuple[Value, Value]:
    if work.rounds is None:
        raise ValueError("a tile of a stream-K grid has rounds of its own")
    return work.rounds


@dataclass(frozen=True, slots=True, eq=False)
class StreamK(TileScheduler):
    """Rounds in a row where `on` is 1; where it is 0, the slices of tiles round robin.

    otherwise  how tiles are dealt where it is off
    """

    on: Expr
    otherwise: TileScheduler

    @property
    def title(self) -> str:
        return f"{self.otherwise.title}; stream-K: {self.on}"

    @property
    def persistent(self) -> bool:
        return self.otherwise.persistent

    @property
    def slices(self) -> Expr:
        return self.otherwise.slices

    @property
    def shares(self) -> bool:
        return True

    @property
    def sharers(self) -> str:
        return "CTAs share tiles" if self.slices.same(1) else self.otherwise.sharers

    @property
    def writers(self) -> str:
        return "all" if self.slices.same(1) else self.otherwise.writers

    @property
    def deals_rounds(self) -> bool:
        return True

    def settled(self) -> TileScheduler:
        if not int(self.on):
            return self.otherwise.settled()
        if int(self.slices) > 1:
            raise ValueError(
                "tiles are shared by rounds in a row, or each by the same number of CTAs, not both: stream_k is 1, and "
                f"there are {self.slices} slices"
            )
        return self

    def refusal(self) -> str:
        if not isinstance(self.otherwise, StaticPersistent):
            return "stream-K is for CTAs that take tile after tile; open the grid with persistent=True"
        return ""

    def conditions(self) -> tuple[Constraint, ...]:
        either = (self.on == 0) | (self.slices == 1)
        sentence = "tiles are shared by rounds in a row, or each by the same number of CTAs"
        values = any_of([self.on == v for v in (0, 1)])
        return (
            Constraint("stream_k", values, "stream_k is 0 or 1", source="partition", judge="emulator"),
            Constraint("stream-K or split-K", either, sentence, source="partition", judge="emulator"),
        )

    def constraints(self, rounds: Expr) -> tuple[Constraint, ...]:
        few = (self.on == 0) | (rounds <= MOST_ROUNDS)
        sentence = "clusters that share rounds count those of two tiles for each in 32 bits"
        return (Constraint("rounds in a row", few, sentence, source="grid", judge="launch"),)

    @property
    def even(self) -> Expr:
        return self.on

    def sharing(self, tiles: Expr, cluster: Expr) -> tuple[Sharing, ...]:
        """Every place where one cluster ends and the next begins cuts a tile: it is one more addition.

        Each piece of a tile that is cut is left once and taken once.
        """
        clusters = maximum(symbol("device.sm_count") // cluster, 1)
        cut = minimum(clusters, tiles)
        pieces = clusters + cut
        in_a_row = Sharing(self.on, tiles, pieces, pieces, clusters, cut * 2, (cut + pieces, ONE * 0))
        return (in_a_row, *self.otherwise.sharing(tiles, cluster))

    @property
    def places(self) -> tuple[int, int]:
        return 0, 2

    @property
    def launch_rule(self) -> LaunchRule:
        return LaunchRule(self.persistent, by_rounds=True)

    def walk(self, run: RunTime, share: tuple[int, int]) -> StreamKWalk:
        own, rounds, tiles = run.own(), run.rounds(), run.tiles()
        launched = run.launched()
        few = run.less(tiles, launched)  # else their rounds may be too many for 32 bits, and are not needed
        clusters = run.select(run.minimum(launched, run.mul(tiles, rounds)), launched, few)
        waves = run.div(tiles, clusters)
        whole = run.sub(run.maximum(waves, 1), 1)
        in_row = run.sub(tiles, run.mul(whole, clusters))
        total = run.mul(in_row, rounds)
        each, longer = run.div(total, clusters), run.rem(total, clusters)

        def position(cluster: Value) -> tuple[Value, Value]:
            """(tile, round) at which a cluster begins."""
            before = run.add(run.mul(cluster, each), run.minimum(cluster, longer))
            return run.div(before, rounds), run.rem(before, rounds)

        start, stop = position(own), position(run.add(own, 1))
        partly = run.select(1, 0, run.less(0, stop[1]))
        pieces = run.add(run.sub(stop[0], start[0]), partly)
        count = run.select(run.add(pieces, whole), 0, run.less(own, clusters))
        rest, every = share
        return StreamKWalk(rest, every, count, clusters, own, rounds, in_row, each, longer, start, stop, pieces)
