"""A matrix of narrow weights times a vector (decoding one token): y = (w @ x) * scales, with a scale for each row.

Nothing but the weights takes time, so that they stay as narrow as they are until they lie in registers: a thread
loads 16 bytes of s8, e4m3 or s4, unpacks all values of each register at once, and multiplies in f32. Lanes, or whole
warps, lie side by side along a row and meet at its end; CTAs may share rows, where there are fewer rows than SMs have
room for, and meet in memory or as a cluster. Searched are the width of the loads, how many are under way at a time, who
lies along a row, how many rows each has, how many CTAs share them, and how.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    Choice,
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Tracer,
    blocked,
    minimum,
    symbol,
)
from tinygpu.ptx import isa

WEIGHTS = ("s8", "e4m3", "s4", "u4", "e2m1", "e5m2", "f16", "bf16")


class Matvec(Machine):
    """y = (w @ x) * scales for weights of 4, 8 or 16 bits, which are unpacked in registers"""

    m, k = Dim(), Dim()
    w = Input(WEIGHTS, m, k)
    x, scales = Input(("f16", "bf16", "f32"), k), Input("f32", m)
    y = Output({"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "f32": ("f32",)}, m, follows=x)
    scaled = Option(True, False)

    warps, across = Param(1, 2, 4, 8), Param(8, 16, 32, 64, 128, 256)
    vector, rows, split_k = Param(1, 2, 4, 8, 16, 32), Param(1, 2, 4), Param(1, 2, 4, 8)
    loads = Param(1, 2, 4)  # loads of a row that are under way at a time
    ld, ld_x, st = isa.LdGlobal(vector), isa.LdGlobal(minimum(vector, 4)), isa.StGlobal(1)
    ld_scale = isa.LdGlobalReadOnly(1)
    leave, take, exchange = isa.StGlobal(1), isa.LdGlobal(1), isa.Exchange("shuffles", "pairs")
    meet = Choice("through memory", "in a cluster")  # the CTAs that share rows
    arithmetic, plus, compute, contract = isa.arithmetic("f32"), isa.Add("f32"), "f32", True
    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    together = Require(
        split_k > 1, "a cluster has several CTAs", kind="dominance", only=(meet, "in a cluster"),
        why="one CTA alone does the same in the other way, without waiting for a cluster",
    )  # fmt: skip
    shared = Require(
        (split_k == 1) | ((m * across <= 2048 * symbol("device.sm_count")) & (split_k * across * vector * loads <= k)),
        "CTAs share rows only where those do not fill the device, and each has rounds of its own", kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has rows",
    )  # fmt: skip

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "scales" or bool(options["scaled"])

    def program(self, p: Tracer) -> None:
        threads, beside = 32 * self.warps, self.across * self.vector
        step = beside * self.loads
        shape, part = ((threads // self.across * self.rows, columns) for columns in (step, beside))
        who, of_part = (blocked(s, threads=threads, vector=self.vector, across=self.across) for s in (shape, part))
        cluster, apart = self.meet == "in a cluster", self.split_k * step
        cut = {"cluster": (1, self.split_k)} if cluster else {"slices": self.split_k}
        grid = p.grid((self.m, shape[0]), *([(apart, step)] if cluster else []), **cut)
        with grid as (i, *column), p.role("all", warps=self.warps):
            total = p.full(of_part, "f32")
            first: Any = column[0] if cluster else 0
            with p.loop(self.k, step=apart if cluster else step, divided=not cluster) as kk:
                w = p.load(self.ld, self.w.tile(i, first + kk, shape=shape), who)
                with p.unroll(step, step=beside) as c:
                    x = p.load(self.ld_x, self.x.row(first + kk + c, beside), of_part.along(1))
                    total += w.window((0, c), part) * x
            own = p.reduce(self.plus, total, axis=1, by=self.exchange, cluster=1 if cluster else None)
            meeting: Any = p.when(first < 1) if cluster else p.fix_up(self.plus, self.leave, self.take, own)
            with meeting as found:
                y = own if cluster else found
                if self.scaled:
                    y = y * p.load(self.ld_scale, self.scales.column(i, shape[0]), who.reduced(1))
                p.store(self.st, self.y.column(i, shape[0]), y)

    @staticmethod
    def reference(w: Any, x: Any, scaled: bool, scales: Any = 1.0) -> Any:
        return (w.astype(np.float32) @ x.astype(np.float32)) * scales
