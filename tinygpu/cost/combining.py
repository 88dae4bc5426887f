"""What combining along an axis costs: merges, shuffles, selects, and what goes through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygpu.cost.digits import counted_by
from tinygpu.expressions import Expr, Table, expr, maximum, tabulated, where
from tinygpu.language.meeting import LANES
from tinygpu.language.partition import Partition
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.program import nodes as n
from tinygpu.program.exchanged import exchanged_between
from tinygpu.program.scanning import Level, ThreadPart, levels, prefixes, thread_parts


@dataclass(frozen=True, slots=True)
class Combined:
    """What every warp does, each a number of instructions.

    merges    of two tuples
    in_a_row  those that wait for each other
    shuffles  words that lanes read of each other
    at_once   words that all lanes of a warp combine in one instruction
    selects   selp
    chosen    selp that wait for each other: in each round, where the order of two tuples counts
    stores    words that are left for other warps
    stored    wavefronts of these, by all warps together: those that have copies of what another has leave none
    loads     requests for what other warps left
    taken     wavefronts of these
    barriers  at which the warps of the role meet, or the CTAs of the cluster
    abroad    times that threads wait for what other CTAs left
    rounds    exchanges between lanes that wait for each other
    kept      values that are moved to where the results stand
    """

    merges: Expr
    in_a_row: Expr
    shuffles: Expr
    at_once: Expr
    selects: Expr
    stores: Expr
    stored: Expr
    loads: Expr
    taken: Expr
    barriers: Expr
    rounds: Expr
    kept: Expr
    abroad: Expr
    chosen: Expr


def reduced(s: n.Reduce) -> Combined:
    """What one reduction costs."""
    who, words, none = s.meeting, s.merge.words, expr(0)
    results = who.results
    crosses = where(who.warps > 1, 1, 0) if s.by is not None and s.by.warps else none
    abroad = where(s.ctas > 1, 1, 0)
    in_pairs = s.by is not None and s.by.in_pairs
    pairs = crosses * bits(who.paired(in_pairs))
    own = where(who.warps > 1, who.warps // maximum(who.paired(in_pairs), 1), 1)
    whole = s.by is not None and s.by.at_once is not None
    in_warp = where(who.lanes == LANES, 0, bits(who.lanes)) if whole else bits(who.lanes)
    rounds = in_warp + pairs
    merges = who.members - 1 + rounds + (own - 1) + (s.ctas - 1)
    loads = crosses * results * words * (own // maximum(who.vector(in_pairs), 1))
    taken_abroad = abroad * results * words * s.ctas
    leaving = who.groups // maximum(who.together, 1)
    return Combined(
        merges=results * merges,
        in_a_row=halvings(who.members) + rounds + halvings(own) + (s.ctas - 1),
        shuffles=results * words * rounds,
        at_once=results * (where(who.lanes == LANES, 1, 0) if whole else none),
        selects=results * (2 * len(s.merge.made) if s.merge.ordered else 0) * rounds,
        stores=(crosses + abroad) * results * words,
        stored=results * words * leaving * (crosses * who.warps + abroad),
        loads=loads + taken_abroad,
        taken=crosses * results * words * own + taken_abroad,
        barriers=crosses + abroad,
        abroad=abroad,
        rounds=rounds,
        kept=results,
        chosen=rounds if s.merge.ordered else none,
    )


def preceding(s: n.PrecedingInCluster) -> Combined:
    """What it costs to know what the CTAs of a cluster before each one have together."""
    who, words, none = s.meeting, s.merge.words, expr(0)
    results, abroad = who.results, where(s.ctas > 1, 1, 0)
    in_a_row = s.ctas if s.carries else maximum(s.ctas, 2) - 2
    taken = abroad * results * words * s.taken
    return Combined(
        merges=results * in_a_row,
        in_a_row=in_a_row,
        shuffles=none,
        at_once=none,
        selects=results * (s.ctas - 1) * len(s.merge.made),
        stores=abroad * results * words,
        stored=abroad * results * words * (who.groups // maximum(who.together, 1)),
        loads=taken,
        taken=taken,
        barriers=abroad,
        abroad=abroad,
        rounds=none,
        kept=results,
        chosen=none,
    )


def scanned(s: n.Scan) -> Combined:
    """What one scan costs: its own algorithm, carried out on nothing but counts."""
    partition = s.sources[0].partition
    if partition is None:
        raise ValueError(f"{s.sources[0].name} does not lie in registers")
    words, tiles = s.merge.words, len(s.merge.made)
    axis, exclusive, carried = s.axis, s.exclusive, bool(s.carries)

    def rule(layout: Layout) -> tuple[int, ...]:
        held = Partition(partition.shape, layout).coalesced
        try:
            ordered, (parts, _) = levels(held, axis), thread_parts(held, axis)
        except LayoutError:  # no candidate holds its tile so
            return (0,) * len(SCANNED)
        counting = _Counting(parts, ordered)
        values = [0] * held.values.size
        prefixes(ordered, values, counting, 0 if exclusive else None, values if carried else None)
        return (
            counting.merges, counting.shuffles * words, counting.selects * tiles, counting.stores * words,
            counting.stored * words, counting.loads * words, counting.taken * words, counting.barriers,
            counting.rounds, held.values.size,
        )  # fmt: skip

    found = counted_by(SCANNED, f"{axis} {exclusive} {carried} {words} {tiles}", [partition], rule)
    of = dict(zip(SCANNED, found, strict=True))
    kept = of.pop("kept")
    rounds = of["rounds"]
    return Combined(**of, in_a_row=kept + rounds, at_once=expr(0), kept=kept, abroad=expr(0), chosen=expr(0))


SCANNED = (
    "merges", "shuffles", "selects", "stores", "stored", "loads", "taken", "barriers", "rounds", "kept",
)  # fmt: skip


@dataclass(slots=True)
class _Counting:
    """Carries a scan out on nothing: counts what is asked for."""

    parts: list[ThreadPart]
    ordered: tuple[Level, ...]
    merges: int = 0
    shuffles: int = 0
    selects: int = 0
    stores: int = 0
    stored: int = 0
    loads: int = 0
    taken: int = 0
    barriers: int = 0
    rounds: int = 0

    def merged(self, left: int, right: int) -> int:
        self.merges += 1
        return 0

    def chosen(self, where: str | bool, yes: int, no: int) -> int:
        self.selects += isinstance(where, str)
        return 0

    def either(self, a: str | bool, b: str | bool) -> str | bool:
        return True if True in (a, b) else a or b

    def beyond(self, level: Level, least: int) -> str | bool:
        return "sometimes"

    def below(self, level: Level, value: int, distance: int) -> int:
        self.shuffles += 1
        self.rounds += 1
        return 0

    def last(self, level: Level, value: int) -> int:
        self.shuffles += 1
        return 0

    def left(self, level: Level, totals: Sequence[int]) -> list[list[int]]:
        by = exchanged_between(self.parts, self.ordered, level, len(totals), 1)
        self.barriers += 1
        self.rounds += 1
        self.stores += len(totals)
        self.stored += len(totals) * by.storing_warps
        self.loads += len(totals) * (by.own // by.vector)
        self.taken += len(totals) * by.own
        return [[0] * by.own for _ in totals]


def halvings(count: Expr) -> Expr:
    """How often so many become half as many, rounded up, until one is left: merges of neighbours that wait in a row."""
    return tabulated(Table("halvings", lambda number: max(number - 1, 0).bit_length()), count)


def bits(lanes: Expr) -> Expr:
    """The logarithm of a power of two up to 32."""
    out = expr(0)
    for exponent in range(LANES.bit_length() - 1):
        out = out + where(lanes >= 2 ** (exponent + 1), 1, 0)
    return out
