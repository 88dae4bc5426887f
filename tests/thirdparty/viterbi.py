"""The best path through the states of a hidden Markov model: what a step leaves is what the next one begins with."""

from typing import Any

import numpy as np

from tinygpu.language import Combine, Dim, Input, Machine, Output, Tracer, blocked, equal, minimum, uniform, where
from tinygpu.ptx import isa


class Viterbi(Machine):
    """v[t, j] = e[t, j] + the largest v[t - 1, i] + a[i, j] over i, back[t, j] the first such i: a warp per sequence"""

    b, t = Dim(), Dim()
    s = Dim(16, 32)
    a, e = Input("f32", s, s, values=uniform(-4, 4)), Input("f32", b, t, s, values=uniform(-4, 4))
    v, back = Output("f32", b, t, s), Output("s32", b, t, s)

    ld, st, shuffle, read = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.ShflIdx()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return where(x > y, x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        who = blocked((self.s, self.s), threads=32, axis=0, across=self.s)  # rows: the state before
        with p.grid((self.b, 1)) as (z,), p.role("all", warps=1):
            a = p.load(self.ld, self.a.tile(0, 0, shape=who.shape), who)
            before = p.full(who.reduced(1), "f32")
            with p.loop(self.t) as t:
                score, at = p.reduce(Combine(self.better), (a + before, p.index(who, 0)), axis=0, by=self.shuffle)
                score += p.load(self.ld, self.e.at(z).tile(t, 0, shape=(1, self.s)), who.reduced(0))
                p.store(self.st, self.v.at(z).tile(t, 0, shape=(1, self.s)), score)
                p.store(self.st, self.back.at(z).tile(t, 0, shape=(1, self.s)), at)
                p.cast(p.relayout(score.T, who.reduced(1), self.read), "f32", into=before)

    @staticmethod
    def reference(a: Any, e: Any) -> Any:
        best, v, back = 0 * e[:, 0], [], []
        for t in range(e.shape[1]):
            scores = best[:, :, None] + a
            back.append(scores.argmax(axis=1))
            best = scores.max(axis=1) + e[:, t]
            v.append(best)
        return {"v": np.stack(v, axis=1), "back": np.stack(back, axis=1).astype(np.int32)}
