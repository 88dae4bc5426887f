"""wgmma with its left operand in registers: what threads convert on the way, in rounds that overlap."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Quantised(Machine):
    """c = a @ b, a of 8-bit integers, which become bf16 on their way from shared memory to the tensor cores"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input("s8", m, k, majors=("row", "col"))
    b = Input("bf16", k, n, majors=("row", "col"))
    c = Output("f32", m, n)

    groups, stages, bn, bk = Param(1, 2), Param(1, 2, 3), Param(32, 64), Param(64, 128)
    tma, wgmma, ld, st = isa.TmaLoad(), isa.WgmmaRegisters(bn), isa.LdShared(1), isa.StGlobal(2)
    widen, narrow = isa.Cvt("s8", "f32"), isa.Cvt("f32", "bf16")

    def program(self, p: Any) -> None:
        bm, bn, bk = 64 * self.groups, self.bn, self.bk
        t = p.tiled(self.wgmma, self.b.dtype, self.b.dtype, (bm, bn), (self.groups, 1))
        a_stage = p.smem("s8", (bm, bk), contiguous=self.a.contiguous, swizzle=64)
        b_stage = p.smem("bf16", (bk, bn), contiguous=self.b.contiguous, swizzle=64)
        with (
            p.grid((self.m, bm), (self.n, bn), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4 * self.groups):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    a = p.load(self.ld, s.a.window((0, kt), (bm, t.k)), t.a)
                    wide = p.apply(self.narrow, p.apply(self.widen, a))
                    p.multiply(self.wgmma, acc, wide, s.b.window((kt, 0), (t.k, bn)))
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), acc)
            with p.role("producer", warps=1, first=4 * self.groups), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


def made(majors: tuple[str, str] = ("row", "col"), **point: int) -> tuple[Kernel, Any]:
    problem = Quantised.problem(m=208, n=80, k=336, majors={"a": majors[0], "b": majors[1]})
    space = build_space(Quantised, problem, device("h100"))
    full = {"groups": 1, "stages": 2, "bn": 32, "bk": 64, **point}
    assert full in space.space, [str(violation) for violation in space.space.explain(full)]
    return build(space.program(full), problem, full, SolverCache()).kernel, problem


@pytest.mark.sampled(8)
@pytest.mark.parametrize("majors", [("row", "col"), ("col", "row")])
@pytest.mark.parametrize(("groups", "stages", "bk"), [(1, 1, 64), (2, 3, 128)])
@pytest.mark.end_to_end
def test_an_operand_is_converted_on_its_way(majors: tuple[str, str], groups: int, stages: int, bk: int) -> None:
    kernel, problem = made(majors, groups=groups, stages=stages, bk=bk, bn=64)
    assembly = assemble(kernel.ptx, kernel.architecture)
    assert not assembly.spills
    assert "wgmma" not in " ".join(assembly.warnings)  # neither serialised nor given waits of the assembler's own
    found = verify(kernel, Quantised, problem)
    assert found.passed, str(found)


@pytest.mark.parametrize(
    ("lost", "fault"),
    [
        (r"wgmma\.fence\.sync\.aligned;", "no wgmma.fence comes before"),
        (r"wgmma\.wait_group\.sync\.aligned 0;", "wgmma.wait_group must come first"),
        (r"fence\.proxy\.async\.shared::cta;", "without fence.proxy.async between the two"),
    ],
)
def test_what_lowering_derives_is_needed(lost: str, fault: str) -> None:
    """Without one of the fences or waits the emulator finds a fault."""
    kernel, problem = made()
    shorter = re.sub(lost, "", kernel.ptx)
    assert shorter != kernel.ptx
    object.__setattr__(kernel, "ptx", shorter)
    found = verify(kernel, Quantised, problem, orders=("late",), random_inputs=False)
    assert not found.passed
    assert fault in str(found)
