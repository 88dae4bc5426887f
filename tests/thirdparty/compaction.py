"""Results whose number data decide: what is kept goes to the front, in its order, by a scan over the grid."""

from typing import Any

from tinygpu.language import Dim, InOut, Input, Machine, Param, blocked
from tinygpu.ptx import isa


class Compaction(Machine):
    """y begins with the elements of x above zero, in their order; count[0] += how many"""

    n = Dim()
    x, y = Input("f32", n), InOut("f32", n)
    count = InOut("s32", 1)

    warps, vector, step = Param(1, 4, 8, 16), Param(1, 2, 4), Param(1, 2, 4, 8)
    ld, st, more, select = isa.LdGlobal(vector), isa.StGlobal(1), isa.Compare("f32", ">"), isa.Select("s32")
    atomic, add, exchange = isa.RedGlobal("add"), isa.Add("s32"), isa.Exchange("shuffles", "pairs")

    def program(self, p: Any) -> None:
        shape = (32 * self.warps * self.vector * self.step,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who, fill=-1.0)
            keep = x > 0.0
            one = p.where(keep, p.full(who, "s32", 1), 0)
            place = p.scan(self.add, one, axis=0, exclusive=True, by=self.exchange, grid=0)
            p.store(self.st, self.y.rows(p.where(keep, place, -1)).tile(0, shape=shape), x)
            p.store(self.atomic, self.count.tile(0, shape=(1,)), p.reduce(self.add, one, axis=0, by=self.exchange))

    @staticmethod
    def reference(x: Any, y: Any, count: Any) -> Any:
        kept, y = x[x > 0], y.copy()
        y[: len(kept)] = kept
        return {"y": y, "count": count + len(kept)}
