"""What all attention machines have: their operands, what a tile of keys does to the running softmax, the reference.

Scores of a tile of queries with one tile of keys after another are exponentials under the largest score so far. Where a
tile brings a larger one, what was added up before is scaled down: sums and outputs are kept up to date, and divided at
the end. Numbers above the diagonal, and beyond the last key, are masked in the tiles that have some, and only there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Scalar,
    Tracer,
    between,
    exp2,
    maximum,
    minimum,
    uniform,
)
from tinygpu.ptx import isa

KINDS = ("f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}
LOG2_E = math.log2(math.e)
NOTHING_YET = -1e30  # below every score, and small enough that its exponential is 0
SMALLEST = 1e-30  # what is divided by where there are no keys


class OnlineSoftmax(Machine):
    """Weights of keys that come a tile at a time: what all machines of attention do with scores."""

    scale: Any = Scalar("f32", values=between(0.05, 0.2))  # above 0: the largest product has the largest score

    st, shuffle = isa.StGlobal(2), isa.ShflBfly()
    arithmetic, places = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32")
    larger, plus, choose = isa.Max("f32"), isa.Add("f32"), isa.Select("f32")
    compute, contract = "f32", True  # each weight takes one fma, and one exponential
    exact, approximation = False, 2.0**-8  # weights are rounded to 16 bits for the second product

    def begin(self, p: Tracer, scores: Any, out: Any) -> tuple[Any, Any, Any]:
        """Outputs, what brings the largest scores to 0 (`low`: these times -log2 e), and sums, of no keys."""
        rows = scores.reduced(1)
        return p.full(out, "f32"), p.full(rows, "f32", -NOTHING_YET * LOG2_E), p.full(rows, "f32")

    def hide(self, p: Tracer, w: Any, keys: Any, end: Any, query: Any = None) -> None:
        """Makes scores of keys that a row does not see as small as can be.

        keys   (the first of the tile, how many)
        end    of all keys: those from there on have no weight
        query  the key that the first row sees last, and the next row the next one; None: all see all
        """
        (j, columns), who = keys, w.partition
        with p.when(j + columns > (end if query is None else minimum(end, maximum(query + 1, 0)))):
            column = p.index(who.along(1), 1) + j
            seen = column < end
            if query is not None:
                seen = (column <= p.index(who.along(0), 0) + query) & seen
            p.apply(self.choose, seen, w, -math.inf, into=w)

    def weights(self, p: Tracer, w: Any, low: Any, total: Any, keys: Any, end: Any, query: Any = None) -> Any:
        """The weights of scores, and what earlier ones shrink by; keys, end and query as in `hide`."""
        self.hide(p, w, keys, end, query)
        factor = self.scale * LOG2_E
        new = minimum(low, p.reduce(self.larger, w, axis=1, by=self.shuffle) * (factor * -1.0))
        weights, keep = exp2(w * factor + new), exp2(new - low)
        total *= keep
        total += p.reduce(self.plus, weights, axis=1, by=self.shuffle)
        p.apply(self.plus, new, 0.0, into=low)
        return weights, keep


@dataclass(frozen=True, slots=True)
class Seen:
    """The keys that a tile of queries sees.

    first  of them
    count  how many, from there on, the last of its queries sees
    end    of all keys, for all queries
    query  the key that the first query sees last, and the next one the next key; None: all see all
    """

    first: Any
    count: Any
    end: Any
    query: Any = None


class Attends(OnlineSoftmax):
    """What a machine asks its operands: where rows of queries lie, and which keys they see."""

    def tiles(self, rows: Any) -> tuple[tuple[Any, Any], ...]:
        """The axes of the grid; the last one goes over tiles of so many queries."""
        raise NotImplementedError

    def queries(self, at: Any, i: Any, shape: Any) -> Any:
        """The window of the queries from i on, at a place in the other axes of the grid."""
        raise NotImplementedError

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Seen:
        """What a tile of queries sees, from query i on."""
        raise NotImplementedError

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        """Windows of the keys and values from j on; `who` brings them, where threads do."""
        raise NotImplementedError

    def leave(self, p: Tracer, at: Any, i: Any, o: Any, low: Any, total: Any) -> None:
        """Stores what all keys gave."""
        raise NotImplementedError


class Attention(Attends):
    """Operands: q has g heads for each of the h heads of k and v (grouped queries), in batches."""

    b, h, g, s, t, d = Dim(), Dim(), Dim(), Dim(), Dim(), Dim(64, 80, 96, 128, 160, 192, 224, 256)
    q = Input(KINDS, b, h, g, s, d)
    # values are finite: those of keys that a query does not see weigh 0, or are not looked at
    k, v = Input(ALIKE, b, h, t, d, follows=q), Input(ALIKE, b, h, t, d, follows=q, values=uniform(-256, 256))
    o = Output(ALIKE, b, h, g, s, d, follows=q)
    causal = Option(False, True)  # query i sees the keys 0 to i

    def tiles(self, rows: Any) -> tuple[tuple[Any, Any], ...]:
        return (self.b, 1), (self.h, 1), (self.g, 1), (self.s, rows)

    def queries(self, at: Any, i: Any, shape: Any) -> Any:
        return self.q.at(*at).tile(i, 0, shape=shape)

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Seen:
        count, query = (minimum(self.t, i + rows), i) if self.causal else (self.t, None)
        return Seen(0, count, self.t, query)

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        z, h, _ = at
        return self.k.at(z, h).tile(j, 0, shape=shape), self.v.at(z, h).tile(j, 0, shape=shape)

    def leave(self, p: Tracer, at: Any, i: Any, o: Any, low: Any, total: Any) -> None:
        p.store(self.st, self.o.at(*at).tile(i, 0, shape=o.shape), o * (1.0 / total))

    @staticmethod
    def reference(q: Any, k: Any, v: Any, scale: Any, causal: bool) -> Any:
        w = np.einsum("bhgsd,bhtd->bhgst", q.astype(np.float32), k.astype(np.float32)) * scale
        if causal:
            w = np.where(np.arange(w.shape[4]) <= np.arange(w.shape[3])[:, None], w, -np.inf)
        e = np.exp(w - w.max(axis=4, keepdims=True))
        weighed = np.einsum("bhgst,bhtd->bhgsd", e.astype(q.dtype).astype(np.float32), v.astype(np.float32))
        return weighed / e.sum(axis=4, keepdims=True)
