"""What a cluster of CTAs does where clusters share rounds in a row (stream-K), as values in registers."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.lowering.emitter import Number


@dataclass(frozen=True, slots=True)
class Share:
    """What one cluster does.

    clusters  that do anything: no more than there are rounds
    own       its number
    rounds    of a whole tile
    shared    tiles that are shared; the others follow them
    each      rounds of these that every cluster does, and
    longer    how many clusters, the first ones, do one more
    begin     (tile, round) of the shared tiles with which it begins
    end       the same, where it stops
    pieces    shared tiles of which it does rounds
    count     tiles that it works on
    """

    clusters: Number
    own: Number
    rounds: Number
    shared: Number
    each: Number
    longer: Number
    begin: tuple[Number, Number]
    end: tuple[Number, Number]
    pieces: Number
    count: Number


@dataclass(frozen=True, slots=True)
class Piece:
    """What a cluster does of one tile: `trips` rounds from round `first` on."""

    share: Share
    tile: Number
    first: Number
    trips: Number
