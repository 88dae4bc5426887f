"""Clusters that take each other over: right for any tiles and clusters, and every break of their answers is caught."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from taking_over import Alone, Handed, Shared

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.matmul_blackwell import MatmulBlackwell
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.emulator import prepare
from tinygpu.ptx.launching.emulated import emulate_launch
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.launching.launches import launch_of
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.lower import lowered
from tinygpu.ptx.protocol.certificate import certify
from tinygpu.ptx.verification.located import follow, with_probes
from tinygpu.ptx.verification.memory import buffers_of
from tinygpu.ptx.verification.plan import plan
from tinygpu.ptx.verification.sampled import chosen_clusters
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.verify import verify
from tinygpu.schedulers.launch_control import ANSWERS
from tinygpu.solver.buffers import solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.spaces.part import SpaceError

WORDS = {"across": 1, "down": 1, "raster": 1, "control": 1, "stages": 2}


@cache
def _made(machine: type[Machine], sizes: tuple[int, ...], of: tuple[tuple[str, Any], ...]) -> tuple[Any, ...]:
    problem = machine.problem(**dict(zip(machine.dim_names(), sizes, strict=True)))
    space = build_space(machine, problem, device("b200"))
    (point,) = space.space.restrict(dict(of)).sample(1, np.random.default_rng(0))
    program = space.program(point)
    return build(program, problem, point, SolverCache()).kernel, problem, program, point


def made(machine: type[Machine], *sizes: int, **of: Any) -> tuple[Kernel, Any, Any, Any]:
    kernel, problem, program, point = _made(machine, sizes, tuple(sorted(of.items())))
    return kernel, problem, program, point


@pytest.mark.parametrize("sizes", [(1, 4), (8, 32), (37, 140), (100, 200)])
@pytest.mark.parametrize(("down", "across"), [(1, 1), (2, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize(("raster", "stages"), [(1, 1), (2, 3)])
@pytest.mark.sampled(8)
def test_every_tile_is_right_whoever_takes_it(
    sizes: tuple[int, int], down: int, across: int, raster: int, stages: int
) -> None:
    """One tile, one for each, edges; answers early, late, at random, and a no though clusters are left."""
    point = WORDS | {"down": down, "across": across, "raster": raster, "stages": stages}
    kernel, problem, program, found = made(Handed, *sizes, **point)
    assert verify(kernel, Handed, problem, thorough=True).passed
    swizzles = solve_buffers(program, SolverCache()).swizzles
    certificate = certify(lowered(program, problem, found, swizzles).protocol)
    assert certificate.proved, str(certificate)
    assert [ring.ring.name for ring in certificate.rings] == ["ring", "launch control"]


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("down", [1, 2])
@pytest.mark.sampled(4)
def test_a_role_that_hands_nothing_over_takes_tiles_over_too(warps: int, down: int) -> None:
    kernel, problem, program, point = made(Alone, 37, 140, warps=warps, down=down)
    assert verify(kernel, Alone, problem).passed
    assert certify(lowered(program, problem, point).protocol).proved


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.sampled(3)
def test_slices_of_a_tile_are_taken_over_one_by_one(parts: int) -> None:
    kernel, problem, _, _ = made(Shared, 21, 300, parts=parts)
    assert kernel.grid(problem)[0] == 6 * parts
    assert verify(kernel, Shared, problem).passed


def test_clusters_are_launched_for_all_tiles_and_most_of_them_never_begin() -> None:
    kernel, problem, program, _ = made(Handed, 100, 200, **WORDS | {"down": 2})
    launch = launch_of(kernel, problem)
    assert (kernel.goes_on, kernel.persistent, launch.persistent) == (True, False, False)
    assert kernel.grid(problem, 4) == kernel.grid(problem) == (7 * 7 * 2, 1, 1)
    assert launch.grid(4) == launch.ctas == 7 * 7 * 2  # however few are resident
    trial = draw(Handed, problem, "integers", 0)
    operands = trial.operands()
    report = emulate_launch(kernel, kernel.ptx, problem, kernel.grid(problem), buffers_of(operands), trial.scalars)
    assert report.counters.ctas == 4  # of a device on which two clusters are resident
    x = np.random.default_rng(1).standard_normal((100, 200)).astype(np.float32)
    for ctas in (1, 3, 40):
        assert np.array_equal(program.run({"x": x}, ctas=ctas)["y"], x + x)
    again = Kernel.from_json(kernel.to_json())
    assert (again, again.grid(problem), again.scheduler.takes_over) == (kernel, kernel.grid(problem), True)


def test_ctas_of_the_real_problem_are_those_of_the_tiles_at_the_corners() -> None:
    kernel, problem, _, _ = made(Handed, 100, 200, **WORDS)
    last, first = chosen_clusters(kernel, problem)
    assert [(c.tile, list(c.ctas)) for c in (last, first)] == [((12, 6), [90]), ((0, 0), [0])]


def test_slots_of_answers_are_used_again_in_every_run_and_in_both_phases_where_tiles_are_short() -> None:
    """Else nobody misses a wait for a slot of answers, or the fence behind what was read of one."""
    problem = MatmulBlackwell.problem(m=300, n=40, k=104)
    few = replace(device("b200").figure("sm_count"), value=2)
    space = build_space(MatmulBlackwell, problem, device("b200").with_figures({"sm_count": few}))
    asked = {"launch_control": 1, "ctas": "one", "bm": 128, "bn": 32, "bk": 32, "cluster_m": 1, "store": "direct"}
    (point,) = space.space.restrict(asked | {"stages": 2, "tiles": 1}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    runs = plan(kernel, MatmulBlackwell, problem, ("late", "early", "random"), True, True)
    tiles = {run.where.split(" (")[0]: kernel.tiles_of(run.problem) for run in runs}
    assert min(tiles.values()) >= ANSWERS + 1
    assert tiles["1 slot used"] >= 3 * ANSWERS + 1


@pytest.mark.parametrize(("down", "target"), [(1, "sm_100"), (2, "sm_100f")])
def test_it_assembles_where_answers_go_to_one_cta_and_where_to_all(down: int, target: str) -> None:
    kernel, _, _, _ = made(Handed, 100, 200, **WORDS | {"down": down})
    assert kernel.architecture == target
    assembly = assemble(kernel.ptx, kernel.assembled_for("sm_100"))
    assert assembly.spill_store_bytes == 0


def test_a_statement_that_is_wrong_is_named_whoever_took_its_tile() -> None:
    """Threads record in the logs of the CTAs that they take over; two tiles are taken by one cluster after another."""
    kernel, problem, program, _ = made(Handed, 100, 200, **WORDS | {"down": 2})
    trial = draw(Handed, problem, "integers", 0)
    swizzles = solve_buffers(program, SolverCache()).swizzles
    probed = with_probes(program, swizzles, kernel, trial)
    right = follow(probed, Handed, trial)
    assert (right.partings, right.fault) == ([], "")
    assert len(right.found) >= 2 * 13 * 7  # what was loaded and added, of every tile with elements
    text, count = re.subn(r"add\.rn\.f32", "mul.rn.f32", probed.kernel.ptx)
    assert count
    wrong = follow(replace(probed, code=prepare(text)), Handed, trial)
    assert {parting.statement.headline(frozenset()) for parting in wrong.partings} == {"%v3 = add %v2, %v2"}


PROBED = {
    "one CTA after another": (Handed, (37, 140), {}),
    "clusters": (Handed, (37, 140), {"down": 2, "across": 2, "raster": 2, "stages": 3}),
    "one role of four warps": (Alone, (37, 140), {"warps": 4, "down": 2}),
    "slices": (Shared, (21, 300), {"parts": 3}),
}
PRODUCTS = {
    "one CTA": {"m": 600, "ctas": "one", "bm": 128, "store": "direct", "cluster_m": 1},
    "clusters": {"m": 600, "ctas": "one", "bm": 128, "store": "staged", "cluster_m": 2},
    "pairs": {"m": 600, "ctas": "pairs", "bm": 128, "store": "staged", "cluster_m": 2},
    "pairs of 64 rows": {"m": 600, "ctas": "pairs", "bm": 64, "store": "direct", "cluster_m": 2},
    "slices": {"m": 200, "ctas": "one", "bm": 64, "store": "direct", "cluster_m": 1, "split_k": 2},
}


def followed(kernel: Kernel, problem: Any, program: Any, machine: type[Machine]) -> None:
    """The program beside its probed kernel; every tile that it works on was recorded."""
    trial = draw(machine, problem, "integers", 0)
    probed = with_probes(program, solve_buffers(program, SolverCache()).swizzles, kernel, trial)
    steps = follow(probed, machine, trial)
    assert ([str(parting) for parting in steps.partings], steps.fault) == ([], "")
    indices = {spot.number: spot.indices for spot in probed.spots.values()}
    axes = [axis.index for axis in program.grid.axes]
    tiles = {tuple(at[indices[number].index(axis)] for axis in axes) for number, at in steps.found}
    assert len(tiles) == kernel.grid(problem)[0] // kernel.scheduler.launch_rule.slices


@pytest.mark.parametrize(("machine", "sizes", "of"), PROBED.values(), ids=PROBED)
def test_probed_kernels_agree_with_their_programs_whoever_takes_a_tile(
    machine: type[Machine], sizes: tuple[int, int], of: dict[str, int]
) -> None:
    point = (WORDS if machine is Handed else {}) | of
    kernel, problem, program, _ = made(machine, *sizes, **point)
    followed(kernel, problem, program, machine)


@pytest.mark.parametrize("of", PRODUCTS.values(), ids=PRODUCTS)
@pytest.mark.end_to_end
def test_probed_products_agree_with_their_programs_whoever_takes_a_tile(of: dict[str, Any]) -> None:
    machine, rest = MatmulBlackwell, dict(of)
    problem = machine.problem(m=rest.pop("m"), n=64, k=192)
    few = replace(device("b200").figure("sm_count"), value=2)
    space = build_space(machine, problem, device("b200").with_figures({"sm_count": few}))
    asked = {"launch_control": 1, "split_k": 1, "bn": 64, "bk": 64, "stages": 2, "tiles": 2, "cluster_n": 1}
    (point,) = space.space.restrict(asked | rest).sample(1, np.random.default_rng(0))
    program = space.program(point)
    kernel = build(program, problem, point, SolverCache()).kernel
    assert kernel.scheduler.takes_over
    followed(kernel, problem, program, machine)


# ---- what is broken -------------------------------------------------------------------------------------------------

ARRIVE = r"@%p\d+ mbarrier\.arrive\.release\.cluster\.shared::cluster\.b64 _, \[%r\d+\];"
HEAR = r"(ld\.shared\.b128 [\s\S]*?)"
WAIT = r"\$wait\d+:\n *mbarrier\.try_wait\.parity{}\.shared::cta\.b64 [^\n]*\n *@!%p\d+ bra \$wait\d+;\n"
BREAKS = {
    "who asks does not wait for the slot": (
        WAIT.format(r"\.acquire\.cluster") + r"( *elect[^\n]*\n[^\n]*expect_tx)", r"\1",
    ),
    "who hears does not wait for the answer": (WAIT.format("") + r"( *ld\.shared\.b128)", r"\1"),
    "the slot is not given back": (HEAR + ARRIVE, r"\1"),
    "it is given back to the own CTA": (
        r"(mapa\.shared::cluster\.u32 %r\d+, %r\d+), 0;", r"mov.u32 %own, %cluster_ctarank; \1, %own;",
    ),
    "no fence behind the read": (r"(query_cancel\.get[^\n]*\n) *fence\.proxy\.async\.shared::cta;\n", r"\1"),
    "warps do not meet behind the fence": (
        r"(query_cancel\.get[^\n]*\n *fence\.proxy\.async\.shared::cta;\n) *bar\.warp\.sync -1;\n", r"\1",
    ),
    "fewer bytes are expected": (r"(expect_tx\.release\.cluster[^\n]*), 16;", r"\1, 8;"),
    "more bytes are expected": (r"(expect_tx\.release\.cluster[^\n]*), 16;", r"\1, 32;"),
    "nobody expects": (r"@%p\d+ mbarrier\.arrive\.expect_tx\.release\.cluster[^\n]*", ""),
    "the answer comes to one CTA": (r"\.multicast::cluster::all", ""),
    "every CTA asks": (r"@%p\d+ bra \$asked\d+;", ""),
    "a no is not heard": (r"@!%p\d+ bra \$tiles_done\d+;", ""),
    "CTAs leave while others are told": (r"barrier\.cluster\.(arrive|wait);\n", ""),
    "the slot stands still": (r"(try_cancel[^\n]*\n *)add\.u32 (%r\d+), %r\d+, 1;", r"\1"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BREAKS)
@pytest.mark.sampled(5)
def test_what_is_broken_in_the_answers_is_caught(kind: str) -> None:
    """Each break is in the text of a kernel of clusters of two CTAs, which is right without it."""
    kernel, problem, _, _ = made(Handed, 100, 200, **WORDS | {"down": 2})
    assert not verify(broken(kernel, kind), Handed, problem, to_first_failure=True).passed, kind


def broken(kernel: Kernel, kind: str) -> Kernel:
    text, count = re.subn(*BREAKS[kind], kernel.ptx)
    assert count, kind
    return replace(kernel, ptx=text.replace("{\n", "{\n  .reg .b32 %own;\n", 1) if "%own" in text else text)


@cache
def paired() -> tuple[Kernel, Any]:
    """Products of pairs of CTAs, for a GPU of one SM, on which some begin late."""
    problem = MatmulBlackwell.problem(m=500, n=200, k=136)
    one = replace(device("b200").figure("sm_count"), value=1)
    space = build_space(MatmulBlackwell, problem, device("b200").with_figures({"sm_count": one}))
    point = {"launch_control": 1, "ctas": "pairs", "cluster_m": 2, "cluster_n": 1, "stages": 2, "split_k": 1}
    (found,) = space.space.restrict(point | {"bn": 64, "bk": 32, "tiles": 2}).sample(1, np.random.default_rng(0))
    return build(space.program(found), problem, found, SolverCache()).kernel, problem


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", *BREAKS])
def test_what_is_broken_in_the_answers_of_pairs_is_caught(kind: str) -> None:
    kernel, problem = paired()
    made = broken(kernel, kind) if kind else kernel
    found = verify(made, MatmulBlackwell, problem, orders=("late",), random_inputs=False, to_first_failure=True)
    assert found.passed == (not kind), kind


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on", "point", "constraint", "sentence"),
    [
        (
            "h100", {"control": 1}, "launch control target",
            "clusterlaunchcontrol, by which clusters take each other over, exists from sm_100 on",
        ),
        (
            "rtx5090", {"control": 1, "down": 2}, "launch control of clusters",
            "an answer goes to all CTAs of a cluster on sm_100 and sm_103 only",
        ),
    ],
)  # fmt: skip
def test_devices_that_cannot_are_told_in_a_sentence(
    on: str, point: dict[str, int], constraint: str, sentence: str
) -> None:
    space = build_space(Handed, Handed.problem(m=100, n=200), device(on))
    with pytest.raises(SpaceError):
        space.space.restrict(point).sample(1, np.random.default_rng(0))
    assert sentence in str(tg.explain(space, **point))
    assert constraint in str(tg.explain(space, **point))


def test_a_consumer_card_takes_single_ctas_over() -> None:
    space = build_space(Handed, Handed.problem(m=100, n=200), device("rtx5090"))
    assert {(p["down"], p["across"]) for p in space.space.restrict({"control": 1})} == {(1, 1)}
