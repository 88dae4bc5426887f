"""TMA moves elements of 4 bits as the bytes that they share: in and out, in every swizzle, tensors of odd sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

KINDS = ("e2m1", "s4", "u4")


class Shifted(Machine):
    """y = x from column `begin` on, with zeros behind: by TMA to shared memory, through registers, by TMA back"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output(dict.fromkeys(KINDS, KINDS), m, n, follows=x)
    swizzle, begin, widths = Param(32, 64, 128), Param(0, 2, 3, 34), Param(1, 2)
    tma, put, get, set = isa.TmaLoad(), isa.TmaStore(), isa.LdShared(8), isa.StShared(8)

    def program(self, p: Any) -> None:
        shape = (8, 2 * self.swizzle * self.widths)
        who = blocked(shape, threads=32, vector=8)
        came, goes = (p.smem(self.x.dtype, shape, swizzle=self.swizzle) for _ in range(2))
        with (
            p.grid((self.m, 8), (self.n, shape[1])) as (i, j), p.pipeline("ring", 2, t=came) as ring,
            p.pipeline("out", 1, t=goes) as out,
        ):  # fmt: skip
            with p.role("bring", warps=1), ring.produce() as slot:
                p.copy(self.tma, self.x.tile(i, j + self.begin, shape=shape), slot.t)
            with p.role("keep", warps=1, first=1), ring.consume() as slot:
                with out.produce() as other:
                    p.store(self.set, other.t, p.load(self.get, slot.t, who))
                with out.consume() as other:
                    p.copy(self.put, other.t, self.y.tile(i, j, shape=shape))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def made(kind: str, m: int, n: int, **point: int) -> tuple[Any, Kernel]:
    problem = Shifted.problem(m=m, n=n, dtypes={"x": kind, "y": kind}, lds=dict.fromkeys("xy", -(-n // 32) * 32))
    space = build_space(Shifted, problem, device("h100"))
    (found,) = space.space.restrict(point).sample(1, np.random.default_rng(0))
    return problem, build(space.program(found), problem, found, SolverCache()).kernel


@pytest.mark.parametrize("widths", [1, 2])
@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize(("kind", "m", "n"), [("e2m1", 1, 2), ("s4", 9, 258), ("u4", 17, 66), ("e2m1", 8, 512)])
def test_all_elements_come_and_go(kind: str, m: int, n: int, swizzle: int, widths: int) -> None:
    problem, kernel = made(kind, m, n, begin=0, swizzle=swizzle, widths=widths)
    assert {spec.box[0] for spec in kernel.maps} == {2 * swizzle}
    found = verify(kernel, Shifted, problem)
    assert found.passed, str(found)


def test_windows_begin_at_whole_bytes_of_rows_of_whole_bytes() -> None:
    def begins(n: int) -> set[Any]:
        problem = Shifted.problem(m=8, n=n, lds=dict.fromkeys("xy", 64))
        return {point["begin"] for point in build_space(Shifted, problem, device("h100")).space.points()}

    assert begins(64) == {0, 2, 34}
    assert begins(63) == set()
    space = build_space(Shifted, Shifted.problem(m=8, n=63, lds=dict.fromkeys("xy", 64)), device("h100")).space
    said = " ".join(v.sentence for v in space.explain({"begin": 3, "swizzle": 32, "widths": 1}))
    assert "rows of x are whole bytes, of 2 elements each: n is even; 63 mod 2 = 1 != 0" in said
    assert "windows of x begin at whole bytes, of 2 elements each; 3 mod 2 = 1 != 0" in said
