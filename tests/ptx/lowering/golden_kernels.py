"""The smallest kernels: vectors without edges, a transpose through shared memory, a loop with a reduction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tinygpu.devices import device
from tinygpu.language import Dim, InOut, Input, Machine, Output, Param, Scalar, UnknownLayout, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Saxpy(Machine):
    """y = a * x + y, in place"""

    n = Dim()
    a = Scalar("f32")
    x = Input("f32", n)
    y = InOut("f32", n)
    warps, vector = Param(1, 2), Param(1, 4)
    ld, st, fma = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Fma("f32")

    def program(self, p: Any) -> None:
        shape = (self.warps * 32 * self.vector,)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x, y = (p.load(self.ld, t.tile(i, shape=shape), who) for t in (self.x, self.y))
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.fma, x, self.a, y))

    @staticmethod
    def reference(a: Any, x: Any, y: Any) -> Any:
        return a * x + y


class Transpose(Machine):
    """y[j, i] = x[i, j], through a swizzled square of shared memory"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", n, m)
    rows = Param(4, 8)
    layout = UnknownLayout()
    ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

    def program(self, p: Any) -> None:
        shape = (self.rows, 8)
        down, across = blocked(shape, threads=32, across=8), blocked(shape, threads=32, axis=0, across=4)
        with (
            p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j),
            p.pipeline("turn", 1, t=p.smem("f32", shape, layout=self.layout)) as ring,
            p.role("all", warps=1),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=shape), down))
            with ring.consume() as s:
                p.store(self.st, self.y.tile(j, i, shape=shape[::-1]).T, p.load(self.get, s.t, across))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T


class RowSum(Machine):
    """y[i] = sum of row i: a loop, and four lanes to a row"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)
    vector = Param(1, 2)
    ld, st, add, shuffle = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (8, 4 * self.vector)
        who = blocked(shape, threads=32, vector=self.vector, across=4)
        with p.grid((self.m, 8)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=shape), who), into=total)
            p.store(self.st, self.y.column(i, 8), p.reduce(self.add, total, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


CASES: tuple[tuple[type[Machine], dict[str, int], dict[str, int]], ...] = (
    (Saxpy, {"n": 1024}, {"warps": 1, "vector": 4}),
    (Transpose, {"m": 20, "n": 16}, {"rows": 4}),
    (RowSum, {"m": 16, "n": 30}, {"vector": 2}),
)


def kernel(machine: type[Machine], dims: dict[str, int], point: dict[str, int]) -> Kernel:
    """The kernel of one admitted point."""
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    if point not in space.space:
        raise ValueError(f"{machine.__name__} does not admit {point}")
    return build(space.program(point), problem, point, SolverCache()).kernel


GOLDEN = Path(__file__).parent / "golden"

if __name__ == "__main__":  # accepts what lowering writes now; look at the difference before it is committed
    for case in CASES:
        made = kernel(*case)
        (GOLDEN / f"{made.name}.ptx").write_text(made.ptx)
