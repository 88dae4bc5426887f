"""Matmul on Hopper: TMA into a ring of swizzled stages, wgmma, roles, tiles of clusters one after another."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

from tinygpu.language import Choice, Dim, Input, Machine, Option, Output, Param, Problem
from tinygpu.machines import epilogue
from tinygpu.ptx import isa


class MatmulHopper(Machine):
    """c = activation(a @ b + bias): one warp feeds a ring by TMA, warpgroups multiply by wgmma and store by TMA"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(("f16", "bf16", "tf32", "e4m3", "s8"), m, k, majors=("row", "col"))
    b = Input({t: (t,) for t in ("f16", "bf16", "tf32", "e4m3", "s8")}, k, n, majors=("row", "col"), follows=a)
    bias = Input({t: ("s32" if t == "s8" else "f32",) for t in ("f16", "bf16", "tf32", "e4m3", "s8")}, n, follows=a)
    c = Output(
        {"f16": ("f16", "f32"), "bf16": ("bf16", "f32"), "tf32": ("f32",), "e4m3": ("bf16", "f32"), "s8": ("s32",)},
        m, n, follows=a,
    )  # fmt: skip
    with_bias: Any = Option(False, True)
    activation: Any = Option(*epilogue.ACTIVATIONS)

    bm, bn = Param(64, 128, 192, 256), Param(16, 32, 64, 96, 128, 160, 192, 224, 256)
    bk = Param(32, 64, 128)
    stages = Param(2, 3, 4, 5, 6, 7, 8)
    cluster_m, cluster_n = Param(1, 2), Param(1, 2)
    group = Param(1, 4, 8, 16)  # rows of clusters visited together, for L2
    swizzle, swizzle_c = Param(32, 64, 128), Param(32, 64, 128)

    tma, wgmma, put = isa.TmaLoad(), isa.Wgmma(bn), isa.TmaStore()
    # one warpgroup multiplies; two share each tile; two take turns at tiles, and while one multiplies the other stores
    schedule: Any = Choice("single", "cooperative", "pingpong")
    # by TMA from shared memory, where fragments become matrices (results of 16 bits) or are stored pair by pair; or
    # straight from registers
    out: Any = Choice("matrices", "bulk", "direct")
    st_matrix, st_fragment, st_row = isa.StMatrix(), isa.StShared(2), isa.StGlobal(2)
    ld_bias = isa.LdGlobal(1)

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        return name != "bias" or options["with_bias"]

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        return epilogue.precision(options["activation"])

    @classmethod
    def refuses(cls, problem: Problem) -> str:
        return epilogue.refuses_integers(problem)

    def program(self, p: Any) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        groups = 2 if self.schedule == "cooperative" else 1
        several = self.schedule != "single"
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (bm, bn), (groups, 1))
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)

        with (
            p.grid(
                (self.m, bm), (self.n, bn), group=self.group, cluster=(self.cluster_m, self.cluster_n), persistent=True
            ) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with (
                p.role("producer", warps=4, registers=40 if several else 0),
                p.loop(self.k, step=bk) as kk,
                ring.fill() as s,
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a, multicast=1)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b, multicast=0)
            if self.schedule != "pingpong":
                self.consume(p, i, j, "consumer", t, groups, ring, first=4, registers=232 if several else 0)
                return
            with p.pipeline("math", 1) as math:
                for number, name in enumerate(("ping", "pong")):
                    first = 4 + 4 * number
                    self.consume(p, i, j, name, t, 1, ring, first=first, registers=232, share=(number, 2), turns=math)

    def consume(
        self, p: Any, i: Any, j: Any, name: str, t: Any, groups: int, ring: Any, turns: Any = None, **role: Any
    ) -> None:
        """A role of one or two warpgroups: multiplies what the ring brings, and stores its tile."""
        bm, bn, bk = self.bm, self.bn, self.bk
        out = None
        with ExitStack() as around:
            if self.out != "direct":
                stage = p.smem(self.c.dtype, (bm, bn), swizzle=self.swizzle_c)
                out = around.enter_context(p.pipeline(f"out_{name}", 1, c=stage))
            around.enter_context(p.role(name, warps=4 * groups, **role))
            acc = p.full(t.c, self.wgmma.accumulator(self.a.dtype, self.b.dtype))
            mine = turns.turn() if turns else nullcontext()
            with mine, p.loop(self.k, step=bk), ring.drain() as s, p.unroll(bk, step=t.k) as kt:
                p.multiply(self.wgmma, acc, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))
            if self.with_bias:
                add = p.load(self.ld_bias, self.bias.row(j, bn), t.c.along(1))
                acc = p.apply(isa.Add(acc.dtype.name), acc, add)
            result = epilogue.convert(p, epilogue.activate(p, acc, self.activation), self.c.dtype)
            if out is None:
                p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), result)
                return
            with out.fill() as s:
                p.store(self.st_matrix if self.out == "matrices" else self.st_fragment, s.c, result)
            with out.drain() as s:
                p.copy(self.put, s.c, self.c.tile(i, j, shape=(bm, bn)))

    @staticmethod
    def reference(a: Any, b: Any, with_bias: bool, activation: str, bias: Any = None) -> Any:
        return epilogue.reference(a @ b, bias, activation)
