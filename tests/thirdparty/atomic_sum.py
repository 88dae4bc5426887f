"""Sums of columns that many CTAs add up, by an atomic reduction that the library does not have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinygpu.language import (
    GMEM,
    HEURISTICS,
    RMEM,
    Dim,
    Heuristic,
    InOut,
    Input,
    Machine,
    Param,
    Transfer,
    blocked,
)
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class AddGlobal(Transfer):
    """red.global.add: adds what threads hold to GMEM, whoever else does."""

    reads, writes = RMEM, GMEM
    opcode = "red.global.add"
    kinds = ("f32", "s32")
    widths_bytes = (4,)
    source = "PTX ISA, red"

    def statement(self, kind: Any, piece: str, registers: Sequence[str], address: str) -> str:
        (register,) = registers
        return f"red.global.add.{kind} {address}, {register};"

    def combine(self, there: Any, values: Any) -> Any:
        return there + values


class ColumnSum(Machine):
    """y[j] += sum of x[i, j] over i: each CTA adds up some rows of some columns, and all add theirs to y"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = InOut("f32", n)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    rows = Param(4, 16, 64)  # of one CTA
    ld, add, red = isa.LdGlobalReadOnly(vector), isa.Add("f32"), AddGlobal(1)

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        columns = threads * self.vector
        who = blocked((1, columns), threads=threads, vector=self.vector, across=threads)
        with p.grid((self.m, self.rows), (self.n, columns)) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.rows, step=1) as r:
                x = p.load(self.ld, self.x.tile(i + r, j, shape=(1, columns)), who)
                p.apply(self.add, total, x, into=total)
            p.store(self.red, self.y.row(j, columns), total)

    @staticmethod
    def reference(x: Any, y: Any) -> Any:
        return y + x.sum(axis=0)


@dataclass(frozen=True, eq=False)
class OneByOne(Heuristic):
    """Atomics that meet at one place are carried out one after another: each lane is charged a sector of its own."""

    name = "atomics one by one"

    def costs(self, s: Any, warps: Any) -> Mapping[str, Any]:
        if not any(isinstance(i, AddGlobal) for i in s.instructions):
            return {}
        lanes = 32 * warps * s.value.partition.value_count
        return {"sectors_written": lanes - lanes // 8, "global_loads": 1}


class ColumnSumInTurn(ColumnSum):
    """y[j] += sum of x[i, j] over i, where CTAs are charged for waiting for each other"""

    heuristics = (*HEURISTICS, OneByOne())
