"""What warps do with scores, weights and outputs in tensor memory: attention's softmax beside a thread that multiplies.

A warpgroup has a row of scores in each thread. The weights that it makes of them it stores in their columns, or in
columns of their own, as the left operand of the second product. Where a row has got a larger score, what was added up
before is scaled: by the same warpgroup, or by a role beside it, to which the factors go through shared memory, while
exponentials are computed; in every round, or only where a score has grown by more than 2^8: until then weights relative
to the old one are as good, since sums are of the same ones, and no weight is above 256.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tinygpu.language import Choice, Tracer, blocked, ceil_div, exp2, minimum
from tinygpu.machines.attention import LOG2_E, NOTHING_YET
from tinygpu.machines.attention_sums import ROWS, Cells, SumsInCells
from tinygpu.ptx import isa

GROWN = 8.0  # binary magnitudes by which scores may grow before anything is scaled


class AttendsInCells(SumsInCells):
    """What roles do with the slots of tiles of queries, each with its scores, weights and sums."""

    corrects = Choice("who weighs", "a role")  # who scales what was added up before
    powers = Choice("ex2", "a quarter by fma")  # who computes exponentials: polynomials are off by 2^-13.7 at most
    give, power = isa.StShared(1), isa.Ex2Fma(degree=3)
    shuffle: Any = None  # a thread has a whole row

    def weigh(self, p: Tracer, cells: Cells, at: Any, i: Any, bm: Any, first: int, sent: Any) -> None:
        """What a warpgroup does with the queries from `first` on of a tile; to who corrects it sends what it finds."""
        row = blocked((ROWS, self.bn), threads=ROWS, vector=8, across=1, name="scores")
        seen, each, factor = self.seen(p, at, i, bm), row.reduced(1), self.scale * LOG2_E
        low, total = p.full(each, "f32", -NOTHING_YET * LOG2_E), p.full(each, "f32")

        def send(value: Any) -> None:
            with sent.produce() as s:
                p.store(self.give, s.f, value)

        def weighed(j: Any, earlier: bool, slot: Any = None) -> None:
            """slot  that of all, where there is one"""
            nonlocal total
            with cells.scores.consume() if slot is None else nullcontext(slot) as s:
                w = p.load(self.ld, s.scores, row)
            self.hide(p, w, (seen.first + j, self.bn), seen.end, None if seen.query is None else seen.query + first)
            new = minimum(low, p.reduce(self.larger, w, axis=1) * (factor * -1.0))
            if self.scaled == "where it grew":
                new = p.where(low - new > GROWN, new, low)
            keep = exp2(new - low)
            if earlier and sent is not None:
                send(keep)
            total *= keep
            parts = 1 if self.powers == "ex2" else 4
            extent = (ROWS, self.bn // parts)
            with cells.weights.produce() if slot is None else nullcontext(slot) as s:
                for number in range(parts):
                    at = (0, self.bn // parts * number)
                    grown = (w if parts == 1 else w.window(at, extent)) * factor + new
                    weights = exp2(grown) if number + 1 < parts or parts == 1 else p.apply(self.power, grown)
                    total += p.reduce(self.plus, weights, axis=1)
                    p.store(self.put, s.weights.window(at, extent), p.cast(weights, self.q.dtype))
            p.apply(self.plus, new, 0.0, into=low)
            if earlier and sent is None:
                with cells.sums.consume() if slot is None else nullcontext(slot) as s:
                    self.rescale(p, s, keep)

        def round_of(j: Any, earlier: bool) -> None:
            if not cells.together:
                weighed(j, earlier)
                return
            with cells.scores.consume() as s:
                weighed(j, earlier, s)

        round_of(0, False)
        with p.loop(p.until(ceil_div(seen.count, self.bn) - 1)) as number:
            if cells.together:
                with cells.sums.consume():
                    pass  # the weights were multiplied, and there is room for scores
            round_of((number + 1) * self.bn, True)
        if sent is not None:
            send(total)
        if cells.together or sent is None:
            with cells.sums.consume() as s:
                if sent is None:
                    self.leave_sums(p, s, at, i + first, total)
