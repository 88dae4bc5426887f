"""Sums that tensor cores still work on: a program that uses them too early is refused, and one that waits is right."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def machine(made_in: str, used_in: str) -> type[Machine]:
    """c = a @ b: where the sums of a round are begun, and where they are added to the total."""

    class Sums(Machine):
        """c = a @ b"""

        m, n, k = Dim(), Dim(), Dim()
        a, b = Input("bf16", m, k), Input("bf16", k, n)
        c = Output("f32", m, n)
        stages = Param(1, 2)
        tma, wgmma, st, add = isa.TmaLoad(), isa.Wgmma(32), isa.StGlobal(2), isa.Add("f32")

        def program(self, p: Any) -> None:
            t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (64, 32), (1, 1))
            a_stage, b_stage = p.smem("bf16", (64, 64), swizzle=128), p.smem("bf16", (64, 32), swizzle=64)
            with (
                p.grid((self.m, 64), (self.n, 32), persistent=True) as (i, j),
                p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            ):
                with p.role("consumer", warps=4):
                    total, acc = p.full(t.c, "f32"), None

                    def add(place: str) -> None:
                        if used_in == place:
                            p.apply(self.add, total, acc, into=total)

                    acc = p.full(t.c, "f32") if made_in == "tile" else acc
                    with p.loop(self.k, step=64):
                        acc = p.full(t.c, "f32") if made_in == "loop" else acc
                        with ring.consume() as s:
                            acc = p.full(t.c, "f32") if made_in == "consume" else acc
                            with p.unroll(64, step=t.k) as kt:
                                a, b = s.a.window((0, kt), (64, t.k)), s.b.window((kt, 0), (t.k, 32))
                                p.multiply(self.wgmma, acc, a, b)
                            add("consume")
                        add("loop")
                    add("tile")
                    p.store(self.st, self.c.tile(i, j, shape=(64, 32)), total)
                with p.role("producer", warps=1, first=4), p.loop(self.k, step=64) as kk, ring.produce() as s:
                    p.copy(self.tma, self.a.tile(i, kk, shape=(64, 64)), s.a)
                    p.copy(self.tma, self.b.tile(kk, j, shape=(64, 32)), s.b)

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return a @ b

    return Sums


TOO_EARLY = [("consume", "consume"), ("loop", "consume"), ("tile", "consume")]


@pytest.mark.parametrize(("made_in", "used_in"), TOO_EARLY)
def test_sums_that_are_used_in_the_block_of_their_products_are_refused(made_in: str, used_in: str) -> None:
    sentence = (
        r"Sums\.program: %v\d+ is used in the block that consumes 'ring', while tensor cores still work on it; "
        "use its sums behind the block"
    )
    with pytest.raises(DeclarationError) as refused:
        machine(made_in, used_in)
    assert re.fullmatch(sentence, str(refused.value).splitlines()[0])


@pytest.mark.parametrize(("made_in", "used_in"), [("tile", "tile"), ("loop", "loop")])
def test_sums_that_are_used_behind_the_block_are_right(made_in: str, used_in: str) -> None:
    """Behind the loop, where a round's products end in the next one; or in the loop, where they end with the block."""
    made = machine(made_in, used_in)
    problem = made.problem(m=72, n=40, k=200)
    space = build_space(made, problem, device("h100"))
    for point in space.space:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert verify(kernel, made, problem, orders=("late",), random_inputs=False).passed
