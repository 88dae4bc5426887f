"""stmatrix lowered: random fragments through random layouts of shared memory come out where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, UnknownLayout, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

H100 = device("h100")
KINDS = ("f16", "bf16", "f32")


class Fragments(Machine):
    """y = x; registers hold fragments as mma.sync leaves its sums, and go to shared memory as matrices"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output({t: (t,) for t in KINDS}, m, n, follows=x)

    bm, bn = Param(16, 32, 64), Param(8, 16, 24, 32, 64)
    along_m, along_n = Param(1, 2), Param(1, 2)
    pad, swizzle = Param(0, 8), Param(32, 64, 128)
    layout = UnknownLayout()
    contiguous: Any = Choice("rows", "columns")
    how: Any = Choice("solved", "swizzled")
    mma = isa.MmaSync()
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)
    put, get = isa.StMatrix(), isa.LdShared(1)

    def program(self, p: Any) -> None:
        bm, bn, warps = self.bm, self.bn, self.along_m * self.along_n
        c = p.tiled(self.mma, dtype("f16"), dtype("f16"), (bm, bn), (self.along_m, self.along_n)).c
        own = {"layout": self.layout, "pad": self.pad} if self.how == "solved" else {"swizzle": self.swizzle}
        stage = p.smem(self.x.dtype, (bm, bn), contiguous=1 if self.contiguous == "rows" else 0, **own)
        with (
            p.grid((self.m, bm), (self.n, bn)) as (i, j),
            p.pipeline("turn", 1, t=stage) as ring,
            p.role("all", warps=warps),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=(bm, bn)), c))
            with ring.consume() as s:
                who = blocked((bm, bn), threads=warps * 32)
                p.store(self.st, self.y.tile(i, j, shape=(bm, bn)), p.load(self.get, s.t, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("how", ["solved", "swizzled"])
@pytest.mark.parametrize("contiguous", ["rows", "columns"])
def test_fragments_of_sixteen_bits_leave_as_matrices(kind: str, how: str, contiguous: str) -> None:
    problem = Fragments.problem(m=70, n=66, dtypes={"x": kind})
    space = build_space(Fragments, problem, H100)
    cache, seen = SolverCache(), 0
    for point in space.space.sample(200, np.random.default_rng(3)):
        if point["how"] != how or point["contiguous"] != contiguous or seen == 4:
            continue
        seen += 1
        built = build(space.program(point), problem, point, cache)
        kernel = built.kernel
        assemble(kernel.ptx, kernel.architecture)
        assert kernel.architecture == "sm_90"
        assert (".trans.shared.b16" in kernel.ptx) == (contiguous == "columns")
        found = verify(kernel, Fragments, problem, orders=("random",), random_inputs=False)
        assert found.passed, f"{dict(point)}\n{found}"
        if how == "solved":
            measured = 0
            for number, line in enumerate(kernel.ptx.splitlines(), 1):
                measured += found.lines[number].wavefronts if "stmatrix.sync" in line else 0
            (solution,) = built.layouts.solutions.values()
            (stored,) = [a for a in solution.accesses if a.name == "write by put"]
            tiles = -(-found.problem.dim["m"] // int(point["bm"])) * -(-found.problem.dim["n"] // int(point["bn"]))
            assert measured == stored.wavefronts * tiles
    assert seen == 4


def test_fragments_of_other_widths_are_refused() -> None:
    space = build_space(Fragments, Fragments.problem(m=64, n=64, dtypes={"x": "f32"}), H100)
    assert space.space.size == 0
    assert "stmatrix takes the row l / 4 and the 32 bits l % 4 of an 8x8 matrix from lane l" in str(
        space.space.conflict()
    )


def test_older_devices_do_not_have_it() -> None:
    space = build_space(Fragments, Fragments.problem(m=64, n=64), device("a100"))
    assert space.space.size == 0
    assert "stmatrix exists from sm_90 on" in str(space.space.conflict())


class Shared(Machine):
    """y = x; several warps hold the same fragments, as they hold an operand of mma.sync: one of them stores"""

    m, n = Dim(), Dim()
    x = Input("f16", m, n)
    y = Output("f16", m, n)

    bm = Param(16, 32, 64)
    along_m, along_n = Param(1, 2), Param(1, 2, 4)
    mma = isa.MmaSync()
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)
    put, get = isa.StMatrix(), isa.LdShared(1)

    def program(self, p: Any) -> None:
        warps = self.along_m * self.along_n
        a = p.tiled(self.mma, self.x.dtype, self.x.dtype, (self.bm, 32), (self.along_m, self.along_n)).a
        with (
            p.grid((self.m, self.bm), (self.n, 16)) as (i, j),
            p.pipeline("turn", 1, t=p.smem("f16", (self.bm, 16), swizzle=32)) as ring,
            p.role("all", warps=warps),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=(self.bm, 16)), a))
            with ring.consume() as s:
                who = blocked((self.bm, 16), threads=warps * 32)
                p.store(self.st, self.y.tile(i, j, shape=(self.bm, 16)), p.load(self.get, s.t, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def test_one_of_the_warps_that_hold_a_fragment_stores_it() -> None:
    problem = Shared.problem(m=70, n=40)
    space = build_space(Shared, problem, H100)
    points = [p for p in space.space.sample(40, np.random.default_rng(1)) if p["along_n"] != 1][:5]
    assert len(points) == 5
    for point in points:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        (line,) = [t for t in kernel.ptx.splitlines() if "stmatrix.sync" in t][:1]
        assert line.strip().startswith("@%p")
        found = verify(kernel, Shared, problem, orders=("early",), random_inputs=False)
        assert found.passed, f"{dict(point)}\n{found}"


class AcrossSpans(Machine):
    """y = x through rows of spans; which span a value lies in depends on the thread, on the value, or on their sum"""

    m, n = Dim(), Dim()
    x = Input(("f16", "f32"), m, n)
    y = Output({"f16": ("f16",), "f32": ("f32",)}, m, n, follows=x)

    bn = Param(96, 192)
    across_in, across_out = Param(4, 12, 24, 48, 96), Param(4, 12, 24, 48, 96)
    swizzle = Param(32, 64, 128)
    ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

    def program(self, p: Any) -> None:
        shape = (16, self.bn)
        with (
            p.grid((self.m, 16), (self.n, self.bn)) as (i, j),
            p.pipeline("turn", 1, t=p.smem(self.x.dtype, shape, swizzle=self.swizzle)) as ring,
            p.role("all", warps=3),
        ):
            with ring.produce() as s:
                who = blocked(shape, threads=96, across=self.across_in)
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
            with ring.consume() as s, p.unroll(self.bn, step=48) as part:
                window = s.t.window((0, part), (16, 48))
                who = blocked((16, 48), threads=96, across=self.across_out)
                p.store(
                    self.st, self.y.tile(i, j, shape=shape).window((0, part), (16, 48)), p.load(self.get, window, who)
                )

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.end_to_end
def test_threads_and_values_reach_across_spans(kind: str) -> None:
    problem = AcrossSpans.problem(m=20, n=200, dtypes={"x": kind})
    space = build_space(AcrossSpans, problem, H100)
    for point in space.space.sample(12, np.random.default_rng(5)):
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, AcrossSpans, problem, orders=("late",), random_inputs=False)
        assert found.passed, f"{dict(point)}\n{found}"
