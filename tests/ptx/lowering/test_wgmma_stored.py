"""Left operands that a role stores in shared memory itself, and its tensor cores read there: right, proved, refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ROWS, DEPTH, COLUMNS = 64, 64, 32


def stored(inside: bool = True, right: bool = False) -> type[Machine]:
    """c = (0 - a) @ b, where the role that multiplies loads a, negates it, and stores it; another brings b.

    inside  the slot of b is opened inside of that of a, as it should be; else the other way round
    right   the role stores b as well
    """

    class Stored(Machine):
        """c = (0 - a) @ b"""

        m, n, k = Dim(), Dim(), Dim()
        a, b, c = Input("f16", m, k), Input("f16", k, n), Output("f32", m, n)
        mine, stages, swizzle = Param(1, 2, 3), Param(2, 3), Param(32, 64, 128)
        tma, mma, ld, put, st = isa.TmaLoad(), isa.Wgmma(COLUMNS), isa.LdGlobal(8), isa.StShared(8), isa.StGlobal(1)
        minus = isa.Sub("f16")

        def program(self, p: Any) -> None:
            t = p.tiled(self.mma, "f16", "f16", (ROWS, COLUMNS), (1, 1))
            left = p.smem("f16", (ROWS, DEPTH), swizzle=self.swizzle)
            other = p.smem("f16", (DEPTH, COLUMNS), swizzle=64)
            with (
                p.grid((self.m, ROWS), (self.n, COLUMNS), persistent=True) as (i, j),
                p.pipeline("left", self.mine, a=left) as own,
                p.pipeline("ring", self.stages, b=other) as ring,
            ):
                if not right:
                    with p.role("producer", warps=1, first=4), p.loop(self.k, step=DEPTH) as kk, ring.produce() as s:
                        p.copy(self.tma, self.b.tile(kk, j, shape=(DEPTH, COLUMNS)), s.b)
                with p.role("all", warps=4):
                    total = p.full(t.c, "f32")
                    with p.loop(self.k, step=DEPTH) as kk:
                        with own.produce() as s:
                            self.store(p, self.a.tile(i, kk, shape=(ROWS, DEPTH)), s.a, 8)
                        if right:
                            with ring.produce() as s:
                                self.store(p, self.b.tile(kk, j, shape=(DEPTH, COLUMNS)), s.b, 4)
                        first, second = (own, ring) if inside else (ring, own)
                        with first.consume() as one, second.consume() as two, p.unroll(DEPTH, step=t.k) as at:
                            a, b = (one.a, two.b) if inside else (two.a, one.b)
                            a, b = a.window((0, at), (ROWS, t.k)), b.window((at, 0), (t.k, COLUMNS))
                            p.multiply(self.mma, total, a, b)
                    p.store(self.st, self.c.tile(i, j, shape=(ROWS, COLUMNS)), total)

        def store(self, p: Any, source: Any, target: Any, across: int) -> None:
            x = p.load(self.ld, source, blocked(target.shape, threads=128, vector=8, across=across))
            p.store(self.put, target, p.apply(self.minus, 0.0, x))

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return -a.astype(np.float32) @ b.astype(np.float32)

    return Stored


@pytest.mark.parametrize("mine", [1, 2, 3])
@pytest.mark.parametrize("swizzle", [32, 128])
@pytest.mark.sampled(2)
@pytest.mark.end_to_end
def test_a_role_stores_what_its_products_read(mine: int, swizzle: int) -> None:
    """In slots that take turns too; and not where the stores of the next round do not wait for the products."""
    machine = stored()
    problem = machine.problem(m=70, n=40, k=200)
    space = build_space(machine, problem, device("h100"))
    point = {"mine": mine, "stages": 2, "swizzle": swizzle}
    program = space.program(point)
    made = lowered(program, problem, point, solve_buffers(program, SolverCache()).swizzles)
    found = verify(made.kernel, machine, problem, orders=("late", "early", "random"))
    assert found.passed, str(found)
    assert certify(made.protocol).proved
    wrong = replace(made.kernel, ptx=re.sub(r"wgmma\.wait_group\.sync\.aligned 0;", "", made.kernel.ptx))
    assert not verify(wrong, machine, problem, orders=("late",), to_first_failure=True).passed


def test_slots_are_opened_in_the_order_in_which_products_hold_them() -> None:
    with pytest.raises(DeclarationError) as refused:
        build_space(stored(inside=False), stored().problem(m=64, n=32, k=64), device("h100"))
    assert str(refused.value).splitlines()[0] == (
        "Stored.program: mma (wgmma) reads left.a, which its own role stores, and stands in the block of its slot; "
        "open the slot of 'ring' inside of that"
    )


def test_right_operands_come_from_another_role() -> None:
    with pytest.raises(DeclarationError) as refused:
        build_space(stored(right=True), stored().problem(m=64, n=32, k=64), device("h100"))
    assert str(refused.value).splitlines()[0] == (
        "Stored.program: mma (wgmma) reads ring.b from shared memory, which threads fill; another role brings it there "
        "by TMA"
    )
