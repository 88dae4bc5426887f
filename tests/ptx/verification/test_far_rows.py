"""Tables beyond 2^31 elements of which data name rows: few of these lie in memory, and no other may be touched."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, integers
from tinygpu.machines.attention_paged import KeysOfPages
from tinygpu.machines.attention_paged_prefill import AttentionPagedPrefill
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.scatter_add import Histogram, ScatterAdd
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.far_rows import FarRows, far_rows, spread
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

NOT_THERE = ", where no row lies that a number names: its offset is wrong in a table as long as this"
PAGED = {"b": 3, "h": 2, "r": 4, "d": 64, "most": 64, "page": 64, "c": 64}
PREFILL = {"b": 2, "h": 1, "g": 1, "s": 40, "longest": 33, "listed": 9, "page": 64, "d": 64}
# (machine, its problem, its candidate, names of rows: a table that 32 bits reach over, and one that they do not)
TABLES: dict[str, tuple[Any, dict[str, int], dict[str, Any], str, int, int]] = {
    "embedding": (Embedding, {"m": 200, "n": 65}, {"warps": 1, "across": 2, "vector": 1}, "v", 2**20, 2**26 + 5),
    "paged attention": (KeysOfPages, PAGED, {"chunk": 256, "bn": 16, "warps": 4}, "pages", 2**15, 2**20 + 3),
    "paged prefill": (AttentionPagedPrefill, PREFILL, {"bn": 16, "warps": 4, "rows": 16}, "pages", 2**15, 2**21 + 3),
    "scatter_add": (ScatterAdd, {"m": 200, "n": 65}, {"warps": 4, "vector": 1}, "v", 2**20, 2**26 + 5),
    "histogram": (Histogram, {"m": 2000}, {"counted": "in global memory", "warps": 2}, "v", 2**20, 2**31 - 7),
}  # fmt: skip
# What is said of tables whose rows are named in blocks: their dim, and the rows of a block.
IN_BLOCKS = {"paged prefill": ("slots", 64)}


def kernel_of(machine: Any, one: dict[str, Any], **dims: Any) -> tuple[Kernel, Any]:
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.restrict(one).sample(1, 0)
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


def in_32_bits(ptx: str) -> str:
    """Every product of 64 bits is made in 32, and widened afterwards."""
    wide = re.sub(
        r"mul\.wide\.u32 (%d\d+), ([^,]+), ([^;]+);",
        r"{ .reg .u32 %low; mul.lo.u32 %low, \2, \3; cvt.u64.u32 \1, %low; }",
        ptx,
    )
    low = r"{ .reg .u32 %low<2>; cvt.u32.u64 %low0, \2; cvt.u32.u64 %low1, \3;"
    low += r" mul.lo.u32 %low0, %low0, %low1; cvt.u64.u32 \1, %low0; }"
    return re.sub(r"mul\.lo\.s64 (%d\d+), (%d\d+), (%d\d+);", low, wide)


@pytest.mark.parametrize("name", [*TABLES][:1] + [pytest.param(t, marks=pytest.mark.end_to_end) for t in [*TABLES][1:]])
def test_offsets_of_rows_in_32_bits_are_refused_where_a_table_is_longer(name: str) -> None:
    machine, dims, one, rows, short, long = TABLES[name]
    for size, seen in ((short, False), (long, True)):
        kernel, problem = kernel_of(machine, one, **dims, **{rows: size})
        right = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
        assert right.passed
        dim, unit = IN_BLOCKS.get(name, (rows, 1))
        near, far = right.checks[:-1], right.checks[-1]
        assert far.where == f"rows far apart ({dim}={unit * size})"
        others = ("a last round of little", "beyond numbers that are written")  # a table may have more than 2^32 rows
        assert [c.where for c in near if not any(other in c.where for other in others)] == [""]
        cut = replace(kernel, ptx=in_32_bits(kernel.ptx))
        assert cut.ptx.count("%low") > kernel.ptx.count("%low") == 0
        wrong = verify(cut, machine, problem, orders=("late",), random_inputs=False)
        assert [c.passed for c in wrong.checks] == [*(True for _ in near), not seen]
        assert not seen or NOT_THERE in wrong.checks[-1].fault


@pytest.mark.parametrize("name", ["embedding", "scatter_add"])
def test_a_table_of_few_long_rows_keeps_its_pitch(name: str) -> None:
    """33 rows of 2^27 elements: the small problem has short rows, as far apart as the long ones."""
    machine, _, one, _, _, _ = TABLES[name]
    kernel, problem = kernel_of(machine, one, m=200, n=2**27 + 1, v=33)
    assert verify(kernel, machine, problem, orders=("late",), random_inputs=False).passed
    cut = replace(kernel, ptx=in_32_bits(kernel.ptx))
    checks = verify(cut, machine, problem, orders=("late",), random_inputs=False).checks
    assert [(c.where, c.passed) for c in checks] == [("", True), ("rows far apart (v=33)", False)]


def test_a_row_that_no_id_names_is_not_there() -> None:
    machine, dims, one, _, _, _ = TABLES["embedding"]
    kernel, problem = kernel_of(machine, one, **dims, v=2**26 + 5)
    at = re.search(r"mul\.wide\.u32 (%d\d+), (%r\d+), (%r\d+);(?=\s+shl[^;]+;\s+add\.s64[^;]+;\s+mov)", kernel.ptx)
    assert at
    # only beyond a million: no small table has such rows
    other = f"setp.gt.u32 %far, {at[2]}, 1000000; @%far sub.u32 {at[2]}, {at[2]}, 1000000;"
    text = f"{{ .reg .pred %far; {other} }} {at[0]}"
    edited = replace(kernel, ptx=kernel.ptx[: at.start()] + text + kernel.ptx[at.end() :])
    checks = verify(edited, machine, problem, orders=("late",), random_inputs=False).checks
    assert [c.passed for c in checks] == [True, False]
    assert re.fullmatch(
        r"embedding, PTX line \d+ `@%p\d+ ld\.global[^`]*`, CTA \(\d+, 0, 0\), thread \(\d+, 0, 0\): "
        rf"load of 4 bytes at global address 0x[0-9a-f]+ is byte \d+ of table{NOT_THERE}",
        checks[1].fault,
    )


@pytest.mark.parametrize("v", [1, 33, 34, 1_000_003])
@pytest.mark.parametrize("kind", ["f32", "f16", "s8"])
def test_tables_of_any_length_and_type(kind: str, v: int) -> None:
    problem = Embedding.problem(m=37, n=5, v=v, dtypes={"table": kind})
    space = build_space(Embedding, problem, device("a100"))
    (point,) = space.sample(1, 1)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Embedding, problem, orders=("late",), random_inputs=False)
    assert found.passed
    assert len(found.checks) == 1 + (derive(kernel, Embedding, problem).dim["v"] < v)


@given(st.integers(1, 70), st.integers(0, 2**31 - 72))
def test_rows_are_spread_from_the_first_to_the_last(rows: int, more: int) -> None:
    size = rows + more
    places = spread(rows, size)
    assert len(places) == rows
    assert (np.diff(places) > 0).all()
    assert places[-1] == size - 1
    assert places[0] == 0 or rows < 2
    # the last that there are, in which an offset is largest
    assert (places >= size - rows).sum() >= rows // 2


class Numbered(Machine):
    """y[i] = x[ids[i]] + ids[i]: numbers of rows that are operands, too"""

    m, v = Dim(), Dim()
    ids = Input("s32", m, values=integers(0, v))
    x = Input("s32", v)
    y = Output("s32", m)
    vector = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("s32")

    def program(self, p: Any) -> None:
        shape = (32 * self.vector,)
        who = blocked(shape, threads=32, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=1):
            ids = p.load(self.ld, self.ids.tile(i, shape=shape), who, fill=-1)
            x = p.load(self.ld, self.x.rows(ids).tile(0, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, x, ids))

    @staticmethod
    def reference(ids: Any, x: Any) -> Any:
        return x[ids] + ids


class NumberedUniform(Machine):
    """y[i] = x[row[i / 64], i % 64] + row[i / 64]: a row that all threads go by, and add"""

    m, v = Dim(), Dim()
    row = Input("s32", m, values=integers(0, v))
    x, y = Input("s32", v, 64), Output("s32", m, 64)
    scaled = Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("s32")
    single = isa.LdGlobalReadOnly(1)

    def program(self, p: Any) -> None:
        with p.grid((self.m, 1), (64, 64)) as (i, j), p.role("all", warps=1):
            row = self.row[i]
            x = p.load(self.ld, self.x.at(row).tile(j, shape=(64,)), blocked((64,), threads=32, vector=1))
            p.store(self.st, self.y.at(i).tile(j, shape=(64,)), p.apply(self.add, x, row))

    @staticmethod
    def reference(row: Any, x: Any) -> Any:
        return x[row] + row[:, None]


def test_numbers_that_are_operands_too_are_not_exchanged() -> None:
    kernel, problem = kernel_of(Numbered, {}, m=200, v=1_000_000)
    found = far_rows(kernel, Numbered, problem, derive(kernel, Numbered, problem))
    assert found == "rows far apart (v=1000000): what ids hold is more than numbers of rows"
    assert found in verify(kernel, Numbered, problem, orders=("late",)).left_out


def test_numbers_of_rows_for_all_threads_that_are_operands_too_are_not_exchanged() -> None:
    kernel, problem = kernel_of(NumberedUniform, {}, m=200, v=1_000_000)
    found = far_rows(kernel, NumberedUniform, problem, derive(kernel, NumberedUniform, problem))
    assert found == "rows far apart (v=1000000): what row hold is more than numbers of rows"


def test_paged_keys_are_named_by_their_table_alone() -> None:
    machine, dims, one, _, _, long = TABLES["paged attention"]
    kernel, problem = kernel_of(machine, one, **dims, pages=long)
    found = far_rows(kernel, machine, problem, derive(kernel, machine, problem))
    assert isinstance(found, FarRows)
    assert found.by == {"table": "pages"}
    assert found.problem.operand("k").extent_elems > 2**33
