"""What was added up in tensor memory: attention's outputs, scaled where scores have grown, and their way out.

Who scales them is a role beside the one that weighs scores, or that one. Outputs leave a piece of their columns at a
time, from registers: a thread has a row of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tinygpu.language import Choice, ExchangePlan, Tracer, blocked, ceil_div, one_of, reciprocal
from tinygpu.machines.attention import Attention
from tinygpu.ptx import isa

ROWS = 128  # of queries: the lanes of tensor memory, and the threads of a warpgroup
RARELY = one_of(0, 1, weights=(7, 1))  # whether keys of a tile have such a score: an assumption of predictions alone


@dataclass(frozen=True, slots=True)
class Cells:
    """Pipelines of one tile of queries in tensor memory: one of all, or one each of scores, of weights and of sums."""

    scores: Any
    weights: Any
    sums: Any

    @property
    def together(self) -> bool:
        return self.scores is self.sums

    @contextmanager
    def summed(self) -> Iterator[tuple[Any, Any]]:
        """(what holds the weights, what holds the sums) while they are multiplied."""
        if self.together:
            with self.sums.produce() as s:
                yield s, s
            return
        with self.weights.consume() as w, self.sums.produce() as s:
            yield w, s


class SumsInCells(Attention):
    """What roles do with the sums of tiles of queries."""

    scaled = Choice("every round", "where it grew")
    ld, put, get, st = isa.Tcgen05Ld(), isa.Tcgen05St(), isa.LdShared(1), isa.StGlobal(8)
    most, together = isa.Max("s32"), ExchangePlan("redux", isa.ShflUp(), at_once=isa.Redux())
    bn: Any
    piece: Any

    def correct(self, p: Tracer, cells: Any, sent: Any, at: Any, i: Any, bm: Any) -> None:
        """What a role does that scales the sums of all tiles of queries while their scores are weighed."""
        each = blocked((ROWS, self.piece), threads=ROWS, vector=8, across=1, name="outputs").reduced(1)
        waiting = [ring.sums for ring in cells if ring.together]
        for sums in waiting:
            with sums.consume():
                pass  # there is nothing to scale at the first keys
        with p.loop(p.until(ceil_div(self.seen(p, at, i, bm).count, self.bn) - 1)):
            for sums in waiting:
                with sums.consume():
                    pass
            for ring, factors in zip(cells, sent, strict=True):
                with ring.sums.consume() as s, factors.consume() as f:
                    self.rescale(p, s, p.load(self.get, f.f, each))
        for g, (ring, factors) in enumerate(zip(cells, sent, strict=True)):
            with ring.sums.consume() as s, factors.consume() as f:
                self.leave_sums(p, s, at, i + ROWS * g, p.load(self.get, f.f, each))

    def rescale(self, p: Tracer, s: Any, keep: Any) -> None:
        """Scales what was added up; by branches that all threads take, where there is little to do."""

        def scale_all() -> None:
            part = blocked((ROWS, self.piece), threads=ROWS, vector=8, across=1, name="outputs")
            with p.unroll(self.d, step=self.piece) as c:
                some = s.sums.window((0, c), (ROWS, self.piece))
                p.store(self.put, some, p.load(self.ld, some, part) * keep)

        if self.scaled == "every round":
            scale_all()
            return
        shrinks = p.where(keep < 1.0, p.full(keep.partition, "s32", 1), 0)
        shrinks = p.reduce(self.most, shrinks, axis=0, by=self.together)
        with p.when(p.number(shrinks, RARELY) > 0):
            scale_all()

    def leave_sums(self, p: Tracer, s: Any, at: Any, i: Any, total: Any) -> None:
        """Stores the outputs of the queries from i on."""
        part, whole = blocked((ROWS, self.piece), threads=ROWS, vector=8, across=1, name="outputs"), reciprocal(total)
        with p.unroll(self.d, step=self.piece) as c:
            some = p.load(self.ld, s.sums.window((0, c), (ROWS, self.piece)), part)
            p.store(self.st, self.o.at(*at).tile(i, c, shape=(ROWS, self.piece)), some * whole)
