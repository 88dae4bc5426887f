"""New rows of caches go where a table of slots says."""

from typing import Any

from tinygpu.language import Dim, InOut, Input, Machine, Param, Tracer, blocked, integers
from tinygpu.ptx import isa


class Append(Machine):
    """Rows of k and v go to the slots of the caches that a table names; -1: nowhere"""

    t, c, size = Dim(), Dim(), Dim()
    k, v = Input("f16", t, c), Input("f16", t, c)
    slots = Input("s32", t, values=integers(-1, size, distinct=True))
    keys, values = InOut("f16", size, c), InOut("f16", size, c)

    warps, rows, vector = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4, 8)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.t, shape[0]), (self.c, shape[1])) as (i, j), p.role("all", warps=self.warps):
            at = p.load(self.single, self.slots.column(i, shape[0]), who.along(0), fill=-1)
            for new, cache in ((self.k, self.keys), (self.v, self.values)):
                x = p.load(self.ld, new.tile(i, j, shape=shape), who)
                p.store(self.st, cache.rows(at).tile(0, j, shape=shape), x)

    @staticmethod
    def reference(k: Any, v: Any, slots: Any, keys: Any, values: Any) -> Any:
        def after(cache: Any, new: Any) -> Any:
            cache = cache.copy()
            cache[slots[slots >= 0]] = new[slots >= 0]
            return cache

        return {"keys": after(keys, k), "values": after(values, v)}
