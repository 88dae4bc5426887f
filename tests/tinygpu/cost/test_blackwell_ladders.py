"""Ladders of products on a B200 that were published step by step: both models keep their order.

`python tests/tinygpu/cost/test_blackwell_ladders.py` prints what is predicted of every step beside what was published.

Each step is a candidate of one machine, written here, whose parameters and choices are what the steps change: the ring,
its depth, the order of tiles, one tile or all of a CTA's tiles, one or two accumulators, pairs of CTAs, results by TMA.
A published step names its tile, or the lists that its author's tuner had; of a list the best predicted candidate
stands. Nothing is fitted to these figures, and none of them was looked at when the figures of the B200 were chosen.

Sources. "learn-cuda": github.com/gau-nernst/learn-cuda, 02e_matmul_sm100 (tiles in matmul_v*.cu; TFLOP/s in its README,
of one run of all kernels at 4096 cubed, bf16, whose library reached 1,358.69; gau-nernst.github.io/tcgen05 has another
run with 1,506.74 for the library). "Tilus": github.com/NVIDIA/tilus, docs/source/tutorials/matmul-blackwell and
examples/blackwell_matmul (lists of its tuner; TFLOP/s in plots/plot_perf.py, 8192 cubed, f16; its library 1,599.8).
Steps that load without TMA or without a swizzle are left out: no machine here does.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import TMEM, Choice, Dim, Machine, Param, Tracer, blocked
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.search.minimize import minimize
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space


class Step(Machine):
    """c = a @ b by TMA and tcgen05.mma, as a step of a ladder has it"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = factors(m, n, k, "f16", "bf16")
    c = product(a, m, n)

    bn, bk = Param(64, 128, 256), Param(64, 128, 256)
    stages, tiles = Param(1, 2, 3, 4, 5, 6, 7), Param(1, 2)
    raster = Param(1, 2, 4, 8, 16)
    piece, vc = Param(8, 16, 32), Param(8)
    ctas, dealt, store = Choice("one", "pairs"), Choice("one tile", "all its tiles"), Choice("direct", "staged")

    tma, ld, put = isa.TmaLoad(), isa.Tcgen05Ld(), isa.TmaStore()
    mma, mma_pair = isa.Tcgen05Mma(bn), isa.Tcgen05MmaPair(bn)
    st, st_stage = isa.StGlobal(vc), isa.StShared(vc)
    conversions, compute = isa.arithmetic("f32"), "f32"

    def program(self, p: Tracer) -> None:
        bm, bn, bk, piece, depth, swizzle = 128, self.bn, self.bk, self.piece, 16, 128
        pairs = self.ctas == "pairs"
        mma, part = (self.mma_pair, bn // 2) if pairs else (self.mma, bn)
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=swizzle)
        b_stage = p.smem(self.b.dtype, (bk, part), contiguous=self.b.contiguous, swizzle=swizzle)
        rows = blocked((bm, piece), threads=bm, vector=self.vc, across=1, name="c")
        staged = self.store == "staged"
        with (
            p.grid(
                (self.n, bn), (self.m, bm), raster=self.raster, cluster=(1, 2 if pairs else 1),
                persistent=self.dealt == "all its tiles",
            ) as (j, i),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, "f32", (bm, bn))) as sums,
            p.pipeline("out", 1, c=p.smem(self.c.dtype, (bm, piece), swizzle=32)) if staged else nullcontext() as out,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                mine = j + p.rank(1) % 2 * part if pairs else j
                p.copy(self.tma, self.b.tile(kk, mine, shape=(bk, part)), s.b)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, part)))
            with p.role("epilogue", warps=4, first=4), sums.consume() as t, p.unroll(bn, step=piece) as at:
                values = p.load(self.ld, t.c.window((0, at), (bm, piece)), rows)
                self.put_away(p, out, values, self.c.tile(i, j + at, shape=(bm, piece)))

    def put_away(self, p: Tracer, out: Any, values: Any, target: Any) -> None:
        """A piece of the sums to global memory, from registers or through shared memory by TMA."""
        if out is None:
            p.store(self.st, target, values)
            return
        with out.produce() as s:
            p.store(self.st_stage, s.c, values)
        with out.consume() as s:
            p.copy(self.put, s.c, target)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


Values = Mapping[str, int | str | tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Rung:
    """One step: what its author calls it, the TFLOP/s of every published run, and what is fixed of its candidate."""

    name: str
    published: tuple[float, ...]
    values: Values


@dataclass(frozen=True, slots=True)
class Ladder:
    name: str
    size: int
    dtype: str
    runs: tuple[str, ...]
    library: tuple[float, ...]
    rungs: tuple[Rung, ...]

    def space(self) -> MachineSpace:
        problem = Step.problem(m=self.size, n=self.size, k=self.size, dtypes={"a": self.dtype})
        return build_space(Step, problem, device("b200"))


ALONE: Values = {"ctas": "one", "dealt": "one tile", "tiles": 1, "raster": 1, "store": "direct", "piece": 8}
PAIRS: Values = {**ALONE, "ctas": "pairs"}
TUNED: Values = {**ALONE, "store": "staged", "piece": 16, "bn": (64, 128, 256), "bk": (64,)}

# v3 there waits for the products of every round before its one thread goes on: no candidate here does.
LEARN_CUDA = Ladder(
    "learn-cuda", 4096, "bf16", ("README", "write-up"), (1358.69, 1506.74),
    (
        Rung("v2: one slot", (721.02, 695.43), {**ALONE, "bn": 256, "bk": 256, "stages": 1}),
        Rung("v4: roles", (1053.61, 1208.83), {**ALONE, "bn": 128, "bk": 64, "stages": 7}),
        Rung("v5: pairs", (1169.65, 1302.29), {**PAIRS, "bn": 256, "bk": 64, "stages": 7}),
        Rung(
            "v6: persistent", (1273.32, 1475.93),
            {**PAIRS, "bn": 256, "bk": 64, "stages": 7, "tiles": 2, "dealt": "all its tiles"},
        ),
    ),
)  # fmt: skip
# V2 there has one warp for loads and products: no candidate here does. V5's tiles are dealt by launch control.
TILUS = Ladder(
    "Tilus", 8192, "f16", ("NCU",), (1599.8,),
    (
        Rung("V1: one slot", (454.3,), {**TUNED, "stages": 1}),
        Rung("V3: roles", (1351.1,), {**TUNED, "stages": (2, 3, 4)}),
        Rung("V4: order of tiles", (1416.4,), {**TUNED, "stages": (2, 3, 4), "raster": (1, 4, 8)}),
        Rung(
            "V5: persistent", (1506.3,),
            {
                **TUNED, "dealt": "all its tiles", "bn": (128, 256), "stages": (3, 4, 5), "tiles": (1, 2),
                "raster": (4, 8),
            },
        ),
        Rung(
            "V6: pairs", (1610.2,),
            {
                **TUNED, "ctas": "pairs", "dealt": "all its tiles", "bn": 256, "stages": (5, 6), "tiles": 2,
                "raster": (4, 8, 16), "piece": (16, 32),
            },
        ),
    ),
)  # fmt: skip
LADDERS = (LEARN_CUDA, TILUS)


@dataclass(frozen=True, slots=True)
class Found:
    """TFLOP/s of the best candidate of a rung, in closed form and simulated."""

    closed: float
    simulated: float
    point: Mapping[str, int | str]


def found(ladder: Ladder, space: MachineSpace, rung: Rung) -> Found:
    some = space.restrict(dict(rung.values))
    objective = PredictedTime(some)
    best = minimize(some.space, objective, strategy="exhaustive").best
    if best is None:
        raise ValueError(f"{ladder.name}, {rung.name}: {some} has no candidate")
    flops = 2e-12 * ladder.size**3
    closed = flops / float(objective.prediction(best).seconds)
    return Found(closed, flops / Simulator(space).simulate(best).seconds, best)


STRUCTURES = list(itertools.product(("one", "pairs"), ("one tile", "all its tiles"), ("staged", "direct")))


@pytest.mark.end_to_end
@pytest.mark.parametrize("ladder", LADDERS, ids=lambda ladder: ladder.name)
def test_no_step_is_predicted_slower_than_the_one_before_by_more_than_2_percent(ladder: Ladder) -> None:
    space = ladder.space()
    steps = [found(ladder, space, rung) for rung in ladder.rungs]
    for run in zip(*(rung.published for rung in ladder.rungs), strict=True):
        assert list(run) == sorted(run), "the published order is asked for"
    for model in ("closed", "simulated"):
        speeds = [getattr(step, model) for step in steps]
        told = model, dict(zip((r.name for r in ladder.rungs), speeds, strict=True))
        assert all(after >= 0.98 * before for before, after in itertools.pairwise(speeds)), told


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("ctas", "dealt", "store"), STRUCTURES)
def test_the_machine_of_the_steps_is_right(ctas: str, dealt: str, store: str) -> None:
    problem = Step.problem(m=300, n=264, k=136, dtypes={"a": "bf16"})
    space = build_space(Step, problem, device("b200"))
    structure = {"ctas": ctas, "dealt": dealt, "store": store}
    point = next(iter(space.restrict({**structure, "bn": 128, "bk": 64, "stages": 2, "piece": 16})))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, Step, problem, orders=("late",)).passed


def main() -> int:
    for ladder in LADDERS:
        space = ladder.space()
        print(f"{ladder.name}: {ladder.dtype}, {ladder.size} cubed; TFLOP/s", end="\n\n")
        runs = " | ".join(f"published ({run})" for run in ladder.runs)
        print(f"| step | {runs} | closed form | simulated | candidate |")
        print(f"| --- |{' ---: |' * (len(ladder.runs) + 2)} --- |")
        for rung in ladder.rungs:
            there = found(ladder, space, rung)
            told = " ".join(f"{n}={there.point[n]}" for n in ("bn", "bk", "stages", "raster", "tiles", "piece"))
            cells = [rung.name, *(f"{x:,.0f}" for x in (*rung.published, there.closed, there.simulated)), told]
            print(f"| {' | '.join(cells)} |", flush=True)
        print(f"| its library | {' | '.join(f'{x:,.0f}' for x in ladder.library)} | | | |", end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
