"""Products of 64 rows in each CTA: random candidates, their rings, kernels that are wrong, where their sums lie."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from test_matmul_blackwell import posed

from tinygpu.devices import device
from tinygpu.language import TMEM, DeclarationError, Dim, Machine, blocked
from tinygpu.language.data_paths import columns_taken, held, rows_in_lanes
from tinygpu.layouts import Layout
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator.units.tensor_memory_maps import ACCESS_SHAPES, access_cells, accumulator_cells
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing import Case, examine

B200 = device("b200")
SMALL: dict[str, Any] = {
    "bm": 64, "bn": 64, "bk": 32, "stages": 2, "tiles": 2, "cluster_m": 2, "cluster_n": 1, "raster": 1, "swizzle": 64,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(96))
@pytest.mark.sampled(16)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_their_rings_proved(seed: int) -> None:
    problem = posed(seed)
    space = build_space(MatmulBlackwell, problem, B200)
    chosen = {"bm": 64, "ctas": ("one", "pairs")[seed // 3 % 2]}
    (point,) = space.space.restrict(chosen).sample(1, np.random.default_rng(seed))
    right_and_proved(space, point)


@cache
def small(ctas: str, store: str = "direct") -> tuple[Any, Kernel]:
    """Six tiles for one cluster, with more rounds than stages, and rows and columns beyond the last."""
    problem = MatmulBlackwell.problem(m=150, n=104, k=168)
    space = build_space(MatmulBlackwell, problem, B200)
    chosen = SMALL | {"ctas": ctas, "store": store, "split_k": 1, "stream_k": 0, "piece": 16}
    (point,) = space.space.restrict(chosen).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.parametrize(("ctas", "shape"), [("one", "16x32bx2.x8.b32"), ("pairs", "32x32b.x32")])
def test_their_kernels_are_right_in_every_order_and_assemble_without_spills(ctas: str, shape: str) -> None:
    problem, kernel = small(ctas)
    assert verify(kernel, MatmulBlackwell, problem).passed
    assembly = assemble(kernel.ptx, kernel.assembled_for("sm_100"))
    assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)
    assert f"tcgen05.ld.sync.aligned.{shape}" in kernel.ptx
    # Two slots of sums: of one CTA 64 columns each, of pairs 32.
    assert f", {128 if ctas == 'one' else 64};" in next(s for s in kernel.ptx.splitlines() if "tcgen05.alloc" in s)


@pytest.mark.parametrize(
    ("ctas", "old", "new"),
    [
        # the second window of columns begins elsewhere
        ("one", r"(16x32bx2.*\]), \d+;", r"\1, 4;"),
        # each warp reads the upper half of its lanes, where nothing is
        ("one", r"(tcgen05\.ld\S+ \{[^}]*\}, \[%r\d+)(\+\d+)?\]", r"\1+1048576]"),
        # rows of all lanes are read, of which half are nobody's
        ("one", r"16x32bx2\.x(\d+)\.b32 (\{[^}]*\}, \[[^]]*\]), \d+;", r"32x32b.x\1.b32 \2;"),
        # the descriptor says 128 rows
        ("one", r"(kind::f16 .*, )0x04", r"\g<1>0x08"),
        # the right half is looked for behind the left one
        ("pairs", r"(tcgen05\.ld\S+ \{[^}]*\}, \[%r\d+)(\+\d+)?\]", r"\1+32]"),
        # the descriptor says 256 rows of two CTAs
        ("pairs", r"(kind::f16 .*, )0x08", r"\g<1>0x10"),
    ],
)
def test_wrong_kernels_are_refused(ctas: str, old: str, new: str) -> None:
    problem, kernel = small(ctas)
    text, count = re.subn(old, new, kernel.ptx)
    assert count, old
    assert not verify(replace(kernel, ptx=text), MatmulBlackwell, problem, orders=("late",)).passed


PATHS = {
    "A": (isa.Tcgen05MmaPair().path, 32), "B": (isa.Tcgen05MmaPair64().path, 32), "D": (isa.Tcgen05Mma().path, 32),
    "F": (isa.Tcgen05Mma64().path, 32), "E": (isa.Tcgen05MmaWs(64, 64).path, 32), "G": (isa.Tcgen05MmaWs(64).path, 32),
}  # fmt: skip


@pytest.mark.parametrize("name", PATHS)
def test_paths_are_the_emulators_data_path_layouts(name: str) -> None:
    of, columns = PATHS[name]
    path = of(columns)
    lane, column = accumulator_cells(name, columns)  # type: ignore[arg-type]
    found = path.coordinates(("lane", "column")).reshape(columns, -1, 2).transpose(1, 0, 2)
    assert np.array_equal(found[:, :, 0], lane)
    assert np.array_equal(found[:, :, 1], column)
    assert int(columns_taken(path)) == column.max() + 1


@pytest.mark.parametrize("shape", ACCESS_SHAPES)
@pytest.mark.parametrize("name", PATHS)
def test_what_a_warpgroup_holds_is_what_the_emulator_has_in_its_registers(name: str, shape: str) -> None:
    """Of every shape over every path: each thread's values are the cells of its warp's lanes, in their order."""
    of, columns = PATHS[name]
    path, ld = of(columns), isa.Tcgen05Ld(shape)
    taken = int(columns_taken(path))
    if name == "F" and shape == "32x32b":
        with pytest.raises(ValueError, match=r"^tcgen05\.ld reaches lanes in which .* has nothing$"):
            ld.held((64, columns), path)
        return
    who = ld.held((path[0].size, columns), path)
    got = who.coordinates()
    repeat = taken // (ld.columns * ld.windows)
    cells = access_cells(shape, repeat, split=taken // 2 if ld.windows > 1 else 0)
    lane, column = accumulator_cells(name, columns)  # type: ignore[arg-type]
    element = {(int(x), int(y)): (r, c) for (r, c), x in np.ndenumerate(lane) for y in [column[r, c]]}
    halves, each = ld.halves(path), cells.lane.shape[1]
    assert got.shape == (128, each * halves, 2)
    for thread in range(128):
        for value in range(each * halves):
            half, register = divmod(value, each)
            at = cells.lane[thread % 32, register], cells.column[thread % 32, register]
            assert tuple(got[thread, value]) == element[int(at[0]) + 32 * (thread // 32) + 16 * half, int(at[1])]


def test_lanes_that_hold_nothing_are_not_reached() -> None:
    path = Layout.parse("((16,4),64):((1@lane,32@lane),1@column)")
    assert held(isa.Tcgen05Ld().access(64), path) is None
    assert held(isa.Tcgen05Ld().access(64), rows_in_lanes(128, 64)) is not None


def declared(path: Any, rows: Any) -> type[Machine]:
    """A product of 64 rows whose sums lie, or are read, otherwise."""

    class Narrow(Machine):
        """c = a @ b in tiles of 64 rows"""

        m, n, k = Dim(), Dim(), Dim()
        a, b = factors(m, n, k, "f16")
        c = product(a, m, n)
        tma, mma, ld, st = isa.TmaLoad(), isa.Tcgen05Mma64(32), isa.Tcgen05Ld("16x32bx2"), isa.StGlobal(1)
        conversions, compute = isa.arithmetic("f32"), "f32"

        def program(self, p: Any) -> None:
            stage = {"swizzle": 64}
            with (
                p.grid((self.m, 64), (self.n, 32), persistent=True) as (i, j),
                p.pipeline("ring", 2, a=p.smem("f16", (64, 32), **stage), b=p.smem("f16", (32, 32), **stage)) as ring,
                p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (64, 32), path=path(self))) as sums,
            ):
                with p.role("producer", warps=1), p.loop(self.k, step=32) as kk, ring.produce() as s:
                    p.copy(self.tma, self.a.tile(i, kk, shape=(64, 32)), s.a)
                    p.copy(self.tma, self.b.tile(kk, j, shape=(32, 32)), s.b)
                with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                    p.clear(t.c)
                    with p.loop(self.k, step=32), ring.consume() as s, p.unroll(32, step=16) as kt:
                        p.multiply(self.mma, t.c, s.a.window((0, kt), (64, 16)), s.b.window((kt, 0), (16, 32)))
                with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                    p.store(self.st, self.c.tile(i, j, shape=(64, 32)), p.load(self.ld, t.c, rows(self)))

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return a @ b

    return Narrow


def test_a_machine_of_64_rows_is_written_with_its_path() -> None:
    machine = declared(lambda m: m.mma.path(32), lambda m: m.ld.held((64, 32), m.mma.path(32)))
    problem = machine.problem(m=100, n=40, k=72)
    space = build_space(machine, problem, B200)
    (point,) = space.sample(1, 0)
    assert verify(build(space.program(point), problem, point, SolverCache()).kernel, machine, problem).passed


def test_sums_that_lie_elsewhere_are_refused_where_they_are_declared() -> None:
    with pytest.raises(DeclarationError) as found:
        declared(lambda m: None, lambda m: blocked((64, 32), threads=64, vector=1, across=1))
    assert str(found.value).splitlines()[0] == (
        "Narrow.program: mma (tcgen05.mma.m64) adds up where ((16,4),32):((1@lane,32@lane),1@column) says, and sums.c "
        "lies as (64,32):(1@lane,1@column); give its buffer path=mma.path(columns)"
    )
    with pytest.raises(DeclarationError) as found:
        declared(lambda m: isa.Tcgen05Mma().path(32), lambda m: m.ld.held((64, 32), m.mma.path(32)))
    assert str(found.value).splitlines()[0] == (
        "Narrow.program: the path (128,32):(1@lane,1@column) is not one of 64 x 32 of f32: it has other rows, or they "
        "fill no cells"
    )


def test_others_than_who_reaches_the_sums_are_refused_by_the_rule_of_the_load() -> None:
    with pytest.raises(DeclarationError) as found:
        declared(lambda m: m.mma.path(32), lambda m: blocked((64, 32), threads=128, vector=1, across=2, name="c"))
    assert str(found.value).splitlines()[0] == (
        "Narrow.program: it can never work, whatever the parameters: threads of the warpgroup hold of sums.c what "
        "their warps reach in TMEM, (16,2,4):(1@0,16@1,16@0): take tcgen05.ld.16x32bx2's held(...)"
    )


def test_shapes_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^tcgen05\.ld and tcgen05\.st have the shapes .* or 16x32bx2, not '16x32b'$"):
        isa.Tcgen05Ld("16x32b")


@pytest.mark.parametrize("ctas", ["one", "pairs"])
def test_the_closed_form_counts_what_a_listing_of_64_rows_counts(ctas: str) -> None:
    """By one CTA half of the lanes are idle: such products count as those of 128 rows."""
    problem = MatmulBlackwell.problem(m=150, n=104, k=168)
    chosen = SMALL | {"ctas": ctas, "store": "direct", "split_k": 1, "stream_k": 0, "piece": 16}
    (point,) = build_space(MatmulBlackwell, problem, B200).space.restrict(chosen).sample(1, np.random.default_rng(0))
    found = examine("counts", Case(MatmulBlackwell, problem, B200, point))
    assert found.looked
    assert not found.fault
