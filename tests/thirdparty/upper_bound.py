"""Binary search: each thread goes its own way through sorted keys."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, ascending, blocked, integers, where
from tinygpu.ptx import isa


class UpperBound(Machine):
    """y[i] = how many of the sorted keys are at most x[i]"""

    m, n = Dim(), Dim()
    rounds = Dim(follows=lambda n: int(n).bit_length())
    keys = Input("s32", n, values=ascending(-1000, 1000))
    x = Input("s32", m, values=integers(-1100, 1100))
    y = Output("s32", m)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)
    whole = isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            low, high = p.full(who, "s32"), p.full(who, "s32", self.n)
            with p.loop(self.rounds):
                open, middle = low < high, (low + high) >> 1
                key = p.load(self.single, self.keys.rows(where(open, middle, -1)).tile(0, shape=shape), who)
                right = (key <= x) & open
                up, down = where(right, middle + 1, low), where(right | ~open, high, middle)
                p.cast(up, "s32", into=low)
                p.cast(down, "s32", into=high)
            p.store(self.st, self.y.tile(i, shape=shape), low)

    @staticmethod
    def reference(keys: Any, x: Any) -> Any:
        return np.searchsorted(keys, x, side="right").astype(np.int32)
