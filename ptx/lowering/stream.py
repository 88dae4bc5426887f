"""Stream-K: all clusters of CTAs do the same number of rounds, over the tiles in a row, wherever tiles begin and end.

Clusters share some of the tiles: all rounds of these in a row are cut into pieces that differ by one round at most, and
each cluster gets one piece. The other tiles are dealt whole, as many to each cluster: all full waves but one, so that
shared tiles are few, and have two owners at most. With fewer tiles than clusters, all are shared (Osama et al.,
"Stream-K", PPoPP 2023: two-tile stream-K with data-parallel tiles). Clusters begin with what they share; what some
leave of it is fixed up while others still multiply.
"""

from __future__ import annotations

from tinygpu.expressions import Expr
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg
from tinygpu.ptx.lowering.grid import tile_count, tile_indices
from tinygpu.ptx.lowering.share import Piece, Share
from tinygpu.ptx.lowering.sync import Trips


def rounds_of_tile(program: Program) -> Expr:
    """Rounds that the divided loops of a program have for a whole tile."""
    return next(s.trips for s in walk(program.body) if isinstance(s, n.Repeated) and s.divided)


def trips_of(context: Context, s: n.Repeated, number: Number, ahead: int = 0) -> Trips:
    """How many rounds a loop has, by what decides it; `ahead`: of the tile that the CTA takes so many tiles later."""
    shared = s.divided and bool(int(context.program.grid.stream_k))
    return Trips("the CTA's own rounds" if shared else str(s.trips), number, ahead, shared)


def share_of(context: Context) -> Share:
    """The share of the CTA's cluster."""
    emit, grid = context.emit, context.program.grid
    if int(grid.parts) > 1:
        raise LoweringError(
            "tiles are shared by rounds in a row, or each by the same number of CTAs, not both: stream_k is 1, and "
            f"there are {grid.parts} slices"
        )
    rounds, tiles = context.number(rounds_of_tile(context.program)), tile_count(context)
    launched = emit.div(emit.computed("r", "mov.u32 {d}, %nctaid.x;"), context.cluster_size)
    few = emit.less(tiles, launched)  # else their rounds may be too many for 32 bits, and are not needed
    clusters = emit.select(emit.minimum(launched, emit.mul(tiles, rounds)), launched, few)
    waves = emit.div(tiles, clusters)
    whole = emit.sub(emit.computed("r", "max.u32 {d}, {0}, 1;", waves), 1)
    shared = emit.sub(tiles, emit.mul(whole, clusters))
    total = emit.mul(shared, rounds)
    each, longer = emit.div(total, clusters), emit.rem(total, clusters)
    own = context.cluster_number()

    def position(cluster: Number) -> tuple[Number, Number]:
        """(tile, round) at which a cluster begins."""
        before = emit.add(emit.mul(cluster, each), emit.minimum(cluster, longer))
        return emit.div(before, rounds), emit.rem(before, rounds)

    begin, end = position(own), position(emit.add(own, 1))
    partly = emit.select(1, 0, emit.less(0, end[1]))
    pieces = emit.add(emit.sub(end[0], begin[0]), partly)
    count = emit.select(emit.add(pieces, whole), 0, emit.less(own, clusters))
    return Share(clusters, own, rounds, shared, each, longer, begin, end, pieces, count)


def piece_of(context: Context, share: Share, item: Number) -> Piece:
    """What the cluster does of the tile that it takes as number `item`, from 0 on."""
    emit = context.emit
    (first_tile, first_round), (last_tile, last_round) = share.begin, share.end
    inside = emit.less(item, share.pieces)
    running = emit.add(first_tile, item)
    later = emit.add(emit.add(emit.mul(emit.sub(item, share.pieces), share.clusters), share.shared), share.own)
    ends = emit.both(inside, _equal(emit, running, last_tile))
    first = emit.select(first_round, 0, _equal(emit, item, 0))
    trips = emit.sub(emit.select(last_round, share.rounds, ends), first)
    return Piece(share, emit.select(running, later, inside), first, trips)


def enter(context: Context, share: Share, item: Number) -> None:
    """The tile that the cluster takes as number `item` is the one that it works on."""
    context.piece = piece_of(context, share, item)
    tile_indices(context, context.piece.tile)


# ---- tiles with several owners --------------------------------------------------------------------------------------


def own_piece(context: Context) -> Piece:
    """The piece that the cluster works on."""
    if context.piece is None:
        raise LoweringError("no tile is open")
    return context.piece


def is_shared(context: Context) -> Number:
    """Whether other clusters do rounds of the tile too."""
    piece = own_piece(context)
    return context.emit.less(piece.trips, piece.share.rounds)


def owners(context: Context, tile: Number) -> tuple[Number, Number]:
    """(the first cluster that does rounds of a shared tile, how many do)."""
    emit, share = context.emit, own_piece(context).share
    long = emit.add(share.each, 1)
    of_longer = emit.mul(share.longer, long)

    def owner(number: Number) -> Number:
        """The cluster that does this round, of all in a row."""
        early, late = emit.div(number, long), emit.div(emit.sub(number, of_longer), share.each)
        return emit.select(early, emit.add(late, share.longer), emit.less(number, of_longer))

    start = emit.mul(tile, share.rounds)
    first = owner(start)
    last = owner(emit.sub(emit.add(start, share.rounds), 1))
    return first, emit.add(emit.sub(last, first), 1)


def place_of_own(context: Context) -> Number:
    """Number of the place where the cluster leaves its piece: it has two, the second for a tile that it begins."""
    emit, piece = context.emit, own_piece(context)
    begins = emit.select(1, 0, _equal(emit, piece.first, 0))
    return emit.add(emit.mul(piece.share.own, 2), begins)


def place_of(context: Context, first: Number, number: Number) -> Number:
    """The same, for owner `number` of a tile whose first owner is `first`; that one begins the tile."""
    emit = context.emit
    begins = emit.select(1, 0, _equal(emit, number, 0))
    return emit.add(emit.mul(emit.add(first, number), 2), begins)


def _equal(emit: Emitter, a: Number, b: Number) -> Number:
    if isinstance(a, int) and isinstance(b, int):
        return int(a == b)
    return emit.computed("p", "setp.eq.u32 {d}, {0}, {1};", *((a, b) if isinstance(a, Reg) else (b, a)))
