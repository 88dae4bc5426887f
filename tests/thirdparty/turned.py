"""A transpose whose columns come by a load of matrices that the library does not have: transposed ones alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.language import Dim, E, Input, Layout, Machine, MatrixLoad, Output, Param, Partition, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class LoadColumns(MatrixLoad):
    """ldmatrix.m8n8.trans: lane l holds the rows 2 (l % 4) and 2 (l % 4) + 1 of the column l / 4."""

    label, source = "ldmatrix.columns", "PTX ISA, ldmatrix"
    plain = None

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        form = f"x{len(registers)}.trans"
        return f"ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{{', '.join(registers)}}}, {address};"


class Turned(Machine):
    """y = x transposed, of elements of 16 bits"""

    m, n = Dim(), Dim()
    x = Input(("f16", "bf16"), m, n)
    y = Output({"f16": ("f16",), "bf16": ("bf16",)}, n, m, follows=x)

    bm, bn = Param(8, 16, 32), Param(8, 16, 32)
    pad, vector = Param(0, 8), Param(1, 2)
    copy, get, put = isa.CpAsync(8), LoadColumns(), isa.StGlobal(vector)

    def program(self, p: Any) -> None:
        shape = (self.bm, self.bn)
        rows = blocked(shape, threads=32, vector=8)
        matrices = [(self.bm // 8, 8 * E(0)), (self.bn // 8, 8 * E(1))]
        columns = Partition(shape, Layout.of([(4, 2 * E(0)), (8, E(1))], [(2, E(0)), *matrices]))
        stage = p.smem(self.x.dtype, shape, pad=self.pad)
        with (
            p.grid((self.m, self.bm), (self.n, self.bn)) as (i, j),
            p.pipeline("stage", 1, x=stage) as ring,
            p.role("all", warps=1),
        ):
            with ring.produce() as s:
                p.copy(self.copy, self.x.tile(i, j, shape=shape), s.x, rows)
            with ring.consume() as s:
                x = p.load(self.get, s.x, columns)
                p.store(self.put, self.y.tile(j, i, shape=(self.bn, self.bm)).T, x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T
