"""Machines for Hopper and Blackwell, to be traced only: their instructions are declared here and have no lowering."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Operand, all_of
from tinygpu.language import (
    GMEM,
    RMEM,
    SMEM,
    TMEM,
    BulkTransfer,
    Dim,
    Fragment,
    Input,
    Machine,
    MatrixLoad,
    MatrixMultiply,
    Output,
    Param,
    Partition,
    UnknownLayout,
    blocked,
)
from tinygpu.language.instruction import Completion, Scope
from tinygpu.language.memories import Memory
from tinygpu.language.tile import Tile
from tinygpu.layouts import E, Layout, coalesce
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class TmaTransfer(BulkTransfer):
    """cp.async.bulk.tensor: a box of a tensor, described by a tensor map."""

    target: ClassVar[int] = 90
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "thread"
    traced_only: ClassVar[bool] = True
    source: ClassVar[str] = "PTX ISA, cp.async.bulk.tensor"

    @property
    def label(self) -> str:
        return "cp.async.bulk.tensor"

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        window = source if source.tensor is not None else target
        tensor = window.tensor
        if tensor is None:
            raise ValueError("a tensor map describes a tensor in GMEM")
        pitch_bytes = tensor.ld * tensor.dtype.bits // 8
        return (
            self.rule(
                f"strides of {tensor.name}",
                all_of([pitch_bytes % 16 == 0, tensor.align % 16 == 0]),
                f"the pointer and the rows of {tensor.name} are multiples of 16 bytes",
                "launch",
            ),
            self.rule(
                f"box of {tensor.name}",
                all_of([e <= 256 for e in window.shape]),
                f"a box of {tensor.name} has at most 256 elements along each axis",
                "launch",
            ),
        )


@dataclass(frozen=True, eq=False)
class TmaLoad(TmaTransfer):
    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = SMEM
    completion: ClassVar[Completion] = "mbarrier"


@dataclass(frozen=True, eq=False)
class TmaStore(TmaTransfer):
    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = GMEM
    completion: ClassVar[Completion] = "bulk group"


@dataclass(frozen=True, eq=False)
class Wgmma(MatrixMultiply):
    """wgmma.mma_async.m64nNk16: a and b in SMEM, the accumulator in the registers of a warpgroup."""

    n: Operand = 128

    target: ClassVar[int] = 90
    only: ClassVar[tuple[int, ...]] = (90,)
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "warpgroup"
    completion: ClassVar[Completion] = "wgmma group"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, RMEM)
    traced_only: ClassVar[bool] = True
    source: ClassVar[str] = "PTX ISA, wgmma.mma_async"

    @property
    def label(self) -> str:
        return "wgmma"

    def shape(self, a: DType, b: DType) -> Any:
        return 64, self.n, 256 // a.bits

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype("f32")

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """PTX ISA, wgmma register fragment D: as mma.sync's for each warp of 16 rows, repeated along n."""
        return None, None, Layout.parse("((4,8,4),(2,2)):((2@1,1@0,16@0),(1@1,8@0))")


@dataclass(frozen=True, eq=False)
class Tcgen05Mma(MatrixMultiply):
    """tcgen05.mma.cta_group::2: two CTAs multiply together, a and b in SMEM, the accumulator in TMEM."""

    n: Operand = 256

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    scope: ClassVar[Scope] = "thread"
    completion: ClassVar[Completion] = "tcgen05 commit"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, TMEM)
    ctas: ClassVar[int] = 2
    traced_only: ClassVar[bool] = True
    source: ClassVar[str] = "PTX ISA, tcgen05.mma"

    @property
    def label(self) -> str:
        return "tcgen05.mma"

    def shape(self, a: DType, b: DType) -> Any:
        return 128, self.n, 256 // a.bits

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype("f32")


@dataclass(frozen=True, eq=False)
class Tcgen05Ld(MatrixLoad):
    """tcgen05.ld.32x32b: TMEM to registers, each thread of a warpgroup the row of its lane."""

    reads: ClassVar[Memory] = TMEM
    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    scope: ClassVar[Scope] = "warpgroup"
    traced_only: ClassVar[bool] = True
    source: ClassVar[str] = "PTX ISA, tcgen05.ld"

    @property
    def label(self) -> str:
        return "tcgen05.ld"

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        fits = coalesce(partition.threads) == Layout(128, E(0))
        return (self.rule(f"lanes of {memory_side.name}", fits, "thread t of the warpgroup holds row t of the tile"),)


class MatmulPingpong(Machine):
    """c = a @ b on Hopper: a producer feeds two consumers, and while one multiplies the other stores its tile"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input(("f16", "bf16"), m, k), Input(("f16", "bf16"), k, n)
    c = Output(("f16", "bf16"), m, n)

    bm, bn, bk = Param(64, 128), Param(64, 128, 256), Param(32, 64, 128)
    stages = Param(2, 3, 4, 5, 6)
    cluster = Param(1, 2, 4)
    layout_a, layout_b, layout_c = UnknownLayout(), UnknownLayout(), UnknownLayout()

    tma, wgmma, put = TmaLoad(), Wgmma(bn), TmaStore()
    narrow, st = isa.Cvt("f32", "f16"), isa.StShared(2)

    def program(self, p: Any) -> None:
        bm, bn, bk, depth = self.bm, self.bn, self.bk, 16
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (bm, bn), (1, 1))
        a_stage = p.smem(self.a.dtype, (bm, bk), layout=self.layout_a)
        b_stage = p.smem(self.b.dtype, (bk, bn), layout=self.layout_b)
        c_stage = p.smem(self.c.dtype, (bm, bn), layout=self.layout_c)

        with (
            p.grid((self.m, bm), (self.n, bn), cluster=(self.cluster, 1), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("math", 1) as math,
            p.pipeline("tail", 1) as tail,
        ):
            with (
                p.role("producer", warps=4, registers=40),
                p.loop(self.k, step=bk) as kk,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b, multicast=0)
            for number, name in enumerate(("ping", "pong")):
                with (
                    p.pipeline(f"out_{name}", 1, c=c_stage) as out,
                    p.role(name, warps=4, first=4 + 4 * number, registers=232, share=(number, 2)),
                ):
                    acc = p.full(t.c, "f32")
                    with math.turn(), p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                        p.multiply(self.wgmma, acc, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, bn)))
                    with tail.turn():
                        with out.produce() as s:
                            p.store(self.st, s.c, p.apply(self.narrow, acc))
                        with out.consume() as s:
                            p.copy(self.put, s.c, self.c.tile(i, j, shape=(bm, bn)))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class MatmulTwoCta(Machine):
    """c = a @ b on Blackwell: pairs of CTAs multiply together into tensor memory, and an epilogue drains it"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k), Input("f16", k, n)
    c = Output("f32", m, n)

    bn, bk = Param(64, 128, 256), Param(32, 64)
    stages, accumulators = Param(2, 3, 4, 6, 8), Param(1, 2)
    vector = Param(1, 2, 4)
    layout_a, layout_b = UnknownLayout(), UnknownLayout()

    tma, mma, ld, st = TmaLoad(), Tcgen05Mma(bn), Tcgen05Ld(), isa.StGlobal(vector)

    def program(self, p: Any) -> None:
        bm, bn, bk, depth = 128, self.bn, self.bk, 16
        a_stage = p.smem("f16", (bm, bk), layout=self.layout_a)
        b_stage = p.smem("f16", (bk, bn // 2), layout=self.layout_b)
        accumulator = p.buffer(TMEM, "f32", (bm, bn))
        rows = blocked((bm, bn), threads=128, vector=self.vector, across=1, name="c")

        with (
            p.grid((self.n, bn), (self.m, bm), cluster=(1, 2), persistent=True) as (j, i),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("acc", self.accumulators, c=accumulator) as acc,
        ):
            mine = p.rank(1) * (bn // 2)  # each CTA of the pair brings its half of b
            with p.role("producer", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j + mine, shape=(bk, bn // 2)), s.b)
            with p.role("mma", warps=1, first=1), acc.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                    p.multiply(self.mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, bn // 2)))
            with p.role("epilogue", warps=4, first=4), acc.consume() as t:
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), p.load(self.ld, t.c, rows))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
