"""Rows that stream through a ring by bulk copies without a tensor map, which the library does not have."""

from dataclasses import dataclass
from typing import Any

from tinygpu.language import GMEM, SMEM, BulkTransfer, Dim, Input, Machine, Output, Param, Scalar, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class BulkLoad(BulkTransfer):
    """cp.async.bulk: a run of bytes from GMEM to SMEM, which an mbarrier counts."""

    reads, writes, completion = GMEM, SMEM, "mbarrier"
    target, isa = 90, (8, 0)
    label = "cp.async.bulk"
    source = "PTX ISA, cp.async.bulk"

    def row_statement(self, size_bytes: int, shared: str, tensor: str, barrier: str = "") -> str:
        form = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        return f"{form} {shared}, {tensor}, {size_bytes}, {barrier};"


@dataclass(frozen=True, eq=False)
class BulkStore(BulkTransfer):
    """cp.async.bulk: a run of bytes from SMEM to GMEM, in bulk groups."""

    reads, writes, completion = SMEM, GMEM, "bulk group"
    target, isa = 90, (8, 0)
    label = "cp.async.bulk.store"
    source = "PTX ISA, cp.async.bulk"

    def row_statement(self, size_bytes: int, shared: str, tensor: str, barrier: str = "") -> str:
        return f"cp.async.bulk.global.shared::cta.bulk_group {tensor}, {shared}, {size_bytes};"


class ScaleRows(Machine):
    """y = a * x: one thread brings rows into a ring, the others scale them, and one takes them back"""

    m, n = Dim(), Dim()
    a = Scalar("f32")
    x, y = Input("f32", m, n), Output("f32", m, n)

    rows, columns = Param(2, 4, 8), Param(64, 128)
    warps, stages, vector = Param(1, 2, 4), Param(2, 3, 4), Param(1, 2, 4)
    bring, take = BulkLoad(), BulkStore()
    get, put, mul = isa.LdShared(vector), isa.StShared(vector), isa.Mul("f32")

    def program(self, p: Any) -> None:
        shape, threads = (self.rows, self.columns), 32 * self.warps
        who = blocked(shape, threads=threads, vector=self.vector)
        stage, back = p.smem("f32", shape), p.smem("f32", shape)
        with p.grid((self.m, self.rows)) as (i,), p.pipeline("ring", self.stages, x=stage) as ring:
            with p.role("bring", warps=1), p.loop(self.n, step=self.columns) as j, ring.produce() as s:
                p.copy(self.bring, self.x.tile(i, j, shape=shape), s.x)
            with (
                p.pipeline("back", 1, y=back) as out,
                p.role("scale", warps=self.warps, first=1),
                p.loop(self.n, step=self.columns) as j,
            ):
                with ring.consume() as s:
                    scaled = p.apply(self.mul, p.load(self.get, s.x, who), self.a)
                with out.produce() as s:
                    p.store(self.put, s.y, scaled)
                with out.consume() as s:
                    p.copy(self.take, s.y, self.y.tile(i, j, shape=shape))

    @staticmethod
    def reference(a: Any, x: Any) -> Any:
        return a * x
