"""Drawn programs of asynchronous products: two rings, whose sums are used, shrunk and multiplied in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param
from tinygpu.ptx import isa

ROUND = 64
Ops = tuple[str, ...]
# What a round may do: multiply into x or y, use or shrink the sums, or take those of x for the left operand of y.
KINDS = ("x += a @ b", "y += left @ v", "use x", "use y", "shrink x", "shrink y", "left = x", "nothing")


def drawn_ops(rng: np.random.Generator) -> Ops:
    """Both products, once or twice, among what else a round does."""
    again, others = rng.choice(KINDS[:2], rng.integers(0, 2)), rng.choice(KINDS[2:], rng.integers(1, 6))
    return tuple(str(op) for op in rng.permutation([*KINDS[:2], *again, *others]))


def machine(ops: Ops) -> type[Machine]:
    """A machine that does so in each round of its loop."""

    class DrawnGroups(Machine):
        """o = what a drawn sequence makes of a @ b and left @ v"""

        m, k = Dim(), Dim()
        a = Input("f16", m, k)
        b, v = Input("f16", k, 64), Input("f16", k, 64)
        o = Output("f32", m, 64)
        stages, stages_v = Param(1, 2, 3), Param(1, 2, 3)
        tma, st = isa.TmaLoad(), isa.StGlobal(2)
        wgmma, by_registers = isa.Wgmma(64), isa.WgmmaRegisters(64)
        arithmetic, plus, times = isa.arithmetic("f32"), isa.Add("f32"), isa.Mul("f32")
        compute, exact, approximation = "f32", False, 2.0**-8

        def program(self, p: Any) -> None:
            t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (64, 64), (1, 1))
            r = p.tiled(self.by_registers, self.a.dtype, self.v.dtype, (64, 64), (1, 1))
            stage, b_stage, v_stage = (p.smem("f16", (64, 64), swizzle=128) for _ in range(3))
            with (
                p.grid((self.m, 64), persistent=True) as (i,),
                p.pipeline("ring", self.stages, a=stage, b=b_stage) as ring,
                p.pipeline("ring_v", self.stages_v, v=v_stage) as ring_v,
            ):
                with p.role("consumer", warps=4):
                    total, x, y = (p.full(t.c, "f32", begin) for begin in (0.0, 1.0, 2.0))
                    left = p.cast(x, "f16")

                    def do(op: str) -> None:
                        if op == KINDS[0]:
                            with ring.consume() as f, p.unroll(64, step=t.k) as kt:
                                p.multiply(
                                    self.wgmma, x, f.a.window((0, kt), (64, t.k)), f.b.window((kt, 0), (t.k, 64))
                                )
                        elif op == KINDS[1]:
                            with ring_v.consume() as f, p.unroll(64, step=r.k) as kt:
                                operand = p.relayout(left.window((0, kt), (64, r.k)), r.a)
                                p.multiply(self.by_registers, y, operand, f.v.window((kt, 0), (r.k, 64)))
                        elif op.startswith("use"):
                            p.apply(self.plus, total, x if op[-1] == "x" else y, into=total)
                        elif op.startswith("shrink"):
                            of = x if op[-1] == "x" else y
                            p.apply(self.times, of, 0.25, into=of)
                        elif op == "left = x":
                            p.cast(x, "f16", into=left)
                        else:
                            p.apply(self.times, total, 1.0, into=total)

                    with p.loop(self.k, step=ROUND):
                        for op in ops:
                            do(op)
                    p.apply(self.plus, total, x, into=total)
                    p.store(self.st, self.o.tile(i, 0, shape=(64, 64)), p.apply(self.plus, total, y))
                with p.role("producer", warps=1, first=4), p.loop(self.k, step=ROUND) as kk:
                    for op in ops:
                        if op == KINDS[0]:
                            with ring.produce() as f:
                                p.copy(self.tma, self.a.tile(i, kk, shape=(64, 64)), f.a)
                                p.copy(self.tma, self.b.tile(kk, 0, shape=(64, 64)), f.b)
                        elif op == KINDS[1]:
                            with ring_v.produce() as f:
                                p.copy(self.tma, self.v.tile(kk, 0, shape=(64, 64)), f.v)

        @staticmethod
        def reference(a: Any, b: Any, v: Any) -> Any:
            rounds = -(-a.shape[1] // ROUND)
            total = np.zeros((a.shape[0], 64), np.float32)
            x, y = total + 1, total + 2
            left = x.astype(a.dtype)
            for op, r in [(op, r) for r in range(rounds) for op in ops]:
                now = slice(r * ROUND, (r + 1) * ROUND)
                if op == KINDS[0]:
                    x = x + a[:, now].astype(np.float32) @ b[now].astype(np.float32)
                elif op == KINDS[1]:
                    rows = v[now].astype(np.float32)
                    y = y + left[:, : len(rows)].astype(np.float32) @ rows
                elif op.startswith("use"):
                    total = total + (x if op[-1] == "x" else y)
                elif op == "shrink x":
                    x = x * np.float32(0.25)
                elif op == "shrink y":
                    y = y * np.float32(0.25)
                elif op == "left = x":
                    left = x.astype(a.dtype)
            return total + x + y

    return DrawnGroups
