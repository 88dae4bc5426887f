"""The largest of every row of a batch: lanes exchange by a shuffle that the library does not have."""

from dataclasses import dataclass
from typing import Any

from tinygpu.language import Dim, Input, Machine, Output, Param, Shuffle, blocked
from tinygpu.ptx import isa

LEAST = {"f32": float("-inf"), "s32": -(2**31)}


@dataclass(frozen=True, eq=False)
class Swap(Shuffle):
    """shfl.sync.bfly: the value of the lane whose number differs in one bit."""

    label, source = "swap", "PTX ISA, shfl.sync"

    def statement(self, result: str, value: str, mask: int) -> str:
        return f"shfl.sync.bfly.b32 {result}, {value}, {mask}, 31, 0xffffffff;"


class RowMax(Machine):
    """y[b, i] = the largest of x[b, i, j] over j"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input(("f32", "s32"), b, m, n)
    y = Output({"f32": ("f32",), "s32": ("s32",)}, b, m, follows=x)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2)
    lanes = Param(4, 8, 16, 32)  # threads side by side in a row
    ld, st, swap = isa.LdGlobal(vector), isa.StGlobal(1), Swap()

    def program(self, p: Any) -> None:
        kind = self.x.dtype.name
        top, least, threads = isa.Max(kind), LEAST[kind], 32 * self.warps
        shape = (threads // self.lanes * self.rows, self.lanes * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.lanes)
        with p.grid((self.b, 1), (self.m, shape[0])) as (k, i), p.role("all", warps=self.warps):
            most = p.full(who, kind, least)
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.at(k).tile(i, j, shape=shape), who, fill=least)
                p.apply(top, most, x, into=most)
            most = p.reduce(top, most, axis=1, by=self.swap)
            p.store(self.st, self.y.tile(k, i, shape=(1, shape[0])), most.T)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.max(axis=2)
