"""The runs of a verification: rings go round in all ways that matter, whatever the sizes that a kernel was made for."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, blocked
from tinygpu.machines.grouped_matmul import GroupedMatmul
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification import budget
from tinygpu.ptx.verification.derived import DEEP, LITTLE, PLAIN_ROUNDS, derive, tiles_per_cta
from tinygpu.ptx.verification.plan import plan
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ORDERS: tuple[Any, ...] = ("late", "early", "random")
WHO = blocked((8, 32), threads=32, across=32)


class OncePerTile(Machine):
    """y = x + x: one slot of a ring for each tile, whatever the depth of the ring"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, most = Param(1, 2, 3, 4), Param(32, 1 << 20)
    wide = Require(n <= most, "rows of n elements are taken")
    tma, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        stage = p.smem(self.x.dtype, (8, 32), swizzle=128)
        with (
            p.grid((self.m, 8), (self.n, 32), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, x=stage) as ring,
        ):
            with p.role("consumer", warps=1), ring.consume() as s:
                x = p.load(self.ld, s.x, WHO)
                p.store(self.st, self.y.tile(i, j, shape=(8, 32)), p.apply(self.add, x, x))
            with p.role("producer", warps=1, first=1), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=(8, 32)), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x


def made(machine: type[Machine], problem: Any, on: str, seed: int = 0, **values: Any) -> Kernel:
    space = build_space(machine, problem, device(on))
    (point,) = space.space.restrict(values).sample(1, np.random.default_rng(seed))
    return build(space.program(point), problem, point, SolverCache()).kernel


@settings(max_examples=12)
@given(
    st.sampled_from([(MatmulAmpere, "a100"), (MatmulHopper, "h100"), (MatmulSkinny, "h100")]),
    st.integers(1, 60), st.integers(1, 30), st.integers(1, 80), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_rings_go_round_whatever_the_problem(on: tuple[type[Machine], str], m: int, n: int, k: int, seed: int) -> None:
    """Deeper than both phases; to the end of the slots, and not; one slot, and one slot too few; facts are kept."""
    problem = on[0].problem(m=m, n=8 * n, k=8 * k)
    kernel = made(on[0], problem, on[1], seed)
    (ring,) = [r for r in kernel.rings if r.name == "ring"]
    runs = plan(kernel, on[0], problem, ORDERS, random_inputs=True, short=True)
    used = [int(ring.slots_of(run.problem.dim)) for run in runs]
    if not kernel.dealt:
        assert {1, max(ring.stages - 1, 1)} <= set(used)
    assert max(used) >= (3 if ring.phases else 2) * ring.stages
    assert any(count >= ring.stages and count % ring.stages == 0 for count in used)
    assert ring.stages == 1 or any(count > ring.stages and count % ring.stages for count in used)
    for run in runs:
        kernel.check(run.problem)
        for name, size in run.problem.dims if LITTLE.name not in run.where else ():
            steps = [step for dim, step in kernel.steps if dim == name]
            assert all((size - problem.dim[name]) % step == 0 for step in steps)
        if kernel.persistent and not kernel.dealt and run.order != "random" and run.inputs == "integers":
            launched = kernel.grid(run.problem, run.ctas)[0]
            assert kernel.tiles_of(run.problem) * kernel.slices >= 3 * kernel.turns * launched


def dealt(tiles: int, rounds: int, clusters: int) -> list[list[int]]:
    """Rounds of each tile that each cluster works on, one after another, where all rounds in a row are dealt out."""
    clusters = min(clusters, tiles * rounds) if tiles < clusters else clusters
    whole = max(tiles // clusters, 1) - 1
    total = (tiles - whole * clusters) * rounds
    owner = [number for number in range(clusters) for _ in range(total // clusters + (number < total % clusters))]
    out: list[list[int]] = [[] for _ in range(clusters)]
    for at, number in enumerate(owner):
        if at % rounds == 0 or owner[at - 1] != number:
            out[number].append(0)
        out[number][-1] += 1
    return [pieces + [rounds] * whole for pieces in out]


PASSED_OVER = [(1, 8, 0), (1, 6, 3), (0, 3, 1)]


@pytest.mark.parametrize(("stream_k", "stages", "seed"), PASSED_OVER)
def test_what_a_role_passes_over_shows_where_the_slots_end(stream_k: int, stages: int, seed: int) -> None:
    _shows_where_the_slots_end((300, 72, 320), stream_k, stages, seed)


@pytest.mark.slow
@settings(max_examples=80)
@given(
    st.tuples(st.integers(1, 800), st.integers(1, 20).map(lambda n: 8 * n), st.integers(1, 60).map(lambda k: 8 * k)),
    st.integers(0, 1), st.integers(2, 8), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_whatever_a_role_passes_over_shows_where_the_slots_end(
    sizes: tuple[int, int, int], stream_k: int, stages: int, seed: int
) -> None:
    _shows_where_the_slots_end(sizes, stream_k, stages, seed)


def _shows_where_the_slots_end(sizes: tuple[int, int, int], stream_k: int, stages: int, seed: int) -> None:
    """The second role begins behind the first one's tile: with other ends it waits for another phase, in some run."""
    m, n, k = sizes
    problem = MatmulHopper.problem(m=m, n=n, k=k)
    values = {"schedule": "pingpong", "stream_k": stream_k, "stages": stages, "bm": 64, "bn": 16, "bk": 32}
    kernel = made(MatmulHopper, problem, "h100", seed, **values)
    (ring,) = [r for r in kernel.rings if r.name == "ring"]
    passed: set[int] = set()
    for run in plan(kernel, MatmulHopper, problem, ORDERS, random_inputs=True, short=True):
        size = math.prod(kernel.clusters)
        tiles, clusters = kernel.tiles_of(run.problem) // size, kernel.grid(run.problem, run.ctas)[0] // size
        if stream_k:
            pieces = dealt(tiles, kernel.rounds_of(run.problem), clusters)
            passed |= {first for first, *rest in filter(None, pieces) if rest}
        elif tiles * kernel.slices > clusters:
            passed.add(int(ring.slots_of(run.problem.dim)))
    for other in {ring.stages - 1, ring.stages + 1} - {0}:
        assert any(x // ring.stages % 2 != x // other % 2 for x in passed), (other, sorted(passed))


def test_what_a_cluster_leaves_as_its_second_piece_is_fixed_up_by_others() -> None:
    """Side by side it comes last; where clusters run one after another, it is there before others fix up."""
    problem = MatmulHopper.problem(m=100, n=16, k=96)
    values = {"schedule": "pingpong", "stream_k": 1, "stages": 3, "bm": 64, "bn": 16, "bk": 32, "cluster_m": 1}
    kernel = made(MatmulHopper, problem, "h100", store="direct", cluster_n=1, **values)
    runs = plan(kernel, MatmulHopper, problem, ORDERS, random_inputs=True, short=False)
    (alone,) = [run for run in runs if run.alone]
    assert alone.where.endswith("one cluster after another")
    meets = re.findall(r"\n *bar\.sync [23], 128;(?=\n *mov\.u32 %r\d+, 4294967295;\n.*atom\.acq_rel)", kernel.ptx)
    assert len(meets) == 2
    second = replace(kernel, ptx=kernel.ptx.replace(meets[1], "\n", 1))
    assert not verify(second, MatmulHopper, problem, random_inputs=False, to_first_failure=True).passed


def test_each_run_of_a_plan_can_be_tried_alone() -> None:
    problem = OncePerTile.problem(m=8, n=32)
    kernel = made(OncePerTile, problem, "h100", stages=2, most=1 << 20)
    runs = plan(kernel, OncePerTile, problem, ORDERS, random_inputs=True, short=False)
    found = [verify(kernel, OncePerTile, problem, only=number) for number in range(2 * len(runs))]
    assert all(f.passed for f in found)
    assert [(f.problem, f.checks[0].inputs, f.checks[0].order) for f in found] == 2 * [
        (run.problem, run.inputs, run.order) for run in runs
    ]
    assert {len(f.checks) for f, run in zip(found, 2 * runs, strict=True) if run.inputs == "integers"} == {1}


def test_a_ring_outside_of_loops_goes_round_from_tile_to_tile() -> None:
    problem = OncePerTile.problem(m=8, n=32)
    kernel = made(OncePerTile, problem, "h100", stages=4, most=1 << 20)
    assert [(r.stages, r.slots, r.phases) for r in kernel.rings] == [(4, "1", True)]
    assert tiles_per_cta(kernel) == 12
    small = derive(kernel, OncePerTile, problem)
    assert kernel.tiles_of(small) == 12
    assert verify(kernel, OncePerTile, problem, thorough=True).passed
    broken = replace(kernel, ptx=re.sub(r"\n *@%p\d+ xor\.b32 (%r\d+), \1, 1;", "", kernel.ptx))
    assert broken.ptx != kernel.ptx
    assert not verify(broken, OncePerTile, problem).passed


def test_sizes_that_a_machine_calls_illegal_are_not_tried() -> None:
    problem = OncePerTile.problem(m=8, n=32)
    kernel = made(OncePerTile, problem, "h100", stages=4, most=32)
    small = derive(kernel, OncePerTile, problem, DEEP)
    assert small.dim["n"] == 32
    assert kernel.tiles_of(small) == 12


def test_what_the_cpu_time_does_not_suffice_for_is_said() -> None:
    problem = MatmulSkinny.problem(m=8, n=200, k=528)
    kernel = made(MatmulSkinny, problem, "h100", bm=8, bn=64, bk=32, stages=4, split_k=1, product="mma.sync", warps=1)
    found = verify(kernel, MatmulSkinny, problem, orders=("late", "early"), thorough=True, cpu_seconds=0)
    assert found.passed
    assert len(found.checks) == 1
    assert str(found).splitlines()[-1] == (
        "  NOT RUN: slots used again in both phases (m=8,n=136,k=400): more than 0 s of CPU time in all; more slots "
        "used again (m=8,n=136,k=176): more than 0 s of CPU time in all; slots used twice (m=8,n=136,k=240): more than "
        "0 s of CPU time in all; 3 slots used (m=8,n=136,k=80): more than 0 s of CPU time in all; 1 slot used "
        "(m=8,n=136,k=16): more than 0 s of CPU time in all; slots used twice (m=8,n=136,k=240): more than 0 s of CPU "
        "time in all; a last round of little (m=8,n=136,k=129): more than 0 s of CPU time in all; CTA 3 of 4: more "
        "than 0 s of CPU time in all; CTA 0 of 4: more than 0 s of CPU time in all"
    )


def test_of_ctas_of_the_problem_itself_the_first_has_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = MatmulSkinny.problem(m=8, n=200, k=528)
    kernel = made(MatmulSkinny, problem, "h100", bm=8, bn=64, bk=32, stages=4, split_k=1, product="mma.sync", warps=1)
    monkeypatch.setattr(budget, "SAMPLED_CPU_SECONDS", 0.0)
    found = verify(kernel, MatmulSkinny, problem, orders=("late",), thorough=True)
    assert found.passed
    assert [check.where for check in found.checks if check.where.startswith("CTA")] == [
        "CTA 3 of 4, with k=144 of 528"
    ]
    assert found.left_out == ("CTA 0 of 4: more than 0 s of CPU time for CTAs of the problem itself",)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("values", "ctas"),
    [
        ({"cluster_m": 2, "cluster_n": 2, "split_k": 1, "stream_k": 0}, "CTAs 60 to 63 of 64"),
        ({"cluster_m": 1, "cluster_n": 2, "split_k": 3, "stream_k": 0}, "CTAs 186 to 191 of 192"),
        ({"cluster_m": 1, "cluster_n": 1, "split_k": 1, "stream_k": 1}, "CTA 63 of 64"),
    ],
)
def test_ctas_of_the_real_problem_run_whole_clusters_and_all_parts(values: dict[str, Any], ctas: str) -> None:
    """A mistake that sizes of 512 and more show, and derived problems do not."""
    problem = MatmulHopper.problem(m=64, n=1024, k=64 * 3)
    fixed = {"bm": 64, "bn": 16, "bk": 32, "stages": 2, "schedule": "single", "store": "direct", "raster": 1}
    if values["cluster_m"] == 2:
        problem = MatmulHopper.problem(m=128, n=512, k=64)
    kernel = made(MatmulHopper, problem, "h100", **fixed, **values)
    found = verify(kernel, MatmulHopper, problem, orders=("late",), random_inputs=False, thorough=True)
    assert found.passed, str(found)
    assert any(ctas == c.where.split(", with ")[0] for c in found.checks)
    loads = re.search(r"ld\.param\.u32 (%r\d+), \[c_ld\];", kernel.ptx)
    assert loads is not None
    cut = replace(kernel, ptx=kernel.ptx.replace(loads[0], f"{loads[0]}\n  and.b32 {loads[1]}, {loads[1]}, 511;"))
    wrong = verify(cut, MatmulHopper, problem, orders=("late",), random_inputs=False, thorough=True)
    assert ctas in next(c.where for c in wrong.checks if not c.passed).split("; "), str(wrong)


def test_many_groups_of_a_grid_are_those_of_the_run_whose_tiles_are_cheap() -> None:
    """Each group is a tile more: rings go round in few of them, and the loop that looks for one has rounds."""
    problem = GroupedMatmul.problem(m=1000, n=256, k=512, experts=16)
    kernel = made(GroupedMatmul, problem, "a100")
    looked_at = dict(kernel.steps)["experts"]
    runs = plan(kernel, GroupedMatmul, problem, ORDERS, random_inputs=True, short=True)
    long = {run.problem.dim["experts"] for run in runs if run.rounds(kernel) > 2 * kernel.tiles_of(run.problem)}
    assert long == {16}
    assert max(run.problem.dim["experts"] for run in runs) == 16 + (PLAIN_ROUNDS - 1) * looked_at


@settings(max_examples=20)
@given(
    st.sampled_from([(MatmulAmpere, "a100"), (MatmulHopper, "h100")]),
    st.integers(1, 900), st.integers(1, 120), st.integers(1, 60), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_every_axis_has_two_tiles_once_and_its_end_for_all_inputs(
    on: tuple[type[Machine], str], m: int, n: int, k: int, seed: int
) -> None:
    """What a tile's number is decides in the first run; what its end is, in each that is there for its inputs."""
    machine, name = on
    problem = machine.problem(m=m, n=8 * n, k=8 * k)
    kernel = made(machine, problem, name, seed)
    runs = plan(kernel, machine, problem, ORDERS, random_inputs=True, short=True)
    assert {"specials", "lines", "other signs"} <= {run.inputs for run in runs}
    for dim, extent in kernel.tiles:
        size = problem.dim[dim]
        assert -(-runs[0].problem.dim[dim] // extent) >= min(2, -(-size // extent))
        for run in runs:
            if run.inputs not in ("integers", "signs"):
                assert run.problem.dim[dim] % extent == size % extent
