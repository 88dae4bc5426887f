"""What warps do with scores, weights and outputs in tensor memory: attention's softmax beside a thread that multiplies.

A warpgroup has a row of scores in each thread. The weights that it makes of them it stores in their columns, as the
left operand of the second product. Where a row has got a larger score, what was added up before is scaled: by the same
warpgroup, or by a role beside it, to which the factors go through shared memory, while exponentials are computed; in
every round, or only where a score has grown by more than 2^8: until then weights relative to the old one are as good,
since sums are of the same ones, and no weight is above 256.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import Choice, ExchangePlan, Tracer, blocked, ceil_div, exp2, minimum, one_of, reciprocal
from tinygpu.machines.attention import LOG2_E, NOTHING_YET, Attention
from tinygpu.ptx import isa

ROWS = 128  # of queries: the lanes of tensor memory, and the threads of a warpgroup
GROWN = 8.0  # binary magnitudes by which scores may grow before anything is scaled
RARELY = one_of(0, 1, weights=(7, 1))  # whether keys of a tile have such a score: an assumption of predictions alone


class AttendsInCells(Attention):
    """What roles do with the slots of tiles of queries, each with its scores, weights and sums."""

    corrects = Choice("who weighs", "a role")  # who scales what was added up before
    scaled = Choice("every round", "where it grew")
    powers = Choice("ex2", "a quarter by fma")  # who computes exponentials: polynomials are off by 2^-13.7 at most
    ld, put, get, give, st = isa.Tcgen05Ld(), isa.Tcgen05St(), isa.LdShared(1), isa.StShared(1), isa.StGlobal(8)
    power, most = isa.Ex2Fma(degree=3), isa.Max("s32")
    together = ExchangePlan("redux", isa.ShflUp(), at_once=isa.Redux())
    bn: Any
    piece: Any

    def weigh(self, p: Tracer, ring: Any, at: Any, i: Any, bm: Any, first: int, sent: Any) -> None:
        """What a warpgroup does with the queries from `first` on of a tile; to who corrects it sends what it finds."""
        row = blocked((ROWS, self.bn), threads=ROWS, vector=8, across=1, name="scores")
        seen, each, factor = self.seen(p, at, i, bm), row.reduced(1), self.scale * LOG2_E
        low, total = p.full(each, "f32", -NOTHING_YET * LOG2_E), p.full(each, "f32")

        def send(value: Any) -> None:
            with sent.produce() as s:
                p.store(self.give, s.f, value)

        def weighed(s: Any, j: Any, earlier: bool) -> None:
            nonlocal total
            w = p.load(self.ld, s.scores, row)
            self.hide(p, w, (seen.first + j, self.bn), seen.end, None if seen.query is None else seen.query + first)
            new = minimum(low, p.reduce(self.larger, w, axis=1, by=self.shuffle) * (factor * -1.0))
            if self.scaled == "where it grew":
                new = p.where(low - new > GROWN, new, low)
            keep = exp2(new - low)
            if earlier and sent is not None:
                send(keep)
            total *= keep
            parts = 1 if self.powers == "ex2" else 4
            extent = (ROWS, self.bn // parts)
            for number in range(parts):
                at = (0, self.bn // parts * number)
                grown = (w if parts == 1 else w.window(at, extent)) * factor + new
                weights = exp2(grown) if number + 1 < parts or parts == 1 else p.apply(self.power, grown)
                total += p.reduce(self.plus, weights, axis=1, by=self.shuffle)
                p.store(self.put, s.weights.window(at, extent), p.cast(weights, self.q.dtype))
            p.apply(self.plus, new, 0.0, into=low)
            if earlier and sent is None:
                self.rescale(p, s, keep)

        with ring.consume() as s:
            weighed(s, 0, False)
        with p.loop(p.until(ceil_div(seen.count, self.bn) - 1)) as number:
            with ring.consume():
                pass  # the weights were multiplied, and there is room for scores
            with ring.consume() as s:
                weighed(s, (number + 1) * self.bn, True)
        if sent is not None:
            send(total)
        with ring.consume() as s:
            if sent is None:
                self.leave_sums(p, s, at, i + first, total)

    def correct(self, p: Tracer, cells: Any, sent: Any, at: Any, i: Any, bm: Any) -> None:
        """What a role does that scales the sums of all tiles of queries while their scores are weighed."""
        each = blocked((ROWS, self.piece), threads=ROWS, vector=8, across=1, name="outputs").reduced(1)
        for ring in cells:
            with ring.consume():
                pass  # there is nothing to scale at the first keys
        with p.loop(p.until(ceil_div(self.seen(p, at, i, bm).count, self.bn) - 1)):
            for ring in cells:
                with ring.consume():
                    pass
            for ring, factors in zip(cells, sent, strict=True):
                with ring.consume() as s, factors.consume() as f:
                    self.rescale(p, s, p.load(self.get, f.f, each))
        for g, (ring, factors) in enumerate(zip(cells, sent, strict=True)):
            with ring.consume() as s, factors.consume() as f:
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
