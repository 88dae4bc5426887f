"""What combining along an axis costs: merges, shuffles, selects, and what goes through shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import Expr, expr, maximum, where
from tinygpu.language.meeting import LANES
from tinygpu.program import nodes as n


@dataclass(frozen=True, slots=True)
class Combined:
    """What every warp does, each a number of instructions.

    merges    of two tuples
    in_a_row  those that wait for each other
    shuffles  words that lanes read of each other
    at_once   words that all lanes of a warp combine in one instruction
    selects   selp
    stores    words that are left for other warps
    stored    wavefronts of these, by all warps together: those that have copies of what another has leave none
    loads     requests for what other warps left
    taken     wavefronts of these
    barriers  at which the warps of the role meet
    rounds    exchanges between lanes that wait for each other
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


def reduced(s: n.Reduce) -> Combined:
    """What one reduction costs."""
    who, words, none = s.meeting, s.merge.words, expr(0)
    results = who.results
    crosses = where(who.warps > 1, 1, 0) if s.by is not None and s.by.warps else none
    in_pairs = s.by is not None and s.by.in_pairs
    pairs = crosses * bits(who.paired(in_pairs))
    own = where(who.warps > 1, who.warps // maximum(who.paired(in_pairs), 1), 1)
    whole = s.by is not None and s.by.at_once is not None
    in_warp = where(who.lanes == LANES, 0, bits(who.lanes)) if whole else bits(who.lanes)
    rounds = in_warp + pairs
    in_a_row = who.members - 1 + rounds + (own - 1)
    loads = crosses * results * words * (own // maximum(who.vector(in_pairs), 1))
    return Combined(
        merges=results * in_a_row,
        in_a_row=in_a_row,
        shuffles=results * words * rounds,
        at_once=results * (where(who.lanes == LANES, 1, 0) if whole else none),
        selects=results * (2 * len(s.merge.made) if s.merge.ordered else 0) * rounds,
        stores=crosses * results * words,
        stored=crosses * results * words * (who.groups // maximum(who.together, 1)) * who.warps,
        loads=loads,
        taken=crosses * results * words * own,
        barriers=crosses,
        rounds=rounds,
    )


def bits(lanes: Expr) -> Expr:
    """The logarithm of a power of two up to 32."""
    out = expr(0)
    for exponent in range(LANES.bit_length() - 1):
        out = out + where(lanes >= 2 ** (exponent + 1), 1, 0)
    return out
