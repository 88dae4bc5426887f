"""The first matmul in tensor memory: random candidates over odd sizes, orders and types; wrong kernels; refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from text_edits import TextEdit, exchanged, without

from tinygpu.devices import device
from tinygpu.language import SMEM, TMEM, DeclarationError, Dim, Machine, blocked
from tinygpu.machines.matmul_basic_blackwell import MatmulBasicBlackwell
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ORDERS = ("row", "col")
# One more than a tile, primes, rounds fewer than stages, several tiles along each axis.
SIZES = ((1, 1, 1), (129, 33, 65), (13, 97, 31), (257, 130, 65), (130, 257, 300), (128, 32, 32))
POINT = {"bn": 32, "bk": 32, "stages": 3, "tiles": 2, "raster": 1, "swizzle": 64, "piece": 16}


def padded(n: int) -> int:
    """Rows of whole 16 bytes, as TMA needs them."""
    return -(-n // 8) * 8


def posed(m: int, n: int, k: int, order_a: str, order_b: str, kinds: dict[str, str]) -> Any:
    ld = {"a": padded(k if order_a == "row" else m), "b": padded(n if order_b == "row" else k)}
    return MatmulBasicBlackwell.problem(m=m, n=n, k=k, majors={"a": order_a, "b": order_b}, dtypes=kinds, lds=ld)


@pytest.mark.parametrize("seed", range(48))
@pytest.mark.sampled(32)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int) -> None:
    m, n, k = SIZES[seed % len(SIZES)]
    kind = ("f16", "bf16")[seed // 2 % 2]
    kinds = {"a": kind, "b": kind, "c": (kind, "f32")[seed // 3 % 2]}
    problem = posed(m, n, k, ORDERS[seed % 2], ORDERS[seed // 6 % 2], kinds)
    space = build_space(MatmulBasicBlackwell, problem, device("b200"))
    (point,) = space.sample(1, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, MatmulBasicBlackwell, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"


@cache
def small() -> tuple[Any, Kernel]:
    problem = MatmulBasicBlackwell.problem(m=300, n=72, k=320)
    space = build_space(MatmulBasicBlackwell, problem, device("b200"))
    (point,) = space.space.restrict(POINT).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


def test_what_runs_on_a_b200_is_assembled_for_a_b300_too() -> None:
    _, kernel = small()
    assert kernel.architecture == "sm_100f"
    assert [device(name).runs(kernel.architecture) for name in ("b300", "rtx5090")] == [True, False]
    for portable in ("sm_100", "sm_103"):
        assembly = assemble(kernel.ptx, kernel.assembled_for(portable))
        assert (assembly.spill_store_bytes, assembly.stack_bytes) == (0, 0)


def passes(ptx: str) -> bool:
    problem, kernel = small()
    return verify(
        replace(kernel, ptx=ptx), MatmulBasicBlackwell, problem, orders=("late", "early"), random_inputs=False
    ).passed


WRONG: dict[str, TextEdit] = {
    "sums are read before the commit has arrived": without("try_wait", 3),
    "a slot is multiplied before its bytes have come": without("try_wait", 2),
    "sums are added up where others are still read": without("try_wait", 1),
    "a slot is filled while it is multiplied": without("try_wait", 0),
    "nobody is told that sums are there": without("tcgen05.commit", 1),
    "nobody is told that a slot was read": without("tcgen05.commit", 0),
    "registers are used before their loads": without("tcgen05.wait::ld", 1),
    "no fence behind the wait for sums": without("fence::after_thread_sync", 3),
    "no fence before sums are given back": without("fence::before_thread_sync", 1),
    "sums of the tile before are added to": without(r"setp\.ne\.u32 %p\d+, 0, 0;"),
    "a tile has one product": without(r"setp\.eq\.u32 %p\d+, 0, 0;", 0),
    "columns are kept": without("tcgen05.dealloc"),
    "too few columns": exchanged(", 64;", ", 32;"),
    "another type": exchanged("0x08090010", "0x08090490"),
    "fewer columns": exchanged("0x08090010", "0x08050010"),
    "lanes of the first warp in all": without(r"mad\.lo\.u32 .*2097152|mul\.lo\.u32 .*2097152|shl\.b32 .*, 21;"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_refused(name: str) -> None:
    _, kernel = small()
    assert not passes(WRONG[name](kernel.ptx)), name


def test_the_kernel_itself_passes() -> None:
    assert passes(small()[1].ptx)


class Sums(Machine):
    """c = a @ b, said wrongly in one way or another"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = factors(m, n, k, "f16")
    c = product(a, m, n)
    tma, mma, ld, st = isa.TmaLoad(), isa.Tcgen05Mma(32), isa.Tcgen05Ld(), isa.StGlobal(1)
    conversions, compute = isa.arithmetic("f32"), "f32"
    cleared, alone, in_tmem, written_out, all_lanes = True, True, True, True, True

    def program(self, p: Any) -> None:
        a_stage = p.smem("f16", (128, 32), contiguous=self.a.contiguous, swizzle=64)
        b_stage = p.smem("f16", (32, 32), contiguous=self.b.contiguous, swizzle=64)
        rows = blocked((128, 32), threads=128, vector=1, across=1, name="c")
        with (
            p.grid((self.m, 128), (self.n, 32)) as (i, j),
            p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, 32)), **self.beside(p)) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=32) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(128, 32)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(32, 32)), s.b)
            with p.role("multiplier", warps=4, first=4):
                with sums.produce() as t:
                    if self.cleared:
                        p.clear(t.c)
                    with p.loop(self.k, step=32), ring.consume() as s, p.unroll(32, step=16) as kt:
                        p.multiply(self.mma, t.c, s.a.window((0, kt), (128, 16)), s.b.window((kt, 0), (16, 32)))
                if not self.alone:
                    p.store(self.st, self.c.tile(i, j, shape=(128, 32)), p.full(rows, "f32", 1.0))
            with p.role("epilogue", warps=4, first=8), sums.consume() as t:
                around = p.unroll(32, step=32) if self.written_out else p.loop(32, step=32)
                with around as at:
                    sums_of = t.c.window((0 if self.all_lanes else 64, at), (128, 32))
                    p.store(self.st, self.c.tile(i, j, shape=(128, 32)), p.load(self.ld, sums_of, rows))

    def beside(self, p: Any) -> dict[str, Any]:
        return {} if self.in_tmem else {"d": p.buffer(SMEM, "f32", (128, 32))}

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


REFUSED = {
    "cleared": (
        "mma adds to sums.c, where the sums of an earlier tile are; begin with p.clear(...) of it"
    ),
    "alone": (
        "role multiplier multiplies into tensor memory, which one of its threads does alone, and all of them do more: "
        "%v7 = 1; do that in another role"
    ),
    "written_out": (
        "sums.c[0:+128, 32*i7:+32] begins at a column that i7 counts at run time; write that loop out, "
        "`with p.unroll(...)`"
    ),
    "all_lanes": "sums.c[64:+128, 32*u7:+32] begins at row 64; a window in tensor memory has all lanes",
    "in_tmem": (
        "pipeline 'sums' hands over sums.c in tensor memory and sums.d in shared memory, which are completed "
        "otherwise; give each a pipeline of its own"
    ),
}


@pytest.mark.parametrize(("said", "sentence"), REFUSED.items())
def test_what_cannot_be_handed_over_is_refused_where_it_is_declared(said: str, sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        type("Sums", (Sums,), {said: False, "__module__": __name__})
    assert str(refused.value).splitlines()[0] == f"Sums.program: {sentence}"
