"""Stream-K: whatever the number of CTAs, all rounds of all tiles are done once, and fixed up in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import EmulationFault, Order, emulate
from tinygpu.ptx.launching.kernel import Kernel, LaunchError
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.context import LoweringError
from tinygpu.ptx.runtime.launch import Launch
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.verify import compare, verify
from tinygpu.schedulers.launch_rule import MOST_CLUSTERS
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

H100 = device("h100")
POINT = {
    "schedule": "single", "store": "direct", "bm": 64, "bn": 16, "bk": 32, "stages": 2, "cluster_m": 1, "cluster_n": 1,
    "raster": 1, "split_k": 1, "stream_k": 1, "swizzle": 32, "swizzle_c": 32, "piece": 16, "outs": 1, "vr": 1,
}  # fmt: skip


def made(problem: Any, **point: Any) -> Kernel:
    space = build_space(MatmulHopper, problem, H100)
    full = POINT | point
    assert full in space.space, full
    return build(space.program(full), problem, full, SolverCache()).kernel


def run(kernel: Kernel, problem: Any, ctas: int, seed: int = 0, inputs: Any = "integers", text: str = "") -> Any:
    """The result of a launch of so many CTAs, in random order; raises what the emulator raises."""
    trial = draw(MatmulHopper, problem, inputs, 0)
    operands = trial.operands()
    grid = kernel.grid(problem, ctas)
    spaces = workspaces(kernel, problem, grid[0])
    clusters = np.random.default_rng(seed).permutation(grid[0] // kernel.cluster[0])
    emulate(
        text or kernel.ptx,
        grid=grid,
        block=kernel.threads,
        cluster=kernel.cluster,
        args=arguments(kernel, problem, operands, dict(trial.scalars), spaces),
        dynamic_smem=kernel.smem_bytes,
        seed=seed,
        order="random",
        ctas=[int(c) * kernel.cluster[0] + i for c in clusters for i in range(kernel.cluster[0])],
    )
    assert not spaces["counters"].array.any()
    found = compare(trial, operands, "random")
    assert found.passed, str(found)
    return operands["c"].array.tobytes()


@settings(max_examples=12)
@given(
    st.sampled_from(["single", "cooperative", "pingpong"]), st.sampled_from([(1, 1), (2, 1), (1, 2)]),
    st.integers(1, 200), st.integers(1, 60), st.integers(1, 300), st.integers(1, 40),
)  # fmt: skip
def test_any_number_of_ctas_does_every_round_once(
    schedule: str, clusters: tuple[int, int], m: int, n: int, k: int, ctas: int
) -> None:
    """Fewer CTAs than tiles, and more; shares of many tiles, and of less than one; roles that take turns."""
    problem = MatmulHopper.problem(m=m, n=8 * -(-n // 8), k=8 * -(-k // 8))
    tall = {"bm": 128} if schedule == "cooperative" else {}
    kernel = made(problem, schedule=schedule, cluster_m=clusters[0], cluster_n=clusters[1], **tall)
    run(kernel, problem, ctas, seed=ctas)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("ctas", [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 60, 61, 10_000])
def test_shares_of_every_size(ctas: int) -> None:
    """6 tiles of 10 rounds: among 1 to 60 CTAs; more have nothing to do, and are not launched."""
    problem = MatmulHopper.problem(m=120, n=48, k=320)
    kernel = made(problem)
    assert kernel.dealt == ("k", 32)
    assert kernel.grid(problem, ctas)[0] == min(ctas, 60)
    run(kernel, problem, ctas, inputs="random")


def test_ctas_beyond_the_rounds_do_nothing() -> None:
    problem = MatmulHopper.problem(m=64, n=16, k=64)
    kernel = made(problem)
    trial = draw(MatmulHopper, problem, "integers", 0)
    operands, spaces = trial.operands(), workspaces(kernel, problem, 5)
    emulate(
        kernel.ptx, grid=5, block=kernel.threads, dynamic_smem=kernel.smem_bytes,
        args=arguments(kernel, problem, operands, dict(trial.scalars), spaces),
    )  # fmt: skip
    assert compare(trial, operands, "late").passed


@pytest.mark.end_to_end
def test_the_result_does_not_depend_on_who_comes_when() -> None:
    problem = MatmulHopper.problem(m=120, n=48, k=320)
    kernel = made(problem)
    assert len({run(kernel, problem, 13, seed=seed, inputs="random") for seed in range(3)}) == 1


@pytest.mark.end_to_end
@pytest.mark.parametrize("order", ["late", pytest.param("early", marks=pytest.mark.slow)])
def test_a_candidate_is_verified_with_shares_of_more_and_of_less_than_a_tile(order: Order) -> None:
    problem = MatmulHopper.problem(m=120, n=48, k=320, options={"with_bias": True, "activation": "gelu"})
    kernel = made(problem, schedule="pingpong", store="staged")
    found = verify(kernel, MatmulHopper, problem, orders=(order,), thorough=True)
    assert found.passed, str(found)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc", r"partials|counters"),
        ("atom.acq_rel.gpu.global.inc", "atom.acq_rel.cta.global.inc", r"partials|counters"),
    ],
)
def test_the_emulator_finds_a_fix_up_that_is_not_ordered(before: str, after: str, sentence: str) -> None:
    problem = MatmulHopper.problem(m=64, n=16, k=320)
    kernel = made(problem)
    assert before in kernel.ptx
    with pytest.raises(EmulationFault, match=sentence):
        run(kernel, problem, 3, text=kernel.ptx.replace(before, after))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", ["single", "cooperative", "pingpong"])
def test_the_assembler_neither_spills_nor_serialises(schedule: str) -> None:
    problem = MatmulHopper.problem(m=4096, n=4096, k=4096)
    tile = {"bm": 128, "bn": 256 if schedule == "cooperative" else 128, "bk": 64, "stages": 3, "swizzle": 128}
    kernel = made(problem, schedule=schedule, cluster_m=2, raster=8, **tile)
    assembly = assemble(kernel.ptx, kernel.architecture)
    assert assembly.spill_store_bytes == 0
    assert "wgmma" not in " ".join(assembly.warnings)


def test_the_launch_says_what_it_needs() -> None:
    """Two places for what a CTA leaves, whatever the number of CTAs; a count for each tile."""
    problem = MatmulHopper.problem(m=120, n=48, k=320)
    kernel = made(problem)
    tile_bytes = 64 * 16 * 4
    assert kernel.grid(problem) == (6, 1, 1)
    assert kernel.workspace_bytes(problem, 13) == {"partials": 13 * 2 * tile_bytes, "counters": 6 * 4}
    described = kernel.launch_json(problem)
    assert described["dealt"] == {"dim": "k", "step": 32}
    assert described["workspaces"] == [
        {"name": "partials", "bytes": 0, "bytes_per_cta": 2 * tile_bytes, "zeroed": False},
        {"name": "counters", "bytes": 24, "bytes_per_cta": 0, "zeroed": True},
    ]
    assert Kernel.from_json(kernel.to_json()) == kernel
    launch = launch_of(kernel, problem)
    assert launch.ctas == 60
    assert launch.grid(132) == 60
    assert launch.grid(13) == 13
    assert [(w.name, w.bytes, w.cta_bytes) for w in launch.workspaces] == [
        ("partials", 0, 2 * tile_bytes),
        ("counters", 24, 0),
    ]
    assert Launch.from_json(launch.to_json()) == launch


def test_too_many_rounds_are_refused() -> None:
    kernel = made(MatmulHopper.problem(m=64, n=16, k=320))
    long = MatmulHopper.problem(m=64, n=16, k=32 * 2**17 + 8)
    sentence = (
        "matmulhopper deals out the rounds of tiles, 131,072 of each at most, and k = 4,194,312 has 131,073 rounds of "
        "32; use a candidate whose tiles are whole"
    )
    with pytest.raises(LaunchError, match=f"^{re.escape(sentence)}$"):
        kernel.check(long)
    space = build_space(MatmulHopper, long, H100).space
    assert POINT not in space
    assert POINT | {"stream_k": 0} in space
    many = MatmulHopper.problem(m=2**22, n=16, k=320)
    assert kernel.grid(many, 2**20) == (MOST_CLUSTERS, 1, 1)


def test_parts_and_rounds_in_a_row_do_not_go_together() -> None:
    problem = MatmulHopper.problem(m=64, n=16, k=320)
    space = build_space(MatmulHopper, problem, H100)
    both = POINT | {"split_k": 2}
    assert both not in space.space
    sentence = (
        "tiles are shared by rounds in a row, or each by the same number of CTAs, not both: stream_k is 1, and there "
        "are 2 slices"
    )
    with pytest.raises(LoweringError, match=f"^{re.escape(sentence)}$"):
        build(space.program(both), problem, both, SolverCache())


def test_shares_are_even_in_prediction_and_simulation() -> None:
    """133 tiles on 132 SMs take two rounds of tiles; shared evenly, little more than one."""
    problem = MatmulHopper.problem(m=64 * 133, n=256, k=8192)
    space = build_space(MatmulHopper, problem, H100)
    point = POINT | {"bn": 256, "bk": 64, "stages": 4, "swizzle": 128}
    whole, even = (PredictedTime(space)([point | {"stream_k": s}])[0].value for s in (0, 1))
    assert whole is not None
    assert even is not None
    assert 1.6 < whole / even < 2
    whole_s, even_s = (Simulator(space).simulate(point | {"stream_k": s}).seconds for s in (0, 1))
    assert 1.6 < whole_s / even_s < 2
    assert abs(even_s / even - 1) < 0.15


# ---- mistakes -------------------------------------------------------------------------------------------------------


def broken(given: Callable[[Any, Any], None]) -> str:
    """The sentence with which a machine with this program is refused."""
    with pytest.raises(DeclarationError) as error:

        class Broken(Machine):
            """x"""

            m, n = Dim(), Dim()
            x = Input("f32", m, n)
            y = Output("f32", m, n)
            shared = Param(0, 1)
            ld, store, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")
            program = given

            @staticmethod
            def reference(x: Any) -> Any:
                return x

    return str(error.value)


WHO = blocked((4, 8), threads=32, across=8)


def not_persistent(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), stream_k=self.shared), p.role("all", warps=1):
        pass


def stored_by_all(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), persistent=True, stream_k=self.shared) as (i,), p.role("all", warps=1):
        total = p.full(WHO, "f32")
        with p.loop(self.n, step=8, divided=True) as j:
            p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=total)
        p.store(self.store, self.y.tile(i, 0, shape=(4, 8)), total)


def unequal_loops(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), persistent=True, stream_k=self.shared) as (i,), p.role("all", warps=1):
        total = p.full(WHO, "f32")
        for step in (8, 16):
            with p.loop(self.n, step=step, divided=True) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=total)


def undivided(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), persistent=True, stream_k=self.shared) as (i,), p.role("all", warps=1):
        x = p.load(self.ld, self.x.tile(i, 0, shape=(4, 8)), WHO)
        with p.fix_up(self.add, self.store, self.ld, x) as total:
            p.store(self.store, self.y.tile(i, 0, shape=(4, 8)), total)


def used_again(self: Any, p: Any) -> None:
    with p.grid((self.m, 4), persistent=True, stream_k=self.shared) as (i,), p.role("all", warps=1):
        part = p.full(WHO, "f32")
        with p.loop(self.n, step=8, divided=True) as j:
            p.apply(self.add, part, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO), into=part)
        with p.fix_up(self.add, self.store, self.ld, part) as total:
            p.store(self.store, self.y.tile(i, 0, shape=(4, 8)), p.apply(self.add, total, part))


def one_divided(self: Any, p: Any) -> None:
    stage = p.smem("f32", (4, 8))
    with (
        p.grid((self.m, 4), persistent=True, stream_k=self.shared) as (i,),
        p.pipeline("ring", 2, x=stage) as ring,
        p.role("all", warps=1),
    ):
        with p.loop(self.n, step=8, divided=True) as j, ring.produce() as s:
            p.store(isa.StShared(1), s.x, p.load(self.ld, self.x.tile(i, j, shape=(4, 8)), WHO))
        total = p.full(WHO, "f32")
        with p.loop(self.n, step=8), ring.consume() as s:
            p.apply(self.add, total, p.load(isa.LdShared(1), s.x, WHO), into=total)
        with p.fix_up(self.add, self.store, self.ld, total) as whole:
            p.store(self.store, self.y.tile(i, 0, shape=(4, 8)), whole)


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (not_persistent, "stream-K is for CTAs that take tile after tile; open the grid with persistent=True"),
        (
            stored_by_all,
            "store writes y in all CTAs that share a tile; combine what they have, and write that inside "
            "`with p.fix_up(...)`",
        ),
        (
            unequal_loops,
            "one loop of (n + 7) // 8 rounds is divided and one of (n + 15) // 16; stream-K deals out "
            "rounds that all divided loops of a tile have in common",
        ),
        (undivided, "CTAs share tiles, and they divide no loop; write p.loop(..., divided=True)"),
        (used_again, "%v1 is what one CTA had of its tile, and was fixed up; use what p.fix_up yields"),
        (
            one_divided,
            "pipeline 'ring' is produced by all in a loop that is divided, and consumed by all in one that is not",
        ),
    ],
)
def test_mistakes_are_told(program: Callable[[Any, Any], None], sentence: str) -> None:
    assert broken(program) == f"Broken.program: {sentence}"
